// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A link as a task of the engine. CDC messages that arrive go to the inbox of the connection that their alert token
// names, LLC messages to whoever manages the link; what cannot be sent at once waits for room.
//
// Invariants:
//   C1  A message for a token is kept from open() on, whether or not the connection runs already: data may arrive
//       before the CLC Confirm (RFC 7609 section 3.5.2.4).
//   C2  An RMBE is given back only when its peer said that it is done with it, or with the link, or shows it: by using
//       its own for another connection (section 4.4.2).
//   C3  When the link breaks every connection on it ends with kLinkDown, and `down` is called once.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "datapath/smcr/element.h"
#include "datapath/smcr/link.h"
#include "datapath/task.h"
#include "smc/flow/cdc_inbox.h"

namespace smc::smcr {

class LinkDriver final : public Task, private LinkHandler {
 public:
    // Called on the engine's thread.
    struct Hooks {
        std::function<void(std::vector<std::uint8_t> message)> llc;
        std::function<void(std::string why)> down;
    };
    // Readable by anybody.
    struct Counters {
        std::atomic<std::uint64_t> messages_sent{0}, messages_received{0}, bytes_written{0};
        std::atomic<std::uint64_t> unknown_tokens{0}, stale{0}, full{0};
    };
    // `aborts`: it was the first one, and says that nothing comes of the connection.
    using Spoke = std::function<void(bool aborts)>;
    // What an alert token stands for here.
    struct Receiver {
        flow::CdcInbox inbox;
        Task* task = nullptr;
        bool wants_room = false;
        std::optional<Element> lingering;  // C2
        bool peer_has_left = false;        // it gave its RMBE to another connection
        Spoke spoke;                       // to be called with the first message
    };

    // `busy_poll`: how long to ask for completions, after the last one, before waiting for an interrupt.
    LinkDriver(std::unique_ptr<Link> link, Hooks hooks, std::chrono::microseconds busy_poll);

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
    // The peer has given the RMBE that this connection writes into to another one: it ends (RFC 7609 section 4.4.2). To
    // be followed by Engine::kick(); before anybody else writes there.
    void peer_left(AlertToken token);
    // An LLC message, or a last one of a connection. To be followed by Engine::kick(). False: the queue is full, the
    // peer does not take what it is sent.
    bool send_soon(std::vector<std::uint8_t> message);
    // One LLC message less that `llc` was told of and nobody has dealt with.
    void llc_done() { llc_pending_--; }
    // Ends when everything queued has left, at the latest after a moment. To be followed by Engine::kick().
    void end(std::string why);
    [[nodiscard]] const Counters& counters() const { return counters_; }
    // Its end never changes; the rest only until the driver is in an engine.
    [[nodiscard]] Link& link() { return *link_; }

    // --- Task
    bool start(Poller& poller) override;
    void on_event(int, std::uint32_t) override { readable_ = true; }
    bool run(TimePoint now) override;
    void abort(Reason reason) override;
    [[nodiscard]] bool ended() const override { return ended_; }
    [[nodiscard]] TimePoint deadline() const override { return deadline_; }

    // --- for transports, on the engine's thread
    //
    // nullptr: the link is down, or nobody opened this token.
    Receiver* attach(AlertToken token, Task& task);
    // The connection is gone; the RMBE lingers, and what it sent from stays until all of it has left.
    void detach(AlertToken token, Receiver& receiver, Element rmbe, Element send);
    // Room for `requests` more, behind what is queued.
    [[nodiscard]] bool has_room(std::uint32_t requests) const;
    // The connection is run when there is room.
    void want_room(Receiver& receiver);
    Link::Posted send(const wire::Encoded<cdc::kMessageBytes>& message);
    // A last message of a connection that is going; the link ends if it is not to be had.
    void send_last(const wire::Encoded<cdc::kMessageBytes>& message);
    Link::Posted write(std::span<const std::uint8_t> from, std::uint32_t lkey, RKey rkey, VirtualAddress to);

 private:
    void on_message(wire::Bytes message) override;
    void on_broken(const std::string& why) override;
    void on_cdc(wire::Bytes message);
    void send_queued();
    void wake_starved();
    void end_left();
    void free_retired();
    bool end_if_wanted(TimePoint now);
    void leave();
    [[nodiscard]] bool queue_is_empty() const;
    [[nodiscard]] bool drained() const { return queue_is_empty() && link_->room() == link_->capacity(); }

    std::unique_ptr<Link> link_;
    Hooks hooks_;
    std::chrono::microseconds busy_poll_;
    Counters counters_;
    Poller* poller_ = nullptr;
    Poller::Source source_{};

    mutable std::mutex mutex_;  // guards receivers_, queued_, left_, end_ and down_
    // Messages are put into an inbox under it; the connection reads its own without it, on the engine's thread.
    std::unordered_map<AlertToken, std::unique_ptr<Receiver>> receivers_;
    std::deque<std::vector<std::uint8_t>> queued_;
    std::vector<AlertToken> left_;  // whose peer has left
    std::optional<std::string> end_;
    bool down_ = false;

    std::vector<Receiver*> starved_;                          // that want room
    std::deque<std::pair<std::uint64_t, Element>> retiring_;  // send memory, and what must be done before it is free
    std::atomic<int> llc_pending_{0};
    bool readable_ = false;
    TimePoint last_seen_{};
    TimePoint deadline_ = kNever;
    bool ended_ = false;
};

}  // namespace smc::smcr
