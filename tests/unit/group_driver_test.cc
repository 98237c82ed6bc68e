// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Connections of a link group with several links: which move, which end, and when an RMBE is given back.
#include "two_links.h"

using namespace smc;
using namespace smc::smcr;
using namespace std::chrono_literals;

TEST_CASE("group_driver__connections_leave_a_link_that_is_retired_and_no_other_one") {
    Group group;
    Connection one(*group.driver, AlertToken{1}, 1), two(*group.driver, AlertToken{2}, 2);
    group.driver->retire(1);
    group.run(2);
    CHECK(group.driver->link_of(AlertToken{1}) == 2);
    CHECK(group.driver->link_of(AlertToken{2}) == 2);
    CHECK_FALSE((one.ended() || two.ended()));
    CHECK((one.moves == 1 && two.moves == 0));
    CHECK(group.driver->link_of(AlertToken{3}) == 0);

    // A retired link still delivers messages that were sent over it.
    group.driver->forget(AlertToken{1});
    Connection late(*group.driver, kToken, 2);
    group.peer_says(1, 1);
    group.run(1);
    CHECK(late.receiver->inbox.latest().sequence == 1);
}

TEST_CASE("group_driver__a_connection_ends_with_its_last_link_and_not_before_C3") {
    Group group;
    Connection connection(*group.driver, kToken, 1);
    group.break_link(1);
    CHECK_FALSE(connection.ended());
    CHECK(group.driver->link_of(kToken) == 2);
    group.break_link(2);
    CHECK(connection.reason == Reason::kLinkDown);
    CHECK(group.driver->not_moved() == 0);
}

TEST_CASE("group_driver__the_end_of_a_link_ends_no_newer_link_of_its_number") {
    Group group;
    group.driver->retire(2);
    group.run(2);
    auto [own, other] = MemoryLink::pair();
    const auto newer = std::make_shared<LinkDriver>(std::move(own), group.driver, std::uint8_t{2},
                                                    LinkDriver::Callbacks{[](const auto&) {}, [](const auto&) {}});
    REQUIRE(newer->start(group.poller));
    group.driver->use(2, newer);
    Connection connection(*group.driver, kToken, 2);
    group.break_link(2);
    CHECK((connection.moves == 0 && !connection.ended()));
    CHECK(group.driver->pick(2) == newer);
    other->shut("gone");
    newer->on_event(0, 0);
    newer->run(std::chrono::steady_clock::now());
    CHECK(connection.moves == 1);
}

TEST_CASE("group_driver__a_connection_that_cannot_move_although_there_is_a_link_is_counted") {
    Group group;
    Connection connection(*group.driver, kToken, 1);
    connection.may_move = false;
    group.break_link(1);
    CHECK(connection.reason == Reason::kLinkDown);
    CHECK(group.driver->not_moved() == 1);
}

TEST_CASE("group_driver__what_a_connection_that_cannot_move_says_last_goes_over_another_link") {
    Group group;
    Connection connection(*group.driver, kToken, 1);
    connection.may_move = false;
    connection.on_abort = [&] {
        cdc::Message message;
        message.token = kToken;
        message.state = cdc::kAbnormalClose;
        group.links[1]->send_last(cdc::encode(message));
    };
    group.break_link(1);
    group.run(2);
    CHECK(Heard(*group.peer[2]).messages.empty());  // C5
    group.links[1].reset();
    group.run(2);
    const Heard heard(*group.peer[2]);
    REQUIRE(heard.messages.size() == 1);
    CHECK(heard.messages[0].state == cdc::kAbnormalClose);
}

namespace {

// A connection that has written four bytes over a link that has broken, which is not known yet. It cannot move, because
// the peer's RMB is not known over another link.
struct Stuck : Group {
    std::shared_ptr<PlainMemory> own = std::make_shared<PlainMemory>(4096), from = std::make_shared<PlainMemory>(4096);
    PlainMemory to{4096};
    Connection task{*driver, AlertToken{1}, 2};
    std::unique_ptr<RmbeTransport> transport;

