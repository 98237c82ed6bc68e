// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "stream.h"

#include <sys/epoll.h>

#include <algorithm>

namespace smc::sim {

Socket::Socket(World& world, std::size_t capacity, bool remote)
    : world_(world), capacity_(capacity), remote_(remote), descriptor_(world, [this] { return level(); }) {}

Socket::~Socket() {
    if (!closed_ && !broken_) {
        send([](Socket& peer) { peer.broken_ = true; });
    }
}

Socket::Pair Socket::pair(World& world, std::size_t capacity, bool remote) {
    Pair pair{std::make_shared<Socket>(world, capacity, remote), std::make_shared<Socket>(world, capacity, remote)};
    pair.first->peer_ = pair.second;
    pair.second->peer_ = pair.first;
    return pair;
}

std::uint32_t Socket::level() const {
    std::uint32_t level = 0;
    if (!inbox_.empty() || peer_ended_ || broken_) {
        level |= EPOLLIN;
    }
    if (room() > 0 || broken_) {
        level |= EPOLLOUT;
    }
    if (peer_ended_) {
        level |= EPOLLRDHUP;
    }
    if (broken_) {
        level |= EPOLLHUP | EPOLLERR;
    }
    if (urgent_ > 0) {
        level |= EPOLLPRI;
    }
    return level;
}

void Socket::send(std::function<void(Socket&)> arrives, bool data) {
    last_arrival_ = std::max(last_arrival_, world_.now() + (remote_ ? world_.network() : world_.local()) + extra_);
    world_.at(last_arrival_, [peer = peer_, own = weak_from_this(), arrives = std::move(arrives), data] {
        if (const auto there = peer.lock()) {
            arrives(*there);
            there->descriptor_.changed();
        } else if (const auto here = own.lock(); here && data) {
            here->broken_ = true;  // no socket is there any more: its kernel answers data with a reset
            here->descriptor_.changed();
        }
    });
}

std::size_t Socket::write(const std::vector<Byte>& bytes) {
    const std::size_t n = std::min(bytes.size(), room());
    if (n == 0) {
        return 0;
    }
    used_ += n;
    const auto arrives =
        [part = std::vector<Byte>(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n))](Socket& peer) {
            if (peer.closed_) {
                peer.reset();  // the application has closed it and will not read the bytes
            } else if (!peer.broken_) {
                peer.inbox_.insert(peer.inbox_.end(), part.begin(), part.end());
                peer.urgent_ += static_cast<std::size_t>(std::ranges::count_if(part, &Byte::urgent));
            }
        };
    send(arrives, true);
    return n;
}

std::vector<Byte> Socket::read(std::size_t most) {
    const auto limit = inbox_.begin() + static_cast<std::ptrdiff_t>(std::min(most, inbox_.size()));
    auto end = std::find_if(inbox_.begin(), limit, [](const Byte& byte) { return byte.urgent; });
    if (end == inbox_.begin() && end != limit) {
        ++end;
    }
    std::vector<Byte> out(inbox_.begin(), end);
    inbox_.erase(inbox_.begin(), end);
    urgent_ -= !out.empty() && out.back().urgent ? 1 : 0;
    if (const auto peer = peer_.lock(); peer && !out.empty()) {
        peer->read_by_peer(out.size());
    }
    return out;
}

void Socket::read_by_peer(std::size_t bytes) {
    used_ -= bytes;
    descriptor_.changed();
}

void Socket::end_writing() {
    if (!ended_ && !broken_) {
        ended_ = true;
        send([](Socket& peer) { peer.peer_ended_ = true; });
    }
}

void Socket::close() {
    if (!inbox_.empty()) {
        return reset();
    }
    end_writing();
    closed_ = true;
    descriptor_.unwatch();
}

void Socket::reset() {
    if (broken_) {
        return;
    }
    broken_ = true;
    send([](Socket& peer) { peer.broken_ = true; });
    descriptor_.changed();
}

void Socket::lose() {
    constexpr auto kRetransmissions = std::chrono::seconds(60);
    const auto both = {weak_from_this(), peer_};
    for (const auto& weak : both) {
        if (const auto end = weak.lock()) {
            end->extra_ = 2 * kRetransmissions;
            world_.after(kRetransmissions, [weak] {
                if (const auto socket = weak.lock()) {
                    socket->broken_ = true;
                    socket->descriptor_.changed();
                }
            });
        }
    }
}

// --- ports ----------------------------------------------------------------------------------------------------------

bool SimLeg::start(Poller& poller, Poller::Source& source) {
    return poller.watch(socket_->descriptor().fd(), EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLPRI, source);
}

Leg::Read SimLeg::read(Pieces to) {
    std::size_t most = 0;
    for (const iovec& part : to.part) {
        most += part.iov_len;
    }
    const auto bytes = socket_->read(most);
    if (bytes.empty()) {
        return {socket_->at_end() ? Outcome::kEnd : socket_->broken() ? Outcome::kError : Outcome::kNothing};
    }
    for (std::size_t i = 0; i < bytes.size(); i++) {
        const bool second = i >= to.part[0].iov_len;
        auto* base = static_cast<std::uint8_t*>(to.part[second ? 1 : 0].iov_base);
        base[second ? i - to.part[0].iov_len : i] = bytes[i].value;
    }
    return {Outcome::kBytes, static_cast<std::uint32_t>(bytes.size()), bytes.front().urgent, socket_->readable() == 0};
}

Leg::Written SimLeg::write(Pieces from, bool urgent) {
    if (socket_->broken()) {
        return {Outcome::kError, 0, !socket_->peer_ended()};
    }
    std::vector<Byte> bytes;
    for (const iovec& part : from.part) {
        const auto* base = static_cast<const std::uint8_t*>(part.iov_base);
        for (std::size_t i = 0; i < part.iov_len; i++) {
            bytes.push_back({base[i], false});
        }
    }
    if (urgent) {
        bytes.back().urgent = true;
    }
    const auto n = socket_->write(bytes);
    return n == 0 ? Written{Outcome::kNothing} : Written{Outcome::kBytes, static_cast<std::uint32_t>(n)};
}

bool SimClc::start(Poller& poller, Poller::Source& source) {
    return poller.watch(socket_->descriptor().fd(), EPOLLIN | EPOLLRDHUP, source);
}

ClcSocket::State SimClc::look() const {
    return socket_->readable() > 0 ? State::kData
           : socket_->broken()     ? State::kReset
           : socket_->at_end()     ? State::kEnded
                                   : State::kQuiet;
}

}  // namespace smc::sim
