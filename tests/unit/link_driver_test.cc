// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a link driver takes from a peer that sends or takes as it likes, and how it tells a connection that its peer has
// left. Over a link in memory; an engine drives one end, the test the other.
#include "datapath/smcr/link_driver.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <future>
#include <map>
#include <thread>

#include "datapath/engines.h"
#include "memory_link.h"

using namespace smc;
using namespace smc::smcr;
using namespace std::chrono_literals;
using test::MemoryLink;

namespace {

constexpr auto kPatience = 10s;
const std::vector<std::uint8_t> kTestLink(44, 0x27);

// The peer of the driver: it takes nothing unless it is told to.
struct Peer final : LinkHandler {
    std::unique_ptr<MemoryLink> link;
    std::size_t messages = 0;

    void on_message(wire::Bytes) override { messages++; }
    void on_broken(const std::string&) override {}
    void take() {
        while (link->poll(*this, true)) {
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

    // `dealt_with`: LLC messages are, and at once.
    explicit Driven(bool dealt_with) {
        auto [own, other] = MemoryLink::pair();
        peer.link = std::move(other);
        LinkDriver::Hooks hooks;
        hooks.llc = [this, dealt_with](const std::vector<std::uint8_t>&) {
            llc++;
            if (dealt_with) {
                driver->llc_done();
            }
        };
        hooks.down = [this](const std::string& why) { down.set_value(why); };
        driver = std::make_shared<LinkDriver>(std::move(own), group, std::uint8_t{1}, std::move(hooks), 0us);
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
        REQUIRE(future.wait_for(kPatience) == std::future_status::ready);
        return future.get();
    }
};

// A connection as far as the driver knows it.
class Connection final : public Task, private Mover {
 public:
    Connection(GroupDriver& group, AlertToken token) : group_(group), token_(token) {}
    bool start(Poller&) override {
        GroupDriver::Receiver* receiver = group_.attach(token_, *this, *this);
        if (receiver != nullptr) {
            receiver->link = 1;
        }
        attached.set_value(receiver != nullptr && !receiver->peer_has_left);
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

void await_a_round(Engine& engine) {
    (void)engine.comes_round();  // asks
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (!engine.comes_round()) {
        REQUIRE(std::chrono::steady_clock::now() < end);
        std::this_thread::yield();
    }
}

bool attaches(Driven& driven, const std::shared_ptr<Connection>& connection) {
    auto attached = connection->attached.get_future();
    driven.engine->add_task(connection);
    REQUIRE(attached.wait_for(kPatience) == std::future_status::ready);
    return attached.get();
}

}  // namespace

TEST_CASE("link_driver__llc_messages_that_nobody_has_dealt_with_are_bounded") {
    Driven driven(false);
    driven.send(300);
    CHECK(driven.why_down() == "the peer sends more LLC messages than can be dealt with");
    CHECK(driven.llc == 256);
}

TEST_CASE("link_driver__llc_messages_that_are_dealt_with_are_not") {
    Driven driven(true);
    driven.send(3000);
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (driven.llc < 3000 && std::chrono::steady_clock::now() < end) {
        std::this_thread::yield();
    }
    CHECK(driven.llc == 3000);
    CHECK(driven.down.get_future().wait_for(0s) == std::future_status::timeout);
}

TEST_CASE("link_driver__what_waits_for_a_peer_that_takes_nothing_is_bounded") {
    auto [own, other] = MemoryLink::pair();
    const auto driver = std::make_shared<LinkDriver>(std::move(own), std::make_shared<GroupDriver>(), std::uint8_t{1},
                                                     LinkDriver::Hooks{[](auto) {}, [](auto) {}}, 0us);
    for (int i = 0; i < 1024; i++) {
        REQUIRE(driver->send_soon(kTestLink));
    }
    CHECK_FALSE(driver->send_soon(kTestLink));
}

TEST_CASE("link_driver__tells_once_that_a_peer_has_spoken_whenever_it_is_asked") {
    Driven driven(true);
    std::map<std::uint32_t, std::vector<bool>> told;  // what it was, by token
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
    await(6);  // nobody's
    say(1, 1);
    say(1, 2);
    say(2, 1);
    say(3, 1, true);
    say(4, 1, true);
    say(5, 1);
    say(5, 2, true);
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (driven.driver->counters().messages_received < said && std::chrono::steady_clock::now() < end) {
        std::this_thread::yield();
    }
    for (int i = 0; i < 2; i++) {
        await_a_round(*driven.engine);
    }
    CHECK(told == std::map<std::uint32_t, std::vector<bool>>{{1, {false}}, {3, {true}}});
    await(2);
    await(4);
    await(5);  // it has spoken before it aborts, so there may be bytes of it
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
    driven.group->peer_left(AlertToken{1});
    driven.engine->kick(driven.driver);
    REQUIRE(first.wait_for(kPatience) == std::future_status::ready);
    CHECK(first.get() == Reason::kRmbeTakenAgain);
    CHECK(second.wait_for(0s) == std::future_status::timeout);

    // C3: it is the link that ends the other one
    driven.peer.link->shut("gone");
    REQUIRE(second.wait_for(kPatience) == std::future_status::ready);
    CHECK(second.get() == Reason::kLinkDown);
}

TEST_CASE("link_driver__a_connection_that_comes_behind_the_news_that_its_peer_has_left_does_not_run") {
    Driven driven(true);
    REQUIRE(driven.group->open(AlertToken{1}));
    driven.group->peer_left(AlertToken{1});
    driven.engine->kick(driven.driver);
    for (int i = 0; i < 2; i++) {  // the round that is under way may have begun before
        await_a_round(*driven.engine);
    }
    const auto late = std::make_shared<Connection>(*driven.group, AlertToken{1});
    CHECK_FALSE(attaches(driven, late));
}