    explicit Stuck(std::uint8_t link) {
        REQUIRE(driver->open(kToken));
        driver->note_rmb({{link, {PlainMemory::rkey(), to.address()}}});
        transport = std::make_unique<RmbeTransport>(
            RmbeTransport::Parts{driver, kToken, Element(own, 0, own->bytes()), Element(from, 0, from->bytes()),
                                 RemoteRmbe{link, PlainMemory::rkey(), to.address(), 0, kToken, 4096}});
        Poller::Source source{&task, 0};
        REQUIRE(transport->start(poller, source));
        peer.at(link)->shut("gone");
        transport->publish({{0, 4}, 0, 0}, 4);
    }
    void end() {
        transport->publish({{0, 4}, 0, cdc::kAbnormalClose}, 0);
        transport->stop();
    }
    // What the peer hears over link 2 once the queue pair of link 1 is destroyed.
    std::vector<cdc::Message> heard() {
        links[1].reset();
        run(2);
        return Heard(*peer[2]).messages;
    }
};

}  // namespace

TEST_CASE("group_driver__the_last_message_of_a_connection_that_cannot_move_says_only_what_arrived") {
    Stuck stuck(1);
    stuck.task.on_abort = [&] { stuck.end(); };
    stuck.run(1);
    REQUIRE(stuck.task.reason == Reason::kLinkDown);
    const auto heard = stuck.heard();
    REQUIRE(heard.size() == 1);
    CHECK(heard[0].state == cdc::kAbnormalClose);
    CHECK(heard[0].producer == cdc::Cursor{0, 0});
}

TEST_CASE("group_driver__a_last_message_that_waits_for_a_link_that_breaks_says_only_what_arrived") {
    Stuck stuck(1);
    while (stuck.links[1]->has_room(0)) {
        REQUIRE(stuck.links[1]->send(cdc::encode(cdc::Message{})) == Link::Posted::kYes);
    }
    stuck.end();  // there is no room for the last message
    stuck.run(1);
    const auto heard = stuck.heard();
    REQUIRE(heard.size() == 1);
    CHECK(heard[0].state == cdc::kAbnormalClose);
    CHECK(heard[0].producer == cdc::Cursor{0, 0});
}

namespace {

// A connection over link 1 that has written four bytes when the link breaks, and moves.
struct Moved : Group {
    std::shared_ptr<PlainMemory> own = std::make_shared<PlainMemory>(4096), from = std::make_shared<PlainMemory>(4096);
    PlainMemory to{4096};
    Connection task{*driver, AlertToken{1}, 2};
    std::unique_ptr<RmbeTransport> transport;

    explicit Moved(bool acknowledged = false) {
        REQUIRE(driver->open(kToken));
        driver->note_rmb({{1, {PlainMemory::rkey(), to.address()}}, {2, {PlainMemory::rkey(), to.address()}}});
        transport = std::make_unique<RmbeTransport>(
            RmbeTransport::Parts{driver, kToken, Element(own, 0, own->bytes()), Element(from, 0, from->bytes()),
                                 RemoteRmbe{1, PlainMemory::rkey(), to.address(), 0, kToken, 4096}});
        Poller::Source source{&task, 0};
        REQUIRE(transport->start(poller, source));
        if (acknowledged) {
            transport->publish({{0, 4}, 0, 0}, 4);
            run(1);
            peer.at(1)->shut("gone");
        } else {
            peer.at(1)->shut("gone");
            transport->publish({{0, 4}, 0, 0}, 4);
        }
        run(1);
        REQUIRE(driver->link_of(kToken) == 2);
    }
    // The peer consumes the four bytes, which were written again over link 2.
    void peer_consumes() {
        cdc::Message message;
        message.token = kToken;
        message.sequence = 1;
        message.consumer = {0, 4};
        REQUIRE(peer.at(2)->send(cdc::encode(message).view()) == Link::Posted::kYes);
        run(2);
    }
    void say(std::uint8_t state) {
        transport->publish({{0, 4}, 0, state}, 0);
        run(2);
    }
    void destroy_the_broken_one() {
        links.at(1).reset();
        run(2);
    }
};

}  // namespace

TEST_CASE("group_driver__nothing_else_is_written_where_a_link_that_broke_may_write_C5") {
    Moved moved;
    moved.transport->flush();
    CHECK(Heard(*moved.peer[2]).messages.size() == 2);  // the failover validation, and the whole state again
    moved.peer_consumes();
    CHECK(moved.transport->peer().consumer == cdc::Cursor{0, 0});
    moved.destroy_the_broken_one();
    CHECK(moved.transport->peer().consumer == cdc::Cursor{0, 4});
}

