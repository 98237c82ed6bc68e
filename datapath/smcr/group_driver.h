// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A link group as the data path sees it: which connection an alert token stands for, which links may carry connections,
// and how the peer's RMBs are reached over each. All links of a group are in one engine, so a connection moves from one
// to another without a lock (RFC 7609 sections 2.3 and 4.6).
//
// Invariants:
//   C1  A message for a token is kept from open() on, whether or not the connection runs already: data may arrive
//       before the CLC Confirm (RFC 7609 section 3.5.2.4).
//   C2  An RMBE is given back only when its peer said that it is done with it, or shows it by using its own for
//       another connection (section 4.4.2), or when the last link has gone.
//   C3  When a link breaks every connection on it moves to another one; when that was the last one, it ends with
//       kLinkDown.
//   C4  What the peer moved with (failover validation, section 4.6.1) is judged only when everything that came over the
//       other links has been looked at.
//   C5  What a link had posted when it broke may reach the peer for as long as its queue pair exists: soft-RoCE keeps
//       packets that wait for a neighbour's address, and the peer may not have heard yet that the link is gone. Until
//       the queue pair is destroyed, a connection that moved writes nothing else to where such a write may land, and no
//       last message lets the peer give that RMBE to another connection.
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

// Who may be moved from one link to another.
class Mover {
 public:
    virtual ~Mover() = default;
    // The link that it uses is gone, or is to be left. On the engine's thread. False: there is no other.
    virtual bool move() = 0;
};

class GroupDriver {
 public:
    // `aborts`: it was the first one, and says that nothing comes of the connection.
    using Spoke = std::function<void(bool aborts)>;
    // What an alert token stands for here.
    struct Receiver {
        flow::CdcInbox inbox;
        Task* task = nullptr;
        Mover* mover = nullptr;
        std::atomic<std::uint8_t> link{0};  // that it sends on
        std::optional<Element> lingering;   // C2
        bool peer_has_left = false;         // it gave its RMBE to another connection
        bool lost = false;                  // the peer sent something that never came
        Spoke spoke;                        // to be called with the first message
    };

    // --- any thread
    //
    // C1. False: the token is in use.
    bool open(AlertToken token);
    // `spoke` is called once there has been a message for this token, on the engine's thread or at once.
    void await_message(AlertToken token, Spoke spoke);
    // A connection that never ran, and that its peer was never told of.
    void forget(AlertToken token);
    // The same, but its peer may write already: the RMBE stays until the peer is done with it.
    void linger(AlertToken token, Element rmbe);
    // The peer has given the RMBE that this connection writes into to another one: it ends (RFC 7609 section 4.4.2).
    // Before anybody else writes there. To be followed by Engine::kick() of a link.
    void peer_left(AlertToken token);
    // Connections may use this link, which is in the engine.
    void use(std::uint8_t number, const std::shared_ptr<LinkDriver>& link);
    // They leave it for another one. To be followed by Engine::kick() of that link.
    void retire(std::uint8_t number);
    // The link that a connection sends on; 0: it does not run.
    [[nodiscard]] std::uint8_t link_of(AlertToken token) const;
    // Connections that ended with their link although there was another one: the peer's RMB was not known there.
    [[nodiscard]] unsigned stranded() const { return stranded_.load(std::memory_order_relaxed); }
    // The group ends: nobody moves any more.
    void close();
    // C5: the queue pair of a link that broke is destroyed. To be followed by Engine::kick() of the group's links.
    void destroyed(unsigned stray);
    // C5: links that broke are numbered. Any up to this one is not destroyed yet.
    [[nodiscard]] bool has_strays(unsigned up_to) const {
        return oldest_stray_.load(std::memory_order_acquire) <= up_to;
    }
    // How an RMB of the peer is reached over every link that is known.
    void know(const llc::RTokenSet& rmb);
    void forget_rmb(const llc::RTokenSet& rmb);
    // Over another link than the one that `rkey` is for; nothing: not known.
    [[nodiscard]] std::optional<llc::RToken> rtoken(std::uint8_t known, RKey rkey, std::uint8_t wanted) const;

    // --- for transports, on the engine's thread
    //
    // nullptr: no link is left, or nobody opened this token.
    Receiver* attach(AlertToken token, Task& task, Mover& mover);
    void detach(AlertToken token, Element rmbe);
    // That link, or, if it is not to be used, another one. nullptr: there is none.
    [[nodiscard]] std::shared_ptr<LinkDriver> pick(std::uint8_t preferred) const;

    // --- for links, on the engine's thread
    //
    // Counts what is to be counted; false: no message of CDC.
    enum class Heard : std::uint8_t { kTaken, kUnknown, kStale };
    Heard on_cdc(const cdc::Message& message, LinkDriver& from, Poller& poller);
    // Connections whose peer has left, and those on links that are to be left.
    void settle(Poller& poller);
    // It is broken: whoever used it moves, or ends. Its number as a stray, to be followed by destroyed(); 0: nobody
    // used it.
    unsigned lost(std::uint8_t number, Poller& poller);
    // The last that broke.
    [[nodiscard]] unsigned newest_stray() const { return newest_stray_.load(std::memory_order_relaxed); }
    // A last message of a connection whose link is lost: it goes over another link, when that is safe (C5).
    void say_later(std::vector<std::uint8_t> message);

 private:
    void move_from(std::uint8_t number, Poller& poller);
    void drain_others(const LinkDriver& than);
    void go_on(Poller& poller);

    mutable std::mutex mutex_;  // guards everything here
    // Messages are put into an inbox under it; the connection reads its own without it, on the engine's thread.
    std::unordered_map<AlertToken, std::unique_ptr<Receiver>> receivers_;
    std::map<std::uint8_t, std::weak_ptr<LinkDriver>> links_;  // that may be used
    std::map<std::uint8_t, std::weak_ptr<LinkDriver>> heard_;  // ... or may still bring something
    std::vector<llc::RTokenSet> rmbs_;
    std::vector<AlertToken> left_;       // whose peer has left
    std::vector<std::uint8_t> retired_;  // links to be left
    std::atomic<unsigned> stranded_{0};
    // C5.
    static constexpr unsigned kNoStray = ~0U;
    std::set<unsigned> strays_;
    std::atomic<unsigned> oldest_stray_{kNoStray}, newest_stray_{0};
    struct Later {
        unsigned up_to = 0;  // when these have gone
        std::vector<std::uint8_t> message;
    };
    std::vector<Later> later_;     // last messages
    bool stray_has_gone_ = false;  // and nobody has been told
    bool had_link_ = false;
    bool closed_ = false;
};

}  // namespace smc::smcr
