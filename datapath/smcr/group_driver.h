// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A link group as the data path sees it: which connection an alert token stands for, which links may carry connections,
// and how the peer's RMBs are reached over each. All links of a group are in one engine, so a connection moves from one
// to another without a lock (RFC 7609 sections 2.3 and 4.6).
//
// Invariants:
//   C1  A message for a token is kept from open() on, whether or not the connection runs already: data may arrive
//       before the CLC Confirm (RFC 7609 section 3.5.2.4).
//   C2  An RMBE is given back only when the peer has said that it is done with the connection, or shows that by giving
//       its own RMBE to another connection (section 4.4.2), or when the group has ended. The loss of the only link is
//       not the end yet: the peer may know of one more, which it uses from now on.
//   C3  When a link breaks, each connection on it moves to another one. A connection ends with kLinkDown if there is no
//       other link, or if the peer's RMB is not known over it.
//   C4  A peer's failover validation (section 4.6.1) is judged only when everything that has come over the other links
//       has been processed. So is a message that another link brings after a gap: if the gap stays, the connection
//       ends.
//   C5  Until the queue pair of a broken link is destroyed, the writes and messages posted on it may still reach the
//       peer: soft-RoCE keeps packets that wait for a neighbour's address, and the peer may not have heard yet that the
//       link is gone. Until then a connection that has moved writes nothing else to where such a write may land, and
//       does not send its last message, after which the peer may give that RMBE to another connection.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "datapath/smcr/element.h"
#include "datapath/task.h"
#include "smc/flow/cdc_inbox.h"
#include "smc/llc/rtokens.h"

namespace smc::smcr {

class LinkDriver;

// A connection that may be moved from one link to another.
class Mover {
 public:
    virtual ~Mover() = default;
    // Called on the engine's thread when the connection's link has broken, or is to be left. False: it cannot move.
    virtual bool move() = 0;
};

class GroupDriver {
 public:
    // Called for a connection's first CDC message. `aborts`: that message aborts the connection.
    using FirstMessage = std::function<void(bool aborts)>;
    // The connection that an alert token stands for.
    struct Receiver {
        flow::CdcInbox inbox;
        Task* task = nullptr;
        Mover* mover = nullptr;
        std::atomic<std::uint8_t> link{0};  // the link that it sends on; 0: it does not run
        std::optional<Element> lingering;   // C2: the RMBE of a connection that has ended
        bool is_reassigned = false;         // the peer gave its RMBE to another connection
        bool lost = false;                  // a message of the peer was lost with a link; none is taken any more
        std::uint8_t over = 0;              // the link of the latest message; 0: there was none
        std::uint32_t base = 0;             // where the peer's producer cursor begins
        std::uint8_t validated = 0;         // C4: the link to which the peer has moved, and told what it had sent; or 0
        bool is_done = false;               // a message has said that the peer writes nothing more
        FirstMessage first_message;         // called for the first message
    };

    // --- any thread
    //
    // C1: keeps messages for this token from now on. False: the token is in use.
    bool open(AlertToken token);
    // `first_message` is called once there has been a message for this token, on the engine's thread or at once.
    void await_message(AlertToken token, FirstMessage first_message);
    // Drops a connection that never ran, and of which its peer was never told.
    void forget(AlertToken token);
    // Drops a connection whose peer may write already: the RMBE is kept until the peer is done with it.
    void linger(AlertToken token, Element rmbe);
    // Another connection was given the RMBE of the peer into which this one writes: this one ends (RFC 7609 section
    // 4.4.2). Called before the other one writes there. The caller calls Engine::kick() for a link afterwards.
    void rmbe_reassigned(AlertToken token);
    // From now on connections may use this link, which is in the engine.
    void use(std::uint8_t number, const std::shared_ptr<LinkDriver>& link);
    // Connections leave this link for another one. The caller calls Engine::kick() for this link afterwards.
    void retire(std::uint8_t number);
    // The link that a connection sends on; 0: it does not run.
    [[nodiscard]] std::uint8_t link_of(AlertToken token) const;
    // For tests: how many connections ended with their link because the peer's RMB was not known over the other link.
    [[nodiscard]] unsigned not_moved() const { return not_moved_.load(std::memory_order_relaxed); }
    // The group ends: connections do not move any more.
    void close();
    // C5: the queue pair of a broken link is destroyed. The caller calls Engine::kick() for the group's links
    // afterwards.
    void destroyed(unsigned broken);
    // C5: links that break are numbered, from 1 on. Whether the queue pair of any of them up to this number still
    // exists.
    [[nodiscard]] bool has_broken(unsigned up_to) const {
        return oldest_broken_.load(std::memory_order_acquire) <= up_to;
    }
    // Notes how an RMB of the peer is reached over each link.
    void note_rmb(const llc::RTokenSet& rmb);
    void forget_rmb(const llc::RTokenSet& rmb);
    // How the peer's RMB that has `rkey` on link `known` is reached over link `wanted`; nothing: it is not known.
    [[nodiscard]] std::optional<llc::RToken> rtoken(std::uint8_t known, RKey rkey, std::uint8_t wanted) const;

