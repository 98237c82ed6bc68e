// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Cursors of a connection, the CDC messages that tell them, and the writes that carry the bytes (RFC 7609 sections 4.2,
// 4.3, 4.5.1 and 4.7).
#include <catch2/catch.hpp>
#include <random>
#include <utility>
#include <vector>

#include "smc/flow/cdc_outbox.h"
#include "smc/flow/receiving.h"
#include "smc/flow/sending.h"
#include "smc/flow/staging.h"

using namespace smc;
using namespace smc::flow;
using cdc::Cursor;
using Room = Sending::Room;

namespace {

constexpr std::uint8_t kUrgent = cdc::kUrgentPending | cdc::kUrgentPresent;

// A CDC message of the peer: its producer cursor and flags.
cdc::Message heard(std::uint16_t sequence, Cursor producer, std::uint8_t flags = 0) {
    cdc::Message m;
    m.sequence = sequence;
    m.producer = producer;
    m.flags = flags;
    return m;
}

CdcInbox inbox_with(Cursor producer, std::uint8_t flags = 0) {
    CdcInbox inbox;
    REQUIRE(inbox.take(heard(1, producer, flags)) == CdcInbox::Taken::kYes);
    return inbox;
}

CdcOutbox outbox(std::uint32_t ring, std::uint32_t base = 0) {
    return {AlertToken{0xabc}, ring, base};
}

}  // namespace

// --- receiving ------------------------------------------------------------------------------------------------------

TEST_CASE("receiving__what_was_produced_is_delivered_across_the_end_of_the_ring") {
    Receiving r(10);
    r.peer_produced({{0, 8}}, {});
    CHECK((r.next().at == Cursor{0, 0} && r.next().bytes == 8));
    r.delivered(6);
    r.peer_produced({{1, 5}}, {});
    CHECK((r.next().at == Cursor{0, 6} && r.next().bytes == 9 && !r.next().urgent));
    r.delivered(4);
    CHECK(r.consumed() == Cursor{1, 0});
    r.delivered(r.next().bytes);
    CHECK((r.available() == 0 && r.consumed() == Cursor{1, 5}));
}

TEST_CASE("receiving__a_producer_never_goes_back_and_never_laps_D3") {
    Receiving r(10);
    r.peer_produced({{0, 8}}, {});
    r.delivered(3);
    CHECK(r.can_be({0, 8}));
    CHECK(r.can_be({1, 3}));        // full
    CHECK_FALSE(r.can_be({1, 4}));  // beyond bytes that were not read yet
    CHECK_FALSE(r.can_be({0, 7}));  // it has announced more before
    CHECK_FALSE(r.can_be({0, 10}));
    CHECK_FALSE(r.can_be({0, kNowhere}));
}

TEST_CASE("receiving__an_urgent_byte_goes_alone_between_what_is_before_and_behind_it") {
    for (const Cursor start : {Cursor{0, 0}, Cursor{0, 2}, Cursor{0, 4}, Cursor{0xffff, 4}}) {
        INFO(start.wrap << ":" << start.count);
        const Cursor mark = cdc::advance(start, 6, 10), end = cdc::advance(start, 9, 10);
        Receiving r(10);
        while (r.consumed().wrap != start.wrap) {  // to get there
            r.peer_produced({cdc::advance(r.consumed(), 10, 10)}, {});
            r.delivered(10);
        }
        r.peer_produced({start}, {});
        r.delivered(start.count);
        r.peer_produced({end}, mark);
        CHECK((r.next().bytes == 5 && !r.next().urgent));
        r.delivered(2);
        r.peer_produced({end}, mark);  // the mark may be announced again
        CHECK((r.next().bytes == 3 && !r.next().urgent));
        r.delivered(3);
        CHECK((r.next().bytes == 1 && r.next().urgent && r.next().at == cdc::advance(start, 5, 10)));
        r.delivered(1);
        CHECK((r.next().bytes == 3 && !r.next().urgent));
        r.peer_produced({end}, mark);  // and again
        CHECK_FALSE(r.next().urgent);
    }
}