TEST_CASE("group_driver__a_connection_is_held_back_by_its_own_link_only_C5") {
    const bool used = GENERATE(false, true);
    Moved moved;
    moved.transport->flush();
    moved.peer_consumes();
    moved.destroy_the_broken_one();
    // Much later another link breaks, which this connection does not use; `used`: other connections may use it.
    auto [own, other] = MemoryLink::pair();
    const auto third = std::make_shared<LinkDriver>(std::move(own), moved.driver, std::uint8_t{3},
                                                    LinkDriver::Callbacks{[](const auto&) {}, [](const auto&) {}});
    REQUIRE(third->start(moved.poller));
    if (used) {
        moved.driver->use(3, third);
    }
    other->shut("gone");
    third->on_event(0, 0);
    third->run(std::chrono::steady_clock::now());
    REQUIRE(moved.driver->has_broken(moved.driver->last_broken()) == used);
    CHECK(moved.transport->peer().consumer == cdc::Cursor{0, 4});
}

TEST_CASE("group_driver__what_a_link_had_acknowledged_before_it_broke_comes_no_second_time_C5") {
    Moved moved(true);
    moved.transport->flush();
    moved.peer_consumes();
    CHECK(moved.transport->peer().consumer == cdc::Cursor{0, 4});
}

TEST_CASE("group_driver__an_rmbe_that_a_link_that_broke_may_write_into_is_not_given_back_C5") {
    const bool stops = GENERATE(false, true);
    Moved moved;
    moved.say(cdc::kSendingDone);
    CHECK(Heard(*moved.peer[2]).messages.size() == 2);
    moved.say(cdc::kSendingDone | cdc::kConnectionClosed);
    if (stops) {
        moved.transport->stop();
        moved.run(2);
    }
    CHECK(Heard(*moved.peer[2]).messages.empty());
    moved.destroy_the_broken_one();
    if (!stops) {
        moved.transport->flush();  // as when its task runs
    }
    moved.run(2);
    const Heard heard(*moved.peer[2]);
    REQUIRE(heard.messages.size() == 1);
    CHECK(heard.messages[0].state == (cdc::kSendingDone | cdc::kConnectionClosed));
    CHECK(heard.messages[0].producer == cdc::Cursor{0, 4});
}

TEST_CASE("group_driver__what_comes_before_the_end_is_not_held_back_C5") {
    Moved moved;
    moved.say(cdc::kSendingDone | cdc::kConnectionClosed);  // the new link has told nothing of it
    const Heard heard(*moved.peer[2]);
    REQUIRE(heard.messages.size() == 2);
    CHECK(heard.messages[1].producer == cdc::Cursor{0, 4});
    CHECK(heard.messages[1].state == cdc::kSendingDone);
    moved.transport->flush();
    CHECK(Heard(*moved.peer[2]).messages.empty());
    moved.destroy_the_broken_one();
    moved.transport->flush();
    const Heard end(*moved.peer[2]);
    REQUIRE(end.messages.size() == 1);
    CHECK(end.messages[0].state == (cdc::kSendingDone | cdc::kConnectionClosed));
}

TEST_CASE("group_driver__what_was_held_back_says_only_what_arrived_when_its_link_breaks_too_C5") {
    Moved moved;
    moved.peer[2]->shut("gone");
    moved.transport->flush();
    moved.transport->publish({{0, 4}, 0, cdc::kConnectionClosed}, 0);
    moved.transport->stop();
    auto [own, other] = MemoryLink::pair();
    const auto third = std::make_shared<LinkDriver>(std::move(own), moved.driver, std::uint8_t{3},
                                                    LinkDriver::Callbacks{[](const auto&) {}, [](const auto&) {}});
    REQUIRE(third->start(moved.poller));
    moved.driver->use(3, third);
    moved.run(2);
    moved.links[1].reset();
    moved.links[2].reset();
    third->run(std::chrono::steady_clock::now());
    const Heard heard(*other);
    REQUIRE(heard.messages.size() == 1);
    CHECK(heard.messages[0].state == cdc::kConnectionClosed);
    CHECK(heard.messages[0].producer == cdc::Cursor{0, 0});
}

