// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/roce/inbox.h"

#include <catch2/catch.hpp>

using namespace smc;
using namespace smc::roce;

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

TEST_CASE("inbox__the_latest_message_counts_and_older_ones_do_not") {
    Inbox inbox;
    CHECK(inbox.empty());
    CHECK(inbox.take(message(1, 10)) == Inbox::Taken::kYes);
    CHECK(inbox.take(message(3, 30)) == Inbox::Taken::kYes);
    CHECK(inbox.take(message(2, 20)) == Inbox::Taken::kStale);
    CHECK(inbox.take(message(3, 99)) == Inbox::Taken::kStale);
    CHECK(inbox.fresh());
    CHECK(inbox.read().producer.count == 30);
    CHECK_FALSE(inbox.fresh());
}

TEST_CASE("inbox__sequence_numbers_wrap") {
    Inbox inbox;
    for (std::uint32_t i = 1; i <= 70000; i++) {
        REQUIRE(inbox.take(message(static_cast<std::uint16_t>(i), i)) == Inbox::Taken::kYes);
    }
    CHECK(inbox.latest().producer.count == 70000);
}

TEST_CASE("inbox__urgent_data_is_told_once_even_if_other_messages_followed") {
    Inbox inbox;
    (void)inbox.take(message(1, 11, cdc::kUrgentPending | cdc::kUrgentPresent));
    (void)inbox.take(message(2, 20));
    CHECK(inbox.take_urgent()->count == 11);
    CHECK_FALSE(inbox.take_urgent());
}

TEST_CASE("inbox__failover_validation_tells_whether_something_was_lost") {
    Inbox inbox;
    (void)inbox.take(message(5, 50));
    CHECK(inbox.take(message(5, 0, cdc::kFailoverValidation)) == Inbox::Taken::kStale);
    CHECK(inbox.take(message(6, 0, cdc::kFailoverValidation)) == Inbox::Taken::kLost);
    CHECK(inbox.latest().producer.count == 50);
}

TEST_CASE("inbox__closed_or_aborted_means_done") {
    for (const auto state : {cdc::kConnectionClosed, cdc::kAbnormalClose}) {
        Inbox inbox;
        (void)inbox.take(message(1, 0, 0, cdc::kSendingDone));
        CHECK_FALSE(inbox.peer_is_done());
        (void)inbox.take(message(2, 0, 0, state));
        CHECK(inbox.peer_is_done());
    }
}
