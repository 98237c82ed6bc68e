// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/upgrade/predecessor.h"

#include <sys/socket.h>
#include <sys/time.h>

#include <nlohmann/json.hpp>

#include "os/unix_socket.h"

namespace smc::upgrade {

namespace {

constexpr std::size_t kLongestAnswer = 4096;

// Reads the answer up to end of file; empty: no whole answer came in time.
std::string answer_of(int fd) {
    std::string answer;
    char chunk[512];
    while (answer.size() < kLongestAnswer) {
        const ssize_t n = ::recv(fd, chunk, sizeof chunk, 0);
        if (n <= 0) {
            return n == 0 ? answer : "";
        }
        answer.append(chunk, static_cast<std::size_t>(n));
    }
    return "";
}

}  // namespace

Result<bool> ask_to_leave(const std::string& control_socket, const std::string& pin_path,
                          std::chrono::milliseconds timeout) {
    const auto socket = connect_unix(control_socket, SOCK_STREAM);
    if (!socket) {
        const int why = socket.error().code;
        return why == ENOENT || why == ECONNREFUSED ? Result<bool>(false) : socket.error();
    }
    const timeval limit{timeout.count() / 1000, (timeout.count() % 1000) * 1000};
    ::setsockopt(socket->get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    const std::string request = nlohmann::json{{"command", "leave"}, {"pin_path", pin_path}}.dump() + "\n";
    if (::send(socket->get(), request.data(), request.size(), MSG_NOSIGNAL) != ssize_t(request.size())) {
        return last_error("asking the agent at " + control_socket + " to leave");
    }
    const auto answer = nlohmann::json::parse(answer_of(socket->get()), nullptr, false);
    if (answer.is_object() && answer.value("leaving", false)) {
        return true;
    }
    const std::string said = answer.is_object() ? answer.value("error", "") : "";
    const std::string why = !answer.is_object() ? "it did not answer within times.answer_ms"
                            : said.empty()      ? "it gave no reason; it may be too old for this"
                                                : "it said: " + said;
    return Error{EBUSY, "asking the agent at " + control_socket + " to leave (" + why + ")"};
}

}  // namespace smc::upgrade
