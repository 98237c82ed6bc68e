// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A link driver whose peer sends too much, or takes nothing, and how the driver tells a connection that its peer has
// left. Over a link in memory; an engine drives one end, the test the other.
#include "datapath/smcr/link_driver.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <future>
#include <map>
#include <optional>
#include <thread>

#include "datapath/engines.h"
#include "memory_link.h"

using namespace smc;
using namespace smc::smcr;
using namespace std::chrono_literals;
using test::MemoryLink;

namespace {

constexpr auto kTimeout = 10s;
const std::vector<std::uint8_t> kTestLink(44, 0x27);

// The peer of the driver: it receives only when the test calls it.
struct Peer final : LinkHandler {
    std::unique_ptr<MemoryLink> link;
    std::size_t messages = 0;

    void on_message(wire::Bytes) override { messages++; }
    void on_broken(const std::string&) override {}
    void take() {
        while (link->poll(*this, true, true)) {
        }
    }
};

struct Driven {
    std::promise<std::string> down;
    std::atomic<int> llc{0};
    std::unique_ptr<Engine> engine = *Engine::start([](const ConnectionEnd&) {});
    Peer peer;
    std::shared_ptr<GroupDriver> group = std::make_shared<GroupDriver>();
    std::shared_ptr<LinkDriver> driver;

    // `dealt_with`: each LLC message is dealt with at once; otherwise none is.
    explicit Driven(bool dealt_with) {
        auto [own, other] = MemoryLink::pair();
        peer.link = std::move(other);
        LinkDriver::Callbacks callbacks;
        callbacks.llc = [this, dealt_with](const std::vector<std::uint8_t>&) {
            llc++;
            if (dealt_with) {
                driver->llc_done();
            }
        };
        callbacks.down = [this](const std::string& why) { down.set_value(why); };
        driver = std::make_shared<LinkDriver>(std::move(own), group, std::uint8_t{1}, std::move(callbacks));
        engine->add_task(driver);
        group->use(1, driver);
    }
    ~Driven() { engine->stop(); }

    void send(int count) {
        for (int sent = 0; sent < count;) {
            if (peer.link->send(kTestLink) == Link::Posted::kYes) {
                sent++;
            } else {
                peer.take();
            }
        }
    }

    std::string why_down() {
        auto future = down.get_future();
        REQUIRE(future.wait_for(kTimeout) == std::future_status::ready);
        return future.get();
    }
};

// A stand-in for a connection, with the part that the driver uses.
class Connection final : public Task, private Mover {
 public:
    Connection(GroupDriver& group, AlertToken token) : group_(group), token_(token) {}
    bool start(Poller&) override {
        GroupDriver::Receiver* receiver = group_.attach(token_, *this, *this);
        if (receiver != nullptr) {
            receiver->link = 1;
        }
        attached.set_value(receiver != nullptr && !receiver->is_reassigned);
        return true;
    }
    void on_event(int, std::uint32_t) override {}
    bool run(TimePoint) override { return false; }
    void abort(Reason reason) override {
        if (!ended_) {
            ended_ = true;
            group_.forget(token_);
            aborted.set_value(reason);
        }
    }
    [[nodiscard]] bool ended() const override { return ended_; }

    std::promise<bool> attached;
    std::promise<Reason> aborted;

 private:
    bool move() override { return false; }

    GroupDriver& group_;
    AlertToken token_;
    bool ended_ = false;
};

void await_an_iteration(Engine& engine) {
    (void)engine.has_iterated();  // requests an iteration
    const auto end = std::chrono::steady_clock::now() + kTimeout;
    while (!engine.has_iterated()) {
        REQUIRE(std::chrono::steady_clock::now() < end);
        std::this_thread::yield();
    }
}

bool attaches(Driven& driven, const std::shared_ptr<Connection>& connection) {
    auto attached = connection->attached.get_future();
    driven.engine->add_task(connection);
    REQUIRE(attached.wait_for(kTimeout) == std::future_status::ready);
    return attached.get();
}

}  // namespace

TEST_CASE("link_driver__llc_messages_that_nobody_has_dealt_with_are_bounded") {
    Driven driven(false);
    driven.send(300);
    CHECK(driven.why_down() == "more than 256 LLC messages of the peer wait to be handled");
    CHECK(driven.llc == 256);
}

TEST_CASE("link_driver__llc_messages_that_are_dealt_with_are_not") {
    Driven driven(true);
    driven.send(3000);
    const auto end = std::chrono::steady_clock::now() + kTimeout;
    while (driven.llc < 3000 && std::chrono::steady_clock::now() < end) {
        std::this_thread::yield();
    }
    CHECK(driven.llc == 3000);
    CHECK(driven.down.get_future().wait_for(0s) == std::future_status::timeout);
}

