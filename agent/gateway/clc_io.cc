// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/gateway/clc_io.h"

#include <sys/socket.h>

#include <cerrno>

namespace smc {

asio::awaitable<ClcRead> read_clc(AsyncFd& socket, TimePoint deadline) {
    clc::Message message;
    std::size_t wanted = clc::kHeaderBytes;
    while (message.size < wanted) {
        const ssize_t n = ::recv(socket.fd(), &message.bytes[message.size], wanted - message.size, 0);
        if (n == 0) {
            co_return ClcClosed{};
        }
        if (n < 0) {
            if (errno == EINTR) {
                continue;
            }
            if (errno != EAGAIN) {
                co_return ClcClosed{errno};
            }
            switch (co_await socket.wait(AsyncFd::kRead, deadline)) {
                case Waited::kReady:
                    continue;
                case Waited::kTimeout:
                    co_return ClcTimeout{};
                case Waited::kCancelled:
                    co_return ClcCancelled{};
            }
        }
        message.size += static_cast<std::size_t>(n);
        if (message.size == clc::kHeaderBytes && wanted == clc::kHeaderBytes) {
            const auto header = clc::decode_header(message.view());
            if (const auto* fault = std::get_if<clc::Fault>(&header)) {
                co_return *fault;
            }
            wanted = std::get<clc::Header>(header).length;
        }
    }
    co_return message;
}

bool send_clc(int fd, const clc::Message& message) {
    return ::send(fd, message.bytes.data(), message.size, MSG_NOSIGNAL | MSG_DONTWAIT) ==
           static_cast<ssize_t>(message.size);
}

}  // namespace smc
