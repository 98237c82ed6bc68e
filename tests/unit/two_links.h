// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A link group with two links in memory. The test runs their drivers itself, so it decides which one is polled first.
#pragma once

#include <array>
#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "datapath/smcr/group_driver.h"
#include "datapath/smcr/link_driver.h"
#include "datapath/smcr/rmbe_transport.h"
#include "memory_link.h"

namespace smc::smcr {

using test::MemoryLink;
using test::PlainMemory;

inline constexpr AlertToken kToken{7};

class NoPoller final : public Poller {
 public:
    bool watch(int, std::uint32_t, Source&) override { return true; }
    void unwatch(int) override {}
    void ready(Task&) override {}
};

// A stand-in for a connection, with the part that the group uses.
class Connection final : public Task, private Mover {
 public:
    Connection(GroupDriver& group, AlertToken token, std::uint8_t link, std::uint32_t base = 0)
        : group_(group), link_(link) {
        REQUIRE(group.open(token));
        receiver = group.attach(token, *this, *this, base);
        REQUIRE(receiver != nullptr);
        receiver->link = link;
    }
    bool start(Poller&) override { return true; }
    void on_event(int, std::uint32_t) override {}
    bool run(TimePoint) override { return false; }
    void abort(Reason why) override {
        reason = why;
        if (on_abort) {
            on_abort();
        }
    }
    [[nodiscard]] bool ended() const override { return reason.has_value(); }

    GroupDriver::Receiver* receiver = nullptr;
    std::optional<Reason> reason;
    std::function<void()> on_abort;
    bool may_move = true;
    int moves = 0;

 private:
    bool move() override {
        moves++;
        const auto other = group_.pick(link_);
        if (!may_move || !other) {
            return false;
        }
        link_ = other->number();
        receiver->link = link_;
        return true;
    }

    GroupDriver& group_;
    std::uint8_t link_;
};

class Counted final : public ElementOwner {
 public:
    void returned(std::size_t) override { free++; }
    [[nodiscard]] std::uint32_t lkey(std::uint8_t) const override { return 0; }
    int free = 0;
};

// The messages that the peer receives on one of its ends.
struct Heard final : LinkHandler {
    explicit Heard(MemoryLink& link) {
        while (link.poll(*this, true, false)) {
        }
    }
    void on_message(wire::Bytes bytes) override { messages.push_back(std::get<cdc::Message>(cdc::decode(bytes))); }
    void on_broken(const std::string&) override {}
    std::vector<cdc::Message> messages;
};

// A group with links 1 and 2, and the peer's ends of both.
struct Group {
    NoPoller poller;
    std::shared_ptr<GroupDriver> driver = std::make_shared<GroupDriver>();
    std::array<std::unique_ptr<MemoryLink>, 3> peer;
    std::array<std::shared_ptr<LinkDriver>, 3> links;

    Group() {
        for (const std::uint8_t number : {std::uint8_t{1}, std::uint8_t{2}}) {
            auto [own, other] = MemoryLink::pair();
            peer.at(number) = std::move(other);
            links.at(number) = std::make_shared<LinkDriver>(
                std::move(own), driver, number, LinkDriver::Callbacks{[](const auto&) {}, [](const auto&) {}});
            REQUIRE(links.at(number)->start(poller));
            driver->use(number, links.at(number));
        }
    }
    void peer_says(std::uint8_t link, std::uint16_t sequence, std::uint8_t flags = 0, std::uint32_t produced = 0,
                   std::uint8_t state = 0) {
        cdc::Message message;
        message.producer.count = produced;
        message.state = state;
        message.token = kToken;
        message.sequence = sequence;
        message.flags = flags;
        REQUIRE(peer.at(link)->send(cdc::encode(message).view()) == Link::Posted::kYes);
    }
    // As an engine does that finds the link's descriptor readable.
    void run(std::uint8_t link) {
        links.at(link)->on_event(0, 0);
        links.at(link)->run(std::chrono::steady_clock::now());
    }
    void break_link(std::uint8_t link) {
        peer.at(link)->shut("gone");
        run(link);
    }
};

}  // namespace smc::smcr
