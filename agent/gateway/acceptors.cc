// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/gateway/acceptors.h"

#include <sys/socket.h>

#include <cerrno>
#include <system_error>

#include "agent/log/log.h"
#include "agent/loop/deadline.h"
#include "agent/loop/fd_watch.h"

namespace smc {

namespace {
constexpr auto kPauseAfterError = std::chrono::milliseconds(100);
}

// One listener, while its namespace is served.
class Acceptors::Acceptor {
 public:
    Acceptor(Acceptors& owner, UniqueFd fd, std::weak_ptr<Namespace> of, Namespace::Listener which)
        : owner_(owner),
          watch_(owner.io_, std::move(fd)),
          pause_(owner.io_, [this] { accept_all(); }),
          netns_(std::move(of)),
          which_(which) {}

    bool watch() { return watch_.watch(); }

    // May destroy this object.
    void accept_all() {
        for (;;) {
            const auto netns = netns_.lock();
            // accept4() returns the peer's address even if the connection was reset in the queue; getpeername() does
            // not
            sockaddr_storage address{};
            socklen_t length = sizeof address;
            UniqueFd fd(
                ::accept4(watch_.fd(), reinterpret_cast<sockaddr*>(&address), &length, SOCK_CLOEXEC | SOCK_NONBLOCK));
            if (!netns || (!fd && errno == EINVAL)) {
                owner_.all_.erase(this);  // the listener was shut down: its namespace has closed
                return;
            }
            if (fd) {
                owner_.on_accepted_(std::move(fd), Endpoint::from_sockaddr(address), netns, which_);
            } else if (errno == EAGAIN) {
                return watch_.when_readable([this] { accept_all(); });
            } else if (errno != ECONNABORTED && errno != EINTR) {
                if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
                    owner_.on_exhausted_();
                }
                return pause_.set_in(kPauseAfterError);  // the listener stays readable: wait, or this loop spins
            }
        }
    }

 private:
    Acceptors& owner_;
    loop::FdWatch watch_;
    loop::Deadline pause_;
    std::weak_ptr<Namespace> netns_;
    Namespace::Listener which_;
};

Acceptors::Acceptors(asio::io_context& io, OnAccepted on_accepted, std::function<void()> on_exhausted)
    : io_(io), on_accepted_(std::move(on_accepted)), on_exhausted_(std::move(on_exhausted)) {}
Acceptors::~Acceptors() = default;

void Acceptors::serve(const std::shared_ptr<Namespace>& netns) {
    for (const auto which : netns->take_fresh()) {
        auto acceptor = std::make_unique<Acceptor>(*this, duplicate(netns->listener(which)), netns, which);
        if (!acceptor->watch()) {
            log()->warn("netns {}: connections are not accepted there yet, the agent tries again: {}", netns->inode(),
                        std::generic_category().message(errno));
            netns->still_fresh(which);
            continue;
        }
        Acceptor& started = *acceptor;
        all_.emplace(&started, std::move(acceptor));
        started.accept_all();
    }
}

}  // namespace smc
