// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The client's side: the application waits in connect(), its SYN is held.
//
//   wire socket connects ---- fails ----------------> the application gets the same error
//     | option 254 in the SYN-ACK? -- no ------------> release the SYN, splice
//     | CLC --- Decline ----------------------------->   "         "      "
//     |     --- no answer, or no CLC ---------------> end that TCP connection, open a plain one, splice
//   release the SYN, take the local leg, move bytes
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>

#include "agent/gateway/clc_io.h"
#include "agent/gateway/gateway.h"
#include "agent/gateway/link_wait.h"
#include "agent/steer/addresses.h"

#ifndef IP_BIND_ADDRESS_NO_PORT
#define IP_BIND_ADDRESS_NO_PORT 24
#endif

namespace smc {

namespace {

// From the release of a SYN to the accept of its leg: two packets over loopback.
constexpr auto kLegTimeout = std::chrono::seconds(5);

// The application bound an address (without a port, or it would not have been steered).
bool is_bound(const Endpoint& source) {
    Endpoint address = source;
    address.port = 0;
    return address != Endpoint::loopback(false, 0) && address != Endpoint::loopback(true, 0);
}

}  // namespace

asio::awaitable<void> Gateway::client_session(smc_event event, HeldSyn syn, Space space) {
    const auto waiting = std::make_shared<Waiting>(p_.io);
    const LegKey leg_key{space->slot(), syn.source()};
    tables_->by_cookie[event.cookie] = waiting;
    tables_->by_leg[leg_key] = waiting;

    const Handle connection = admit(Role::kClient);
    connection->server = from_abi(event.remote);
    connection->client = syn.source();
    connection->netns = space->inode();
    connection->pid = event.pid;
    connection->uid = event.uid;

    // Also if the coroutine ends by an exception.
    struct Forget {
        std::shared_ptr<Tables> tables;
        std::uint64_t cookie;
        LegKey leg_key;
        const std::shared_ptr<Waiting>& waiting;
        ~Forget() {
            // an entry may already be a later connection's
            if (const auto it = tables->by_cookie.find(cookie);
                it != tables->by_cookie.end() && it->second == waiting) {
                tables->by_cookie.erase(it);
            }
            if (const auto it = tables->by_leg.find(leg_key); it != tables->by_leg.end() && it->second == waiting) {
                tables->by_leg.erase(it);
            }
        }
    };
    const Forget forget{tables_, event.cookie, leg_key, waiting};
    try {
        co_await client_connect(event, syn, std::move(space), connection, waiting);
    } catch (...) {
        p_.connections.end(connection->id, Reason::kInternal);
        throw;
    }
}

asio::awaitable<void> Gateway::client_connect(const smc_event& event, const HeldSyn& syn, Space space,
                                              const Handle& connection, const std::shared_ptr<Waiting>& waiting) {
    const auto remember = [&](Reason reason) {
        p_.programs.remember_incapable(event.netns, connection->server, reason, p_.config.cache_time);
    };
    std::optional<AsyncFd> wire;
    Negotiated negotiated;
    clc::Outcome& outcome = negotiated.outcome;

    int error = co_await connect_wire(event, syn, space, SMC_ROLE_AGENT_WIRE, wire, waiting);
    if (error == 0) {
        const auto seen = p_.programs.option_seen(wire->fd());
        if (seen == SMC_OPTION_PRESENT) {
            waiting->wire = &*wire;
            negotiated = co_await negotiate_client(*wire);
            waiting->wire = nullptr;
        } else {
            outcome.kind = clc::Outcome::Kind::kFallBack;
            outcome.reason = seen == SMC_OPTION_ECHOED ? Reason::kPeerEchoes : Reason::kPeerNoSmc;
        }
        if (!waiting->aborted && !is_smc(outcome) && outcome.reason != Reason::kOutOfSync &&
            !outcome.peer_out_of_sync) {
            remember(outcome.reason);
        }
    }
    const bool reset_by_peer = error == ECONNRESET || error == EPIPE;
    if (reset_by_peer) {
        outcome.reason = Reason::kPeerClosed;
    }
    if ((reset_by_peer || (error == 0 && outcome.kind == clc::Outcome::Kind::kTerminate)) && !waiting->aborted) {
        // RFC 7609 C.5 and C.6 end that TCP connection; the application has sent nothing yet, so it can
        // have another one.
        reset_socket(wire->release());
        error = co_await connect_wire(event, syn, space, SMC_ROLE_AGENT_PLAIN, wire, waiting);
    }
    const auto give_up = [&](Reason reason, const std::string& detail) {
        let_go(negotiated);
        if (wire) {
            reset_socket(wire->release());
        }
        refuse(connection, reason, detail);
    };
    if (waiting->aborted) {
        give_up(Reason::kApplicationGone, {});
        co_return;
    }
    if (error != 0) {
        answer_failure(syn, *space, error, connection);
        give_up(Reason::kConnectFailed, std::strerror(error));
        co_return;
    }
    connection->client = local_endpoint(wire->fd());
    p_.programs.release_flow(event.cookie, connection->client);
    if (const auto released = syn.release(*space); !released) {
        answer_failure(syn, *space, ECONNREFUSED, connection);
        give_up(Reason::kInternal, released.error().text());
        co_return;
    }
    co_await waiting->leg_arrived.wait(std::chrono::steady_clock::now() + kLegTimeout);
    if (!waiting->leg) {
        if (!waiting->aborted) {
            remember(Reason::kInternal);  // something drops loopback traffic; do not try again soon
        }
        give_up(waiting->aborted ? Reason::kApplicationGone : Reason::kInternal, "no local leg");
        co_return;
    }
    if (is_smc(outcome)) {
        start_smc(connection, std::move(waiting->leg), wire->release(), std::move(negotiated));
    } else {
        start_fallback(connection, std::move(waiting->leg), wire->release(), outcome);
    }
}

// Returns the errno of connect(), 0 when connected. The socket is in `wire` even if it failed.
asio::awaitable<int> Gateway::connect_wire(const smc_event& event, const HeldSyn& syn, const Space& space,
                                           smc_role role, std::optional<AsyncFd>& wire,
                                           const std::shared_ptr<Waiting>& waiting) {
    const Endpoint remote = from_abi(event.remote);
    const int family = remote.family();
    auto fd = space->tcp_socket(family, role, remote, {event.uid, event.gid});
    if (!fd) {
        log()->warn("wire socket: {}", fd.error().text());
        co_return fd.error().code;
    }
    sockaddr_storage address{};
    if (event.mark != 0) {
        ::setsockopt(fd->get(), SOL_SOCKET, SO_MARK, &event.mark, sizeof event.mark);
    }
    if (is_bound(syn.source())) {
        const int one = 1;
        Endpoint source = syn.source();
        source.port = 0;
        ::setsockopt(fd->get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
        const socklen_t length = source.to_sockaddr(address, family);
        if (::bind(fd->get(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
            co_return errno;
        }
    }
    const socklen_t length = remote.to_sockaddr(address, family);
    const int rc = ::connect(fd->get(), reinterpret_cast<sockaddr*>(&address), length);
    const int failed = rc == 0 ? 0 : errno;
    wire.emplace(p_.io, std::move(*fd));
    if (failed != EINPROGRESS) {
        co_return failed;
    }
    // No deadline of our own: TCP's applies, and the application's connect() may end earlier.
    waiting->wire = &*wire;
    const Waited waited = co_await wire->wait(AsyncFd::kWrite, TimePoint::max());
    waiting->wire = nullptr;
    if (waited != Waited::kReady) {
        co_return ECANCELED;  // the application gave up
    }
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(wire->fd(), SOL_SOCKET, SO_ERROR, &error, &size);
    co_return error;
}

asio::awaitable<Gateway::Negotiated> Gateway::negotiate_client(AsyncFd& wire) {
    const auto now = [] { return std::chrono::steady_clock::now(); };
    Negotiated result;
    const auto offer = roce_offer(wire.fd());
    clc::ClientHandshake handshake(p_.node, offer);
    clc::Actions actions = handshake.start(now());
    for (;;) {
        clc::Actions next;
        for (auto& action : actions) {
            if (auto* send = std::get_if<clc::Send>(&action)) {
                if (!send_clc(wire.fd(), send->message)) {
                    next = never_sent(handshake);
                    break;
                }
            } else if (auto* wanted = std::get_if<clc::AttachDmb>(&action)) {
                auto attached = co_await attach(wanted->peer);
                if (!attached) {
                    next = handshake.attach_failed(Reason::kFabric, attached.error().text());
                    continue;
                }
                auto own = p_.fabric.register_dmb(wanted->peer.gid, dmb_bytes());
                if (!own) {
                    next = handshake.attach_failed(Reason::kOutOfMemory, own.error().text());
                    continue;
                }
                const bool in_sync = wanted->peer.first_contact || p_.groups.find(group_key(wanted->peer)) != nullptr;
                result.peer.emplace(std::move(*attached));
                result.own = *own;
                next = handshake.attached({own->token, compress_size(dmb_bytes())}, in_sync);
            } else if (auto* prepare = std::get_if<clc::PrepareRmbe>(&action)) {
                auto joined = co_await p_.roce_groups.follow(prepare->peer, offer->gids.front(), handshake.deadline());
                if (!joined) {
                    next = handshake.prepare_failed(roce_reason(joined.error()), joined.error().text());
                    continue;
                }
                result.joined = *joined;
                joined->seat->told();
                joined->seat->agreed(prepare->peer.rmbe);
                next = handshake.rmbe_ready(joined->local(), now());
            } else if (std::holds_alternative<clc::AwaitLink>(action)) {
                next = co_await await_link(wire, handshake, *result.joined);
            } else if (auto* finish = std::get_if<clc::Finish>(&action)) {
                result.outcome = std::move(finish->outcome);
                if (result.outcome.kind == clc::Outcome::Kind::kSmcD) {
                    // from the Confirm on the server counts on it, whatever becomes of this connection
                    p_.groups.establish(group_key(result.outcome.peer), result.outcome.peer.host_name);
                }
                if (!is_smc(result.outcome)) {
                    let_go(result);
                }
                co_return result;
            }
        }
        if (next.empty()) {
            const ClcRead read = co_await read_clc(wire, handshake.deadline());
            if (const auto* message = std::get_if<clc::Message>(&read)) {
                next = handshake.message(message->view());
            } else if (const auto* fault = std::get_if<clc::Fault>(&read)) {
                next = handshake.fault(*fault);
            } else if (std::holds_alternative<ClcTimeout>(read)) {
                next = handshake.tick(handshake.deadline());
            } else {
                next = handshake.peer_closed();
            }
        }
        actions = std::move(next);
    }
}

void Gateway::answer_failure(const HeldSyn& syn, Namespace& space, int error, const Handle& connection) {
    if (error == ETIMEDOUT) {
        return;  // the application's own TCP gives up at its own time; until then its SYNs are held
    }
    const auto answered =
        error == ECONNREFUSED || error == ECONNRESET ? syn.refuse(space) : syn.unreachable(space, error);
    if (!answered) {
        log()->warn("connection {}: {}", connection->id, answered.error().text());
    }
}

}  // namespace smc
