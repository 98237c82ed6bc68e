// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/gateway/gateway.h"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <asio/post.hpp>

#include "agent/steer/addresses.h"
#include "datapath/smc_connection.h"
#include "datapath/socket_leg.h"
#include "datapath/spliced_connection.h"

namespace smc {

// A listener of a namespace while it is served.
struct Gateway::Acceptor {
    Acceptor(Gateway& to, UniqueFd fd, std::weak_ptr<Namespace> of, Namespace::Listener listener)
        : gateway(to),
          watch(to.p_.session.io, std::move(fd)),
          pause(to.p_.session.io, [this] { accept_all(); }),
          space(std::move(of)),
          which(listener) {}

    void accept_all() {
        for (;;) {
            const auto alive = space.lock();
            // accept() still knows where a connection came from that was reset in the queue; getpeername() does not
            sockaddr_storage address{};
            socklen_t length = sizeof address;
            UniqueFd fd(
                ::accept4(watch.fd(), reinterpret_cast<sockaddr*>(&address), &length, SOCK_CLOEXEC | SOCK_NONBLOCK));
            if (!alive || (!fd && errno == EINVAL)) {
                gateway.acceptors_.erase(this);  // shut down: the namespace closed
                return;
            }
            if (fd) {
                gateway.accepted(std::move(fd), Endpoint::from_sockaddr(address), alive, which);
            } else if (errno == EAGAIN) {
                return watch.when_readable([this] { accept_all(); });
            } else if (errno != ECONNABORTED && errno != EINTR) {
                // out of descriptors: the listener stays readable, so do not come back at once
                return pause.set_in(std::chrono::milliseconds(100));
            }
        }
    }

