// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// One network namespace that the agent serves: its listeners, its BPF programs and the agent's sockets in it.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <asio/io_context.hpp>
#include <asio/thread_pool.hpp>
#include <atomic>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/loop/lock_helper.h"
#include "agent/netns/routes.h"
#include "agent/steer/hooks.h"
#include "agent/steer/programs.h"
#include "os/endpoint.h"
#include "os/result.h"
#include "os/rtnetlink.h"
#include "os/sock_diag.h"
#include "os/unique_fd.h"
#include "smc/time.h"

namespace smc {

class Namespace : public std::enable_shared_from_this<Namespace> {
 public:
    // Objects that all namespaces share. `hooking`: one thread, on which BPF programs are attached; results are posted
    // to `io`. While `hurry` is true, that thread puts off what can be done later.
    struct Parts {
        bpf::Programs& programs;
        asio::io_context& io;
        asio::thread_pool& hooking;
        bpf::Hooks::Options hooks;
        const std::atomic<bool>& hurry;
        loop::LockHelper& locks;
    };

    // Opens the listeners. The hooking thread then attaches the programs; the namespace is served once obstacle() is
    // empty. `slot` is its index in the BPF maps.
    static Result<std::shared_ptr<Namespace>> open(const Parts& parts, UniqueFd netns, std::uint64_t inode,
                                                   std::uint32_t slot);
    ~Namespace();
    Namespace(const Namespace&) = delete;
    Namespace& operator=(const Namespace&) = delete;

    // Detaches the programs and stops listening. Holders of the object can still create sockets, but no new connection
    // arrives.
    void close();
    // Stops listening for good, because another agent listens there. Existing connections continue. The hooking thread
    // detaches sk_lookup.
    void withdraw();

    [[nodiscard]] std::uint64_t cookie() const { return cookie_; }
    [[nodiscard]] std::uint64_t inode() const { return inode_; }
    // A new descriptor of the namespace; invalid if no descriptors are left.
    [[nodiscard]] UniqueFd handle() const { return duplicate(netns_.get()); }
    [[nodiscard]] std::uint32_t slot() const { return slot_; }
    [[nodiscard]] const std::vector<std::string>& devices() const { return hooked_.devices; }

    // Non-blocking TCP sockets in the namespace, up to `most` and at least one. Closing one sends a reset, unless
    // SO_LINGER is changed (L1). They belong to `owner`, so that firewall rules by user treat them as the
    // application's.
    struct Owner {
        std::uint32_t uid = 0, gid = 0;
    };
    [[nodiscard]] Result<std::vector<UniqueFd>> tcp_sockets(int family, Owner owner, unsigned most) const;
    // Sends a packet, link header included, by a device: unchanged, past routing and firewall.
    Result<void> send_packet(const std::vector<std::uint8_t>& packet, bool v6, unsigned device) const;

    // Ends the socket of an application, or a leg: see SockDiag::abort(), LockHelper::end_socket().
    [[nodiscard]] Result<void> end_socket(const SockDiag::Socket& which, loop::LockHelper::Done done) const;
    // See SockDiag::state_of().
    [[nodiscard]] std::optional<int> state_of(const SockDiag::Socket& which) const;
    // Whether a socket of this namespace has this connection; one in TIME-WAIT does not count.
    [[nodiscard]] bool has_connection(const Endpoint& local, const Endpoint& remote) const;

    enum Listener : std::uint8_t { kClc4, kClc6, kListeners };
    // -1: the agent cannot listen in this family.
    [[nodiscard]] int listener(Listener which) const { return listeners_[which].get(); }
    [[nodiscard]] std::uint16_t port(Listener which) const { return ports_[which]; }
    // Why connections of this family are not accelerated here; empty: they are.
    [[nodiscard]] std::string obstacle(bpf::Hooks::Family family) const;
    // The first qdisc, filter or XDP program that was found on the namespace's devices and that SMC would evade; empty:
    // none.
    [[nodiscard]] const std::string& limits() const { return hooked_.limits; }
    // Whether a hairpin of the namespace has failed recently, and is to be tried again soon.
    [[nodiscard]] bool doubtful() const { return hooked_.doubtful; }
    // Whether programs are being attached, or hairpins tried.
    [[nodiscard]] bool busy() const { return working_; }

