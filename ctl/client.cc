// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "ctl/client.h"

#include <sys/socket.h>
#include <sys/time.h>

#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "os/unix_socket.h"

namespace smc::ctl {

Result<nlohmann::json> ask(const std::string& socket, const nlohmann::json& request) {
    const auto connected = connect_unix(socket, SOCK_STREAM, kLongestAnswer);
    if (!connected) {
        return connected.error();
    }
    return ask_over(connected->get(), request);
}

Result<nlohmann::json> ask_over(int fd, const nlohmann::json& request, std::chrono::seconds longest) {
    const timeval timeout{longest.count(), 0};
    ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    const std::string line = request.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
    // Ctrl-C ends a command that repeats its requests, and not a request that is under way.
    const auto again = [](const auto& call) {
        ssize_t n = 0;
        do {
            n = call();
        } while (n < 0 && errno == EINTR);
        return n;
    };
    if (again([&] { return ::send(fd, line.data(), line.size(), MSG_NOSIGNAL); }) !=
        static_cast<ssize_t>(line.size())) {
        return last_error("asking the agent");
    }
    std::string answer;
    std::array<char, 65536> chunk;
    ssize_t n = 0;
    while ((n = again([&] { return ::recv(fd, chunk.data(), chunk.size(), 0); })) > 0) {
        answer.append(chunk.data(), static_cast<std::size_t>(n));
    }
    if (n < 0) {
        return last_error("waiting for the agent's answer");
    }
    auto parsed = nlohmann::json::parse(answer, nullptr, false);
    if (parsed.is_discarded()) {
        return Error{EPROTO, "reading the agent's answer"};
    }
    return parsed;
}

}  // namespace smc::ctl
