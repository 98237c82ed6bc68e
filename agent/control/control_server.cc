// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/control/control_server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>

namespace smc {

namespace {

using nlohmann::json;

constexpr std::size_t kLongestRequest = 65536;
constexpr std::size_t kMostConversations = 64, kMostOfOthers = 16;
constexpr int kBacklog = 16;
constexpr int kAtOnce = 8;  // so that a client that keeps connecting does not hold up other work
constexpr auto kOutOfDescriptors = std::chrono::milliseconds(100);

ControlServer::Who who_is(int fd) {
    ucred peer{};
    socklen_t length = sizeof peer;
    if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
        return {};
    }
    return {peer.uid == 0 || peer.uid == ::geteuid(), peer.pid};
}

}  // namespace

// One client, from its first byte to its answer.
class ControlServer::Conversation {
 public:
    Conversation(ControlServer& server, UniqueFd fd, const Who& who)
        : server_(server), who_(who), socket_(server.io_, std::move(fd)), deadline_(server.io_, [this] { end(); }) {
        deadline_.set_in(server.timeout_);
    }
    [[nodiscard]] bool owner() const { return who_.owner; }

    // Reads in a later iteration of the loop, so that the conversation is counted first.
    void begin() {
        socket_.when_readable([this] { read(); });
    }
    // Each function from here on may end the conversation, and with it this object.
    void read() {
        std::array<char, 4096> chunk;
        const ssize_t n = ::recv(socket_.fd(), chunk.data(), chunk.size(), MSG_DONTWAIT);
        if (n > 0) {
            request_.append(chunk.data(), static_cast<std::size_t>(n));
            if (request_.find('\n') != std::string::npos) {
                return answer();
            }
        }
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR) || request_.size() > kLongestRequest) {
            return end();
        }
        socket_.when_readable([this] { read(); });
    }

 private:
    void answer() {
        const json parsed = json::parse(request_, nullptr, false);
        answer_ = (parsed.is_object() ? answer_to(parsed) : json{{"error", "not a JSON object"}})
                      .dump(-1, ' ', false, json::error_handler_t::replace) +
                  "\n";
        write();
    }
    json answer_to(const json& request) {
        try {
            return server_.handler_(request, who_);
        } catch (const std::exception& error) {  // mostly nlohmann::json's: a value has the wrong type
            return {{"error", error.what()}};
        }
    }
    void write() {
        while (sent_ < answer_.size()) {
            const ssize_t n =
                ::send(socket_.fd(), answer_.data() + sent_, answer_.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
            if (n > 0) {
                sent_ += static_cast<std::size_t>(n);
            } else if (errno == EAGAIN || errno == EINTR) {
                return socket_.when_writable([this] { write(); });
            } else {
                break;
            }
        }
        end();
    }
    void end() { server_.conversations_.erase(this); }

    ControlServer& server_;
    Who who_;
    loop::FdWatch socket_;
    loop::Deadline deadline_;
    std::string request_, answer_;
    std::size_t sent_ = 0;  // of the answer
};

ControlServer::ControlServer(asio::io_context& io, std::string path, std::chrono::milliseconds timeout, Handler handler)
    : io_(io), path_(std::move(path)), timeout_(timeout), handler_(std::move(handler)), retry_(io, [this] {
          accept_all();
      }) {}

ControlServer::~ControlServer() {
    give_up_socket();
}

void ControlServer::give_up_socket() {
    name_.reset();
    retry_.set(kNever);  // it would look for the listener
    listener_.reset();
    lock_.reset();  // last: the next holder of the lock removes the socket that it finds
}

void ControlServer::make_directory() const {
    std::error_code failure;
    std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), failure);
}

Result<void> ControlServer::start() {
    make_directory();
    auto lock = LockFile::take(path_ + ".lock");
    if (!lock) {
        return lock.error().code == EBUSY ? Error{EBUSY, lock.error().doing + " (another smc-agent holds it?)"}
                                          : lock.error();
    }
    lock_.emplace(std::move(*lock));
    return listen();
}

Result<void> ControlServer::listen() {
    std::error_code failure;
    if (const auto found = std::filesystem::symlink_status(path_, failure);
        std::filesystem::exists(found) && !std::filesystem::is_socket(found)) {
        return Error{EEXIST, "control.socket " + path_ + " is something else than a socket"};
    }
    ::unlink(path_.c_str());  // this agent's, because it holds the lock
    auto listener = listen_unix(path_, SOCK_STREAM | SOCK_NONBLOCK, 0666, kBacklog);
    if (!listener) {
        return listener.error();
    }
    name_.reset();
    listener_.emplace(io_, std::move(*listener));
    if (!listener_->watch()) {
        return last_error("watching control.socket (fs.epoll.max_user_watches?)");  // restore() tries again
    }
    name_.emplace(path_);
    retry_.set(kNever);
    accept_all();
    return {};
}

Result<bool> ControlServer::restore() {
    if ((!lock_ || lock_->is_there()) && name_ && name_->is_there()) {
        return false;
    }
    make_directory();
    if (lock_) {
        if (const auto locked = lock_->restore(); !locked) {
            return locked;
        }
    }
    if (const auto listening = listen(); !listening) {
        return listening.error();
    }
    return true;
}

Result<void> ControlServer::move_to(const std::string& path) {
    give_up_socket();
    path_ = path;
    return listen();
}

void ControlServer::accept_all() {
    for (int i = 0; i < kAtOnce && conversations_.size() < kMostConversations; i++) {
        UniqueFd fd(::accept4(listener_->fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (fd) {
            admit(std::move(fd));
        } else if (errno == EAGAIN) {
            return listener_->when_readable([this] { accept_all(); });
        } else if (errno != EINTR && errno != ECONNABORTED) {
            return retry_.set_in(kOutOfDescriptors);  // the listener stays readable: wait, or this loop spins
        }
    }
    if (conversations_.size() >= kMostConversations) {
        return retry_.set_in(kOutOfDescriptors);  // until one of them has ended
    }
    listener_->when_readable([this] { accept_all(); });  // after other work of this thread
}

void ControlServer::admit(UniqueFd fd) {
    const Who who = who_is(fd.get());
    const auto others = std::ranges::count_if(conversations_, [](const auto& one) { return !one.second->owner(); });
    if (!who.owner && others >= static_cast<std::ptrdiff_t>(kMostOfOthers)) {
        constexpr std::string_view kLater = "{\"error\": \"too many clients at once, try again\"}\n";
        ::send(fd.get(), kLater.data(), kLater.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        return;
    }
    auto conversation = std::make_unique<Conversation>(*this, std::move(fd), who);
    Conversation& begun = *conversation;
    conversations_.emplace(&begun, std::move(conversation));
    begun.begin();
}

}  // namespace smc
