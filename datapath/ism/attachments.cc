// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/ism/attachments.h"

#include <asio/posix/stream_descriptor.hpp>
#include <asio/steady_timer.hpp>
#include <cstring>
#include <deque>
#include <set>

#include "datapath/ism/local_dmb.h"
#include "datapath/ism/rendezvous.h"
#include "os/watched_fd.h"

namespace smc::ism {

struct Attachments::Peer {
    struct Pending {
        std::uint32_t bytes = 0;
        OnAttached on_attached;
        std::unique_ptr<asio::steady_timer> timer;
    };
    Gid gid;
    asio::posix::stream_descriptor socket;
    std::map<std::uint64_t, Pending> pending;
    std::set<std::uint64_t> unanswered;  // requests without a reply so far, also those that have timed out
    std::deque<Request> waiting;         // not sent yet: the socket may be full when many connections come at once
    bool flushing = false;               // a wait until the socket is writable is under way
    std::uint64_t next_number = 1;

    Peer(asio::io_context& io, const Gid& peer) : gid(peer), socket(io) {}

    void settle(std::uint64_t number, Result<smcd::Dmb> result) {
        const auto it = pending.find(number);
        if (it == pending.end()) {
            return;  // timed out already
        }
        auto callback = std::move(it->second.on_attached);
        pending.erase(it);
        callback(std::move(result));
    }

    // False: the connection has ended.
    bool take_reply() {
        Reply reply;
        UniqueFd memory, doorbell;
        if (!receive_reply(socket.native_handle(), reply, memory, doorbell)) {
            return errno == EAGAIN;
        }
        if (unanswered.erase(reply.number) == 0) {
            errno = EPROTO;
            return false;  // there was no such request
        }
        const auto it = pending.find(reply.number);
        if (it == pending.end()) {
            return true;  // the request has timed out
        }
        if (reply.status != 0) {
            settle(reply.number, Error{reply.status, "attaching a DMB: refused by its owner"});
        } else {
            settle(reply.number, attach_dmb(memory, std::move(doorbell), it->second.bytes));
        }
        return true;
    }
};

// Queued handlers have only weak pointers to their peers.
Attachments::~Attachments() = default;

Result<void> Attachments::reach(const Gid& gid) {
    if (peers_.contains(gid)) {
        return {};
    }
    const std::string path = socket_path(directory_, gid);
    auto fd = connect_to(path);
    if (!fd) {
        return fd.error();
    }
    if (!same_user(fd->get())) {
        return Error{EPERM, "trusting the owner of " + path};
    }
    const auto peer = std::make_shared<Peer>(io_, gid);
    if (auto watched = os::watch(peer->socket, std::move(*fd)); !watched) {
        return watched;
    }
    peers_.emplace(gid, peer);
    listen(peer);
    return {};
}

void Attachments::attach(const Gid& gid, DmbToken token, std::uint32_t bytes, std::chrono::milliseconds timeout,
                         OnAttached on_attached) {
    if (const auto reached = reach(gid); !reached) {
        on_attached(reached.error());
        return;
    }
    const auto peer = peers_.at(gid);
    Request request;
    request.chid = static_cast<std::uint16_t>(chid_);
    request.number = peer->next_number++;
    request.token = static_cast<std::uint64_t>(token);
    std::memcpy(request.gid, own_.bytes.data(), sizeof request.gid);
    if (!peer->waiting.empty() || !send_request(peer->socket.native_handle(), request)) {
        if (peer->waiting.empty() && errno != EAGAIN) {
            on_attached(last_error("sending the attach request to the owner of a DMB"));
            return;
        }
        peer->waiting.push_back(request);
        send_when_writable(peer);
    }
    auto timer = std::make_unique<asio::steady_timer>(io_, timeout);
    timer->async_wait([weak = std::weak_ptr(peer), number = request.number](std::error_code error) {
        const auto strong = weak.lock();
        if (!error && strong) {
            strong->settle(number, Error{ETIMEDOUT, "waiting for the reply of a DMB's owner"});
        }
    });
    peer->unanswered.insert(request.number);
    peer->pending.emplace(request.number, Peer::Pending{bytes, std::move(on_attached), std::move(timer)});
}

void Attachments::send_when_writable(const std::shared_ptr<Peer>& peer) {
    if (peer->flushing) {
        return;
    }
    peer->flushing = true;
    peer->socket.async_wait(asio::posix::stream_descriptor::wait_write,
                            [this, weak = std::weak_ptr(peer)](std::error_code error) {
                                const auto strong = weak.lock();
                                if (strong && !error) {
                                    strong->flushing = false;
                                    send_waiting(strong);
                                }
                            });
}

void Attachments::send_waiting(const std::shared_ptr<Peer>& peer) {
    while (!peer->waiting.empty()) {
        const Request& next = peer->waiting.front();
        // Requests that have timed out meanwhile are not sent.
        if (peer->pending.contains(next.number) && !send_request(peer->socket.native_handle(), next)) {
            if (errno == EAGAIN) {
                send_when_writable(peer);
            }
            return;  // after another error, listen() notices the end of the connection
        }
        if (!peer->pending.contains(next.number)) {
            peer->unanswered.erase(next.number);
        }
        peer->waiting.pop_front();
    }
}

void Attachments::listen(const std::shared_ptr<Peer>& peer) {
    peer->socket.async_wait(
        asio::posix::stream_descriptor::wait_read, [this, weak = std::weak_ptr(peer)](std::error_code error) {
            const auto strong = weak.lock();
            if (!strong || error) {
                return;
            }
            if (strong->take_reply()) {
                listen(strong);
            } else if (const auto it = peers_.find(strong->gid); it != peers_.end() && it->second == strong) {
                const Gid gid = strong->gid;  // no newer connection to this peer has taken its place
                drop(gid);
                lost_(gid);
            }
        });
}

void Attachments::drop(const Gid& gid) {
    const auto it = peers_.find(gid);
    if (it == peers_.end()) {
        return;
    }
    const auto peer = it->second;
    peers_.erase(it);
    while (!peer->pending.empty()) {
        peer->settle(peer->pending.begin()->first,
                     Error{ECONNRESET, "attaching a DMB: its owner closed the connection"});
    }
}

}  // namespace smc::ism
