// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Brings connections from "the server said yes" to "moving bytes": one runner per connection, on the control thread.
// Client side: an answered request; server side: an accepted socket whose SYN carried option 254. Decisions are the
// sessions' (smc/session), bytes are the engine's (datapath/).
#pragma once

#include <memory>
#include <unordered_map>

#include "agent/connections/quotas.h"
#include "agent/gateway/acceptors.h"
#include "agent/gateway/client_runner.h"
#include "agent/gateway/half_open.h"
#include "agent/gateway/keepalives.h"
#include "agent/gateway/port_share.h"
#include "agent/gateway/server_runner.h"
#include "agent/log/log.h"
#include "agent/netns/namespaces.h"
#include "datapath/engines.h"

namespace smc {

class Gateway {
 public:
    struct Parts {
        SessionParts session;
        bpf::Programs& programs;
        Namespaces& namespaces;
        Engines& engines;
        Connections& connections;
        std::function<void()> obstacle_changed;  // obstacle() is no longer what it was
    };
    explicit Gateway(const Parts& parts);
    ~Gateway();
    Gateway(const Gateway&) = delete;
    Gateway& operator=(const Gateway&) = delete;

    // From the BPF programs.
    void request_answered(const smc_event& event);
    // Connections between their SYN and their first byte.
    [[nodiscard]] std::size_t handshakes() const { return clients_.size() + servers_.size(); }
    // Applications that wait in connect() do without us: the agent stops.
    void let_all_go();
    // So many connections in all from now on; those that are there stay.
    void set_most_connections(unsigned most) { connection_quotas_.set_total(most); }
    // Accepts on the namespace's fresh listeners until it closes.
    void serve(const std::shared_ptr<Namespace>& netns) { acceptors_.serve(netns); }
    // What the programs found when they looked at applications' sockets: some changed their keepalive, and of some the
    // leg's reset was lost on its way.
    void swept(const bpf::Swept& found);
    // A peer of SMC-D is gone, and no reset will tell its connections.
    void peer_gone(const smcd::Peer& peer);
    // From the engine, on the control thread.
    void connection_ended(const ConnectionEnd& end);

    // Why new connections shall stay plain; empty: they need not.
    [[nodiscard]] std::string obstacle() const;

 private:
    [[nodiscard]] bool has_room() const { return connection_quotas_.has_any() && handshake_quotas_.has_any(); }
    void used_up();
    using Handle = Connections::Handle;
    using Netns = std::shared_ptr<Namespace>;

    Quotas quotas_for(unsigned total);
    Handle admit(Role role, std::uint64_t netns, std::uint64_t cgroup);
    void over(const Handle& connection, Reason reason);
    void give_back(Quotas& quotas, const Connection& connection) const;
    void accepted(UniqueFd fd, const Endpoint& from, const Netns& netns, Namespace::Listener which);
    template <class Runner>
    void session_ended(Runner& runner, SessionEnd end);
    template <class Runner>
    void run_smc(Runner& runner, SessionEnd end);
    void run_smcd(Connection& connection, const clc::SmcdPeer& peer, std::shared_ptr<smcd::Exchange> exchange);
    void run_smcr(Connection& connection, const clc::SmcrPeer& peer) const;
    template <class Runner>
    void run_tcp(Runner& runner, SessionEnd end);
    template <class Runner>
    void run(Runner& runner, Engine& engine, std::shared_ptr<ConnectionTask> connection);
    template <class What>
    void tell(std::uint64_t id, What what);
    void left_alone(const Handle& connection, const SessionEnd& end);
    void falls_back(const Handle& connection, const clc::Outcome& outcome, const char* what);
    void refuse(const Handle& connection, Reason reason, const std::string& detail);
    void note(const Connection& connection, const char* what);
    void keep_alive(int fd) const;

    Parts p_;
    LogLimiter limiter_;
    // All that are in the agent; those whose session is under way. Many of these at once would all come too late: each
    // waits for all the others' messages.
    Quotas connection_quotas_, handshake_quotas_;
    PortShare ports_;
    TimePoint used_up_until_{};  // its descriptors
    Acceptors acceptors_;
    Keepalives keepalives_;
    HalfOpen half_open_;
    // By the connection's number: sessions that are under way, and what those that run on SMC-D hold.
    std::unordered_map<std::uint64_t, std::shared_ptr<ClientRunner>> clients_;
    std::unordered_map<std::uint64_t, std::shared_ptr<ServerRunner>> servers_;
    std::unordered_map<std::uint64_t, std::shared_ptr<smcd::Exchange>> exchanges_;
    struct Running {
        Engine* engine = nullptr;
        std::weak_ptr<ConnectionTask> task;
        // The application writes there with each of its packets, whatever the leg ends at.
        std::shared_ptr<const void> chosen_buffer;
    };
    std::unordered_map<std::uint64_t, Running> running_;  // until they end
};

}  // namespace smc
