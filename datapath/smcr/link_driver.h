// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A link as a task of the engine. CDC messages that arrive go to the group (group_driver.h), LLC messages to whoever
// manages the link; what cannot be sent at once waits for room.
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
    struct Hooks {
        std::function<void(std::vector<std::uint8_t> message)> llc;
        std::function<void(std::string why)> down;
        // At the driver's end: what may take its time, as a queue pair of soft-RoCE does whose port is down (seconds).
        // None: it takes it here.
        std::function<void(std::shared_ptr<void> remains)> bury{};
        // Called when that is over, where the link broke: GroupDriver::destroyed() has been, on whatever thread.
        std::function<void()> buried{};
    };
    // Readable by anybody.
    struct Counters {
        std::atomic<std::uint64_t> messages_sent{0}, messages_received{0}, bytes_written{0};
        std::atomic<std::uint64_t> unknown_tokens{0}, stale{0}, full{0};
    };
    LinkDriver(std::unique_ptr<Link> link, std::shared_ptr<GroupDriver> group, std::uint8_t number, Hooks hooks,
               std::chrono::milliseconds last_messages = Times{}.last_messages);
    LinkDriver(const LinkDriver&) = delete;
    LinkDriver& operator=(const LinkDriver&) = delete;
    ~LinkDriver() override;

    // --- any thread
    //
    // An LLC message, or a last one of a connection. To be followed by Engine::kick(). False: the queue is full, the
    // peer does not take what it is sent.
    bool send_soon(std::vector<std::uint8_t> message);
    // One LLC message less that `llc` was told of and nobody has dealt with.
    void llc_done() { llc_pending_--; }
    // Ends when everything queued has left, at the latest after a moment; or at once. To be followed by Engine::kick().
    void end(std::string why, bool at_once = false);
    // The peer may write there until this link has ended, and nobody else keeps it (V1).
    void keep(std::vector<std::shared_ptr<ElementOwner>> memory);
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
    [[nodiscard]] bool look() override;

    // --- for transports, on the engine's thread
    //
    [[nodiscard]] std::uint8_t number() const { return number_; }
    // The connection is gone, or has moved. `send`: what it sent from, which stays until all of it has left. `last`:
    // its last message, which goes over another link if this one breaks before it has left.
    using Encoded = wire::Encoded<cdc::kMessageBytes>;
    void release(Element send, const Encoded& last);
    // The same, and `message`, which is to be sent once more, is held back while there are strays up to that one (C5).
    void release_later(Element send, const Encoded& message, const Encoded& last, unsigned up_to);
    // Room for `requests` more, behind what is queued.
    [[nodiscard]] bool has_room(std::uint32_t requests) const;
    // The connection is run when there is room.
    void want_room(Task& task);
    void forget(Task& task) { std::erase(starved_, &task); }
    // What the next send() or write() is called in retired(); everything before retired() is done.
    [[nodiscard]] std::uint64_t next_sequence() const { return link_->next_sequence(); }
    [[nodiscard]] std::uint64_t retired() const { return link_->retired(); }
    // Whoever looks for a link must look for another one.
    [[nodiscard]] bool is_lost() const { return lost_.load(std::memory_order_relaxed); }
    // What has arrived is handed over, unless that is being done.
    void drain();
    Link::Posted send(const wire::Encoded<cdc::kMessageBytes>& message);
    // A last message of a connection that is going; the link ends if it is not to be had.
    void send_last(const wire::Encoded<cdc::kMessageBytes>& message);
    Link::Posted write(std::span<const std::uint8_t> from, std::uint32_t lkey, RKey rkey, VirtualAddress to);

 private:
    void on_message(wire::Bytes message) override;
    void on_broken(const std::string& why) override;
    bool poll(bool readable, bool asks);
    [[nodiscard]] bool has_news() const;
    // Somebody is to hear that a request is done.
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

    std::vector<std::shared_ptr<ElementOwner>> kept_;  // before the link, so that it goes after it
    std::unique_ptr<Link> link_;
    std::shared_ptr<GroupDriver> group_;
    std::uint8_t number_;
    Hooks hooks_;
    std::chrono::milliseconds last_messages_;
    Counters counters_;
    Poller* poller_ = nullptr;
    Poller::Source source_{};

    mutable std::mutex mutex_;  // guards queued_, end_ and kept_
    std::deque<std::vector<std::uint8_t>> queued_;
    std::optional<std::string> end_;
    bool at_once_ = false;

    std::vector<Task*> starved_;  // that want room
    // What a connection that has gone sent from, and last, and what must be done before that is of no interest.
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
    unsigned stray_ = 0;         // C5: the group waits for the end of the queue pair
    std::uint64_t retired_ = 0;  // of its requests that whoever waits for them knows of
    Spin spin_;
    std::uint64_t heard_ = 0;  // messages when it fell asleep
    bool sleeps_ = false;
    TimePoint spins_until_ = kNever;  // kNever: it does not, and the link is asked to tell
    TimePoint deadline_ = kNever;
    bool ended_ = false;
};

}  // namespace smc::smcr
