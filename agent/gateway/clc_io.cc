// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/gateway/clc_io.h"

#include <sys/socket.h>

#include <cerrno>

namespace smc {

void ClcIo::read() {
    if (!reading_) {
        reading_ = true;
        watch_.when_readable([this] { readable(); });
    }
}

// Each callback but `began` may destroy this object, so it is copied before the call, and no member is used after the
// call.
void ClcIo::readable() {
    for (;;) {
        const auto free = framer_.free_space();
        const ssize_t n = ::recv(watch_.fd(), free.data(), free.size(), MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && errno == EAGAIN) {
            return watch_.when_readable([this] { readable(); });
        }
        if (n <= 0) {
            reading_ = false;
            const auto closed = callbacks_.closed;
            return closed(n == 0);
        }
        if (const auto whole = framer_.filled(static_cast<std::size_t>(n))) {
            reading_ = false;
            if (const auto* bad = std::get_if<Fault>(&*whole)) {
                const auto fault = callbacks_.fault;
                return fault(*bad);
            }
            const auto message = callbacks_.message;
            return message(std::get<clc::Message>(*whole).view());
        }
        callbacks_.began();
    }
}

bool ClcIo::write(const clc::Message& message) const {
    return ::send(watch_.fd(), message.bytes.data(), message.size, MSG_NOSIGNAL | MSG_DONTWAIT) ==
           static_cast<ssize_t>(message.size);
}

}  // namespace smc
