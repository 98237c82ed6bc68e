// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The server's side: a connection whose SYN carried option 254 was accepted in the application's stead.
//
//   Proposal ---- none, or no CLC ----> reset; the application never hears of it
//     | the application's own listener is connected through loopback
//     | Decline -----------------------> splice
//   Accept, Confirm: move bytes
#include <sys/socket.h>

#include <cerrno>

#include "agent/gateway/clc_io.h"
#include "agent/gateway/gateway.h"
#include "agent/gateway/link_wait.h"

namespace smc {

asio::awaitable<void> Gateway::server_session(UniqueFd fd, Endpoint client, Space space) {
    const Handle connection = admit(Role::kServer);
    connection->client = client;
    connection->server = local_endpoint(fd.get());
    connection->netns = space->inode();
    try {
        co_await server_accept(std::move(fd), std::move(space), connection);
    } catch (...) {
        p_.connections.end(connection->id, Reason::kInternal);
        throw;
    }
}

asio::awaitable<void> Gateway::server_accept(UniqueFd fd, Space space, const Handle& connection) {
    AsyncFd wire(p_.io, std::move(fd));
    UniqueFd leg;
    Negotiated negotiated = co_await negotiate_server(wire, space, *connection, leg);
    clc::Outcome& outcome = negotiated.outcome;
    if (is_smc(outcome)) {
        start_smc(connection, std::move(leg), wire.release(), std::move(negotiated));
        co_return;
    }
    if (outcome.peer_out_of_sync) {
        p_.groups.drop(group_key(outcome.peer));
    }
    let_go(negotiated);
    if (outcome.kind == clc::Outcome::Kind::kFallBack && !leg) {
        const auto deadline = std::chrono::steady_clock::now() + p_.config.step_timeout;
        if (const int error = co_await connect_application(space, *connection, deadline, leg); error != 0) {
            outcome = {clc::Outcome::Kind::kTerminate, Reason::kServerRefused, std::strerror(error), false, {}, {}, {}};
        }
    }
    if (outcome.kind == clc::Outcome::Kind::kFallBack) {
        start_fallback(connection, std::move(leg), wire.release(), outcome);
        co_return;
    }
    if (leg) {
        reset_socket(std::move(leg));
    }
    reset_socket(wire.release());
    refuse(connection, outcome.reason, outcome.detail);
}

// The leg to the application: from its own host, but named after the client (map smc_peernames).
asio::awaitable<int> Gateway::connect_application(const Space& space, const Connection& connection, TimePoint deadline,
                                                  UniqueFd& leg) {
    const Endpoint& server = connection.server;
    auto fd = space->tcp_socket(server.family(), SMC_ROLE_AGENT_LEG, connection.client, {});
    if (!fd) {
        co_return fd.error().code;
    }
    sockaddr_storage address{};
    const socklen_t length = server.to_sockaddr(address, server.family());
    if (::connect(fd->get(), reinterpret_cast<sockaddr*>(&address), length) != 0 && errno != EINPROGRESS) {
        co_return errno;
    }
    AsyncFd socket(p_.io, std::move(*fd));
    if (co_await socket.wait(AsyncFd::kWrite, deadline) != Waited::kReady) {
        co_return ETIMEDOUT;
    }
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size);
    leg = socket.release();
    co_return error;
}