    // The listeners that were opened since the last call.
    [[nodiscard]] std::set<Listener> take_fresh() { return std::exchange(fresh_, {}); }
    // This listener could not be served: the next take_fresh() returns it again.
    void still_fresh(Listener which) { fresh_.insert(which); }

    // Another program of sockops has taken the callback flag of this listener: its SYN-ACKs leave without option 254.
    // Only listen() sets the flag again. Until renew_listeners() is called, new connections of the family are plain
    // TCP.
    void callback_taken(Listener which);
    // Replaces each listener that has lost its flag by a new one. To be called each time that hairpins are tried.
    void renew_listeners();

    // Readable when devices or addresses have changed; then call sync_devices(), which also opens listeners that could
    // not be opened before.
    [[nodiscard]] int link_events_fd() const { return link_events_->fd(); }
    void sync_devices();
    // The VLAN ID of a flow's packets as they leave the node (steer/vlans.h); 0: they have no tag.
    // Nothing: there is no route, or it could not be asked for.
    [[nodiscard]] std::optional<std::uint16_t> vlan_of(const Routes::Flow& flow) const;
    [[nodiscard]] std::optional<Routes::Found> route_of(const Routes::Flow& flow) const {
        return routes_.of(flow, netns_.get());
    }
    // The local ports that the namespace gives to connections (ip_local_port_range), and ports that it keeps for
    // services (ip_local_reserved_ports); at most a second old.
    struct Ports {
        unsigned first = 0, last = 0;
        [[nodiscard]] std::size_t count() const { return last >= first ? last - first + 1 : 0; }
        [[nodiscard]] bool has(std::uint16_t port) const { return port >= first && port <= last; }
    };
    struct LocalPorts {
        Ports range{32768, 60999};  // the kernel's default
        std::vector<Ports> reserved;
        [[nodiscard]] bool has(std::uint16_t port) const {
            return range.has(port) &&
                   std::ranges::none_of(reserved, [port](const Ports& some) { return some.has(port); });
        }
    };
    [[nodiscard]] const LocalPorts& local_ports() const;
    // Tells the BPF programs whether the namespace has used up its quota of connections or of handshakes.
    void set_full(bool full);
    // `abandoned`: no process that a rule selects is left there. Then no new connection begins; existing ones go on.
    void set_abandoned(bool abandoned);
    // Tries the hairpins again; if something has failed, attaches programs again, too.
    void probe();

 private:
    [[nodiscard]] Result<SockDiag> sock_diag() const;
    enum class Work : std::uint8_t { kNothing, kProbe, kSync };
    static constexpr unsigned kQuiet = 60;  // calls of renew_listeners(); by default five minutes

    Namespace(const Parts& parts, UniqueFd netns, std::uint64_t inode, std::uint32_t slot)
        : p_(parts), netns_(std::move(netns)), inode_(inode), slot_(slot) {}
    void open_listeners();
    void close_listeners();
    Result<void> listen(Listener which);
    void work(Work what);
    void worked(const Result<bpf::Hooks::State>& state);
    void work_next(Work next);
    void publish();

    Parts p_;
    UniqueFd netns_;
    std::uint64_t inode_;
    std::uint32_t slot_;
    std::uint64_t cookie_ = 0;
    UniqueFd listeners_[kListeners];
    std::uint16_t ports_[kListeners] = {};
    std::set<Listener> fresh_;
    bool flag_taken_[kListeners] = {};  // another program has taken the listener's callback flag
    UniqueFd replaced_[kListeners];     // the listener before; handshakes with it may be under way
    unsigned since_taken_ = kQuiet;     // calls of renew_listeners() since a flag was last taken
    std::optional<Rtnetlink> link_events_;
    std::shared_ptr<bpf::Hooks> hooks_;  // used on the hooking thread, except its packet socket
    bpf::Hooks::State hooked_;
    std::string hooking_failed_;
    bool working_ = false;
    Work wanted_ = Work::kNothing;  // to be done after the work in progress
    smc_netns published_{};
    bool full_ = false, abandoned_ = false;
    bool withdrawn_ = false;
    mutable Routes routes_;
    mutable LocalPorts local_ports_;
    mutable TimePoint local_ports_until_{};  // when it is to be read again
};

}  // namespace smc
