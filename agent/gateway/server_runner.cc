// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/gateway/server_runner.h"

#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "agent/gateway/saved_packet.h"
#include "agent/log/log.h"
#include "agent/steer/addresses.h"
#include "os/clock.h"

namespace smc {

// A client's agent sends the port of the client's application. Without one, `from` has the port of the client's CLC
// socket, which the accepted socket uses here; the application is then shown a port that clients do not choose
// themselves.
Endpoint shown_client(const bpf::Programs& programs, const Endpoint& from, const Endpoint& server,
                      const smc_inbound& inbound, std::uint32_t slot,
                      const std::function<bool(const Endpoint& shown)>& taken) {
    Endpoint shown = from;
    if (inbound.port != 0 && inbound.port != from.port) {
        shown.port = inbound.port;
        return shown;
    }
    constexpr unsigned kPrivileged = 1024, kFirst = 61000, kFirstPrivileged = 512, kTries = 64;
    const unsigned first = from.port < kPrivileged ? kFirstPrivileged : kFirst;
    const unsigned span = from.port < kPrivileged ? kPrivileged - kFirstPrivileged : 65536 - kFirst;
    // Agents that are leaving have hairpins that this agent cannot see, so each instance has its own share of the
    // ports. Another instance's share is used only when the own one is used up.
    constexpr unsigned kShares = bpf::OwnInstance::kMost;
    const auto is_free = [&](unsigned port) {
        shown.port = static_cast<std::uint16_t>(first + port);
        return shown.port != from.port && !programs.hairpins.get(tuple_of(server, shown, slot)) && !taken(shown);
    };
    for (unsigned i = 0; i < kTries; i++) {
        if (is_free((from.port + i * 7) % (span / kShares) * kShares + programs.instance().number)) {
            return shown;
        }
    }
    for (unsigned i = 0; i < kTries && !is_free((from.port + i * 7) % span); i++) {
    }
    return shown;
}

// Why CLC is not to be expected on this connection; kNone: it is. A SYN of an agent with port 0 is an application's
// request: if its client had received option 254 in the SYN-ACK, that client's agent would have reset the connection.
Reason without_option(const smc_inbound& inbound) {
    return inbound.since_ns != 0 && inbound.callback_ran == 0 ? Reason::kOptionTaken
           : inbound.peer_agent != 0 && inbound.port == 0     ? Reason::kAnswerLost
                                                              : Reason::kNone;
}

ServerRunner::ServerRunner(const SessionParts& parts, const bpf::Programs& programs, Connections::Handle connection,
                           std::shared_ptr<Namespace> netns, const smc_inbound& inbound, UniqueFd clc,
                           const Endpoint& from, OnEnd on_end)
    : Runner(
          parts, connection,
          session::Server(parts.node, parts.smcd_groups,
                          means_for(parts, from, local_of(*netns, connection->server, from), inbound.smcd != 0,
                                    inbound.peer_agent != 0),
                          {inbound.peer_agent != 0, inbound.peer_announces != 0, without_option(inbound)}, os::now()),
          inbound.buffers, std::move(on_end)),
      programs_(programs),
      netns_(std::move(netns)),
      inbound_(inbound),
      timeout_(parts.io, [this] { timed_out(); }) {
    local_ = local_of(*netns_, connection_->server, from);
    use_clc_socket(std::move(clc));
}

// The leg goes from the server's own address to the client; the hairpin makes it look like the client connecting to the
// server. It takes the client's port if that is free: when the client reuses the port, the leg's time stamps then
// continue from those of the last connection. But the port is what the peer says, so it is taken only from the range
// that is there for any socket: a peer must not occupy the ports of this host's services.
void ServerRunner::on(const session::ConnectApplication&) {
    const std::uint16_t port = connection_->client.port;
    connect_leg(kPortsTried, netns_->local_ports().has(port) ? port : 0);
}

void ServerRunner::connect_leg(int ports, std::uint16_t port) {
    ports_left_ = ports;
    smc_sock mark{};
    mark.role = SMC_ROLE_LEG_SERVER;
    mark.hold = 1;
    mark.app = app();
    mark.paws = ports == 1 ? SMC_PAWS_PASS : SMC_PAWS_REFUSE;
    follow_send_buffer(programs_, mark);
    const LegBuffers buffers = leg_buffers(inbound_.buffers, 0);
    mark.receive_buffer = buffers.receive;
    mark.send_buffer = buffers.send;
    Endpoint from = connection_->server;
    from.port = port;
    auto fd = connect_with(programs_, *netns_, mark,
                           {.from = from,
                            .to = connection_->client,
                            .owner = {},
                            .ttl = inbound_.ttl,
                            .tos = inbound_.tos,
                            .foreign = false});
    if (!fd) {
        return not_begun(fd.error().code);
    }
    leg_.emplace(parts_.io, std::move(*fd));
    if (const int error = take_connect_error(leg_->fd()); error != EINPROGRESS) {
        return connected(error);
    }
    leg_->when_writable([this] { connected(take_connect_error(leg_->fd())); });
    // The leg's handshake stays on this host. If it takes longer than this, the listener's queue is full, or something
    // drops the leg's packets, such as a firewall. A client with an agent then goes on with a SYN of its own; any other
    // one would be reset, so TCP may retransmit the leg's SYN.
    timeout_.set_in(peer_has_agent() ? parts_.config.leg_timeout() : parts_.config.step_timeout * 3 / 4);
}

void ServerRunner::connected(int error) {
    using LegSyn = bpf::Programs::LegSyn;
    timeout_.set(kNever);
    const LegSyn syn = programs_.leg_syn(leg_->fd());
    if (error == ECONNREFUSED && ports_left_ > 1 && syn == LegSyn::kTooOld) {
        return connect_leg(ports_left_ - 1, 0);
    }
    if (syn == LegSyn::kNotJoined) {
        return leg_lost();
    }
    if (error == ETIMEDOUT && !peer_has_agent()) {
        pause_listener();  // the client is reset, and so would be the next one
    }
    if (error != 0) {
        return refused(error);
    }
    if (reconnect_) {
        return run(take_leg());
    }
    feed(session_.application_connected(os::now()));
}

// Checks again, because the leg may have connected while this thread was late.
void ServerRunner::timed_out() {
    if (is_connecting(leg_->fd())) {
        connected(ETIMEDOUT);
    }
}

// connect() has failed at once. A shortage passes. (If no local port is left, only clients without an agent suffer.)
// Anything else would happen to the next leg, too: there is no route, or a rule or program of this host forbids it.
void ServerRunner::not_begun(int error) {
    const bool shortage = error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS ||
                          (error == EADDRNOTAVAIL && peer_has_agent());
    if (!shortage) {
        pause_listener();
    }
    refused(error);
}

void ServerRunner::leg_lost() {
    pause_listener();
    refused("this host drops, redirects or translates packets of the leg to the application");
}

// A firewall of this host lets only answers out, or a proxy, an address translation or another routing table takes
// connections that begin here, or the listener's backlog is full. The next leg would fail, too, and a client without an
// agent cannot go on as TCP then. So this listener's clients are not answered with option 254 for some time, whatever
// their address.
void ServerRunner::pause_listener() {
    constexpr int kMostPauses = 32;
    programs_.pause(netns_->cookie(), Endpoint{{}, connection_->server.port}, Reason::kNoLeg, parts_.config.cache_time,
                    parts_.config.cache_time * kMostPauses);
}

void ServerRunner::refused(std::string why) {
    if (reconnect_) {
        reset_leg();
        return run(std::move(reconnect_->leg));  // the data path passes on that it was reset
    }
    feed(session_.application_refused(std::move(why), os::now()));
}

smc_tuple ServerRunner::app() const {
    return tuple_of(connection_->server, connection_->client, netns_->slot());
}

// Sends the packet that completes the leg's handshake, so that the application can accept it. Returns the leg.
UniqueFd ServerRunner::take_leg() {
    if (const auto held = programs_.release_leg(leg_->fd())) {
        const auto packet = saved_packet(*held);
        if (auto sent = netns_->send_packet(packet, !connection_->server.is_v4(), held->ifindex); !sent) {
            log()->debug("connection {}: {}", connection_->id, sent.error().text());  // the SYN-ACK is sent again
        }
    }
    return leg_->release();
}

// While the leg was held, its half-open connection waited at a listener. If that listener was closed meanwhile, the
// kernel resets the leg now. Another listener of the port may have been there all the time, as in a rolling restart
// with SO_REUSEPORT, so the leg is connected once more.
void ServerRunner::on(const session::Run& action) {
    UniqueFd leg = take_leg();
    const auto hairpin = programs_.hairpins.get(app());
    if ((!hairpin || hairpin->sender.cookie == 0) && was_reset(leg.get())) {
        return reconnect_leg(action.outcome, std::move(leg));
    }
    if (!hairpin) {
        disconnect(leg.get());  // nobody hears it, see disconnect_if_unheard()
    }
    end({SessionEnd::Kind::kSmc, action.outcome, std::move(leg), clc_->release()});
}

// If a SYN of the client's tuple has ended the leg's half-open connection, although the client is connected, somebody
// has forged that SYN. The leg has no hairpin then, and nobody hears it; so that the client learns of it, the
// data path has to see a leg that is not connected.
void ServerRunner::disconnect_if_unheard(int leg) const {
    if (!programs_.hairpins.get(app())) {
        disconnect(leg);
    }
}

void ServerRunner::reconnect_leg(const clc::Outcome& outcome, UniqueFd leg) {
    reconnect_ = Reconnect{outcome, std::move(leg)};
    connect_leg(kPortsTried, 0);
}

void ServerRunner::run(UniqueFd leg) {
    end({SessionEnd::Kind::kSmc, reconnect_->outcome, std::move(leg), clc_->release()});
}

void ServerRunner::on(const session::RunOnTcp& action) {
    UniqueFd leg = take_leg();
    disconnect_if_unheard(leg.get());
    if (action.outcome.reason == Reason::kAnswerLost) {
        const Endpoint client{connection_->client.ip, 0};
        programs_.remember(netns_->cookie(), client, SMC_SERVER_NOT_NOW, Reason::kAnswerLost, parts_.config.cache_time,
                           0);
    }
    // Bytes that turned out to be no CLC message belong to the application. The send buffer of a new leg holds them.
    const auto begun = clc_->begun();
    const auto size = static_cast<ssize_t>(begun.size());
    if (size != 0 && ::send(leg.get(), begun.data(), begun.size(), MSG_NOSIGNAL | MSG_DONTWAIT) != size) {
        leg.reset();  // closing resets it (L1)
        clc_->release().reset();
        return end(
            {SessionEnd::Kind::kRefused,
             {.reason = Reason::kServerRefused, .detail = "the leg did not accept the first bytes of the client"}});
    }
    const bool is_silent =
        action.outcome.reason == Reason::kAnswerLost && size == 0 && without_option(inbound_) == Reason::kNone;
    end({SessionEnd::Kind::kTcp, action.outcome, std::move(leg), clc_->release(), is_silent});
}

// Resets a leg that the application has not accepted yet.
void ServerRunner::reset_leg() {
    if (leg_) {
        // The leg is still held, so its RST reaches only its own half-open connection, or none.
        programs_.reset_leg(leg_->release());
    }
}

void ServerRunner::on(const session::LeaveToTcp& action) {
    reset_leg();
    clc_->release().reset();  // closing resets it (L1)
    end({SessionEnd::Kind::kPlain, action.outcome});
}

void ServerRunner::on(const session::Refuse& action) {
    reset_leg();
    end({SessionEnd::Kind::kRefused, {.reason = action.reason, .detail = action.detail}});
}

}  // namespace smc