TEST_CASE("receiving__a_mark_that_lies_nowhere_is_none_D3") {
    for (const Cursor mark : {Cursor{0, 3}, Cursor{0, 2}, Cursor{0, 9}, Cursor{1, 5}, Cursor{0, 10}, Cursor{7, 5}}) {
        INFO(mark.wrap << ":" << mark.count);
        Receiving r(10);
        r.peer_produced({{0, 3}}, {});
        r.delivered(3);
        r.peer_produced({{0, 8}}, mark);
        CHECK((r.next().bytes == 5 && !r.next().urgent));
        r.delivered(2);
        CHECK((r.next().bytes == 3 && !r.next().urgent));
    }
}

// --- CDC messages to the peer ---------------------------------------------------------------------------------------

TEST_CASE("cdc_outbox__what_is_published_is_due_until_it_is_sent") {
    CdcInbox inbox;
    CdcOutbox out = outbox(100, cdc::kEyeCatcherBytes);
    CHECK_FALSE(out.due());
    out.published({{2, 30}, cdc::kWriterBlocked, cdc::kSendingDone});
    out.consumed({1, 50}, inbox);
    CHECK(out.due());
    const cdc::Message first = out.message();
    CHECK((first.sequence == 1 && first.token == AlertToken{0xabc}));
    CHECK(first.producer == Cursor{2, 34});  // on the wire cursors count from the end of the eye catcher
    CHECK(first.consumer == Cursor{1, 54});  // goes with every message (section 4.5.1)
    CHECK((first.flags == cdc::kWriterBlocked && first.state == cdc::kSendingDone));
    CHECK(out.message() == first);  // the message was not sent yet
    out.sent(inbox, 0, out.message());
    CHECK_FALSE(out.due());
    for (std::uint32_t i = 2; i <= 70'000; i++) {  // sequence numbers wrap to 0
        out.published({});
        REQUIRE((out.due() && out.message().sequence == static_cast<std::uint16_t>(i)));
        out.sent(inbox, 0, out.message());
    }
}

// The examples of section 4.5.1, with a ring of 640 instead of 64 K.
TEST_CASE("cdc_outbox__a_consumer_cursor_is_told_when_the_peer_has_much_to_gain") {
    const auto is_told = [](std::uint32_t in_use, std::uint32_t consumed) {
        CdcOutbox out = outbox(640);
        out.consumed({0, consumed}, inbox_with({0, in_use}));
        return out.due();
    };
    CHECK_FALSE(is_told(140, 140));  // a. the peer has plenty of room
    CHECK_FALSE(is_told(340, 10));   // b. it has not, and would not get much more
    CHECK(is_told(340, 340));        // c. it gets all of it
    CHECK_FALSE(is_told(320, 320));
    CHECK(is_told(321, 64));
    CHECK_FALSE(is_told(321, 63));

    CdcInbox full = inbox_with({1, 0});  // small gains add up
    CdcOutbox out = outbox(100);
    std::vector<std::uint32_t> told;
    for (std::uint32_t consumed = 1; consumed < 100; consumed++) {
        out.consumed({0, consumed}, full);
        if (out.due()) {
            CHECK(out.message().consumer == Cursor{0, consumed});
            out.sent(full, 0, out.message());
            told.push_back(consumed);
        }
    }
    CHECK(told == std::vector<std::uint32_t>{10, 20, 30, 40, 50});  // half of the ring is free then
}

