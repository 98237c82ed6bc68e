// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/gateway/gateway.h"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <asio/co_spawn.hpp>

#include "datapath/ism/dmb_transport.h"
#include "datapath/smc_flow.h"
#include "datapath/splice_flow.h"

namespace smc {

namespace {

// Coroutines throw only when the system has no descriptors or memory left; what they held is released.
void log_failure(const std::exception_ptr& failure) {
    try {
        if (failure) {
            std::rethrow_exception(failure);
        }
    } catch (const std::exception& error) {
        log()->error("a session ended early: {}", error.what());
    }
}

}  // namespace

void reset_socket(UniqueFd fd) {
    Leg(std::move(fd)).reset();
}

void Gateway::syn_held(const smc_event& event) {
    HeldSyn syn(event);
    auto space = p_.namespaces.by_cookie(event.netns);
    if (!syn.valid() || !space) {
        p_.programs.release_flow(event.cookie, {});  // its next SYN passes; nobody listens there any more
        return;
    }
    asio::co_spawn(p_.io, client_session(event, std::move(syn), std::move(space)), log_failure);
}

void Gateway::connect_aborted(std::uint64_t cookie) {
    if (const auto it = tables_->by_cookie.find(cookie); it != tables_->by_cookie.end()) {
        it->second->aborted = true;
        it->second->leg_arrived.set();
        if (it->second->wire != nullptr) {
            it->second->wire->cancel();
        }
    }
}

void Gateway::serve(const std::shared_ptr<Namespace>& space) {
    for (const auto which : space->take_fresh()) {
        asio::co_spawn(p_.io, accept_loop(space, which), log_failure);
    }
}

// The one that fills the agent also stops the programs from steering more; the next beat with room resumes.
Gateway::Handle Gateway::admit(Role role) {
    auto connection = p_.connections.add(role);
    if (!has_room()) {
        p_.programs.beat(false);
    }
    return connection;
}

asio::awaitable<void> Gateway::accept_loop(std::weak_ptr<Namespace> weak, Namespace::Listener which) {
    std::optional<AsyncFd> listener;
    if (const auto space = weak.lock()) {
        listener.emplace(p_.io, UniqueFd(::dup(space->listener(which))));
    }
    // The duplicate keeps the listener open, so look now and then whether the namespace is still served.
    while (listener) {
        const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(1);
        co_await listener->wait(AsyncFd::kRead, until);
        const auto space = weak.lock();
        if (!space) {
            co_return;
        }
        for (;;) {
            // accept() still knows where a connection came from that was reset in the queue; getpeername() does not
            sockaddr_storage address{};
            socklen_t length = sizeof address;
            UniqueFd fd(::accept4(listener->fd(), reinterpret_cast<sockaddr*>(&address), &length,
                                  SOCK_CLOEXEC | SOCK_NONBLOCK));
            if (!fd) {
                if (errno == EINVAL) {
                    co_return;  // shut down: the namespace closed
                }
                if (errno != EAGAIN && errno != ECONNABORTED) {
                    // out of descriptors: the listener stays readable, so do not come back at once
                    Event never(p_.io);
                    co_await never.wait(std::chrono::steady_clock::now() + std::chrono::milliseconds(100));
                }
                break;
            }
            accepted(std::move(fd), Endpoint::from_sockaddr(address), space, which);
        }
    }
}

void Gateway::accepted(UniqueFd fd, const Endpoint& from, const Space& space, Namespace::Listener which) {
    if (which == Namespace::kWire4 || which == Namespace::kWire6) {
        if (local_endpoint(fd.get()).port == space->port(which) || !has_room()) {
            reset_socket(std::move(fd));  // somebody found the listener itself
            return;
        }
        asio::co_spawn(p_.io, server_session(std::move(fd), from, space), log_failure);
        return;
    }
    const auto it = tables_->by_leg.find({space->slot(), from});
    if (it == tables_->by_leg.end()) {
        reset_socket(std::move(fd));
        return;
    }
    it->second->leg = std::move(fd);
    it->second->leg_arrived.set();
}

asio::awaitable<Result<ism::Dmb>> Gateway::attach(const clc::Peer& peer) {
    struct State {
        explicit State(asio::io_context& io) : done(io) {}
        Event done;
        std::optional<Result<ism::Dmb>> result;
    };
    const auto state = std::make_shared<State>(p_.io);
    p_.fabric.attach(peer.gid, peer.token, bytes_of(peer.dmb_size), p_.config.step_timeout,
                     [state](Result<ism::Dmb> result) {
                         state->result.emplace(std::move(result));
                         state->done.set();
                     });
    co_await state->done.wait(TimePoint::max());
    co_return std::move(*state->result);
}

std::optional<clc::RoceOffer> Gateway::roce_offer(int wire) const {
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    if (::getpeername(wire, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
        return std::nullopt;
    }
    return p_.roce_devices.offer_for(local_endpoint(wire), Endpoint::from_sockaddr(address));
}

asio::awaitable<std::optional<ClcRead>> Gateway::hear_or_link(AsyncFd& wire, std::shared_ptr<smcr::LinkGroup> group,
                                                              TimePoint deadline) {
    const auto waiting = std::make_shared<AsyncFd*>(&wire);
    struct Forget {
        AsyncFd*& wire;
        ~Forget() { wire = nullptr; }
    };
    const Forget forget{*waiting};  // also if this ends by an exception
    const auto settled = std::make_shared<Event>(p_.io);
    group->when_settled([waiting, settled] {
        settled->set();
        if (*waiting != nullptr) {
            (*waiting)->interrupt();
        }
    });
    std::optional<ClcRead> heard;
    while (!settled->is_set() && !heard) {
        const Waited waited = co_await wire.wait(AsyncFd::kRead, deadline);
        if (waited == Waited::kTimeout) {
            break;
        }
        if (waited == Waited::kCancelled) {
            if (!settled->is_set()) {
                heard = ClcCancelled{};
            }
            continue;
        }
        char byte = 0;
        if (::recv(wire.fd(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0) {
            // A short connection is closed by its peer before the news of its link has reached this thread.
            co_await settled->wait(deadline);
            break;
        }
        heard = co_await read_clc(wire, deadline);
    }
    co_return heard;
}

void Gateway::let_go(Negotiated& negotiated) {
    if (negotiated.own) {
        p_.fabric.deregister(negotiated.own->token);
        negotiated.own.reset();
    }
    if (auto joined = std::exchange(negotiated.joined, std::nullopt)) {
        const clc::Outcome& outcome = negotiated.outcome;
        if (outcome.kind == clc::Outcome::Kind::kFallBack) {
            joined->seat->withdraw();
        }
        const bool never_up = joined->first_contact && !joined->group->active();
        if (outcome.peer_out_of_sync && !never_up) {
            joined->group->distrust();
        } else if (never_up) {
            p_.roce_groups.abandon(joined->group, llc::DeleteLinkReason::kProtocolViolation);
        }
    }
}

void Gateway::prepare_wire(int fd) const {
    const int on = p_.config.keepalive.count() > 0 ? 1 : 0;
    const int seconds = static_cast<int>(p_.config.keepalive.count());
    ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    if (on != 0) {
        ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof seconds);
    }
}

void Gateway::start_smc(const Handle& c, UniqueFd leg, UniqueFd wire, Negotiated negotiated) {
    if (negotiated.outcome.kind == clc::Outcome::Kind::kSmcR) {
        start_smcr(c, std::move(leg), std::move(wire), std::move(negotiated));
    } else {
        start_smcd(c, std::move(leg), std::move(wire), std::move(negotiated));
    }
}

void Gateway::start_smcr(const Handle& c, UniqueFd leg, UniqueFd wire, Negotiated negotiated) {
    const clc::RocePeer& peer = negotiated.outcome.roce;
    smcr::Seat& seat = *negotiated.joined->seat;
    smcr::LinkGroup& group = *negotiated.joined->group;
    c->path = Path::kSmcR;
    c->eid = peer.eid;
    c->roce = RoceView{peer.version,
                       group.key().server,
                       group.id(),
                       group.own_link_id(),
                       group.device().context->name(),
                       group.device().port.number,
                       group.device().gid.net_device,
                       group.address().gid,
                       group.peer().link.gid,
                       seat.token(),
                       peer.rmbe.token,
                       bytes_of(seat.rmbe().size),
                       bytes_of(peer.rmbe.size)};
    c->seat = negotiated.joined->seat;
    p_.connections.count(Path::kSmcR, Reason::kNone);
    log()->debug("connection {} smcr client {} server {} group {}{}", c->id, c->client.text(), c->server.text(),
                 group.id(), negotiated.joined->first_contact ? ", first contact" : "");
    prepare_wire(wire.get());
    SmcFlow::Parts parts{Leg(std::move(leg)), Leg(std::move(wire)), seat.transport(), p_.config.close_timeout};
    p_.engine.add(std::make_shared<SmcFlow>(c->id, c->stats, std::move(parts)));
}

void Gateway::start_smcd(const Handle& c, UniqueFd leg, UniqueFd wire, Negotiated negotiated) {
    const clc::Peer& peer = negotiated.outcome.peer;
    c->path = Path::kSmcD;
    c->peer_gid = peer.gid;
    c->peer_token = peer.token;
    c->own_token = negotiated.own->token;
    c->dmb_bytes = negotiated.own->dmb->bytes();
    c->peer_dmb_bytes = negotiated.peer->bytes();
    c->eid = peer.eid;
    c->group_id = p_.groups.establish(group_key(peer), peer.host_name);
    p_.groups.connection_began(c->group_id);
    p_.connections.count(Path::kSmcD, Reason::kNone);
    log()->debug("connection {} smcd client {} server {} peer {} group {}{}", c->id, c->client.text(), c->server.text(),
                 peer.gid.text(), c->group_id, peer.first_contact ? ", first contact" : "");
    prepare_wire(wire.get());
    SmcFlow::Parts parts{Leg(std::move(leg)), Leg(std::move(wire)),
                         std::make_unique<ism::DmbTransport>(negotiated.own->dmb, std::move(*negotiated.peer)),
                         p_.config.close_timeout};
    p_.engine.add(std::make_shared<SmcFlow>(c->id, c->stats, std::move(parts)));
}

void Gateway::start_fallback(const Handle& c, UniqueFd leg, UniqueFd wire, const clc::Outcome& outcome) {
    c->path = Path::kFallback;
    c->reason = outcome.reason;
    c->peer_reason = outcome.peer_reason;
    c->detail = outcome.detail;
    p_.connections.count(Path::kFallback, outcome.reason);
    note(*c, "falls back to tcp");
    p_.engine.add(std::make_shared<SpliceFlow>(c->id, c->stats, Leg(std::move(leg)), Leg(std::move(wire))));
}

void Gateway::refuse(const Handle& c, Reason reason, const std::string& detail) {
    c->path = Path::kRefused;
    c->reason = reason;
    c->detail = detail;
    p_.connections.count(Path::kRefused, reason);
    note(*c, "refused");
    p_.connections.end(c->id, reason);
}

void Gateway::note(const Connection& c, const char* what) {
    std::uint64_t held_back = 0;
    if (!limiter_.admit(reason_name(c.reason), held_back)) {
        return;
    }
    log()->info("connection {} {} {}: client {} server {} reason {} ({}){}{}{}", c.id,
                c.role == Role::kClient ? "outbound" : "inbound", what, c.client.text(), c.server.text(),
                reason_name(c.reason), reason_text(c.reason), c.detail.empty() ? "" : ", ", c.detail,
                held_back != 0 ? ", and " + std::to_string(held_back) + " more like it" : "");
}

void Gateway::flow_ended(const FlowEnd& end) {
    const auto c = p_.connections.find(end.id);
    if (!c) {
        return;
    }
    if (c->path == Path::kSmcD) {
        p_.fabric.deregister(c->own_token);
        p_.groups.connection_ended(c->group_id);
    }
    p_.connections.end(end.id, end.reason);
    log()->debug("connection {} ended: {} sent {} received {}", end.id, reason_name(end.reason),
                 c->stats->bytes_sent.load(), c->stats->bytes_received.load());
    // Of a link that broke its group has told already, once for all its connections.
    if (end.reason != Reason::kNone && end.reason != Reason::kApplicationReset && end.reason != Reason::kPeerAborted &&
        end.reason != Reason::kLinkDown) {
        note(*c, "broken");
    }
}

}  // namespace smc
