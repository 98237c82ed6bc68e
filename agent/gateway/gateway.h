// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Takes each connection from the first sign that its peer speaks SMC to the data path: one runner per connection, on
// the control thread. Client side: a request that was answered with option 254; server side: an accepted socket whose
// SYN carried option 254. The sessions (smc/session) decide, the engines (datapath/) move the bytes.
#pragma once

#include <memory>
#include <unordered_map>

#include "agent/connections/quotas.h"
#include "agent/gateway/acceptors.h"
#include "agent/gateway/client_runner.h"
#include "agent/gateway/half_open.h"
#include "agent/gateway/keepalives.h"
#include "agent/gateway/placement.h"
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
        std::function<void()> obstacle_changed;  // obstacle() returns something else now
    };
    explicit Gateway(const Parts& parts);
    ~Gateway();
    Gateway(const Gateway&) = delete;
    Gateway& operator=(const Gateway&) = delete;

    // Event of the BPF programs: a server has answered a request with option 254, or is known to speak SMC.
    void server_speaks_smc(const smc_event& event);
    // The same while this agent takes no new connections: the application's SYN is sent at once.
    void let_go(const smc_event& event, Reason reason);
    // Connections that are still being set up.
    [[nodiscard]] std::size_t handshakes() const { return clients_.size() + servers_.size(); }
    // A RST or an ICMP error has answered an application's SYN with options: sends that SYN without them.
    void syn_was_reset(const smc_event& event);
    // The agent stops, or another one takes over: ends the sessions under way. Applications that wait in connect() go
    // on with plain TCP.
    void let_all_go();
    // New limit for all connections together; existing connections stay.
    void set_most_connections(unsigned most) { connection_quotas_.set_total(most); }
    // Accepts on the namespace's fresh listeners until the namespace closes.
    void serve(const std::shared_ptr<Namespace>& netns) { acceptors_.serve(netns); }
    // To be called after each sweep: passes on changed keepalive options, ends half-open sockets, and notes which
    // connections were worth the set-up of SMC (bpf/smc_short_lived.h).
    void swept(const bpf::Swept& found);
    // Relieves engines that have no time left. Called once a second.
    void balance();
    // An SMC-D peer is gone, and its connections get no reset.
    void peer_gone(const smcd::Peer& peer);
    // To be called on the control thread after an engine has ended the connection.
    void connection_ended(const ConnectionEnd& end);

    // Why new connections must stay plain TCP; empty: nothing forces them to.
    [[nodiscard]] std::string obstacle() const;

 private:
    [[nodiscard]] bool takes_more() const { return connection_quotas_.has_any() && handshake_quotas_.has_any(); }
    void exhausted();
    using Handle = Connections::Handle;
    using Netns = std::shared_ptr<Namespace>;

    Quotas quotas_for(unsigned total);
    Handle admit(Role role, std::uint64_t netns, std::uint64_t cgroup);
    void end_connection(const Handle& connection, Reason reason);
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
    Engine& place(const Connection& connection);
    void left_alone(const Handle& connection, const SessionEnd& end);
    void falls_back(const Handle& connection, const clc::Outcome& outcome, const char* what);
    void refuse(const Handle& connection, Reason reason, const std::string& detail);
    void judge(Connection& connection, bool ended) const;
    void note(const Connection& connection, const char* what);

    Parts p_;
    LogLimiter limiter_;
    // Quotas for all connections of the agent, and for those whose session is under way. Too many sessions at once
    // would all time out, because each waits for the messages of all the others.
    Quotas connection_quotas_, handshake_quotas_;
    PortShare port_share_;
    TimePoint exhausted_until_{};  // descriptors or memory ran out: no new connections until then
    Acceptors acceptors_;
    Keepalives keepalives_;
    HalfOpen half_open_;
    Placement placement_;
    struct EngineTimes {
        std::chrono::nanoseconds busy{}, processor{};
    };
    std::vector<EngineTimes> times_;  // of the engines, at the last balance()
    TimePoint balanced_{}, swept_{};  // the last calls of balance() and swept()
    // By connection id: the sessions under way, and the DMBs of connections on SMC-D.
    std::unordered_map<std::uint64_t, std::shared_ptr<ClientRunner>> clients_;
    std::unordered_map<std::uint64_t, std::shared_ptr<ServerRunner>> servers_;
    std::unordered_map<std::uint64_t, std::shared_ptr<smcd::Exchange>> exchanges_;
    struct Running {
        Engine* engine = nullptr;
        std::weak_ptr<ConnectionTask> task;
        // Kept allocated until the connection ends, on SMC or on TCP: with each packet of the application the BPF
        // programs write its send buffer size there.
        std::shared_ptr<const void> chosen_buffer;
    };
    std::unordered_map<std::uint64_t, Running> running_;  // by connection id
};

}  // namespace smc