TEST_CASE("cdc_outbox__a_peer_that_waits_is_told_of_every_byte") {
    for (const std::uint8_t flag : {cdc::kWriterBlocked, cdc::kCursorRequested}) {
        CdcInbox inbox = inbox_with({0, 30});
        CdcOutbox out = outbox(100);
        out.consumed({0, 20}, inbox);
        CHECK_FALSE(out.due());
        // The peer begins to wait after the last byte that was read: no other message would tell it of the cursor.
        REQUIRE(inbox.take(heard(2, {0, 30}, flag)) == CdcInbox::Taken::kYes);
        out.heard(inbox);
        CHECK(out.due());
        out.sent(inbox, 0, out.message());
        out.heard(inbox);  // the peer knows the cursor: another answer would make two peers answer for ever
        CHECK_FALSE(out.due());
        for (std::uint32_t consumed = 21; consumed < 24; consumed++) {
            out.consumed({0, consumed}, inbox);
            CHECK(out.due());
            out.sent(inbox, 0, out.message());
        }
        REQUIRE(inbox.take(heard(3, {0, 30})) == CdcInbox::Taken::kYes);  // the peer does not wait any more
        out.consumed({0, 24}, inbox);
        out.heard(inbox);
        CHECK_FALSE(out.due());
    }
}

// Section 4.7.5, step 3: the peer writes nothing after urgent data until it knows that the data was consumed.
TEST_CASE("cdc_outbox__that_urgent_data_was_consumed_is_told_once") {
    CdcInbox inbox = inbox_with({0, 11}, kUrgent);
    CdcOutbox out = outbox(100);
    out.consumed({0, 10}, inbox);
    CHECK_FALSE(out.due());
    out.consumed({0, 11}, inbox);
    CHECK(out.due());
    out.sent(inbox, 0, out.message());
    CHECK_FALSE(inbox.urgent());
    REQUIRE(inbox.take(heard(2, {0, 15})) == CdcInbox::Taken::kYes);
    out.consumed({0, 15}, inbox);
    CHECK_FALSE(out.due());
}

TEST_CASE("cdc_outbox__urgent_data_is_announced_in_one_message_F6") {
    CdcInbox inbox;
    CdcOutbox out = outbox(100);
    const auto flags = [&](const cdc::Producer& producer) {
        out.published(producer);
        const std::uint8_t told = out.message().flags;
        out.sent(inbox, 0, out.message());
        return told;
    };
    CHECK(flags({{0, 5}, cdc::kUrgentPending}) == cdc::kUrgentPending);
    CHECK(flags({{0, 6}, kUrgent}) == kUrgent);
    CHECK(flags({{0, 6}, kUrgent | cdc::kCursorRequested}) == cdc::kCursorRequested);
    CHECK(flags({{0, 7}, kUrgent}) == kUrgent);  // the next one
}

// --- RDMA writes ----------------------------------------------------------------------------------------------------

TEST_CASE("staging__a_piece_ends_where_either_ring_ends") {
    Staging s(6, 10);
    using Writes = List<RdmaWrite, Staging::kMaxWrites>;
    CHECK(s.writes(4) == Writes{{0, 0, 4}});
    CHECK(s.next() == 4);
    CHECK(s.writes(5) == Writes{{4, 4, 2}, {0, 6, 3}});             // the end of the memory
    CHECK(s.writes(6) == Writes{{3, 9, 1}, {4, 0, 2}, {0, 2, 3}});  // of the peer's ring, and of the memory
    CHECK(s.writes(0).empty());
    Staging same(8, 8);
    CHECK(same.writes(8) == Writes{{0, 0, 8}});  // both end at once: no piece of 0 bytes
    CHECK(same.writes(3) == Writes{{0, 0, 3}});
}

