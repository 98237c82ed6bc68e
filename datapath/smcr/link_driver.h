// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A link as a task of the engine. Received CDC messages go to the group (group_driver.h), LLC messages to
// Callbacks::llc. Messages that cannot be sent at once are queued until there is room.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "datapath/smcr/element.h"
#include "datapath/smcr/group_driver.h"
#include "datapath/smcr/link.h"
#include "datapath/spin.h"
#include "datapath/task.h"
#include "smc/times.h"

namespace smc::smcr {

class LinkDriver final : public Task, private LinkHandler {
 public:
    // Called on the engine's thread.
    struct Callbacks {
        std::function<void(std::vector<std::uint8_t> message)> llc;
        std::function<void(std::string why)> down;
        // Called at the driver's end with objects whose destruction may take seconds: a queue pair of soft-RoCE whose
        // port is down. If there is no such callback, the driver destroys them itself.
        std::function<void(std::shared_ptr<void> remains)> destroy_later{};
        // Called when that destruction is done, if a link broke that connections had used: on the thread that did it,
        // after GroupDriver::destroyed().
        std::function<void()> destroyed{};
    };
    // May be read by any thread.
    struct Counters {
        std::atomic<std::uint64_t> messages_sent{0}, messages_received{0}, bytes_written{0};
        std::atomic<std::uint64_t> unknown_tokens{0}, stale{0}, full{0};
    };
    LinkDriver(std::unique_ptr<Link> link, std::shared_ptr<GroupDriver> group, std::uint8_t number, Callbacks callbacks,
               std::chrono::milliseconds last_messages = Times{}.last_messages);
    LinkDriver(const LinkDriver&) = delete;
    LinkDriver& operator=(const LinkDriver&) = delete;
    ~LinkDriver() override;

    // --- any thread
    //
    // Queues an LLC message, or the last CDC message of a connection. The caller calls Engine::kick() afterwards.
    // False: the queue is full, because the peer does not take what it is sent.
    bool send_soon(std::vector<std::uint8_t> message);
    // One of the LLC messages that were given to Callbacks::llc has been dealt with.
    void llc_done() { llc_pending_--; }
    // Ends the link when everything that is queued has left, at the latest after `last_messages`; or at once. The
    // caller calls Engine::kick() afterwards.
    void end(std::string why, bool at_once = false);
    // Keeps `memory` until this link has ended: the peer may write there until then, and the group may end before (V1).
    void keep(std::vector<std::shared_ptr<ElementOwner>> memory);
    [[nodiscard]] const Counters& counters() const { return counters_; }
    // Link::end() may be called at any time, all else only before the driver is added to an engine.
    [[nodiscard]] Link& link() { return *link_; }

    // --- Task
    bool start(Poller& poller) override;
    void on_event(int, std::uint32_t) override { readable_ = true; }
    bool run(TimePoint now) override;
    void abort(Reason reason) override;
    [[nodiscard]] bool ended() const override { return ended_; }
    [[nodiscard]] TimePoint deadline() const override { return deadline_; }
    [[nodiscard]] bool look() override;

    // --- for transports, on the engine's thread
    //
    [[nodiscard]] std::uint8_t number() const { return number_; }
    // A connection has ended. `send`: its send element, which is kept until all that was posted from it is retired.
    // `last`: its last message, which goes over another link if this one breaks before.
    using Encoded = wire::Encoded<cdc::kMessageBytes>;
    void release(Element send, const Encoded& last);
    // The same, but `message` has still to be sent, and is held back while has_broken(`up_to`) is true (C5).
    void release_later(Element send, const Encoded& message, const Encoded& last, unsigned up_to);
    // Whether there is room for `requests` more, and nothing is queued in front of them.
    [[nodiscard]] bool has_room(std::uint32_t requests) const;
    // The connection is run when there is room.
    void want_room(Task& task);
    void forget(Task& task) { std::erase(starved_, &task); }
    // See Link.
    [[nodiscard]] std::uint64_t next_sequence() const { return link_->next_sequence(); }
    [[nodiscard]] std::uint64_t retired() const { return link_->retired(); }
    // The link has broken: connections must use another one.
    [[nodiscard]] bool is_lost() const { return lost_.load(std::memory_order_relaxed); }
    // Hands over what has arrived, unless poll() of this link is under way.
    void drain();
    Link::Posted send(const wire::Encoded<cdc::kMessageBytes>& message);
    // Sends the last message of a connection that ends; breaks the link if it cannot be queued.
    void send_last(const wire::Encoded<cdc::kMessageBytes>& message);
    Link::Posted write(std::span<const std::uint8_t> from, std::uint32_t lkey, RKey rkey, VirtualAddress to);

 private:
    void on_message(wire::Bytes message) override;
    void on_broken(const std::string& why) override;
    bool poll(bool readable, bool asks);
    [[nodiscard]] bool has_news() const;
    // Whether anything waits for the completion of a request.
    [[nodiscard]] bool is_awaited() const;
    void wake_up(TimePoint now);
    bool sleep(TimePoint now);
    void on_cdc(wire::Bytes message);
    void pass_on(std::vector<std::uint8_t> message);
    void send_held_back();
    void send_queued();
    void wake_starved();
    void free_retired();
    bool retire();
    bool end_if_wanted(TimePoint now);
    void leave();
    [[nodiscard]] bool queue_is_empty() const;
    [[nodiscard]] bool drained() const { return queue_is_empty() && link_->room() == link_->capacity(); }

    std::vector<std::shared_ptr<ElementOwner>> kept_;  // before link_, so that it is destroyed after it
    std::unique_ptr<Link> link_;
    std::shared_ptr<GroupDriver> group_;
    std::uint8_t number_;
    Callbacks callbacks_;
    std::chrono::milliseconds last_messages_;
    Counters counters_;
    Poller* poller_ = nullptr;
    Poller::Source source_{};

    mutable std::mutex mutex_;  // guards queued_, end_, at_once_ and kept_
    std::deque<std::vector<std::uint8_t>> queued_;
    std::optional<std::string> end_;
    bool at_once_ = false;

    std::vector<Task*> starved_;  // connections that want room
    // Of a connection that has ended: its send element and its last message, kept until retired() reaches `until`.
    struct Retiring {
        std::uint64_t until = 0;
        Element send;
        wire::Encoded<cdc::kMessageBytes> last;
    };
    std::deque<Retiring> retiring_;
    struct HeldBack {
        Element send;
        Encoded message, last;
        unsigned up_to = 0;
    };
    std::vector<HeldBack> held_back_;
    std::atomic<bool> lost_{false};
    std::atomic<int> llc_pending_{0};
    bool readable_ = false;
    bool polling_ = false;
    unsigned broken_as_ = 0;     // C5: its number as a broken link; not 0: the group waits for destroyed()
    std::uint64_t retired_ = 0;  // link_->retired() at the last retire()
    Spin spin_;
    std::uint64_t heard_ = 0;  // messages_received when it went to sleep
    bool sleeps_ = false;
    TimePoint spins_until_ = kNever;  // kNever: it is not busy-polled, and poll() asks for events instead
    TimePoint deadline_ = kNever;
    bool ended_ = false;
};

}  // namespace smc::smcr
