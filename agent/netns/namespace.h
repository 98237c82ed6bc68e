// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// One network namespace that the agent serves: its listeners, its BPF programs, its sockets.
#pragma once

#include <unistd.h>

#include <asio/io_context.hpp>
#include <asio/thread_pool.hpp>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

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
    // What they all share. `hooking`: one thread, on which programs are attached; what comes of it is told on `io`.
    // `hurry`: it leaves out what can be done later.
    struct Parts {
        bpf::Programs& programs;
        asio::io_context& io;
        asio::thread_pool& hooking;
        bpf::Hooks::Tc tc;
        const std::atomic<bool>& hurry;
    };

    // Opens the listeners. The programs follow on the other thread: it serves once obstacle() is empty. `slot` is its
    // place in the maps.
    static Result<std::shared_ptr<Namespace>> open(const Parts& parts, UniqueFd netns, std::uint64_t inode,
                                                   std::uint32_t slot);
    ~Namespace();
    Namespace(const Namespace&) = delete;
    Namespace& operator=(const Namespace&) = delete;

    // Detaches and stops listening. What still holds the object can make sockets, but nothing new arrives.
    void close();
    // Stops listening, for good: another agent listens there. What there is goes on. The hooking thread does the rest.
    void withdraw();

    [[nodiscard]] std::uint64_t cookie() const { return cookie_; }
    [[nodiscard]] std::uint64_t inode() const { return inode_; }
    // A descriptor of it; invalid where there are none left.
    [[nodiscard]] UniqueFd handle() const { return duplicate(netns_.get()); }
    [[nodiscard]] std::uint32_t slot() const { return slot_; }
    [[nodiscard]] const std::vector<std::string>& devices() const { return hooked_.devices; }

    // A non-blocking TCP socket of the namespace: until somebody says otherwise, its close is a reset (L1). It belongs
    // to `owner`, so that firewall rules by user see the application's.
    struct Owner {
        std::uint32_t uid = 0, gid = 0;
    };
    [[nodiscard]] Result<UniqueFd> tcp_socket(int family, const smc_sock& mark, Owner owner) const;
    // Sends a packet, link header included, by a device as it is: no routing, no firewall.
    Result<void> send_packet(const std::vector<std::uint8_t>& packet, bool v6, unsigned device) const;

    // Ends a socket of an application. See SockDiag::abort().
    [[nodiscard]] Result<void> end_socket(const SockDiag::Socket& which) const;

    enum Listener : std::uint8_t { kClc4, kClc6, kListeners };
    // -1 where the family is not there.
    [[nodiscard]] int listener(Listener which) const { return listeners_[which].get(); }
    [[nodiscard]] std::uint16_t port(Listener which) const { return ports_[which]; }
    // Empty: connections of the family are accelerated here. Else what is in the way.
    [[nodiscard]] std::string obstacle(bpf::Hooks::Family family) const;
    // What shapes or filters packets of its devices, and not those of SMC; empty: nothing does.
    [[nodiscard]] const std::string& limits() const { return hooked_.limits; }
    // A hairpin of it has failed lately: it is to be tried again soon.
    [[nodiscard]] bool doubtful() const { return hooked_.doubtful; }
    // Its programs are being attached or tried.
    [[nodiscard]] bool busy() const { return working_; }

    // Listeners that opened since the last call.
    [[nodiscard]] std::vector<Listener> take_fresh() { return std::exchange(fresh_, {}); }
    // This one could not be served: take_fresh() tells it again.
    void still_fresh(Listener which) { fresh_.push_back(which); }

    // Readable when devices or addresses changed; then call sync_devices(). It also opens listeners that
    // could not be opened before.
    [[nodiscard]] int link_events_fd() const { return link_events_->fd(); }
    void sync_devices();
    // An address of this namespace: connections to it do not leave by a device.
    [[nodiscard]] bool has_address(const Endpoint& address) const;
    // How many it gives out to connections (ip_local_port_range), as it was at most a second ago.
    [[nodiscard]] std::size_t local_ports() const;
    // It has as many connections as it may have, or no longer.
    void set_full(bool full);
    // Tries the hairpins again.
    void probe();

 private:
    enum class Work : std::uint8_t { kNothing, kProbe, kSync };

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
    std::vector<Listener> fresh_;
    std::optional<Rtnetlink> link_events_;
    std::shared_ptr<bpf::Hooks> hooks_;  // used on the other thread, but for its packet socket
    bpf::Hooks::State hooked_;
    std::string hooking_failed_;
    bool working_ = false;
    Work wanted_ = Work::kNothing;  // behind what is being done
    smc_netns published_{};
    bool full_ = false;
    bool withdrawn_ = false;
    mutable std::size_t local_ports_ = 0;
    mutable TimePoint local_ports_until_{};  // then it is to be looked at again
};

}  // namespace smc
