// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "node.h"

#include <algorithm>

#include "datapath/smc_connection.h"
#include "datapath/smcd/dmb_transport.h"
#include "linux_reader.h"

namespace smc::sim {

namespace {

constexpr auto kCloseTimeout = std::chrono::seconds(10);
// Time after which an application's own TCP gives up in connect().
constexpr auto kConnectTimeout = std::chrono::seconds(60);

std::vector<std::unique_ptr<Port>> make_ports(World& world, const Node::Terms& terms) {
    std::vector<std::unique_ptr<Port>> out;
    for (const RoceGid& gid : terms.ports) {
        out.push_back(std::make_unique<Port>());
        out.back()->device = "sim" + std::to_string(out.size());
        out.back()->gid = gid;
        out.back()->next_number = static_cast<std::uint32_t>(world.between(1, 1000));
    }
    return out;
}

}  // namespace

Node::Node(World& world, SimLink::Network& network, Fabric& fabric, const Terms& terms)
    : world_(world),
      fabric_(fabric),
      ports_(make_ports(world, terms)),
      engine_(
          world,
          [this](const ConnectionEnd& end) { world_.after(world_.local(), [this, end] { connection_ended(end); }); }),
      smcr_groups_(world, terms.name, engine_, network, ports_, terms.smcr, terms.sends_on_any_link),
      reads_like_linux_(terms.reads_like_linux),
      sends_on_any_link_(terms.sends_on_any_link),
      chooses_buffers_(terms.chooses_buffers),
      parts_{world, terms.name, terms.node, terms.means, fabric, smcd_groups_, smcr_groups_, terms.dmb_bytes} {
    for (const auto& port : ports_) {
        network.emplace(port->gid, port.get());
    }
    smcr_groups_.tell_ports();
}

void Node::flap_port(Delay later, Delay down) {
    flap(*ports_[world_.below(ports_.size())], later, down, world_.some_time(std::chrono::seconds(1)));
}

void Node::move_connections(Delay later) {
    if (sends_on_any_link_) {
        world_.after(later, [this] { smcr_groups_.move_connections(); });
    }
}

void Node::flap_first_port(Delay later, Delay down) {
    flap(*ports_.front(), later, down, world_.below(100) * std::chrono::milliseconds(1));
}

// `heard`: how long it takes until the node notices.
void Node::flap(Port& port, Delay later, Delay down, Delay heard) {
    const auto turn = [this, &port, heard](bool goes_down) {
        world_.tell(name() + ": port " + port.device + (goes_down ? " goes down" : " is back"));
        port.down = goes_down;
        world_.after(heard, [this] { smcr_groups_.tell_ports(); });
    };
    world_.after(later, [turn] { turn(true); });
    world_.after(later + down, [turn] { turn(false); });
}

void Node::lose_device(Delay later, Delay gone) {
    Port& port = *ports_[world_.below(ports_.size())];
    world_.after(later, [this, &port] {
        world_.tell(name() + ": " + port.device + " is gone");
        port.down = true;
        smcr_groups_.lose_device(port);
    });
    world_.after(later + gone, [this, &port] {
        port.down = false;
        smcr_groups_.tell_ports();
    });
}

void Node::connect(Application& application, Node& server, Listener& listener) {
    const std::uint64_t id = next_id_++;
    const auto attempt = std::make_shared<ClientAttempt>(
        parts_, id, application,
        [this](Attempt<session::Client>& which, AttemptEnd end) {
            ended(which, std::move(end));
            clients_.erase(which.id());
        },
        server, listener);
    clients_.emplace(id, attempt);
    const auto give_up = [&application] {
        if (!application.was_connected()) {
            application.refused("it gave up");
        }
    };
    if (world_.strikes(Mishap::kClientGivesUp)) {
        world_.after(world_.some_time(std::chrono::seconds(5)), give_up);
    }
    world_.after(kConnectTimeout, give_up);
    attempt->start();
}

void Node::accept(const std::shared_ptr<Socket>& clc, Listener& listener) {
    const std::uint64_t id = next_id_++;
    const auto attempt =
        std::make_shared<ServerAttempt>(parts_, id, listener, [this](Attempt<session::Server>& which, AttemptEnd end) {
            ended(which, std::move(end));
            servers_.erase(which.id());
        });
    servers_.emplace(id, attempt);
    attempt->start(clc);
}

template <class Session>
void Node::ended(Attempt<Session>& attempt, AttemptEnd end) {
    const char* path = end.kind == AttemptEnd::Kind::kRefused          ? "refused"
                       : end.kind == AttemptEnd::Kind::kTcp            ? "tcp"
                       : end.outcome.kind == clc::Outcome::Kind::kSmcD ? "smcd"
                                                                       : "smcr";
    if (!Session::kServer) {
        paths_[path]++;
    }
    world_.tell(parts_.name + " connection " + std::to_string(attempt.id()) +
                (Session::kServer ? " (server) " : " (client) ") + "runs on " + path + ", reason " +
                reason_name(end.outcome.reason) + " " + end.outcome.detail);
    switch (end.kind) {
        case AttemptEnd::Kind::kSmc:
            attempt.runs();
            return run_smc(attempt, std::move(end));
        case AttemptEnd::Kind::kTcp:
            for (const auto& socket : {end.leg, end.clc}) {
                if (socket) {
                    socket->reset();
                }
            }
            return attempt.on_tcp();
        case AttemptEnd::Kind::kRefused:
            if (end.leg) {
                end.leg->reset();
            }
            attempt.refused();
    }
}

template <class Session>
void Node::run_smc(Attempt<Session>& attempt, AttemptEnd end) {
    Running running;
    std::unique_ptr<Transport> transport;
    if (end.outcome.kind == clc::Outcome::Kind::kSmcD) {
        running.smcd = true;
        running.dmb = end.own_dmb->token;
        running.smcd_group =
            smcd_groups_.establish(group::key_of(Session::kServer, end.outcome.smcd), end.outcome.smcd.host_name);
        smcd_groups_.connection_began(running.smcd_group);
        transport = std::make_unique<smcd::DmbTransport>(end.own_dmb->dmb,
                                                         std::make_shared<smcd::Dmb>(std::move(*end.peer_dmb)));
    } else {
        transport = smcr_groups_.run(group::MemberId{attempt.id()}, end.outcome.smcr.rmbe);
        if (!transport) {
            smcr_groups_.leave(group::MemberId{attempt.id()}, {});
            end.leg->reset();
            return end.clc->reset();
        }
        if (reads_like_linux_) {
            transport = std::make_unique<LinuxReader>(std::move(transport));
        }
    }
    running_.emplace(attempt.id(), running);
    SmcConnection::Parts parts{std::make_unique<SimLeg>(end.leg), std::make_unique<SimClc>(end.clc),
                               std::move(transport), kCloseTimeout};
    parts.announces = !Session::kServer && end.outcome.is_on_new_link();
    if (chooses_buffers_) {
        parts.send_buffer = chosen_while_it_runs();
    }
    engine_.add(std::make_shared<SmcConnection>(attempt.id(), std::make_shared<ConnectionStats>(), std::move(parts)));
}

std::shared_ptr<const std::atomic<std::uint32_t>> Node::chosen_while_it_runs() {
    auto bytes = std::make_shared<std::atomic<std::uint32_t>>(0);
    for (std::uint64_t n = world_.between(1, 5); n > 0; n--) {
        const auto chosen = static_cast<std::uint32_t>(world_.chance(20) ? 0 : world_.between(1, 2 * kSmallestBuffer));
        world_.after(world_.some_time(std::chrono::seconds(5)), [bytes, chosen] { *bytes = chosen; });
    }
    return bytes;
}

void Node::connection_ended(const ConnectionEnd& end) {
    const auto it = running_.find(end.id);
    world_.require(it != running_.end(), name() + ": connection " + std::to_string(end.id) + " ends twice");
    world_.tell(name() + " connection " + std::to_string(end.id) + " ended: " + reason_name(end.reason));
    // A connection ends when it is to move to another link, but has sent everything and the peer has given its RMBE to
    // another connection.
    const bool moved = end.reason == Reason::kLinkDown && smcr_groups_.has_moved_any();
    world_.require(end.reason == Reason::kNone || moved || world_.anything_struck(),
                   name() + ": nothing went wrong, and a connection ends with " + reason_name(end.reason));
    if (it->second.smcd) {
        fabric_.deregister(it->second.dmb);
        smcd_groups_.connection_ended(it->second.smcd_group);
    } else {
        smcr_groups_.leave(group::MemberId{end.id}, {});
    }
    running_.erase(it);
}

void Node::check_quiet() const {
    world_.require(clients_.empty() && servers_.empty(), name() + ": a session never ends");
    world_.require(running_.empty(), name() + ": a connection never ends");
    world_.require(
        std::ranges::all_of(smcd_groups_.all(), [](const auto& entry) { return entry.second.connections == 0; }),
        name() + ": a link group of SMC-D counts connections that have ended");
}

}  // namespace smc::sim
