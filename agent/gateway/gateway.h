// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Brings connections from "steered" to "moving bytes": one coroutine per connection, on the control
// thread. Client side: a held SYN; server side: an accepted wire socket. Decisions are the handshake
// machines' (agent/clc), bytes are the engine's (datapath/).
#pragma once

#include <map>
#include <memory>
#include <optional>

#include "agent/config/config.h"
#include "agent/connections/connections.h"
#include "agent/gateway/clc_io.h"
#include "agent/gateway/held_syn.h"
#include "agent/log.h"
#include "agent/loop/async_fd.h"
#include "agent/netns/namespaces.h"
#include "agent/smcd/link_groups.h"
#include "agent/smcr/link_groups.h"
#include "agent/steer/programs.h"
#include "datapath/engine.h"
#include "datapath/ism/local_fabric.h"
#include "smc/clc/handshake.h"

namespace smc {

class Gateway {
 public:
    struct Parts {
        asio::io_context& io;
        const Config& config;
        const clc::LocalNode& node;
        bpf::Programs& programs;
        Namespaces& namespaces;
        ism::LocalFabric& fabric;
        Engine& engine;
        Connections& connections;
        LinkGroups& groups;
        smcr::Devices& roce_devices;
        smcr::LinkGroups& roce_groups;
    };
    explicit Gateway(Parts parts) : p_(parts) {}

    // From the BPF programs.
    void syn_held(const smc_event& event);
    void connect_aborted(std::uint64_t cookie);
    // Accepts on the namespace's fresh listeners until it closes.
    void serve(const std::shared_ptr<Namespace>& space);
    // From the engine, on the control thread.
    void flow_ended(const FlowEnd& end);

    // False: full; new connections shall stay plain.
    [[nodiscard]] bool has_room() const { return p_.connections.live() < p_.config.max_connections; }

 private:
    // A client connection between its SYN and its local leg.
    struct Waiting {
        explicit Waiting(asio::io_context& io) : leg_arrived(io) {}
        bool aborted = false;
        AsyncFd* wire = nullptr;  // what the coroutine waits for, if it waits for a socket
        Event leg_arrived;
        UniqueFd leg;
    };
    struct LegKey {
        std::uint32_t slot;
        Endpoint source;
        auto operator<=>(const LegKey&) const = default;
    };
    // What a connection that became SMC-D or SMC-R uses, or why it did not.
    struct Negotiated {
        clc::Outcome outcome;
        std::optional<smcr::LinkGroups::Joined> joined;
        std::optional<ism::LocalFabric::Registered> own;
        std::optional<ism::Dmb> peer;
    };
    using Handle = Connections::Handle;
    using Space = std::shared_ptr<Namespace>;

    // client_session.cc
    asio::awaitable<void> client_session(smc_event event, HeldSyn syn, Space space);
    asio::awaitable<void> client_connect(const smc_event& event, const HeldSyn& syn, Space space,
                                         const Handle& connection, const std::shared_ptr<Waiting>& waiting);
    asio::awaitable<int> connect_wire(const smc_event& event, const HeldSyn& syn, const Space& space, smc_role role,
                                      std::optional<AsyncFd>& wire, const std::shared_ptr<Waiting>& waiting);
    asio::awaitable<Negotiated> negotiate_client(AsyncFd& wire);
    void answer_failure(const HeldSyn& syn, Namespace& space, int error, const Handle& connection);

    // server_session.cc
    asio::awaitable<void> server_session(UniqueFd wire, Endpoint client, Space space);
    asio::awaitable<void> server_accept(UniqueFd wire, Space space, const Handle& connection);
    asio::awaitable<Negotiated> negotiate_server(AsyncFd& wire, const Space& space, const Connection& connection,
                                                 UniqueFd& leg);
    asio::awaitable<int> connect_application(const Space& space, const Connection& connection, TimePoint deadline,
                                             UniqueFd& leg);

    // both, gateway.cc
    Handle admit(Role role);
    asio::awaitable<void> accept_loop(std::weak_ptr<Namespace> space, Namespace::Listener which);
    void accepted(UniqueFd fd, const Endpoint& from, const Space& space, Namespace::Listener which);
    asio::awaitable<Result<ism::Dmb>> attach(const clc::Peer& peer);
    [[nodiscard]] std::optional<clc::RoceOffer> roce_offer(int wire) const;
    // Until LLC has confirmed the link (or the group is over, or the deadline), or the peer says something by TCP
    // instead.
    asio::awaitable<std::optional<ClcRead>> hear_or_link(AsyncFd& wire, std::shared_ptr<smcr::LinkGroup> group,
                                                         TimePoint deadline);
    template <class Handshake>
    asio::awaitable<clc::Actions> await_link(AsyncFd& wire, Handshake& handshake,
                                             const smcr::LinkGroups::Joined& joined);
    // Gives back what a connection that did not become SMC holds.
    void let_go(Negotiated& negotiated);
    void start_smc(const Handle& connection, UniqueFd leg, UniqueFd wire, Negotiated negotiated);
    void start_smcr(const Handle& connection, UniqueFd leg, UniqueFd wire, Negotiated negotiated);
    void start_smcd(const Handle& connection, UniqueFd leg, UniqueFd wire, Negotiated negotiated);
    void start_fallback(const Handle& connection, UniqueFd leg, UniqueFd wire, const clc::Outcome& outcome);
    void refuse(const Handle& connection, Reason reason, const std::string& detail);
    void note(const Connection& connection, const char* what);
    void prepare_wire(int fd) const;
    [[nodiscard]] LinkGroupKey group_key(const clc::Peer& peer) const { return {peer.gid, peer.chid, peer.eid}; }
    [[nodiscard]] std::uint32_t dmb_bytes() const { return p_.config.dmb_kib * 1024; }

    Parts p_;
    LogLimiter limiter_;
    // Sessions may outlive this object: their frames go with the io_context.
    struct Tables {
        std::map<std::uint64_t, std::shared_ptr<Waiting>> by_cookie;
        std::map<LegKey, std::shared_ptr<Waiting>> by_leg;
    };
    const std::shared_ptr<Tables> tables_ = std::make_shared<Tables>();
};

// Resets a TCP connection that is not wanted.
void reset_socket(UniqueFd fd);

}  // namespace smc
