// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/ism/dmb_server.h"

#include <sys/socket.h>

#include <cstring>
#include <optional>

#include "datapath/ism/local_dmb.h"
#include "os/random.h"
#include "os/watched_fd.h"

namespace smc::ism {

namespace {

using asio::posix::stream_descriptor;
constexpr auto kOutOfDescriptors = std::chrono::milliseconds(100);

}  // namespace

struct DmbServer::Visitor {
    stream_descriptor socket;
    std::optional<Gid> peer{};            // learnt with its first request
    std::optional<Request> unanswered{};  // the socket was full; nothing more is read before this is answered
};

Result<void> DmbServer::start(UniqueFd listener) {
    std::error_code closed;  // the previous listener, if there was one
    listener_.close(closed);
    retry_.cancel();
    listening_ = std::make_shared<int>();  // a handler that is already queued belongs to the previous listener
    if (auto watched = os::watch(listener_, std::move(listener)); !watched) {
        return watched;
    }
    serve_accepted();  // a connection that the previous listener has accepted, and then the next ones
    return {};
}

Result<smcd::Fabric::Registered> DmbServer::register_dmb(const Gid& peer, std::uint32_t bytes) {
    auto created = create_dmb(bytes);
    if (!created) {
        return created.error();
    }
    DmbToken token{};
    do {
        token = random_number<DmbToken>();
    } while (token == DmbToken{} || dmbs_.contains(token));
    dmbs_.emplace(token, Owned{peer, created->dmb, std::move(created->memory), std::move(created->bell)});
    return smcd::Fabric::Registered{token, created->dmb};
}

void DmbServer::accept_next() {
    listener_.async_wait(
        stream_descriptor::wait_read, [this, still = std::weak_ptr(listening_)](std::error_code error) {
            if (still.expired() || error) {
                return;
            }
            UniqueFd fd(::accept4(listener_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
            if (!fd && errno != EAGAIN && errno != ECONNABORTED) {
                accept_later();
                return;
            }
            if (fd && same_user(fd.get())) {
                accepted_ = std::move(fd);
            }
            serve_accepted();
        });
}

// A peer takes the end of its connection for the end of this agent. So a connection that cannot be watched now is kept.
void DmbServer::serve_accepted() {
    if (accepted_) {
        const auto visitor = std::make_shared<Visitor>(Visitor{stream_descriptor(io_)});
        if (!os::watch(visitor->socket, std::move(accepted_))) {
            accept_later();
            return;
        }
        serve(visitor);
    }
    accept_next();
}

// Called when a connection could not be taken, for lack of descriptors for instance. As the listener stays readable,
// the next call has to wait for a while.
void DmbServer::accept_later() {
    retry_.expires_after(kOutOfDescriptors);
    retry_.async_wait([this, still = std::weak_ptr(listening_)](std::error_code cancelled) {
        if (!still.expired() && !cancelled) {
            serve_accepted();
        }
    });
}

void DmbServer::serve(const std::shared_ptr<Visitor>& visitor) {
    const auto what = visitor->unanswered ? stream_descriptor::wait_write : stream_descriptor::wait_read;
    visitor->socket.async_wait(what, [this, alive = std::weak_ptr(alive_), visitor](std::error_code error) {
        if (alive.expired() || error) {
            return;
        }
        if (answer(*visitor)) {
            serve(visitor);
        } else if (visitor->peer) {
            lost_(*visitor->peer);
        }
    });
}

// The errno value to refuse with; 0: the peer may have the DMB.
int DmbServer::refusal(const Request& request, const Gid& peer) const {
    if (request.chid != static_cast<std::uint16_t>(chid_)) {
        return EPROTO;
    }
    const auto it = dmbs_.find(DmbToken{request.token});
    if (it == dmbs_.end()) {
        return ENOENT;
    }
    return it->second.peer == peer && it->second.memory ? 0 : EACCES;
}

// False: the peer has gone, or has violated the protocol.
bool DmbServer::answer(Visitor& visitor) {
    const int fd = visitor.socket.native_handle();
    Request request;
    if (visitor.unanswered) {
        request = *std::exchange(visitor.unanswered, std::nullopt);
    } else if (!receive_request(fd, request)) {
        return errno == EAGAIN;
    }
    Gid peer;
    std::memcpy(peer.bytes.data(), request.gid, sizeof request.gid);
    if (visitor.peer && *visitor.peer != peer) {
        return false;
    }
    visitor.peer = peer;
    Reply reply;
    reply.number = request.number;
    reply.status = refusal(request, peer);
    Owned* owned = reply.status == 0 ? &dmbs_.at(DmbToken{request.token}) : nullptr;
    if (!send_reply(fd, reply, owned != nullptr ? owned->memory.get() : -1,
                    owned != nullptr ? owned->bell.get() : -1)) {
        if (errno != EAGAIN) {
            return false;
        }
        visitor.unanswered = request;
        return true;
    }
    if (owned != nullptr) {
        owned->memory.reset();
        owned->bell.reset();
    }
    return true;
}

}  // namespace smc::ism
