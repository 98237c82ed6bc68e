// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// DMBs whose connection is over, with their mappings, for the next connection of the same two peers (datapath/smcd/
// lease.h). They count in the memory that SMC-D may take, and are given back when they are idle, when that memory is
// needed, and beyond a bound. Control thread only.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "agent/smcd/memory.h"
#include "datapath/smcd/fabric.h"
#include "smc/time.h"

namespace smc::smcd {

struct OwnDmb {
    Fabric* fabric = nullptr;
    Fabric::Registered registered;
    Memory::Share share;
};
struct PeersDmb {
    std::shared_ptr<Dmb> dmb;
    Memory::Share share;
};

class Pool {
 public:
    // Outlives it, as the fabrics do.
    explicit Pool(Memory& memory) : memory_(memory) {}
    ~Pool();
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

    // A share of the memory; what is kept here makes room for it. Without: there is not so much.
    Memory::Share share(std::uint64_t bytes);

    // One of the own that `peer` has parked, as good as new. Nothing: there is none.
    std::optional<OwnDmb> take(const Peer& peer, std::uint32_t bytes);
    // Its connection has run and is over, or will be at once; the peer may not know yet.
    void keep(const Peer& peer, OwnDmb own, TimePoint now);

    // The peer's DMB that is kept here under this token, if its owner uses it again.
    std::optional<PeersDmb> find(const Peer& peer, DmbToken token, std::uint32_t bytes);
    // Nobody here writes it any more.
    void park(const Peer& peer, DmbToken token, PeersDmb theirs, TimePoint now);

    // What has been idle for some seconds goes, and what is beyond the limit.
    void sweep(TimePoint now);
    // Nothing of it is kept.
    void forget(const Peer& peer);
    // Of both kinds.
    [[nodiscard]] std::size_t kept() const { return own_.size() + theirs_.size(); }

 private:
    struct Own {
        Peer peer;
        OwnDmb dmb;
        TimePoint since;
    };
    struct Theirs {
        PeersDmb dmb;
        TimePoint since;
    };
    static void release(const Own& own);
    bool make_room();

    Memory& memory_;
    std::deque<Own> own_;  // the oldest first
    std::map<std::pair<Peer, DmbToken>, Theirs> theirs_;
};

}  // namespace smc::smcd
