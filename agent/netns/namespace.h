// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// One network namespace that the agent serves: its listeners, its BPF programs, its sockets.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/steer/hooks.h"
#include "agent/steer/programs.h"
#include "os/endpoint.h"
#include "os/result.h"
#include "os/rtnetlink.h"
#include "os/unique_fd.h"

namespace smc {

// The calling thread is inside another network namespace while this lives. setns() moves only the thread.
class InNamespace {
 public:
    explicit InNamespace(int netns_fd);
    InNamespace(const InNamespace&) = delete;
    InNamespace& operator=(const InNamespace&) = delete;
    ~InNamespace();
    [[nodiscard]] bool entered() const { return entered_; }

 private:
    bool entered_ = false;
};

class Namespace {
 public:
    // Opens the listeners and attaches the programs. From the return on, SYNs with option 254 come here.
    static Result<std::unique_ptr<Namespace>> open(bpf::Programs& programs, UniqueFd netns, std::uint64_t inode,
                                                   std::uint32_t slot, const std::string& tc);
    ~Namespace();
    Namespace(const Namespace&) = delete;
    Namespace& operator=(const Namespace&) = delete;

    // Detaches and stops listening. What still holds the object can make sockets, but nothing new arrives.
    void close();

    [[nodiscard]] std::uint64_t cookie() const { return cookie_; }
    [[nodiscard]] std::uint64_t inode() const { return inode_; }
    [[nodiscard]] std::uint32_t slot() const { return slot_; }
    [[nodiscard]] std::vector<std::string> devices() const {
        return hooks_ ? hooks_->devices() : std::vector<std::string>();
    }

    // A non-blocking TCP socket of the namespace: until somebody says otherwise, its close is a reset (L1). It belongs
    // to `owner`, so that firewall rules by user see the application's.
    struct Owner {
        std::uint32_t uid = 0, gid = 0;
    };
    [[nodiscard]] Result<UniqueFd> tcp_socket(int family, const smc_sock& mark, Owner owner) const;
    // Sends a packet, link header included, by a device as it is: no routing, no firewall.
    Result<void> send_packet(const std::vector<std::uint8_t>& packet, bool v6, unsigned device) const;

    enum Listener : std::uint8_t { kClc4, kClc6, kListeners };
    // -1 where the family is not there.
    [[nodiscard]] int listener(Listener which) const { return listeners_[which].get(); }
    [[nodiscard]] std::uint16_t port(Listener which) const { return ports_[which]; }
    // Empty: connections of the family are accelerated here. Else what is in the way.
    [[nodiscard]] std::string obstacle(bpf::Hooks::Family family) const;

    // Listeners that opened since the last call.
    [[nodiscard]] std::vector<Listener> take_fresh() { return std::exchange(fresh_, {}); }

    // Readable when devices or addresses changed; then call sync_devices(). It also opens listeners that
    // could not be opened before.
    [[nodiscard]] int link_events_fd() const { return link_events_->fd(); }
    void sync_devices();
    // An address of this namespace: connections to it do not leave by a device.
    [[nodiscard]] bool has_address(const Endpoint& address) const;
    // It has as many connections as it may have, or no longer.
    void set_full(bool full);
    // Tries the hairpins again.
    void probe();

 private:
    Namespace(bpf::Programs& programs, UniqueFd netns, std::uint64_t inode, std::uint32_t slot)
        : programs_(programs), netns_(std::move(netns)), inode_(inode), slot_(slot) {}
    void open_listeners();
    Result<void> listen(Listener which);
    Result<void> publish();

    bpf::Programs& programs_;
    UniqueFd netns_;
    std::uint64_t inode_;
    std::uint32_t slot_;
    std::uint64_t cookie_ = 0;
    UniqueFd listeners_[kListeners];
    std::uint16_t ports_[kListeners] = {};
    std::vector<Listener> fresh_;
    std::optional<Rtnetlink> link_events_;
    std::unique_ptr<bpf::Hooks> hooks_;
    smc_netns published_{};
    bool full_ = false;
};

}  // namespace smc