// Otherwise the peer could give the RMBE to another connection while writes into it are still under way.
TEST_CASE("group_driver__a_last_message_does_not_overtake_what_was_written_on_a_link_that_is_retired") {
    Group group;
    const auto own = std::make_shared<PlainMemory>(4096), from = std::make_shared<PlainMemory>(4096);
    PlainMemory to(4096);
    REQUIRE(group.driver->open(kToken));
    group.driver->note_rmb({{1, {PlainMemory::rkey(), to.address()}}, {2, {PlainMemory::rkey(), to.address()}}});
    RmbeTransport transport({group.driver, kToken, Element(own, 0, own->bytes()), Element(from, 0, from->bytes()),
                             RemoteRmbe{1, PlainMemory::rkey(), to.address(), 0, kToken, 4096}});
    Connection task(*group.driver, AlertToken{1}, 2);
    Poller::Source source{&task, 0};
    REQUIRE(transport.start(group.poller, source));
    transport.publish({{0, 4}, 0, 0}, 4);
    group.driver->retire(1);
    group.run(2);  // it moves; link 1 has not been polled since
    REQUIRE(group.driver->link_of(kToken) == 2);
    transport.publish({{0, 4}, 0, cdc::kAbnormalClose}, 0);
    transport.stop();
    group.run(2);
    CHECK(Heard(*group.peer[2]).messages.empty());
    group.run(1);
    const Heard heard(*group.peer[1]);
    REQUIRE(heard.messages.size() == 2);
    CHECK(heard.messages[0].state == 0);
    CHECK(heard.messages[1].state == cdc::kAbnormalClose);
}

// RFC 7609 section 4.4.1. A peer's cursor that is nowhere ends the connection.
TEST_CASE("group_driver__a_damaged_eye_catcher_is_noticed") {
    Group group;
    const auto own = std::make_shared<PlainMemory>(4096), from = std::make_shared<PlainMemory>(4096);
    PlainMemory to(4096);
    REQUIRE(group.driver->open(kToken));
    group.driver->note_rmb({{1, {PlainMemory::rkey(), to.address()}}});
    RmbeTransport transport({group.driver, kToken, Element(own, 0, own->bytes()), Element(from, 0, from->bytes()),
                             RemoteRmbe{1, PlainMemory::rkey(), to.address(), 0, kToken, 4096}, true});
    Connection task(*group.driver, AlertToken{1}, 1);
    Poller::Source source{&task, 0};
    REQUIRE(transport.start(group.poller, source));
    CHECK(transport.receive_ring().size() == 4096 - cdc::kEyeCatcherBytes);
    CHECK(transport.peer().producer.cursor.count == 0);
    for (std::size_t at = 0; at < cdc::kEyeCatcherBytes; at++) {
        own->bytes()[at] ^= 1;
        CHECK(transport.peer().producer.cursor.count == flow::kNowhere);
        own->bytes()[at] ^= 1;
    }
    own->bytes()[cdc::kEyeCatcherBytes] ^= 1;  // data
    CHECK(transport.peer().producer.cursor.count == 0);
    transport.stop();
}

// When links break faster than the control thread hears of it, the peer may already use one more, which was added.
TEST_CASE("group_driver__an_rmbe_whose_peer_said_nothing_stays_until_the_group_has_ended_C2") {
    Group group;
    const auto owner = std::make_shared<Counted>();
    const AlertToken late{8};
    REQUIRE((group.driver->open(kToken) && group.driver->open(late)));
    group.driver->linger(kToken, Element(owner, 0, {}));
    group.break_link(1);
    group.break_link(2);
    group.driver->linger(late, Element(owner, 1, {}));
    CHECK(owner->free == 0);
    group.driver->close();
    CHECK(owner->free == 2);
}

TEST_CASE("group_driver__an_rmbe_is_given_back_when_its_peer_is_done_with_it_over_any_link_C2") {
    Group group;
    const auto owner = std::make_shared<Counted>();
    REQUIRE(group.driver->open(kToken));
    group.driver->linger(kToken, Element(owner, 0, {}));
    cdc::Message message;
    message.token = kToken;
    message.sequence = 1;
    message.state = cdc::kConnectionClosed;
    REQUIRE(group.peer.at(2)->send(cdc::encode(message).view()) == Link::Posted::kYes);
    group.run(2);
    CHECK(owner->free == 1);
    CHECK(group.driver->open(kToken));
}

TEST_CASE("group_driver__an_rmb_of_the_peer_is_found_over_every_link_that_it_was_told_for") {
    GroupDriver group;
    const llc::RToken one{RKey{11}, VirtualAddress{0x1000}}, two{RKey{22}, VirtualAddress{0x2000}};
    group.note_rmb({{1, one}});
    CHECK(group.rtoken(1, one.rkey, 1) == one);
    CHECK_FALSE(group.rtoken(1, one.rkey, 2));
    group.note_rmb({{1, one}, {2, two}});
    CHECK(group.rtoken(1, one.rkey, 2) == two);
    CHECK(group.rtoken(2, two.rkey, 1) == one);
    CHECK_FALSE(group.rtoken(2, one.rkey, 1));  // an RKey is valid on its own link only
    group.forget_rmb({{2, two}});
    CHECK_FALSE(group.rtoken(1, one.rkey, 1));
}
