// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/gateway/gateway.h"

#include "agent/steer/addresses.h"
#include "datapath/smc_connection.h"
#include "datapath/socket_leg.h"
#include "datapath/spliced_connection.h"
#include "os/clock.h"

namespace smc {

// Passes a change from the control thread to a running connection, and makes its engine run the connection soon.
template <class What>
void Gateway::tell(std::uint64_t id, What what) {
    const auto it = running_.find(id);
    if (const auto task = it != running_.end() ? it->second.task.lock() : nullptr) {
        what(*task);
        it->second.engine->kick(task);
    }
}

Quotas Gateway::quotas_for(unsigned total) {
    return {
        {total, p_.session.config.namespace_share, p_.session.config.cgroup_share},
        [this](std::uint64_t inode) {
            if (const auto netns = p_.namespaces.by_inode(inode)) {
                netns->set_full(!connection_quotas_.has_for_netns(inode) || !handshake_quotas_.has_for_netns(inode));
            }
        },
        [this](std::uint64_t id) {
            p_.programs.set_full(id, !connection_quotas_.has_for_cgroup(id) || !handshake_quotas_.has_for_cgroup(id));
        }};
}

Gateway::Gateway(const Parts& parts)
    : p_(parts),
      connection_quotas_(quotas_for(parts.session.config.max_connections)),
      handshake_quotas_(quotas_for(parts.session.config.max_handshakes)),
      acceptors_(
          parts.session.io,
          [this](UniqueFd fd, const Endpoint& from, const Netns& netns, Namespace::Listener which) {
              accepted(std::move(fd), from, netns, which);
          },
          [this] { exhausted(); }),
      keepalives_([&programs = parts.programs](const smc_tuple& app) { return programs.keepalive_of(app); },
                  [this](std::uint64_t id, const KeepaliveTerms& terms) {
                      tell(id, [&](ConnectionTask& task) { task.keepalive.set(terms); });
                  }),
      half_open_(parts.namespaces),
      placement_(parts.engines.count()),
      times_(parts.engines.count()) {}
Gateway::~Gateway() = default;

std::string Gateway::obstacle() const {
    if (os::now() < exhausted_until_) {
        return "it is out of file descriptors or memory";
    }
    if (!connection_quotas_.has_any()) {
        return "it has as many connections as it may have (limits.connections)";
    }
    return handshake_quotas_.has_any() ? "" : "it has as many handshakes as it may have (limits.handshakes)";
}

// Descriptors or memory have run out. For a second no server is asked, and no further client is answered. Clients that
// were answered already wait in the listener's queue.
void Gateway::exhausted() {
    exhausted_until_ = os::now() + std::chrono::seconds(1);
    p_.obstacle_changed();
}

// --- beginnings -----------------------------------------------------------------------------------------------------

void Gateway::let_go(const smc_event& event, Reason reason) {
    p_.connections.count(Path::kFallback, reason);
    const auto netns = p_.namespaces.by_cookie(event.request.netns);
    smc::let_go(p_.programs, netns.get(), event.tuple, event.request);
}

void Gateway::syn_was_reset(const smc_event& event) {
    const auto netns = p_.namespaces.by_cookie(event.request.netns);
    smc::let_go(p_.programs, netns.get(), event.tuple, event.request);
}

void Gateway::server_speaks_smc(const smc_event& event) {
    auto netns = p_.namespaces.by_cookie(event.request.netns);
    if (!netns || !connection_quotas_.has_for(netns->inode(), event.request.cgroup) ||
        !handshake_quotas_.has_for(netns->inode(), event.request.cgroup)) {
        return let_go(event, Reason::kLimit);
    }
    if (!port_share_.has_ports_for(*netns)) {
        p_.connections.count(Path::kFallback, Reason::kLocalPorts);
        return smc::let_go(p_.programs, netns.get(), event.tuple, event.request);
    }
    const bool smcd = event.request.smcd != 0 && !p_.session.node.ism.empty();
    const auto local =
        local_of(*netns, from_abi(event.request.local), remote_of(event.tuple), event.request.mark, event.request.uid);
    if (!smcd && !p_.session.roce_devices.serves(local)) {
        p_.connections.count(Path::kFallback, Reason::kNoDevice);  // says nothing about the server: nothing is learnt
        return smc::let_go(p_.programs, netns.get(), event.tuple, event.request);
    }
    const Handle connection = admit(Role::kClient, netns->inode(), event.request.cgroup);
    port_share_.take(netns->inode());
    connection->server = remote_of(event.tuple);
    connection->client = from_abi(event.request.local);
    connection->pid = event.request.pid;
    connection->uid = event.request.uid;
    const auto runner = std::make_shared<ClientRunner>(
        p_.session, p_.programs, connection, ClientRunner::Wanted{event.tuple, event.request, std::move(netns)},
        [this](Runner<session::Client>& which, SessionEnd end) {
            session_ended(which, std::move(end));
            clients_.erase(which.connection()->id);
        });
    clients_.emplace(connection->id, runner);
    runner->start();
}

// A session that leaves a link group may let sessions that wait for the group go on at once. So all runners are
// abandoned before the first one is ended.
void Gateway::let_all_go() {
    const auto clients = std::exchange(clients_, {});
    const auto servers = std::exchange(servers_, {});
    for (const auto& [id, runner] : clients) {
        runner->abandon();
    }
    for (const auto& [id, runner] : servers) {
        runner->abandon();
    }
    for (const auto& [id, runner] : clients) {
        runner->let_go();
        end_connection(runner->connection(), Reason::kStopped);
    }
    for (const auto& [id, runner] : servers) {
        end_connection(runner->connection(), Reason::kStopped);
    }
}

// If a connection uses up the last of a quota, the BPF programs are told to ask no more servers.
Gateway::Handle Gateway::admit(Role role, std::uint64_t netns, std::uint64_t cgroup) {
    auto connection = p_.connections.add(role);
    connection->netns = netns;
    connection->cgroup = cgroup;
    connection_quotas_.take(netns, cgroup);
    handshake_quotas_.take(netns, cgroup);
    if (!takes_more()) {
        p_.obstacle_changed();
    }
    return connection;
}

void Gateway::accepted(UniqueFd fd, const Endpoint& from, const Netns& netns, Namespace::Listener which) {
    const Endpoint server = local_endpoint(fd.get());
    const smc_inbound inbound = p_.programs.take_inbound(tuple_of(server, from, netns->slot()));
    if (server.port == netns->port(which)) {
        return;  // a client connected to the CLC listener's own port: closing resets it (L1)
    }
    // This client was answered with option 254 already; the next one is not, once admit() finds a quota used up. A
    // client with an agent goes on with TCP after a reset. Any other one would fail, so a few are taken all the same.
    constexpr std::size_t kBeyond = 64;
    if (!connection_quotas_.has_for(netns->inode(), inbound.cgroup, inbound.peer_agent != 0 ? 0 : kBeyond)) {
        p_.connections.count(inbound.peer_agent != 0 ? Path::kFallback : Path::kRefused, Reason::kLimit);
        return;  // closing resets it (L1)
    }
    const Handle connection = admit(Role::kServer, netns->inode(), inbound.cgroup);
    const auto taken = [&](const Endpoint& shown) {
        const bool by_session = std::ranges::any_of(servers_, [&](const auto& entry) {
            const Connection& other = *entry.second->connection();
            return other.client == shown && other.server == server && other.netns == netns->inode();
        });
        // A client without an agent may have any port, on a connection of its own or behind a masquerade.
        return by_session || netns->has_connection(server, shown);
    };
    connection->client = shown_client(p_.programs, from, server, inbound, netns->slot(), taken);
    connection->server = server;
    const auto runner =
        std::make_shared<ServerRunner>(p_.session, p_.programs, connection, netns, inbound, std::move(fd), from,
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
    const Handle c = runner.connection();
    give_back(handshake_quotas_, *c);
    switch (end.kind) {
        case SessionEnd::Kind::kSmc:
            run_smc(runner, std::move(end));
            break;
        case SessionEnd::Kind::kTcp:
            run_tcp(runner, std::move(end));
            break;
        case SessionEnd::Kind::kPlain:
            left_alone(c, end);
            break;
        case SessionEnd::Kind::kRefused:
            refuse(c, end.outcome.reason, end.outcome.detail);
            break;
    }
    p_.connections.took(c->path, os::now() - c->began);
}

template <class Runner>
void Gateway::run_smc(Runner& runner, SessionEnd end) {
    const Handle& c = runner.connection();
    auto transport = runner.transport(end.outcome);
    if (!transport) {
        p_.session.smcr_groups.leave(group::MemberId{c->id}, {});
        return refuse(c, Reason::kLinkDown, "the link group has ended");
    }
    if (end.outcome.kind == clc::Outcome::Kind::kSmcD) {
        run_smcd(*c, end.outcome.smcd, runner.smcd());
    } else {
        run_smcr(*c, end.outcome.smcr);
    }
    p_.connections.count(c->path, Reason::kNone);
    SmcConnection::Parts parts{std::make_unique<SocketLeg>(TcpSocket(std::move(end.leg)), runner.urgent()),
                               std::make_unique<SocketClc>(TcpSocket(std::move(end.clc)), p_.session.config.keepalive),
                               std::move(transport),
                               p_.session.config.close_timeout,
                               p_.session.config.times.reset_grace,
                               p_.session.config.times.idle,
                               runner.send_buffer(),
                               runner.peer_has_agent(),
                               runner.announces(end.outcome)};
    Engine& engine = c->smcr ? p_.session.smcr_groups.engine_of(group::GroupId{c->smcr->group_id}) : place(*c);
    run(runner, engine, std::make_shared<SmcConnection>(c->id, c->stats, std::move(parts)));
}

void Gateway::run_smcd(Connection& c, const clc::SmcdPeer& peer, std::shared_ptr<smcd::Exchange> exchange) {
    group::SmcdGroups& groups = p_.session.smcd_groups;
    c.path = Path::kSmcD;
    c.eid = peer.eid;
    const std::uint32_t group = groups.establish(group::key_of(c.role == Role::kServer, peer), peer.host_name);
    groups.connection_began(group);
    c.smcd = SmcdView{
        peer.chid, peer.gid, exchange->own_token(), peer.token, exchange->own_bytes(), bytes_of(peer.dmb_size), group};
    exchanges_.emplace(c.id, std::move(exchange));
    log()->debug("connection {} smcd client {} server {} peer {} group {}{}", c.id, c.client, c.server, peer.gid, group,
                 peer.first_contact ? ", first contact" : "");
}

void Gateway::run_smcr(Connection& c, const clc::SmcrPeer& peer) const {
    const group::SmcrGroup& group = *p_.session.smcr_groups.groups().group_of(group::MemberId{c.id});
    // G1: the assignment has existed since before the CLC message that named its RMBE.
    const group::Assignment& assignment = *p_.session.smcr_groups.groups().assignment_of(group::MemberId{c.id});
    const std::uint8_t number = p_.session.smcr_groups.groups().peer_link_of(group::MemberId{c.id});
    const group::GroupLink none;
    const group::GroupLink* link = group.links().find(number);
    if (link == nullptr) {  // the link has just broken: the connection begins on another one, if any is left
        link = group.links().all().empty() ? &none : &group.links().all().begin()->second;
    }
    const auto* live = p_.session.smcr_groups.find(group.id(), number);
    c.path = Path::kSmcR;
    c.eid = peer.eid;
    c.smcr = SmcrView{peer.version,
                      group.key().server,
                      static_cast<std::uint32_t>(group.id()),
                      link->own_id,
                      link->port.device,
                      link->port.number,
                      live != nullptr ? live->device.gid.net_device : "",
                      link->own.gid,
                      link->peer.gid,
                      assignment.token,
                      peer.rmbe.token,
                      group.rmbe_bytes(assignment),
                      bytes_of(peer.rmbe.size)};
    log()->debug("connection {} smcr client {} server {} group {}{}", c.id, c.client, c.server, c.smcr->group_id,
                 peer.first_contact ? ", first contact" : "");
}

void Gateway::falls_back(const Handle& c, const clc::Outcome& outcome, const char* what) {
    c->path = Path::kFallback;
    c->reason = outcome.reason;
    c->peer_reason = outcome.peer_reason;
    c->detail = outcome.detail;
    p_.connections.count(Path::kFallback, c->reason);
    note(*c, what);
}

template <class Runner>
void Gateway::run_tcp(Runner& runner, SessionEnd end) {
    const Handle& c = runner.connection();
    falls_back(c, end.outcome, "falls back to TCP through the agent");
    run(runner, place(*c),
        std::make_shared<SplicedConnection>(c->id, c->stats, TcpSocket(std::move(end.leg)),
                                            TcpSocket(std::move(end.clc)), p_.session.config.close_timeout,
                                            end.is_silent));
}

Engine& Gateway::place(const Connection& c) {
    const Endpoint& remote = c.role == Role::kClient ? c.server : c.client;
    return p_.engines.at(placement_.add(c.id, {c.netns, remote.ip}, p_.engines.tasks()));
}

template <class Runner>
void Gateway::run(Runner& runner, Engine& engine, std::shared_ptr<ConnectionTask> connection) {
    running_[runner.connection()->id] = {&engine, connection, runner.send_buffer()};
    engine.add(std::move(connection));
    // The programs see the socket of an application only behind a leg, which the session has made.
    keepalives_.add(runner.connection()->id, runner.app(), runner.connection()->began <= swept_);
}

// Records a connection that goes on as plain TCP, without the agent.
void Gateway::left_alone(const Handle& c, const SessionEnd& end) {
    falls_back(c, end.outcome, "goes on as plain TCP, without the agent");
    end_connection(c, c->reason);
}

void Gateway::refuse(const Handle& c, Reason reason, const std::string& detail) {
    c->path = Path::kRefused;
    c->reason = reason;
    c->detail = detail;
    p_.connections.count(Path::kRefused, reason);
    note(*c, "refused");
    end_connection(c, reason);
}

void Gateway::peer_gone(const smcd::Peer& peer) {
    for (const auto& [id, c] : p_.connections.all()) {
        if (c->smcd && c->smcd->chid == peer.fabric->chid() && c->smcd->peer_gid == peer.gid) {
            tell(id, [](ConnectionTask& task) { task.peer_is_gone = true; });
        }
    }
}

}  // namespace smc
