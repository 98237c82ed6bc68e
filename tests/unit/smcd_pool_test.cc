// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// DMBs that serve one connection after another: which connection may reuse one, when, and when DMBs are freed.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <set>

#include "agent/smcd/exchange.h"
#include "datapath/ism/local_dmb.h"

using namespace smc;
using namespace smc::smcd;
using namespace std::chrono_literals;

namespace {

constexpr std::uint32_t kBytes = 16 * 1024;

Gid gid(std::uint8_t last) {
    Gid g;
    g.bytes.back() = last;
    return g;
}

// The agents of one fabric: a DMB that one registers can be attached once by another.
class TwoAgents {
 public:
    class Side final : public Fabric {
     public:
        Side(TwoAgents& all, std::uint8_t id) : all_(all), gid_(::gid(id)) {}
        [[nodiscard]] const char* provider() const override { return "test"; }
        [[nodiscard]] const Gid& gid() const override { return gid_; }
        [[nodiscard]] Chid chid() const override { return Chid{0xff00}; }
        Result<Registered> register_dmb(const Gid&, std::uint32_t bytes) override {
            auto made = ism::create_dmb(bytes);
            const DmbToken token{++all_.last_};
            Registered registered{token, made->dmb};
            all_.made_.emplace(token, std::move(*made));
            mine_.insert(token);
            return registered;
        }
        void deregister(DmbToken token) override { mine_.erase(token); }
        [[nodiscard]] std::size_t registered() const override { return mine_.size(); }
        [[nodiscard]] Result<void> reach(const Gid&) override { return {}; }
        void attach(const Gid&, DmbToken token, std::uint32_t bytes, std::chrono::milliseconds,
                    OnAttached on_attached) override {
            attached++;
            const auto it = all_.made_.find(token);
            if (it == all_.made_.end()) {
                return on_attached(Error{ENOENT, "asking for a DMB"});
            }
            auto made = std::move(all_.made_.extract(it).mapped());
            on_attached(ism::attach_dmb(made.memory, std::move(made.bell), bytes));
        }
        int attached = 0;

     private:
        TwoAgents& all_;
        Gid gid_;
        std::set<DmbToken> mine_;
    };

    Side a{*this, 1}, b{*this, 2};

 private:
    std::uint64_t last_ = 0;
    std::map<DmbToken, ism::CreatedDmb> made_;
};

struct Pair {
    explicit Pair(std::uint64_t memory = 1 << 20) : a_memory(memory), b_memory(memory) {}
    TwoAgents fabric;
    Memory a_memory, b_memory;
    Pool a_pool{a_memory}, b_pool{b_memory};

    // A peer as a and as b see it.
    Peer at_a(std::uint8_t id) { return {&fabric.a, gid(id)}; }
    Peer at_b(std::uint8_t id) { return {&fabric.b, gid(id)}; }

    // One connection up to its data path: two DMBs, each attached by the other side.
    struct Connection {
        std::unique_ptr<Exchange> a, b;
        std::unique_ptr<Transport> at_a, at_b;
        clc::LocalDmb of_a{}, of_b{};
        void end() {
            at_a.reset();
            at_b.reset();
            a->give_back();
            b->give_back();
        }
    };
    Connection connect(std::uint32_t bytes = kBytes) {
        Connection c;
        c.a = std::make_unique<Exchange>(a_pool, bytes, bytes);
        c.b = std::make_unique<Exchange>(b_pool, bytes, bytes);
        c.of_b = *c.b->register_dmb(at_b(1));
        attach(*c.a, at_a(2), c.of_b);
        c.of_a = *c.a->register_dmb(at_a(2));
        attach(*c.b, at_b(1), c.of_a);
        c.at_a = c.a->transport();
        c.at_b = c.b->transport();
        return c;
    }
    static void attach(Exchange& side, const Peer& peer, const clc::LocalDmb& dmb) {
        bool done = false;
        side.attach(peer, dmb.token, bytes_of(dmb.size), 1s, [&](const Result<void>& attached) {
            REQUIRE(attached);
            done = true;
        });
        REQUIRE(done);
    }
};

// A time relative to now, because the pools take the time themselves.
TimePoint in(std::chrono::seconds time) {
    return std::chrono::steady_clock::now() + time;
}

}  // namespace

