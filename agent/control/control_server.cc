// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/control/control_server.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <array>
#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "agent/log.h"
#include "agent/loop/async_fd.h"

namespace smc {

namespace {

using nlohmann::json;

constexpr std::size_t kLongestRequest = 65536;
constexpr auto kPatience = std::chrono::seconds(5);

asio::awaitable<void> converse(asio::io_context& io, UniqueFd fd, const ControlServer::Handler& handler) {
    AsyncFd socket(io, std::move(fd));
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    std::string request;
    std::array<char, 4096> chunk;
    while (request.find('\n') == std::string::npos) {
        const ssize_t n = ::recv(socket.fd(), chunk.data(), chunk.size(), 0);
        if (n > 0) {
            request.append(chunk.data(), static_cast<std::size_t>(n));
        } else if (n == 0 || errno != EAGAIN || request.size() > kLongestRequest ||
                   co_await socket.wait(AsyncFd::kRead, deadline) != Waited::kReady) {
            co_return;
        }
    }
    const json parsed = json::parse(request, nullptr, false);
    const json answer = parsed.is_object() ? handler(parsed) : json{{"error", "not a JSON object"}};
    std::string text = answer.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
    while (!text.empty()) {
        const ssize_t n = ::send(socket.fd(), text.data(), text.size(), MSG_NOSIGNAL);
        if (n > 0) {
            text.erase(0, static_cast<std::size_t>(n));
        } else if (errno != EAGAIN || co_await socket.wait(AsyncFd::kWrite, deadline) != Waited::kReady) {
            co_return;
        }
    }
}

}  // namespace

ControlServer::ControlServer(asio::io_context& io, std::string path, Handler handler)
    : io_(io), path_(std::move(path)), handler_(std::move(handler)), listener_(io), lock_(io) {}

ControlServer::~ControlServer() {
    if (listener_.is_open()) {
        ::unlink(path_.c_str());
    }
    if (lock_.is_open()) {
        ::unlink((path_ + ".lock").c_str());
    }
}

Result<void> ControlServer::start() {
    std::error_code failure;
    std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), failure);
    UniqueFd lock(::open((path_ + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!lock) {
        return last_error("creating " + path_ + ".lock");
    }
    if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
        return Error{errno == EWOULDBLOCK ? EBUSY : errno, "taking " + path_ + ".lock (another smc-agent holds it?)"};
    }
    lock_.assign(lock.release());

    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path_.size() >= sizeof address.sun_path) {
        return Error{ENAMETOOLONG, "using " + path_ + " as a socket"};
    }
    std::memcpy(address.sun_path, path_.c_str(), path_.size() + 1);
    ::unlink(path_.c_str());  // ours by the lock
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd || ::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
        ::chmod(path_.c_str(), 0600) != 0 || ::listen(fd.get(), 16) != 0) {
        return last_error("listening on " + path_);
    }
    listener_.assign(fd.release());
    accept_next();
    return {};
}

void ControlServer::accept_next() {
    listener_.async_wait(asio::posix::stream_descriptor::wait_read, [this](std::error_code error) {
        if (error) {
            return;
        }
        UniqueFd fd(::accept4(listener_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (fd) {
            asio::co_spawn(io_, converse(io_, std::move(fd), handler_), asio::detached);
        }
        accept_next();
    });
}

}  // namespace smc