TEST_CASE("link_driver__what_waits_for_a_peer_that_takes_nothing_is_bounded") {
    auto [own, other] = MemoryLink::pair();
    const auto driver = std::make_shared<LinkDriver>(std::move(own), std::make_shared<GroupDriver>(), std::uint8_t{1},
                                                     LinkDriver::Callbacks{[](auto) {}, [](auto) {}});
    for (int i = 0; i < 1024; i++) {
        REQUIRE(driver->send_soon(kTestLink));
    }
    CHECK_FALSE(driver->send_soon(kTestLink));
}

TEST_CASE("link_driver__tells_once_that_a_peer_has_spoken_whenever_it_is_asked") {
    Driven driven(true);
    std::map<std::uint32_t, std::vector<bool>> told;  // the values of `aborts`, by token
    const auto await = [&](std::uint32_t token) {
        driven.group->await_message(AlertToken{token}, [&told, token](bool aborts) { told[token].push_back(aborts); });
    };
    std::uint64_t said = 0;
    const auto say = [&](std::uint32_t token, std::uint16_t sequence, bool aborts = false) {
        cdc::Message message;
        message.sequence = sequence;
        message.token = AlertToken{token};
        message.state = aborts ? cdc::kAbnormalClose : std::uint8_t{0};
        REQUIRE(driven.peer.link->send(cdc::encode(message).view()) == Link::Posted::kYes);
        said++;
    };
    for (const std::uint32_t token : {1U, 2U, 3U, 4U, 5U}) {
        REQUIRE(driven.group->open(AlertToken{token}));
    }
    await(1);
    await(3);
    await(6);  // a token that is not open
    say(1, 1);
    say(1, 2);
    say(2, 1);
    say(3, 1, true);
    say(4, 1, true);
    say(5, 1);
    say(5, 2, true);
    const auto end = std::chrono::steady_clock::now() + kTimeout;
    while (driven.driver->counters().messages_received < said && std::chrono::steady_clock::now() < end) {
        std::this_thread::yield();
    }
    for (int i = 0; i < 2; i++) {
        await_an_iteration(*driven.engine);
    }
    CHECK(told == std::map<std::uint32_t, std::vector<bool>>{{1, {false}}, {3, {true}}});
    await(2);
    await(4);
    await(5);  // it has sent a message before it aborts, so there may be data
    CHECK((told[2] == std::vector{false} && told[4] == std::vector{true} && told[5] == std::vector{false}));
}

TEST_CASE("link_driver__a_connection_hears_that_its_peer_has_left_and_no_other_does") {
    Driven driven(true);
    REQUIRE((driven.group->open(AlertToken{1}) && driven.group->open(AlertToken{2})));
    CHECK_FALSE(driven.group->open(AlertToken{2}));
    const auto one = std::make_shared<Connection>(*driven.group, AlertToken{1});
    const auto two = std::make_shared<Connection>(*driven.group, AlertToken{2});
    REQUIRE((attaches(driven, one) && attaches(driven, two)));
    auto first = one->aborted.get_future(), second = two->aborted.get_future();
    driven.group->rmbe_reassigned(AlertToken{1});
    driven.engine->kick(driven.driver);
    REQUIRE(first.wait_for(kTimeout) == std::future_status::ready);
    CHECK(first.get() == Reason::kRmbeTakenAgain);
    CHECK(second.wait_for(0s) == std::future_status::timeout);

    // C3: the end of the link ends the other connection
    driven.peer.link->shut("gone");
    REQUIRE(second.wait_for(kTimeout) == std::future_status::ready);
    CHECK(second.get() == Reason::kLinkDown);
}

TEST_CASE("link_driver__a_connection_that_comes_behind_the_news_that_its_peer_has_left_does_not_run") {
    Driven driven(true);
    REQUIRE(driven.group->open(AlertToken{1}));
    driven.group->rmbe_reassigned(AlertToken{1});
    driven.engine->kick(driven.driver);
    for (int i = 0; i < 2; i++) {  // the round that is under way may have begun before
        await_an_iteration(*driven.engine);
    }
    const auto late = std::make_shared<Connection>(*driven.group, AlertToken{1});
    CHECK_FALSE(attaches(driven, late));
}

namespace {

// Plays the engine's part.
struct TestPoller final : Poller {
    std::vector<Task*> called;
    std::optional<TimePoint> spins_until;
    std::chrono::microseconds longest = 50us;

    bool watch(int, std::uint32_t, Source&) override { return true; }
    void unwatch(int) override {}
    void ready(Task& task) override { called.push_back(&task); }
    [[nodiscard]] std::chrono::microseconds longest_spin(TimePoint) const override { return longest; }
    void spin(Task&, TimePoint until, Expects) override { spins_until = until; }
};

// A driver that the test runs by hand, its link, and the peer of the link.
struct ByHand {
    TestPoller poller;
    Peer peer;
    int llc = 0;
    MemoryLink* link = nullptr;
    std::unique_ptr<LinkDriver> driver;
    TimePoint now{1s};