TEST_CASE("smcd_pool__the_next_connection_of_the_same_peers_maps_and_asks_for_nothing") {
    Pair p;
    auto first = p.connect();
    const auto of_a = first.of_a.token, of_b = first.of_b.token;
    first.at_a->publish({{0, 7}, cdc::kWriterBlocked, cdc::kSendingDone}, 7);
    first.at_a->consumed({0, 3});
    first.end();
    const auto second = p.connect();
    CHECK((second.of_a.token == of_a && second.of_b.token == of_b));
    CHECK((p.fabric.a.attached == 1 && p.fabric.b.attached == 1));
    CHECK(second.at_b->peer() == flow::PeerState{});  // as if it were new
    CHECK((p.a_memory.taken() == 2 * kBytes && p.fabric.a.registered() == 1));
}

TEST_CASE("smcd_pool__a_dmb_is_not_used_again_while_its_peer_may_write_D4") {
    Pair p;
    auto first = p.connect();
    first.at_a.reset();  // a is done, b is not
    first.a->give_back();
    auto second = p.connect();
    CHECK(second.of_a.token != first.of_a.token);
    CHECK(second.of_b.token != first.of_b.token);
    first.at_b->publish({{0, 5}, 0, 0}, 5);  // too late: no connection reads it
    CHECK(second.at_a->peer() == flow::PeerState{});
    first.at_b.reset();
    first.b->give_back();
    const auto third = p.connect();
    CHECK(third.of_a.token == first.of_a.token);
}

TEST_CASE("smcd_pool__a_data_path_that_is_still_there_keeps_its_memory_from_the_pool") {
    Pair p;
    auto first = p.connect();
    first.a->give_back();
    first.b->give_back();
    CHECK((p.a_pool.kept() == 0 && p.b_pool.kept() == 0));
}

TEST_CASE("smcd_pool__what_has_not_served_is_given_back_at_once") {
    Pair p;
    {
        Exchange refused(p.a_pool, kBytes, kBytes);
        REQUIRE(refused.register_dmb(p.at_a(2)));
    }
    CHECK((p.fabric.a.registered() == 0 && p.a_pool.kept() == 0 && p.a_memory.taken() == 0));
}

// The refused connection's DMB is kept at the peer under a token that the peer will never be told again.
TEST_CASE("smcd_pool__what_was_taken_in_vain_goes_at_both_ends") {
    Pair p;
    auto first = p.connect();
    first.end();
    {
        Exchange refused(p.a_pool, kBytes, kBytes);
        REQUIRE(refused.register_dmb(p.at_a(2))->token == first.of_a.token);
        p.b_pool.sweep(in(1s));
        CHECK(p.b_pool.kept() == 2);
    }
    p.b_pool.sweep(in(1s));
    CHECK(p.b_pool.kept() == 1);
}

TEST_CASE("smcd_pool__other_peers_and_other_sizes_get_their_own") {
    Pair p;
    auto first = p.connect();
    first.end();
    auto larger = p.connect(2 * kBytes);
    CHECK(larger.of_a.token != first.of_a.token);
    CHECK_FALSE(p.a_pool.take(p.at_a(3), kBytes));
    CHECK_FALSE(p.a_pool.find(p.at_a(3), first.of_b.token, kBytes));
    CHECK_FALSE(p.a_pool.find(p.at_a(2), first.of_b.token, kBytes));  // its owner has not taken it
}

