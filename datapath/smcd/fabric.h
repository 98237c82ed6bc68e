// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Port: what an ISM provider does for SMC-D. A fabric has one CHID, and this node has one GID on it. Control thread
// only.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "datapath/busy_poll.h"
#include "datapath/smcd/dmb.h"
#include "os/result.h"
#include "smc/wire/ids.h"

namespace smc::smcd {

class Fabric {
 public:
    virtual ~Fabric() = default;

    [[nodiscard]] virtual const char* provider() const = 0;  // "local" or "ivshmem"
    [[nodiscard]] virtual const Gid& gid() const = 0;
    [[nodiscard]] virtual Chid chid() const = 0;
    // A PCI address, or a file; empty: it has no device.
    [[nodiscard]] virtual std::string device() const { return {}; }
    // How a sleeping engine is woken: by "descriptors", "interrupts", or "looking" at memory at intervals.
    [[nodiscard]] virtual const char* wake_up() const { return "descriptors"; }
    // Whether a peer may die without an end of its TCP connections, because it is on another machine.
    [[nodiscard]] virtual bool peers_die_silently() const { return false; }

    // The object that engines have to poll; nullptr: none, because the doorbells are descriptors.
    [[nodiscard]] virtual std::shared_ptr<BusyPoll> busy_poll() const { return nullptr; }

    struct Registered {
        DmbToken token{};
        std::shared_ptr<Dmb> dmb;
    };
    // A new DMB of `bytes` (a size that compress_size() can express, CDC included) that only `peer` can attach, once.
    virtual Result<Registered> register_dmb(const Gid& peer, std::uint32_t bytes) = 0;
    // The owner gives the DMB up; its memory is freed when both sides have dropped their Dmb.
    virtual void deregister(DmbToken token) = 0;
    [[nodiscard]] virtual std::size_t registered() const = 0;

    // Makes the names by which peers find this node again if somebody has deleted them. True: it did so.
    virtual Result<bool> restore() { return false; }

    // Whether the peer can be reached now. attach() may still fail later, for a reason that cannot be known now.
    [[nodiscard]] virtual Result<void> reach(const Gid& peer) = 0;
    // Attaches the peer's DMB, whose size is `bytes` according to CLC. Calls back exactly once, within `timeout`,
    // possibly before attach() returns.
    using OnAttached = std::function<void(Result<Dmb>)>;
    virtual void attach(const Gid& peer, DmbToken token, std::uint32_t bytes, std::chrono::milliseconds timeout,
                        OnAttached on_attached) = 0;
};

// Another node on a fabric. A GID is unique on its fabric only.
struct Peer {
    Fabric* fabric = nullptr;
    Gid gid;
    auto operator<=>(const Peer&) const = default;
};

}  // namespace smc::smcd