// The stream arrives in the peer's ring, whatever the sizes, and memory that a retransmission may need is not reused.
TEST_CASE("staging__the_stream_arrives_and_memory_waits_for_the_consumer_F7") {
    constexpr std::uint64_t kNobody = ~0ULL;
    std::mt19937 random(7);
    const auto up_to = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % (n + 1ULL)); };
    for (int round = 0; round < 200; round++) {
        const std::uint32_t memory = 1 + up_to(12), ring = memory + up_to(12);
        INFO(memory << " bytes of memory, ring of " << ring);
        Sending sending(ring, memory);
        Staging staging(memory, ring);
        std::vector<std::uint64_t> staged(memory, kNobody), arrived(ring, kNobody);  // bytes of the stream
        std::uint64_t produced = 0, consumed = 0;
        for (int step = 0; step < 200; step++) {
            const std::uint32_t bytes = up_to(sending.room());
            for (const RdmaWrite& write : staging.writes(bytes)) {
                REQUIRE((write.bytes > 0 && write.from + write.bytes <= memory && write.to + write.bytes <= ring));
                for (std::uint32_t i = 0; i < write.bytes; i++) {
                    std::uint64_t& there = staged[write.from + i];
                    REQUIRE((there == kNobody || there < consumed));
                    arrived[write.to + i] = there = produced++;
                }
            }
            sending.took(bytes, false);
            REQUIRE(produced % ring == sending.produced().cursor.count);
            for (std::uint32_t n = up_to(static_cast<std::uint32_t>(produced - consumed)); n > 0; n--) {
                REQUIRE(arrived[consumed % ring] == consumed);
                consumed++;
            }
            sending.peer_consumed(
                {static_cast<std::uint16_t>(consumed / ring), static_cast<std::uint32_t>(consumed % ring)});
            REQUIRE(sending.room() == memory - (produced - consumed));
        }
    }
}

// RFC 7609 section 4.6.1: names the last message that the peer's device has acknowledged, then tells the whole state.
TEST_CASE("cdc_outbox__behind_a_move_the_last_acknowledged_message_is_named_and_all_is_told_again") {
    CdcInbox inbox;
    CdcOutbox out(AlertToken{9}, 1000, 0);
    for (std::uint64_t position = 10; position < 15; position++) {
        out.published({});
        out.sent(inbox, position, out.message());
    }
    out.acknowledged(12);  // everything before: 10 and 11
    const cdc::Message validation = out.moved();
    CHECK((validation.flags == cdc::kFailoverValidation && validation.sequence == 2));
    CHECK((validation.token == AlertToken{9} && validation.state == 0));
    CHECK((out.due() && out.message().sequence == 6));  // a new sequence number
    CHECK(out.moved().sequence == 2);                   // a second move, with nothing acknowledged since
    out.sent(inbox, 100, out.message());
    out.acknowledged(101);
    CHECK(out.moved().sequence == 6);
}

TEST_CASE("cdc_outbox__urgent_data_is_announced_again_only_if_that_may_have_been_lost") {
    const bool acknowledged = GENERATE(true, false);
    CdcInbox inbox;
    CdcOutbox out(AlertToken{9}, 1000, 0);
    cdc::Producer urgent;
    urgent.cursor = {0, 5};
    urgent.flags = cdc::kUrgentPending | cdc::kUrgentPresent;
    out.published(urgent);
    out.sent(inbox, 1, out.message());
    out.acknowledged(acknowledged ? 2 : 1);
    (void)out.moved();
    CHECK(((out.message().flags & cdc::kUrgentPresent) != 0) == !acknowledged);
}

TEST_CASE("staging__what_was_not_consumed_is_written_again_where_it_was") {
    Staging staging(100, 160);
    (void)staging.writes(90);
    const auto first = staging.writes(80);  // across the end of the memory, and of the ring
    const auto again = staging.again(80);
    REQUIRE(again.size() == first.size());
    for (std::size_t i = 0; i < first.size(); i++) {
        CHECK(again[i] == first[i]);
    }
    CHECK(staging.again(170).size() >= 2);
    Staging little(100, 160);
    (void)little.writes(10);
    CHECK(little.again(99) == List<RdmaWrite, Staging::kMaxWrites>{{0, 0, 10}});  // never bytes that were not written
}