TEST_CASE("smcd_pool__what_is_idle_goes_at_both_ends") {
    Pair p;
    auto first = p.connect();
    first.end();
    p.a_pool.sweep(in(1s));
    CHECK(p.a_pool.kept() == 2);
    p.a_pool.sweep(in(3s));
    CHECK((p.a_pool.kept() == 1 && p.fabric.a.registered() == 0));  // b's DMB is parked there until b lets go of it
    p.b_pool.sweep(in(3s));
    CHECK(p.b_pool.kept() == 0);
    p.a_pool.sweep(in(4s));
    CHECK((p.a_pool.kept() == 0 && p.a_memory.taken() == 0 && p.b_memory.taken() == 0));
}

TEST_CASE("smcd_pool__an_owner_that_never_lets_go_is_not_waited_for") {
    Pair p;
    auto first = p.connect();
    first.end();
    p.a_pool.sweep(in(6s));
    CHECK(p.a_pool.kept() == 0);
    const auto second = p.connect();  // b's own DMB was not parked any more
    CHECK(second.of_b.token != first.of_b.token);
}

TEST_CASE("smcd_pool__memory_that_is_needed_is_not_kept") {
    Pair p(4 * kBytes);
    auto first = p.connect();
    auto second = p.connect();
    first.end();
    second.end();
    CHECK(p.a_memory.taken() == 4 * kBytes);
    const auto larger = p.connect(2 * kBytes);
    CHECK((p.a_memory.taken() == 4 * kBytes && p.a_pool.kept() == 0));
}

TEST_CASE("smcd_pool__nothing_is_kept_of_a_peer_that_is_gone") {
    Pair p;
    auto first = p.connect();
    first.end();
    p.a_pool.forget(p.at_a(2), in(0s));
    CHECK((p.a_pool.kept() == 0 && p.fabric.a.registered() == 0 && p.a_memory.taken() == 0));
}

// A peer that has taken its DMB again and died will never name its token. A session may still find() it for a moment.
TEST_CASE("smcd_pool__a_dmb_that_a_dead_peer_had_taken_is_dropped_soon") {
    Pair p;
    auto first = p.connect();
    first.end();
    Exchange taken(p.b_pool, kBytes, kBytes);
    REQUIRE(taken.register_dmb(p.at_b(1))->token == first.of_b.token);
    p.a_pool.forget(p.at_a(2), in(0s));
    p.a_pool.sweep(in(3s));
    CHECK(p.a_memory.taken() == kBytes);
    p.a_pool.sweep(in(5s));
    CHECK((p.a_pool.kept() == 0 && p.a_memory.taken() == 0));
}

TEST_CASE("smcd_pool__what_was_taken_and_forgotten_is_given_up_in_the_end") {
    Pair p;
    auto first = p.connect();
    first.end();
    Exchange taken(p.b_pool, kBytes, kBytes);
    REQUIRE(taken.register_dmb(p.at_b(1)));
    p.a_pool.sweep(in(115s));
    CHECK(p.a_memory.taken() == kBytes);
    p.a_pool.sweep(in(121s));
    CHECK(p.a_memory.taken() == 0);
}

TEST_CASE("smcd_pool__a_server_reserves_what_a_clients_dmb_may_take_before_it_accepts") {
    constexpr std::uint32_t kUsual = 16 * kBytes;
    for (const std::uint64_t memory : {std::uint64_t{2 * kBytes}, std::uint64_t{kBytes + kUsual}}) {
        Pair p(memory);
        Exchange client(p.a_pool, kBytes, kBytes), server(p.b_pool, kBytes, kUsual);
        const auto of_server = server.register_dmb(p.at_b(1));
        CHECK(static_cast<bool>(of_server) == (memory >= kBytes + kUsual));  // otherwise it is declined
        if (of_server) {
            CHECK(p.b_memory.taken() == kBytes + kUsual);
            Pair::attach(client, p.at_a(2), *of_server);
            Pair::attach(server, p.at_b(1), *client.register_dmb(p.at_a(2)));
            CHECK(p.b_memory.taken() == 2 * kBytes);  // the client's is smaller
        }
    }
}
