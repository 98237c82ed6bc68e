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

Room Gateway::room_for(unsigned total) {
    return {{total, p_.session.config.namespace_share, p_.session.config.cgroup_share},
            [this](std::uint64_t inode, bool) {
                if (const auto space = p_.namespaces.by_inode(inode)) {
                    space->set_full(!connections_room_.has_for_netns(inode) || !handshakes_room_.has_for_netns(inode));
                }
            },
            [this](std::uint64_t id, bool) {
                p_.programs.set_full(id, !connections_room_.has_for_cgroup(id) || !handshakes_room_.has_for_cgroup(id));
            }};
}

Gateway::Gateway(const Parts& parts)
    : p_(parts),
      connections_room_(room_for(parts.session.config.max_connections)),
      handshakes_room_(room_for(parts.session.config.max_handshakes)) {}
Gateway::~Gateway() = default;

// --- beginnings -----------------------------------------------------------------------------------------------------

void Gateway::question_answered(const smc_event& event) {
    auto space = p_.namespaces.by_cookie(event.question.netns);
    if (!space || !connections_room_.has_for(space->inode(), event.question.cgroup) ||
        !handshakes_room_.has_for(space->inode(), event.question.cgroup)) {
        p_.connections.count(Path::kFallback, Reason::kLimit);
        return let_go(p_.programs, space.get(), event.tuple, event.question);
    }
    const Handle connection = admit(Role::kClient, space->inode(), event.question.cgroup);
    connection->server = remote_of(event.tuple);
    connection->client = from_abi(event.question.local);
    connection->pid = event.question.pid;
    connection->uid = event.question.uid;
    const auto runner = std::make_shared<ClientRunner>(
        p_.session, p_.programs, connection, ClientRunner::Wanted{event.tuple, event.question, std::move(space)},
        [this](Runner<session::Client>& which, SessionEnd end) {
            session_ended(which, std::move(end));
            clients_.erase(which.connection()->id);
        });
    clients_.emplace(connection->id, runner);
    runner->start();
}

void Gateway::let_all_go() {
    for (const auto& [id, runner] : clients_) {
        runner->let_go();
    }
    clients_.clear();
    servers_.clear();
}

// The one that fills the agent also stops the programs from asking more.
Gateway::Handle Gateway::admit(Role role, std::uint64_t netns, std::uint64_t cgroup) {
    auto connection = p_.connections.add(role);
    connection->netns = netns;
    connection->cgroup = cgroup;
    connections_room_.take(netns, cgroup);
    handshakes_room_.take(netns, cgroup);
    if (!has_room()) {
        p_.room_changed();
    }
    return connection;
}

void Gateway::over(const Handle& connection, Reason reason) {
    if (!p_.connections.find(connection->id)) {
        return;
    }
    p_.connections.end(connection->id, reason);
    connections_room_.give_back(connection->netns, connection->cgroup);
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

// A client's agent names its application's own port. Any other client's port is that of its CLC socket, and taken by
// it here; the application is shown one that nobody uses by himself.
Endpoint Gateway::shown_client(const Endpoint& from, const Endpoint& server, const smc_inbound& inbound,
                               const Namespace& space) const {
    Endpoint shown = from;
    if (inbound.port != 0 && inbound.port != from.port) {
        shown.port = inbound.port;
        return shown;
    }
    constexpr unsigned kPrivileged = 1024, kFirst = 61000, kFirstPrivileged = 512, kTries = 64;
    const unsigned first = from.port < kPrivileged ? kFirstPrivileged : kFirst;
    const unsigned span = from.port < kPrivileged ? kPrivileged - kFirstPrivileged : 65536 - kFirst;
    for (unsigned i = 0; i < kTries; i++) {
        shown.port = static_cast<std::uint16_t>(first + (from.port + i * 7) % span);
        if (shown.port != from.port && !p_.programs.hairpins.get(tuple_of(server, shown, space.slot()))) {
            break;
        }
    }
    return shown;
}

void Gateway::accepted(UniqueFd fd, const Endpoint& from, const Space& space, Namespace::Listener which) {
    const Endpoint server = local_endpoint(fd.get());
    const smc_inbound inbound = p_.programs.take_inbound(tuple_of(server, from, space->slot()));
    // One handshake too many it can bear: its client has its answer already, and the next one has none.
    if (server.port == space->port(which) || !connections_room_.has_for(space->inode(), inbound.cgroup)) {
        TcpSocket(std::move(fd)).reset();  // somebody found the listener itself
        return;
    }
    const Handle connection = admit(Role::kServer, space->inode(), inbound.cgroup);
    connection->client = shown_client(from, server, inbound, *space);
    connection->server = server;
    const auto runner =
        std::make_shared<ServerRunner>(p_.session, p_.programs, connection, space, inbound, std::move(fd),
                                       [this](Runner<session::Server>& ended_one, SessionEnd end) {
                                           session_ended(ended_one, std::move(end));
                                           servers_.erase(ended_one.connection()->id);
                                       });
    servers_.emplace(connection->id, runner);
    runner->start();
}

// --- ends of sessions -----------------------------------------------------------------------------------------------

template <class Runner>
void Gateway::session_ended(Runner& runner, SessionEnd end) {
    const Handle& c = runner.connection();
    const bool was_full = !has_room();
    handshakes_room_.give_back(c->netns, c->cgroup);
    if (was_full && has_room()) {
        p_.room_changed();
    }
    switch (end.kind) {
        case SessionEnd::Kind::kSmc:
            return run_smc(runner, std::move(end));
        case SessionEnd::Kind::kTcp:
            return run_tcp(runner.connection(), std::move(end));
        case SessionEnd::Kind::kPlain:
            return left_alone(runner.connection(), end);
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
                               p_.session.config.close_timeout, runner.buffers().send};
    const auto connection = std::make_shared<SmcConnection>(c->id, c->stats, std::move(parts));
    running_.emplace(c->id, Running{runner.front(), connection, {}});
    p_.engine.add(connection);
}

void Gateway::pass_patience_on() {
    const auto as_bytes = [](const smc_tuple& tuple) {
        return std::string(reinterpret_cast<const char*>(&tuple), sizeof tuple);
    };
    std::unordered_map<std::string, TcpPatience> wanted;
    for (const auto& [front, patience] : p_.programs.patience()) {
        wanted.emplace(as_bytes(front), patience);
    }
    for (auto& [id, running] : running_) {
        const auto it = wanted.empty() ? wanted.end() : wanted.find(as_bytes(running.front));
        const TcpPatience now = it != wanted.end() ? it->second : TcpPatience{};
        const auto connection = running.connection.lock();
        if (connection && now != std::exchange(running.patience, now)) {
            connection->be_patient(now);
            p_.engine.kick(connection);
        }
    }
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

// Nothing of it is left here.
void Gateway::left_alone(const Handle& c, const SessionEnd& end) {
    c->path = Path::kFallback;
    c->reason = end.outcome.reason;
    c->peer_reason = end.outcome.peer_reason;
    c->detail = end.outcome.detail;
    p_.connections.count(Path::kFallback, c->reason);
    note(*c, "is left to tcp");
    over(c, c->reason);
}

void Gateway::refuse(const Handle& c, Reason reason, const std::string& detail) {
    c->path = Path::kRefused;
    c->reason = reason;
    c->detail = detail;
    p_.connections.count(Path::kRefused, reason);
    note(*c, "refused");
    over(c, reason);
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
    running_.erase(end.id);
    over(c, end.reason);
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
