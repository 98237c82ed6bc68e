// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A complete peer: sessions, link groups, a data path. Client and server at once.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <set>

#include "attempt.h"
#include "engine.h"

namespace smc::sim {

class Node {
 public:
    struct Terms {
        std::string name;
        clc::LocalNode node;
        clc::Means means;
        std::vector<RoceGid> ports;
        group::SmcrTerms smcr;
        std::uint32_t dmb_bytes = kSmallestBuffer;
        bool chooses_buffers = false;  // its applications change their send buffers while they run
        // Behaviour of other SMC-R stacks, which RFC 7609 allows.
        bool reads_like_linux = false;
        bool sends_on_any_link = false;  // of the group, not only on the one that CLC named
    };
    Node(World& world, SimLink::Network& network, Fabric& fabric, const Terms& terms);
    Node(const Node&) = delete;
    Node& operator=(const Node&) = delete;

    // An application of this node connects to a listener of `server`. Both live as long as the node.
    void connect(Application& application, Node& server, Listener& listener);
    // To be called when a SYN with the option has come.
    void accept(const std::shared_ptr<Socket>& clc, Listener& listener);
    // Events that are not about a single connection. They happen after `later`, if they have one.
    void end_link_groups() { smcr_groups_.end_all(); }
    // A random port goes down, and comes back after `down`.
    void flap_port(Delay later, Delay down);
    // The same for the port that most connections use.
    void flap_first_port(Delay later, Delay down);
    // Does nothing unless this node sends on any link.
    void move_connections(Delay later);
    void lose_device(Delay later, Delay gone);
    void change_links() { smcr_groups_.change_links(); }
    void speak_nonsense() { smcr_groups_.speak_nonsense(); }
    void die() { smcr_groups_.die(); }
    void lose_fabric(const Node& peer) {
        for (const clc::IsmDevice& device : peer.parts_.node.ism) {
            smcd_groups_.drop_peer(device.chid, device.gid);
        }
    }

    // How many connections of this node's clients ran on each path, by its name.
    [[nodiscard]] const std::map<std::string, unsigned>& paths() const { return paths_; }
    [[nodiscard]] const std::string& name() const { return parts_.name; }
    [[nodiscard]] const LinkGroups& smcr_groups() const { return smcr_groups_; }
    // Requires that no session and no connection is left, and that SMC-D's link groups count none.
    void check_quiet() const;

 private:
    void flap(Port& port, Delay later, Delay down, Delay heard);
    template <class Session>
    void ended(Attempt<Session>& attempt, AttemptEnd end);
    template <class Session>
    void run_smc(Attempt<Session>& attempt, AttemptEnd end);
    std::shared_ptr<const std::atomic<std::uint32_t>> chosen_while_it_runs();
    void connection_ended(const ConnectionEnd& end);

    struct Running {
        bool smcd = false;
        DmbToken dmb{};
        std::uint32_t smcd_group = 0;
    };

    World& world_;
    Fabric& fabric_;
    std::vector<std::unique_ptr<Port>> ports_;
    Engine engine_;
    group::SmcdGroups smcd_groups_;
    LinkGroups smcr_groups_;
    bool reads_like_linux_, sends_on_any_link_, chooses_buffers_;
    NodeParts parts_;
    std::uint64_t next_id_ = 1;
    std::map<std::uint64_t, std::shared_ptr<ClientAttempt>> clients_;
    std::map<std::uint64_t, std::shared_ptr<ServerAttempt>> servers_;
    std::map<std::uint64_t, Running> running_;
    std::map<std::string, unsigned> paths_;
};

}  // namespace smc::sim
