// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// DMBs whose connection is over, with their mappings, for the next connection of the same two peers (datapath/smcd/
// lease.h). They count towards the memory limit of SMC-D, and are dropped when they have been idle for some time, when
// that memory is needed, and when there are too many. Control thread only.
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
    // `memory` and the fabrics outlive this object.
    explicit Pool(Memory& memory) : memory_(memory) {}
    ~Pool();
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

    // Takes a share of the memory, and drops kept DMBs if there is not enough left. An empty share: even that did not
    // do.
    Memory::Share share(std::uint64_t bytes);

    // An own DMB that `peer` has parked, reset for another connection. nullopt: there is none.
    std::optional<OwnDmb> take(const Peer& peer, std::uint32_t bytes);
    // Keeps an own DMB whose connection has run and is over, or will be at once; the peer may not know yet.
    void keep(const Peer& peer, OwnDmb own, TimePoint now);

    // The peer's DMB that is kept here under this token, if its owner has taken it for another connection.
    std::optional<PeersDmb> find(const Peer& peer, DmbToken token, std::uint32_t bytes);
    // Keeps the peer's DMB, into which this agent writes nothing any more.
    void park(const Peer& peer, DmbToken token, PeersDmb theirs, TimePoint now);

    // Drops DMBs that have been idle for some seconds, and DMBs beyond the memory limit.
    void sweep(TimePoint now);
    // The peer is gone: drops the DMBs that are kept for it. Those that their owner has taken stay for some seconds:
    // a session is perhaps about to find() one.
    void forget(const Peer& peer, TimePoint now);
    // Own DMBs and peers' DMBs.
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
        TimePoint until;  // when it is dropped in any case
    };
    static void release(const Own& own);
    bool drop_one();

    Memory& memory_;
    std::deque<Own> own_;  // the oldest first
    std::map<std::pair<Peer, DmbToken>, Theirs> theirs_;
};

}  // namespace smc::smcd