    ByHand() {
        auto [own, other] = MemoryLink::pair(4);
        link = own.get();
        peer.link = std::move(other);
        const auto heard = [this](const auto&) {
            llc++;
            driver->llc_done();
        };
        driver = std::make_unique<LinkDriver>(std::move(own), std::make_shared<GroupDriver>(), std::uint8_t{1},
                                              LinkDriver::Callbacks{heard, [](const auto&) {}});
        REQUIRE(driver->start(poller));
        CHECK_FALSE(run(0us));
    }
    bool run(std::chrono::microseconds later) {
        now += later;
        poller.spins_until.reset();
        return driver->run(now);
    }
    void say() {
        REQUIRE(peer.link->send(kTestLink) == Link::Posted::kYes);
        peer.take();  // completes the send
    }
    // A short pause, so that the driver busy-polls during the next one.
    void answer_soon() {
        say();
        CHECK_FALSE(run(30us));
        REQUIRE(poller.spins_until == now + 50us);
    }
};

}  // namespace

TEST_CASE("link_driver__the_device_need_not_tell_of_what_is_looked_for") {
    ByHand by_hand;
    CHECK(by_hand.link->asked());
    CHECK_FALSE(by_hand.poller.spins_until);  // no pause was measured yet
    by_hand.answer_soon();
    CHECK_FALSE(by_hand.link->asked());
    CHECK_FALSE(by_hand.driver->look());
    by_hand.say();
    CHECK(by_hand.driver->look());
    CHECK(by_hand.llc == 2);  // the LLC message is reported, too
    CHECK_FALSE(by_hand.run(20us));
    CHECK(by_hand.poller.spins_until == by_hand.now + 40us);

    // A run for another reason does not end the busy-poll.
    CHECK_FALSE(by_hand.run(10us));
    CHECK(by_hand.poller.spins_until == by_hand.now + 30us);
    CHECK_FALSE(by_hand.link->asked());

    CHECK_FALSE(by_hand.run(30us));
    CHECK_FALSE(by_hand.poller.spins_until);
    CHECK(by_hand.link->asked());
}

TEST_CASE("link_driver__who_is_not_to_look_is_told_each_time") {
    ByHand by_hand;
    by_hand.poller.longest = 0us;
    for (int i = 0; i < 5; i++) {
        by_hand.say();
        CHECK_FALSE(by_hand.link->asked());  // it was told
        CHECK_FALSE(by_hand.run(30us));
        CHECK_FALSE(by_hand.poller.spins_until);
        CHECK(by_hand.link->asked());
    }
    CHECK(by_hand.llc == 5);
}

TEST_CASE("link_driver__who_waits_for_room_hears_of_it_while_the_link_is_looked_at") {
    ByHand by_hand;
    by_hand.answer_soon();
    GroupDriver group;
    Connection waits(group, AlertToken{1});
    by_hand.driver->want_room(waits);
    CHECK_FALSE(by_hand.driver->look());
    REQUIRE(by_hand.link->send(kTestLink) == Link::Posted::kYes);
    CHECK(by_hand.driver->look());
    by_hand.poller.called.clear();
    CHECK_FALSE(by_hand.run(10us));
    CHECK(by_hand.poller.called == std::vector<Task*>{&waits});
}

TEST_CASE("link_driver__what_is_handed_over_before_its_time_leaves_nobody_asleep") {
    ByHand by_hand;
    by_hand.answer_soon();
    by_hand.say();
    by_hand.driver->drain();  // the driver is not polled from here on, as by a busy engine
    CHECK(by_hand.llc == 2);
    CHECK(by_hand.link->asked());
}

// A queue pair of soft-RoCE takes seconds to end when its port is down.
TEST_CASE("link_driver__who_ends_it_does_not_wait_for_its_queue_pair") {
    Peer peer;
    auto [own, other] = MemoryLink::pair();
    peer.link = std::move(other);
    long holders = 0;
    auto driver = std::make_unique<LinkDriver>(
        std::move(own), std::make_shared<GroupDriver>(), std::uint8_t{1},
        LinkDriver::Callbacks{[](const auto&) {}, [](const auto&) {},
                              [&](const std::shared_ptr<void>& remains) { holders = remains.use_count(); }});
    driver.reset();
    CHECK(holders == 1);  // the last holder ends it
    peer.take();
    CHECK(peer.link->broken());  // an end that no engine has driven says so, too
}

TEST_CASE("link_driver__what_is_queued_leaves_when_there_is_room") {
    ByHand by_hand;
    for (int i = 0; i < 6; i++) {  // the link takes four
        REQUIRE(by_hand.driver->send_soon(kTestLink));
    }
    CHECK_FALSE(by_hand.run(10us));
    by_hand.peer.take();
    CHECK(by_hand.peer.messages == 6);
}
