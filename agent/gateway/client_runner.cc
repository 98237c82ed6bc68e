// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/gateway/client_runner.h"

#include <netinet/tcp.h>

#include <cerrno>
#include <system_error>

#include "agent/gateway/saved_packet.h"
#include "agent/log/log.h"
#include "agent/steer/addresses.h"
#include "os/clock.h"

namespace smc {

namespace {

constexpr std::chrono::seconds kPause{5};

session::PeerOption option_of(smc_option_seen seen) {
    return seen == SMC_OPTION_AGENT           ? session::PeerOption::kAgent
           : seen == SMC_OPTION_PRESENT       ? session::PeerOption::kPresent
           : seen == SMC_OPTION_ECHOED        ? session::PeerOption::kEchoed
           : seen == SMC_OPTION_CALLBACK_LOST ? session::PeerOption::kTaken
                                              : session::PeerOption::kAbsent;
}

// Whether a SYN-ACK has come.
bool is_of_synack(smc_option_seen seen) {
    return seen == SMC_OPTION_AGENT || seen == SMC_OPTION_PRESENT || seen == SMC_OPTION_ABSENT ||
           seen == SMC_OPTION_ECHOED;
}

// A SYN-ACK with option 254 comes from the server's agent or kernel, whose TTL starts at 64. The server's application
// may start at 255, which clients check by IP_MINTTL. Returns the TTL that would be left of 255 after as many hops.
std::uint8_t nearest_ttl(std::uint8_t seen) {
    constexpr std::uint8_t kUsual = 64, kMost = 255;
    return seen == 0 || seen > kUsual ? seen : static_cast<std::uint8_t>(seen + (kMost - kUsual));
}

}  // namespace

void let_go(const bpf::Programs& programs, const Namespace* netns, const smc_tuple& tuple, const smc_request& request) {
    if (!programs.let_go(tuple, request.cookie)) {
        return;  // the SYN is not kept any more: it was retransmitted, or the application has gone
    }
    const auto syn = saved_packet(request);
    if (syn.empty() || netns == nullptr) {
        return;  // TCP's next retransmission leaves by itself
    }
    if (const auto sent = netns->send_packet(syn, !remote_of(tuple).is_v4(), request.ifindex); !sent) {
        log()->debug("the held SYN could not be sent: {}; TCP will retransmit it", sent.error().text());
    }
}

// For the CLC socket and the leg. The source is the application's own address, before any translation: the host
// translates their SYNs as it did the application's.
SocketOptions ClientRunner::socket_options() const {
    const smc_request& q = wanted_.request;
    Endpoint from = from_abi(q.local);
    from.port = 0;
    return {.from = from,
            .to = remote_of(wanted_.tuple),
            .owner = {q.uid, q.gid},
            .mark = q.mark,
            .device = q.bound_device,
            .ttl = q.ttl,
            .tos = q.tos};
}

void ClientRunner::on(const session::Connect&) {
    smc_sock mark{};
    mark.role = SMC_ROLE_AGENT_CLC;
    const smc_request& q = wanted_.request;
    mark.port = q.seen_port != 0 ? q.seen_port : wanted_.tuple.local_port;
    const SocketOptions options = socket_options();
    auto sockets = wanted_.netns->tcp_sockets(options.to.family(), options.owner, 2);
    if (sockets && sockets->size() == 2) {
        ready_leg_ = std::move(sockets->back());
    }
    auto fd = sockets ? connect_with(programs_, *wanted_.netns, mark, options, std::move(sockets->front()))
                      : Result<UniqueFd>(sockets.error());
    if (!fd) {
        log()->debug("connection {}: {}", connection_->id, fd.error().text());
        return feed(session_.connect_failed(fd.error().code));
    }
    use_clc_socket(std::move(*fd));
    if (const auto option = programs_.option_seen(clc_->fd()); is_of_synack(option)) {
        return connected(0, option);  // the server is on this host
    }
    clc_->watch().when_writable(
        [this] { connected(take_connect_error(clc_->fd()), programs_.option_seen(clc_->fd())); });
}

void ClientRunner::connected(int error, smc_option_seen option) {
    if (error != 0 && (option == SMC_OPTION_UNKNOWN || option == SMC_OPTION_ASKING)) {
        return feed(session_.connect_failed(error));
    }
    const auto seen = option_of(option);
    const Endpoint server = remote_of(wanted_.tuple);
    local_ =
        local_of(*wanted_.netns, from_abi(wanted_.request.local), server, wanted_.request.mark, wanted_.request.uid);
    const bool agent = seen == session::PeerOption::kAgent;
    feed(session_.connected(seen, means_for(parts_, server, local_, wanted_.request.smcd != 0, agent), os::now()));
}

void ClientRunner::on(const session::FinishConnect&) {
    connect_leg(kPortsTried);
}

void ClientRunner::connect_leg(int ports) {
    ports_left_ = ports;
    smc_sock mark{};
    mark.role = SMC_ROLE_LEG_CLIENT;
    mark.app = wanted_.tuple;
    mark.isn = wanted_.request.isn;
    mark.paws = ports == 1 ? SMC_PAWS_PASS : SMC_PAWS_REFUSE;
    follow_send_buffer(programs_, mark);
    const LegBuffers buffers = buffers_of_leg();
    mark.receive_buffer = buffers.receive;
    mark.send_buffer = buffers.send;
    SocketOptions options = socket_options();
    options.device = device_of_leg();
    options.ttl = nearest_ttl(wanted_.request.answer_ttl);
    auto fd = connect_with(programs_, *wanted_.netns, mark, options, std::move(ready_leg_));
    if (!fd) {
        return feed(session_.leg_failed(session::AppState::kSynSent, fd.error().text()));
    }
    leg_.emplace(parts_.io, std::move(*fd));
    if (const int error = take_connect_error(leg_->fd()); error != EINPROGRESS) {
        return leg_connected(error);  // the usual case: a handshake on this host is over when connect() returns
    }
    leg_->when_writable([this] { leg_connected(take_connect_error(leg_->fd())); });
    // The leg's handshake stays on this host. If it takes longer than this, something drops the leg's packets, such as
    // a firewall; the application's own SYN then decides.
    timeout_.set_in(parts_.config.leg_timeout());
}

void ClientRunner::leg_connected(int error) {
    timeout_.set(kNever);
    if (error == 0 && programs_.leg_syn(leg_->fd()) != bpf::Programs::LegSyn::kJoined) {
        // A filter or another program ended its packets before smc_egress saw them: the server itself has answered.
        return feed(session_.leg_failed(app_state(), "the leg's packets left this host"));
    }
    if (error == 0) {
        return feed(session_.leg_connected(os::now(), has_link()));
    }
    if (error == ECONNREFUSED && ports_left_ > 1 && programs_.leg_syn(leg_->fd()) == bpf::Programs::LegSyn::kTooOld) {
        return connect_leg(ports_left_ - 1);
    }
    const bool reset = error == ECONNREFUSED || error == ECONNRESET || error == EPIPE;
    feed(session_.leg_failed(reset ? after_reset() : app_state(), std::generic_category().message(error)));
}

// The leg has to leave by the device by which the application's SYN left. When the route of a running connection moves
// to another device, both ends have to follow it. So the leg is bound to its device only if the application is bound
// itself, or ports decide about routes, or the route leads to another device than the SYN's or is not known. (Marks
// that netfilter gives to packets of some processes only are not known here.) 0: it is not bound.
unsigned ClientRunner::device_of_leg() const {
    const smc_request& q = wanted_.request;
    if (q.bound_device != 0) {
        return q.ifindex;
    }
    const Endpoint from = from_abi(q.local), to = remote_of(wanted_.tuple);
    const auto route = wanted_.netns->route_of({from.ip, to.ip, q.mark, q.uid});
    return route && !route->ports_decide && route->device == q.ifindex ? 0 : q.ifindex;
}

SockDiag::Socket ClientRunner::application() const {
    const smc_request& q = wanted_.request;
    return {from_abi(q.local), remote_of(wanted_.tuple), q.cookie, q.bound_device};
}

// (If its remote address is translated, the kernel does not find the socket: it is treated as if it had heard nothing.)
session::AppState ClientRunner::app_state() const {
    return wanted_.netns->state_of(application()) == TCP_SYN_RECV ? session::AppState::kSynRecv
                                                                  : session::AppState::kSynSent;
}

// A RST on the leg comes from this host: the application has gone, or goes on with its own SYN. But if that SYN is
// still HELD, the leg has no hairpin: the table is full, or a firewall rejected the leg's SYN. If it is ANSWERED, and
// the application is still in connect(), a firewall has rejected the leg behind the hairpin.
session::AppState ClientRunner::after_reset() const {
    using State = session::AppState;
    const auto state = programs_.state_of(wanted_.tuple, wanted_.request.cookie);
    if (state == SMC_REQUEST_HELD) {
        return State::kSynSent;
    }
    const auto tcp = state == SMC_REQUEST_ANSWERED ? wanted_.netns->state_of(application()) : std::nullopt;
    return tcp == TCP_SYN_SENT ? State::kSynSent : tcp == TCP_SYN_RECV ? State::kSynRecv : State::kGone;
}

// If this thread is late, the leg may be connected already. Its application must not be left to TCP then, nor if it has
// answered the leg.
bool ClientRunner::catches_up() {
    if (session_.state() != session::Client::State::kFinishing) {
        return false;
    }
    const auto app = app_state();  // before the leg, which may connect meanwhile
    const int error = take_connect_error(leg_->fd());
    if (error != EINPROGRESS) {
        leg_connected(error);
        return true;
    }
    if (app != session::AppState::kSynRecv && !session_.leg_was_late()) {
        return false;
    }
    leg_is_late(app);
    return true;
}

// Looks again, because the leg may have connected while this thread was late: then its event comes next.
void ClientRunner::timed_out() {
    const auto app = app_state();  // before the leg, which may connect meanwhile
    if (is_connecting(leg_->fd())) {
        leg_is_late(app);
    }
}

void ClientRunner::leg_is_late(session::AppState app) {
    feed(session_.leg_late(app,
                           app == session::AppState::kSynRecv
                               ? "the application's answer to the leg did not arrive; a firewall may drop it"
                               : "the SYN of the leg got no answer in time; a firewall may drop it",
                           os::now()));
}

void ClientRunner::end_application() {
    const auto tell = [id = connection_->id](const std::string& why) {
        log()->warn(
            "connection {}: the application's connect() cannot succeed any more, and its socket was not ended: {}", id,
            why);
    };
    const auto asked = wanted_.netns->end_socket(application(), [tell](int error) {
        if (error != 0 && error != ENOENT) {
            tell("ending a socket: " + std::generic_category().message(error));
        }
    });
    if (!asked) {
        tell(asked.error().text());
    }
}

void ClientRunner::on(const session::RememberServer& action) {
    using As = session::RememberServer::As;
    const Endpoint server = remote_of(wanted_.tuple);
    const std::uint64_t netns = wanted_.request.netns;
    switch (action.as) {
        case As::kCapable:
            return programs_.remember(netns, server, SMC_SERVER_CAPABLE, Reason::kNone, parts_.config.cache_time,
                                      wanted_.request.answer_ttl);
        case As::kUnknown:
            return programs_.forget(netns, server);
        case As::kNotNow:
            return programs_.remember(netns, server, SMC_SERVER_NOT_NOW, action.reason, parts_.config.cache_time);
        case As::kPause:
            return programs_.pause(netns, server, action.reason, kPause, parts_.config.cache_time);
    }
}

void ClientRunner::on(const session::Run& action) {
    end({SessionEnd::Kind::kSmc, action.outcome, leg_->release(), clc_->release()});
}

// The application is in SYN_RECV only because of the leg's SYN. It does not matter whether it is ended before or after
// its leg: in both cases its connect() fails.
void ClientRunner::let_go() {
    if (leg_ && app_state() == session::AppState::kSynRecv && is_connecting(leg_->fd())) {
        end_application();
    }
    leg_.reset();
    smc::let_go(programs_, wanted_.netns.get(), wanted_.tuple, wanted_.request);
}

void ClientRunner::on(const session::RunOnTcp& action) {
    end({SessionEnd::Kind::kTcp, action.outcome, leg_->release(), clc_->release()});
}

void ClientRunner::on(const session::LeaveToTcp& action) {
    let_go();
    end({SessionEnd::Kind::kPlain, action.outcome});
}

void ClientRunner::on(const session::Refuse& action) {
    leg_.reset();
    end({SessionEnd::Kind::kRefused, {.reason = action.reason, .detail = action.detail}});
}

}  // namespace smc