asio::awaitable<Gateway::Negotiated> Gateway::negotiate_server(AsyncFd& wire, const Space& space,
                                                               const Connection& connection, UniqueFd& leg) {
    const auto now = [] { return std::chrono::steady_clock::now(); };
    Negotiated result;
    const auto offer = roce_offer(wire.fd());
    clc::ServerHandshake handshake(p_.node, offer, now());
    // Once, whichever type is tried: nothing is accepted before the application is there.
    const auto take_application = [&]() -> asio::awaitable<bool> {
        co_return leg || co_await connect_application(space, connection, handshake.deadline(), leg) == 0;
    };
    for (;;) {
        clc::Actions actions;
        const ClcRead read = co_await read_clc(wire, handshake.deadline());
        if (const auto* message = std::get_if<clc::Message>(&read)) {
            actions = handshake.message(message->view(), now());
        } else if (const auto* fault = std::get_if<clc::Fault>(&read)) {
            actions = handshake.fault(*fault);
        } else if (std::holds_alternative<ClcTimeout>(read)) {
            actions = handshake.tick(handshake.deadline());
        } else {
            actions = handshake.peer_closed();
        }
        while (!actions.empty()) {
            clc::Actions next;
            for (auto& action : actions) {
                if (auto* send = std::get_if<clc::Send>(&action)) {
                    if (!send_clc(wire.fd(), send->message)) {
                        next = never_sent(handshake);
                        break;
                    }
                } else if (auto* create = std::get_if<clc::CreateDmb>(&action)) {
                    // Whoever cannot be reached on the fabric must be declined now; after Accept it is
                    // too late for that (RFC 7609 C.3).
                    const auto reached = p_.fabric.reach(create->peer);
                    if (!reached) {
                        next = handshake.prepare_failed(Reason::kNoSmcdV2Device, reached.error().text());
                        continue;
                    }
                    auto own = p_.fabric.register_dmb(create->peer, dmb_bytes());
                    if (!own) {
                        next = handshake.prepare_failed(Reason::kOutOfMemory, own.error().text());
                        continue;
                    }
                    result.own = *own;
                    if (!co_await take_application()) {
                        next = handshake.application_refused();
                        continue;
                    }
                    const auto* group = p_.groups.find(group_key(handshake.peer()));
                    next = handshake.application_ready(now());
                    auto more = handshake.dmb_ready({own->token, compress_size(dmb_bytes())}, group == nullptr,
                                                    group != nullptr ? group->id : 0, now());
                    next.insert(next.end(), more.begin(), more.end());
                } else if (auto* prepare = std::get_if<clc::PrepareRmbe>(&action)) {
                    // Before the link group: others of this client wait for it.
                    if (!co_await take_application()) {
                        next = handshake.application_refused();
                        continue;
                    }
                    // A Decline must be there before the client gives up.
                    auto joined = co_await p_.roce_groups.serve(prepare->peer, offer->gids.front(),
                                                                handshake.deadline() - p_.config.step_timeout / 4);
                    if (!joined) {
                        next = handshake.prepare_failed(roce_reason(joined.error()), joined.error().text());
                        continue;
                    }
                    result.joined = *joined;
                    joined->seat->told();
                    next = handshake.application_ready(now());
                    auto more = handshake.rmbe_ready(joined->local(), now());
                    next.insert(next.end(), more.begin(), more.end());
                } else if (auto* confirmed = std::get_if<clc::AwaitLink>(&action)) {
                    smcr::LinkGroup& group = *result.joined->group;
                    if (!result.joined->first_contact && !group.is_with(confirmed->peer.link)) {
                        next =
                            handshake.link_failed(Reason::kProtocolError, "Confirm names another link than the Accept");
                        continue;
                    }
                    if (result.joined->first_contact) {
                        if (const auto connected = co_await group.connect(confirmed->peer); !connected) {
                            next = handshake.link_refused(Reason::kLinkNotReady, connected.error().text());
                            continue;
                        }
                    } else if (!group.know(confirmed->peer.rmbe.rkey)) {
                        next = handshake.link_failed(Reason::kRtokenFailed, "the client has too many RMBs");
                        continue;
                    }
                    result.joined->seat->agreed(confirmed->peer.rmbe);
                    next = co_await await_link(wire, handshake, *result.joined);
                } else if (auto* wanted = std::get_if<clc::AttachDmb>(&action)) {
                    auto attached = co_await attach(wanted->peer);
                    if (attached) {
                        result.peer.emplace(std::move(*attached));
                        next = handshake.attached();
                    } else {
                        next = handshake.attach_failed(Reason::kFabric, attached.error().text());
                    }
                } else if (auto* finish = std::get_if<clc::Finish>(&action)) {
                    result.outcome = std::move(finish->outcome);
                    co_return result;
                }
            }
            actions = std::move(next);
        }
    }
}

}  // namespace smc