    Gateway& gateway;
    loop::FdWatch watch;
    loop::Deadline pause;
    std::weak_ptr<Namespace> space;
    Namespace::Listener which;
};

Gateway::Gateway(const Parts& parts) : p_(parts) {}
Gateway::~Gateway() = default;

// --- beginnings -----------------------------------------------------------------------------------------------------

void Gateway::syn_held(const smc_event& event) {
    HeldSyn syn(event);
    auto space = p_.namespaces.by_cookie(event.netns);
    if (!syn.valid() || !space) {
        p_.programs.release_flow(event.cookie, {});  // its next SYN passes; nobody listens there any more
        return;
    }
    const Handle connection = admit(Role::kClient);
    connection->server = from_abi(event.remote);
    connection->client = syn.source();
    connection->netns = space->inode();
    connection->pid = event.pid;
    connection->uid = event.uid;
    const auto runner = std::make_shared<ClientRunner>(
        p_.session, p_.programs, connection, ClientRunner::Wanted{event, std::move(syn), std::move(space)},
        [this](Runner<session::Client>& ended, SessionEnd end) {
            client_ended(static_cast<ClientRunner&>(ended), std::move(end));
        });
    clients_.emplace(connection->id, runner);
    by_cookie_[runner->cookie()] = runner.get();
    by_leg_[{runner->slot(), runner->source()}] = runner.get();
    runner->start();
}

void Gateway::connect_aborted(std::uint64_t cookie) {
    if (const auto it = by_cookie_.find(cookie); it != by_cookie_.end()) {
        it->second->application_gone();
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

void Gateway::serve(const std::shared_ptr<Namespace>& space) {
    for (const auto which : space->take_fresh()) {
        UniqueFd fd(::dup(space->listener(which)));
        if (!fd) {
            log()->warn("netns {}: a listener is not served: {}", space->inode(),
                        std::generic_category().message(errno));
            continue;
        }
        auto acceptor = std::make_unique<Acceptor>(*this, std::move(fd), space, which);
        Acceptor& started = *acceptor;
        acceptors_.emplace(&started, std::move(acceptor));
        started.accept_all();
    }
}

void Gateway::accepted(UniqueFd fd, const Endpoint& from, const Space& space, Namespace::Listener which) {
    if (which == Namespace::kLeg4 || which == Namespace::kLeg6) {
        const auto it = by_leg_.find({space->slot(), from});
        if (it == by_leg_.end()) {
            TcpSocket(std::move(fd)).reset();
        } else {
            it->second->leg_arrived(std::move(fd));
        }
        return;
    }
    const Endpoint server = local_endpoint(fd.get());
    if (server.port == space->port(which) || !has_room()) {
        TcpSocket(std::move(fd)).reset();  // somebody found the listener itself
        return;
    }
    const Handle connection = admit(Role::kServer);
    connection->client = from;
    connection->server = server;
    connection->netns = space->inode();
    const auto runner = std::make_shared<ServerRunner>(
        p_.session, connection, space, std::move(fd), [this](Runner<session::Server>& ended, SessionEnd end) {
            server_ended(static_cast<ServerRunner&>(ended), std::move(end));
        });
    servers_.emplace(connection->id, runner);
    runner->start();
}

// --- ends of sessions -----------------------------------------------------------------------------------------------

void Gateway::client_ended(ClientRunner& runner, SessionEnd end) {
    // An entry may already be a later connection's.
    if (const auto it = by_cookie_.find(runner.cookie()); it != by_cookie_.end() && it->second == &runner) {
        by_cookie_.erase(it);
    }
    if (const auto it = by_leg_.find({runner.slot(), runner.source()}); it != by_leg_.end() && it->second == &runner) {
        by_leg_.erase(it);
    }
    ended(runner, std::move(end));
    clients_.erase(runner.connection()->id);
}

void Gateway::server_ended(ServerRunner& runner, SessionEnd end) {
    ended(runner, std::move(end));
    servers_.erase(runner.connection()->id);
}

template <class Runner>
void Gateway::ended(Runner& runner, SessionEnd end) {
    switch (end.kind) {
        case SessionEnd::Kind::kSmc:
            return run_smc(runner, std::move(end));
        case SessionEnd::Kind::kTcp:
            return run_tcp(runner.connection(), std::move(end));
        case SessionEnd::Kind::kRefused:
            return refuse(runner.connection(), end.outcome.reason, end.outcome.detail);
    }
}

template <class Runner>
void Gateway::run_smc(Runner& runner, SessionEnd end) {
    const Handle& c = runner.connection();
    auto transport = runner.transport(end.outcome);
    if (!transport) {
        p_.session.smcr_groups.leave(group::MemberId{c->id}, {});
        TcpSocket(std::move(end.leg)).reset();
        TcpSocket(std::move(end.clc)).reset();
        return refuse(c, Reason::kLinkDown, "the link group has ended");
    }
    if (end.outcome.kind == clc::Outcome::Kind::kSmcD) {
        run_smcd(*c, end.outcome.smcd, runner.smcd());
    } else {
        run_smcr(*c, end.outcome.smcr);
    }
    p_.connections.count(c->path, Reason::kNone);
    keep_alive(end.clc.get());
    SmcConnection::Parts parts{std::make_unique<SocketLeg>(TcpSocket(std::move(end.leg))),
                               std::make_unique<SocketClc>(TcpSocket(std::move(end.clc))), std::move(transport),
                               p_.session.config.close_timeout};
    p_.engine.add(std::make_shared<SmcConnection>(c->id, c->stats, std::move(parts)));
}

void Gateway::run_smcd(Connection& c, const clc::SmcdPeer& peer, std::shared_ptr<smcd::Exchange> exchange) {
    group::SmcdGroups& groups = p_.session.smcd_groups;
    c.path = Path::kSmcD;
    c.eid = peer.eid;
    const std::uint32_t group = groups.establish(group::key_of(c.role == Role::kServer, peer), peer.host_name);
    groups.connection_began(group);
    c.smcd =
        SmcdView{peer.gid, exchange->own_token(), peer.token, exchange->own_bytes(), bytes_of(peer.dmb_size), group};
    exchanges_.emplace(c.id, std::move(exchange));
    log()->debug("connection {} smcd client {} server {} peer {} group {}{}", c.id, c.client.text(), c.server.text(),
                 peer.gid.text(), group, peer.first_contact ? ", first contact" : "");
}

void Gateway::run_smcr(Connection& c, const clc::SmcrPeer& peer) const {
    const group::SmcrGroup& group = *p_.session.smcr_groups.groups().group_of(group::MemberId{c.id});
    // G1: it has one since before CLC named it.
    const group::Seat& seat = *p_.session.smcr_groups.groups().seat_of(group::MemberId{c.id});
    const smcr::Devices::Usable* device = p_.session.smcr_groups.device_of(group.id());
    c.path = Path::kSmcR;
    c.eid = peer.eid;
    c.smcr = SmcrView{peer.version,
                      group.key().server,
                      static_cast<std::uint32_t>(group.id()),
                      group.own_link_id(),
                      group.port().device,
                      group.port().number,
                      device->gid.net_device,
                      group.own().gid,
                      group.peer().link.gid,
                      seat.token,
                      peer.rmbe.token,
                      bytes_of(group.rmbe(seat).size),
                      bytes_of(peer.rmbe.size)};
    log()->debug("connection {} smcr client {} server {} group {}{}", c.id, c.client.text(), c.server.text(),
                 c.smcr->group_id, peer.first_contact ? ", first contact" : "");
}

void Gateway::run_tcp(const Handle& c, SessionEnd end) {
    c->path = Path::kFallback;
    c->reason = end.outcome.reason;
    c->peer_reason = end.outcome.peer_reason;
    c->detail = end.outcome.detail;
    p_.connections.count(Path::kFallback, c->reason);
    note(*c, "falls back to tcp");
    p_.engine.add(std::make_shared<SplicedConnection>(c->id, c->stats, TcpSocket(std::move(end.leg)),
                                                      TcpSocket(std::move(end.clc))));
}

void Gateway::refuse(const Handle& c, Reason reason, const std::string& detail) {
    c->path = Path::kRefused;
    c->reason = reason;
    c->detail = detail;
    p_.connections.count(Path::kRefused, reason);
    note(*c, "refused");
    p_.connections.end(c->id, reason);
}

void Gateway::keep_alive(int fd) const {
    const auto idle = p_.session.config.keepalive;
    const int on = idle.count() > 0 ? 1 : 0;
    const int seconds = static_cast<int>(idle.count());
    ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    if (on != 0) {
        ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof seconds);
    }
}

// --- ends of connections --------------------------------------------------------------------------------------------

void Gateway::connection_ended(const ConnectionEnd& end) {
    const auto c = p_.connections.find(end.id);
    if (!c) {
        return;
    }
    if (c->path == Path::kSmcD) {
        exchanges_.erase(end.id);
        p_.session.smcd_groups.connection_ended(c->smcd->group_id);
    } else if (c->path == Path::kSmcR) {
        p_.session.smcr_groups.leave(group::MemberId{end.id}, {});
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

}  // namespace smc
