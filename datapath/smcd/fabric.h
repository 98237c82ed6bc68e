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

    [[nodiscard]] virtual const char* provider() const = 0;  // "local"
    [[nodiscard]] virtual const Gid& gid() const = 0;
    [[nodiscard]] virtual Chid chid() const = 0;
    // A PCI address, or a file; empty: it has no device.
    [[nodiscard]] virtual std::string device() const { return {}; }
    // How who sleeps hears of news: "descriptors", "interrupts", or by "looking" at memory now and then.
    [[nodiscard]] virtual const char* wake_up() const { return "descriptors"; }
    // Its peers may die and no TCP connection tells: they are on other machines, which stop without a word.
    [[nodiscard]] virtual bool peers_die_silently() const { return false; }

    // For the data path; nullptr: its doorbells are descriptors that need nobody to look.
    [[nodiscard]] virtual std::shared_ptr<BusyPoll> busy_poll() const { return nullptr; }

    struct Registered {
        DmbToken token{};
        std::shared_ptr<Dmb> dmb;
    };
    // A new DMB of `bytes` (a size that compress_size() can express, CDC included) that only `peer` can attach, once.
    virtual Result<Registered> register_dmb(const Gid& peer, std::uint32_t bytes) = 0;
    // The owner forgets it; its memory goes when both sides have dropped theirs.
    virtual void deregister(DmbToken token) = 0;
    [[nodiscard]] virtual std::size_t registered() const = 0;

    // Whether the peer can be reached now. Later it may still fail, but not for a reason that could have been known.
    [[nodiscard]] virtual Result<void> reach(const Gid& peer) = 0;
    // The peer's DMB, of which CLC said that it has `bytes`. Calls back exactly once, within `timeout`, perhaps at
    // once.
    using OnAttached = std::function<void(Result<Dmb>)>;
    virtual void attach(const Gid& peer, DmbToken token, std::uint32_t bytes, std::chrono::milliseconds timeout,
                        OnAttached on_attached) = 0;
};

// Another node on a fabric. A GID says who it is on that fabric only.
struct Peer {
    Fabric* fabric = nullptr;
    Gid gid;
    auto operator<=>(const Peer&) const = default;
};

}  // namespace smc::smcd