    // --- for transports, on the engine's thread
    //
    // From now on messages for the token wake `task`. `base`: where the cursors begin (an eye catcher comes before).
    // nullptr: the token is not open.
    Receiver* attach(AlertToken token, Task& task, Mover& mover, std::uint32_t base = 0);
    // The preferred link, or, if it must not be used, another one. nullptr: there is no link.
    [[nodiscard]] std::shared_ptr<LinkDriver> pick(std::uint8_t preferred) const;

    // --- for links, on the engine's thread
    //
    // Gives a message to its connection. kUnknown: its token is not open; kStale: there was a newer message already.
    enum class CdcResult : std::uint8_t { kTaken, kUnknown, kStale };
    CdcResult on_cdc(const cdc::Message& message, LinkDriver& from, Poller& poller);
    // Does on the engine's thread what rmbe_reassigned(), retire() and destroyed() have asked for.
    void settle(Poller& poller);
    // The link has broken: its connections move, or end, unless a newer link has its number. Returns its number as a
    // broken link, which destroyed() is called with later; 0: use() was never called for it.
    unsigned lost(const LinkDriver& link, Poller& poller);
    // The number of the link that broke last.
    [[nodiscard]] unsigned last_broken() const { return last_broken_.load(std::memory_order_relaxed); }
    // The last message of a connection whose link has broken: it goes over another link, when that is safe (C5).
    void say_later(std::vector<std::uint8_t> message);

 private:
    void move_from(std::uint8_t number, Poller& poller);
    void drain_others(const LinkDriver& than);
    // Whether messages before this one are missing, with data that was written over another link (C4).
    [[nodiscard]] static bool has_gap(const Receiver& receiver, const cdc::Message& message, const LinkDriver& from);
    [[nodiscard]] bool may_miss_some(const cdc::Message& message, const LinkDriver& from);
    void go_on(Poller& poller);

    mutable std::mutex mutex_;  // guards the members below
    // Messages are put into an inbox under mutex_; a connection reads its own inbox without it, on the engine's thread.
    std::unordered_map<AlertToken, std::unique_ptr<Receiver>> receivers_;
    std::map<std::uint8_t, std::weak_ptr<LinkDriver>> links_;  // links that connections may use
    std::map<std::uint8_t, std::weak_ptr<LinkDriver>>
        receiving_;  // these, and links to be left, which may still receive
    std::vector<llc::RTokenSet> rmbs_;
    std::vector<AlertToken> reassigned_;  // connections whose RMBE at the peer now belongs to another one
    std::vector<std::uint8_t> retired_;   // links that connections are to leave
    std::atomic<unsigned> not_moved_{0};
    // C5.
    static constexpr unsigned kNoneBroken = ~0U;
    std::set<unsigned> broken_;
    std::atomic<unsigned> oldest_broken_{kNoneBroken}, last_broken_{0};
    struct Later {
        unsigned up_to = 0;  // sent when has_broken(up_to) is false
        std::vector<std::uint8_t> message;
    };
    std::vector<Later> later_;       // last messages
    bool broken_link_gone_ = false;  // go_on() is due
    bool closed_ = false;
};

}  // namespace smc::smcr
