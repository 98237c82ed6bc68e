// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "smc/flow/cdc_inbox.h"

#include <catch2/catch.hpp>

using namespace smc;
using namespace smc::flow;

namespace {

cdc::Message message(std::uint16_t sequence, std::uint32_t produced, std::uint8_t flags = 0, std::uint8_t state = 0) {
    cdc::Message m;
    m.sequence = sequence;
    m.producer.count = produced;
    m.flags = flags;
    m.state = state;
    return m;
}

}  // namespace

TEST_CASE("cdc_inbox__the_latest_message_counts_and_older_ones_do_not") {
    CdcInbox inbox;
    CHECK(inbox.empty());
    CHECK(inbox.take(message(1, 10)) == CdcInbox::Taken::kYes);
    CHECK(inbox.take(message(3, 30)) == CdcInbox::Taken::kYes);
    CHECK(inbox.take(message(2, 20)) == CdcInbox::Taken::kStale);
    CHECK(inbox.take(message(3, 99)) == CdcInbox::Taken::kStale);
    CHECK(inbox.latest().producer.count == 30);
}

TEST_CASE("cdc_inbox__sequence_numbers_wrap") {
    CdcInbox inbox;
    for (std::uint32_t i = 1; i <= 70000; i++) {
        REQUIRE(inbox.take(message(static_cast<std::uint16_t>(i), i)) == CdcInbox::Taken::kYes);
    }
    CHECK(inbox.latest().producer.count == 70000);
}

TEST_CASE("cdc_inbox__urgent_data_is_kept_although_other_messages_followed") {
    CdcInbox inbox;
    (void)inbox.take(message(1, 11, cdc::kUrgentPending | cdc::kUrgentPresent));
    (void)inbox.take(message(2, 20));
    CHECK(inbox.state(0).urgent == cdc::Cursor{0, 11});
    inbox.forget_urgent();
    CHECK_FALSE(inbox.state(0).urgent);
}

TEST_CASE("cdc_inbox__failover_validation_tells_whether_something_was_lost") {
    CdcInbox inbox;
    (void)inbox.take(message(5, 50));
    CHECK(inbox.take(message(5, 0, cdc::kFailoverValidation)) == CdcInbox::Taken::kStale);
    CHECK(inbox.take(message(6, 0, cdc::kFailoverValidation)) == CdcInbox::Taken::kLost);
    CHECK(inbox.latest().producer.count == 50);
}

TEST_CASE("cdc_inbox__closed_or_aborted_means_done_C2") {
    for (const auto state : {cdc::kConnectionClosed, cdc::kAbnormalClose}) {
        CdcInbox inbox;
        (void)inbox.take(message(1, 0, 0, cdc::kSendingDone));
        CHECK_FALSE(inbox.peer_is_done());
        (void)inbox.take(message(2, 0, 0, state));
        CHECK(inbox.peer_is_done());
    }
}

TEST_CASE("cdc_inbox__cursors_count_from_behind_the_eye_catcher_on_the_wire") {
    CdcInbox inbox;
    CHECK(inbox.state(4) == PeerState{});
    cdc::Message m = message(1, 10);
    m.consumer.count = 4;
    (void)inbox.take(m);
    CHECK(inbox.state(4).producer.cursor == cdc::Cursor{0, 6});
    CHECK(inbox.state(4).consumer == cdc::Cursor{0, 0});
    m = message(2, 3);  // inside the eye catcher: nowhere
    (void)inbox.take(m);
    CHECK(inbox.state(4).producer.cursor.count == kNowhere);
}
