// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// LLC of a link group: RKeys that are confirmed, refused and deleted (RFC 7609 section 3.5.5.2).
#include "group_llc.h"

#include <algorithm>

using namespace smc;
using namespace smc::llc;
using namespace smc::test::llc_pair;
using namespace std::chrono_literals;

TEST_CASE("group_llc__an_rmb_is_confirmed_by_the_peer_one_at_a_time") {
    Pair p;
    const auto first = p.client.confirm_rkey(RKey{1}, VirtualAddress{0x1000}, kStart);
    CHECK(p.client.confirm_rkey(RKey{2}, VirtualAddress{0x2000}, kStart).empty());  // M1
    const auto answer = p.server.message(bytes(first), kStart);
    CHECK((sent<ConfirmRkey>(answer).reply && !sent<ConfirmRkey>(answer).negative));
    CHECK(p.server.knows(RKey{1}));
    const auto next = p.client.message(bytes(answer), kStart);
    CHECK(find<RkeyConfirmed>(next)->rmb == RmbId{1});
    CHECK(sent<ConfirmRkey>(next).rkey == RKey{2});
    // requests of both sides at once do not collide (section 3.5.5.3)
    CHECK(sent<ConfirmRkey>(p.server.confirm_rkey(RKey{7}, VirtualAddress{}, kStart)).rkey == RKey{7});
    // M2
    CHECK(p.client.tick(kStart + 1999ms, 0).empty());
    CHECK(over(p.client.tick(kStart + 2s, 0)) == Reason::kLinkDown);
}

TEST_CASE("own_rmbs__a_request_that_lacks_a_token_for_the_link_is_due_once") {
    Actions actions;
    const LinkOut out{actions, 1, 2, false};
    OwnRmbs rmbs;
    rmbs.put(RmbId{1}, 1, {RKey{1}, VirtualAddress{}});
    rmbs.confirm(RmbId{1});
    rmbs.proceed({}, {1}, out, kStart);
    auto refusal = sent<ConfirmRkey>(actions);
    refusal.reply = refusal.negative = refusal.retry = true;
    CHECK_FALSE(rmbs.on_reply(refusal, kStart));
    const TimePoint due = rmbs.retry_at();
    REQUIRE((due > kStart && due != kNever));
    rmbs.forget_link(1);
    rmbs.proceed({}, {1}, out, due);
    CHECK(rmbs.retry_at() == kNever);
}

TEST_CASE("group_llc__a_refused_rmb_is_told_and_the_link_stays") {
    Pair p;
    (void)p.client.confirm_rkey(RKey{1}, VirtualAddress{}, kStart);
    auto refusal = message<ConfirmRkey>();
    refusal.reply = refusal.negative = true;
    refusal.rkey = RKey{1};
    const auto told = p.client.message(encode(refusal).view(), kStart);
    REQUIRE(find<RkeyConfirmed>(told) != nullptr);
    CHECK_FALSE(find<RkeyConfirmed>(told)->accepted);
    CHECK(p.client.state() == GroupLlc::State::kActive);
}

// RFC 7609 A.3.5, flag C.
TEST_CASE("group_llc__an_rmb_that_is_refused_for_the_moment_is_told_again") {
    Pair p;
    auto refusal = sent<ConfirmRkey>(p.client.confirm_rkey(RKey{1}, VirtualAddress{0x1000}, kStart));
    refusal.reply = refusal.negative = refusal.retry = true;
    TimePoint now = kStart;
    for (int retry = 0; retry < 3; retry++) {
        CHECK(p.client.message(encode(refusal).view(), now).empty());
        CHECK(p.client.confirm_rkey(RKey{2}, {}, now).empty());  // M1
        now = p.client.next_deadline();
        CHECK(now == kStart + 100ms * (retry + 1));
        const auto again = sent<ConfirmRkey>(p.client.tick(now, 0));
        CHECK((again.rkey == RKey{1} && again.address == VirtualAddress{0x1000} && !again.negative && !again.retry));
    }
    const auto told = p.client.message(encode(refusal).view(), now);
    REQUIRE(find<RkeyConfirmed>(told) != nullptr);
    CHECK_FALSE(find<RkeyConfirmed>(told)->accepted);
    CHECK(sent<ConfirmRkey>(told).rkey == RKey{2});
}

TEST_CASE("group_llc__a_peer_may_have_255_rmbs") {
    Pair p;
    auto m = message<ConfirmRkey>();
    for (std::uint32_t i = 1; i <= 256; i++) {
        m.rkey = RKey{i};
        const auto answer = p.server.message(encode(m).view(), kStart);
        CHECK(sent<ConfirmRkey>(answer).negative == (i == 256));
    }
    // a deletion makes room; unknown RKeys are reported
    auto gone = message<DeleteRkey>();
    gone.rkeys = {RKey{1}, RKey{5000}};
    gone.count = 2;
    const auto answer = sent<DeleteRkey>(p.server.message(encode(gone).view(), kStart));
    CHECK((answer.reply && answer.negative && answer.count == 2 && answer.invalid_count == 1));
    REQUIRE(answer.rkeys.size() == 1);
    CHECK(answer.rkeys[0] == RKey{5000});
    m.rkey = RKey{256};
    CHECK_FALSE(sent<ConfirmRkey>(p.server.message(encode(m).view(), kStart)).negative);
}

TEST_CASE("group_llc__version_1_tells_unknown_rkeys_in_a_mask") {
    Pair p(terms(true, 1), terms(false, 1));
    (void)p.server.note_rmb(RKey{8});
    auto gone = message<DeleteRkey>(1);
    gone.rkeys = {RKey{7}, RKey{8}, RKey{9}};
    gone.count = 3;
    const auto answer = sent<DeleteRkey>(p.server.message(encode(gone).view(), kStart));
    CHECK((answer.negative && answer.error_mask == 0xa0));
}

TEST_CASE("group_llc__delete_rkey_is_over_when_the_peer_answers") {
    Pair p;
    (void)p.server.note_rmb(RKey{3});
    const auto request = p.client.delete_rkey(RKey{3}, kStart);
    const auto answer = p.server.message(bytes(request), kStart);
    CHECK_FALSE(sent<DeleteRkey>(answer).negative);
    CHECK_FALSE(p.server.knows(RKey{3}));
    CHECK(find<RkeyDeleted>(p.client.message(bytes(answer), kStart))->rmb == RmbId{3});
}
