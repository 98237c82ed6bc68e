// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Simulated queue pairs and registered memory, with the guarantees of InfiniBand and no others. Memory is read when a
// write arrives, not when it is posted; an end notices that the other end is broken only when it sends. Packets of a
// queue pair may arrive for as long as it exists, also when it is broken.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "datapath/smcr/element.h"
#include "datapath/smcr/link.h"
#include "smc/group/actions.h"
#include "world.h"

namespace smc::sim {

class SimLink;

// Registered memory of one node.
class SimMemory final : public smcr::ElementOwner, public std::enable_shared_from_this<SimMemory> {
 public:
    SimMemory(std::size_t element_bytes, std::size_t elements, VirtualAddress address,
              std::function<void(std::size_t)> on_returned)
        : bytes_(element_bytes * elements),
          element_bytes_(element_bytes),
          address_(address),
          on_returned_(std::move(on_returned)) {}

    smcr::Element element(std::size_t at) { return {shared_from_this(), at, bytes_of(at)}; }
    // Sets the lkey for a link. A write with the lkey of another port is a violation.
    void register_for(std::uint8_t link, std::uint32_t lkey) { lkeys_[link] = lkey; }
    [[nodiscard]] std::uint32_t lkey(std::uint8_t link) const override { return lkeys_.at(link); }
    [[nodiscard]] std::span<std::uint8_t> bytes_of(std::size_t at) {
        return std::span(bytes_).subspan(at * element_bytes_, element_bytes_);
    }
    [[nodiscard]] VirtualAddress address() const { return address_; }
    // The bytes at an address; empty: they are not in this memory.
    [[nodiscard]] std::span<std::uint8_t> range(VirtualAddress from, std::size_t bytes);
    void returned(std::size_t at) override { on_returned_(at); }

 private:
    std::vector<std::uint8_t> bytes_;
    std::size_t element_bytes_;
    VirtualAddress address_;
    std::map<std::uint8_t, std::uint32_t> lkeys_;
    std::function<void(std::size_t)> on_returned_;
};

// A RoCE port of a node: its queue pairs by number, and its memory by key.
struct Port {
    std::string device;
    RoceGid gid;
    std::map<Qpn, SimLink*> links;
    std::map<std::uint32_t, std::weak_ptr<SimMemory>> local;  // by lkey
    std::map<RKey, std::weak_ptr<SimMemory>> memory;
    std::uint32_t next_number = 17;
    bool down = false;  // nothing leaves it, and nothing arrives
};

class SimLink final : public smcr::Link {
 public:
    // `network`: every port, by GID. `capacity`: requests that may be under way.
    using Network = std::map<RoceGid, Port*>;
    SimLink(World& world, const Network& network, Port& port, std::uint32_t capacity);
    ~SimLink() override;

    [[nodiscard]] const QpEnd& end() const override { return end_; }
    Result<void> connect(const QpEnd& peer) override;
    Posted send(wire::Bytes message) override;
    Posted write(std::span<const std::uint8_t> from, std::uint32_t lkey, RKey rkey, VirtualAddress to) override;
    [[nodiscard]] std::uint64_t next_sequence() const override { return posted_; }
    [[nodiscard]] std::uint64_t retired() const override { return retired_; }
    [[nodiscard]] std::uint32_t room() const override {
        return capacity_ - static_cast<std::uint32_t>(posted_ - retired_);
    }
    [[nodiscard]] std::uint32_t capacity() const override { return capacity_; }
    [[nodiscard]] bool broken() const override { return broken_; }
    void shut(std::string why) override { fail(std::move(why)); }
    [[nodiscard]] int fd() const override { return descriptor_.fd(); }
    void want_completions(bool wanted) override { wants_completions_ = wanted; }
    [[nodiscard]] bool wants_poll() const override { return !broken_ && failure_.has_value(); }
    bool poll(smcr::LinkHandler& handler, bool readable, bool asks) override;

    // From now on, nothing that either end sends arrives.
    void cut() { cut_ = true; }

 private:
    struct Write {
        std::span<const std::uint8_t> from;
        RKey rkey;
        VirtualAddress to;
    };
    struct Request {
        std::vector<Write> writes;
        std::vector<std::uint8_t> message;
        std::uint64_t sequence = 0;  // its completion completes everything before it
    };
    // A request whose packets are under way: a copy, because the memory that they were read from may change.
    struct LateRequest {
        struct Write {
            std::vector<std::uint8_t> bytes;
            RKey rkey;
            VirtualAddress to;
        };
        std::vector<Write> writes;
        std::vector<std::uint8_t> message;
    };
    void arrive();
    void retry();
    void deliver(Request request);
    [[nodiscard]] bool reaches_peer() const;
    // The peer has acknowledged the requests of this end up to `sequence`.
    void acknowledged(std::uint64_t sequence);
    void fail(std::string why);
    void deliver_late();
    void arrive_late(const LateRequest& request);
    void put(RKey rkey, VirtualAddress to, std::span<const std::uint8_t> bytes);
    [[nodiscard]] std::uint32_t level() const;
    [[nodiscard]] SimLink* peer() const;
    // The other end's queue pair, even if it cannot be reached. nullptr: it is destroyed.
    [[nodiscard]] SimLink* other_end() const;

    World& world_;
    const Network& network_;
    Port& port_;
    std::uint32_t capacity_;
    QpEnd end_;
    std::optional<QpEnd> peer_;
    std::vector<Write> writes_;  // that leave with the next message
    std::deque<Request> in_flight_;
    std::deque<Request> unacknowledged_;  // that did not reach the peer
    std::deque<std::vector<std::uint8_t>> messages_;
    std::uint64_t posted_ = 0, done_ = 0, retired_ = 0;
    std::optional<std::string> failure_;
    bool broken_ = false, cut_ = false, wants_completions_ = false;
    bool has_lost_ = false;  // a request that the peer's device had acknowledged; since then, nothing arrives
    bool asked_ = true;      // fd() is to become readable with the next news
    TimePoint last_arrival_{};
    // By it, events of this link find out whether the link still exists.
    std::shared_ptr<SimLink*> self_ = std::make_shared<SimLink*>(this);
    Descriptor descriptor_;
};

}  // namespace smc::sim
