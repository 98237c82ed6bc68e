// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// LLC of a link group: how a second link is added (RFC 7609 sections 3.5.1.6 and 3.5.5.1).
#include "group_llc.h"

#include <algorithm>

using namespace smc;
using namespace smc::llc;
using namespace smc::test::llc_pair;
using namespace std::chrono_literals;

// Figures 9 and 15.
TEST_CASE("group_llc__a_second_link_is_confirmed_and_all_rmbs_are_known_over_it") {
    const std::uint8_t version = GENERATE(std::uint8_t{1}, std::uint8_t{2});
    Doubled d(version);
    for (const std::uint32_t more : {11U, 12U, 13U}) {  // more than fit into one message of version 1
        Doubled::own_rmb(d.server, more);
        (void)d.client.note_rmb(RKey{more});
    }
    d.double_up();
    CHECK((d.server.state() == GroupLlc::State::kActive && d.client.state() == GroupLlc::State::kActive));
    for (const std::uint32_t rmb : {10U, 11U, 12U, 13U}) {
        REQUIRE(d.client.find_rmb(1, RKey{rmb}) != nullptr);
        CHECK(d.client.find_rmb(1, RKey{rmb})->at(2) == RToken{RKey{rmb + 100}, VirtualAddress{rmb + 100}});
    }
    CHECK(d.server.find_rmb(2, RKey{120}) == d.server.find_rmb(1, RKey{20}));
    // From now on a message tells the RKeys of both links (figure 12), and one of them is enough to delete the RMB.
    Doubled::own_rmb(d.client, 30);
    const auto request = d.client.GroupLlc::confirm_rkey(RmbId{30}, kStart);
    const auto asked = sent<ConfirmRkey>(request);
    CHECK((asked.other_tokens == 1 && asked.others[0] == LinkRToken{2, RKey{130}, VirtualAddress{130}}));
    const auto answer = d.server.message(bytes(request), kStart);
    CHECK(find<PeerRmb>(answer)->tokens.size() == 2);
    CHECK(find<RkeyConfirmed>(d.client.message(bytes(answer), kStart))->accepted);
    (void)d.server.message(bytes(d.client.GroupLlc::delete_rkey(RmbId{30}, kStart)), kStart);
    CHECK(d.server.find_rmb(2, RKey{130}) == nullptr);
}

// Section 4.5.3.
TEST_CASE("group_llc__a_link_that_was_added_is_tested_only_when_it_is_silent") {
    Doubled d;
    d.double_up();
    for (GroupLlc* side : {static_cast<GroupLlc*>(&d.server), static_cast<GroupLlc*>(&d.client)}) {
        CHECK(side->next_deadline() == kStart + 10s);
        CHECK(side->tick(kStart + 9999ms).empty());
    }
}

// Section 3.5.1.6.2, C.7.1.
TEST_CASE("group_llc__a_second_link_that_fails_at_first_contact_is_gone_at_both_ends_before_data_flows") {
    Doubled d;
    d.agree();
    (void)d.server.link_connected(2, kStart);
    const auto gone = d.server.link_down(2, "retries exceeded", kStart);
    CHECK((find<LinkGone>(gone)->number == 2 && find<Confirmed>(gone) == nullptr));
    CHECK((sent<DeleteLink>(gone).link_number == 2 && !sent<DeleteLink>(gone).all && find<Send>(gone)->link == 1));
    const auto reply = d.client.message(bytes(gone), kStart);
    CHECK((sent<DeleteLink>(reply).reply && find<LinkGone>(reply)->number == 2 && find<Confirmed>(reply) != nullptr));
    CHECK(d.server.state() == GroupLlc::State::kForming);
    const auto done = d.server.message(bytes(reply), kStart);
    CHECK((find<Confirmed>(done) != nullptr && d.server.up() == std::vector<std::uint8_t>{1}));
}

// As a Linux client does while it waits for ADD LINK CONTINUATION. By C.7.1 the connection would be reset.
TEST_CASE("group_llc__a_client_that_does_not_answer_delete_link_at_first_contact_has_one_link") {
    Doubled d;
    d.agree();
    (void)d.server.link_connected(2, kStart);
    (void)d.server.link_down(2, "retries exceeded", kStart);
    const auto done = d.server.tick(kStart + 1s, 0);
    CHECK((find<Confirmed>(done) != nullptr && d.server.up() == std::vector<std::uint8_t>{1}));
}

TEST_CASE("group_llc__a_client_that_waits_in_vain_for_confirm_link_asks_for_the_end_of_that_link") {
    Doubled d;
    d.agree();
    CHECK(d.client.tick(kStart + 449ms, 0).empty());
    const auto given_up = d.client.tick(kStart + 450ms, 0);
    const auto ask = sent<DeleteLink>(given_up);
    CHECK((!ask.reply && ask.link_number == 2 && !ask.orderly && ask.reason == DeleteLinkReason::kLostPath));
    CHECK(find<Confirmed>(given_up) == nullptr);
    const auto told = d.server.message(bytes(given_up), kStart + 450ms);
    CHECK((sent<DeleteLink>(told).link_number == 2 && !sent<DeleteLink>(told).reply));
    const auto reply = d.client.message(bytes(told), kStart + 450ms);
    CHECK((sent<DeleteLink>(reply).reply && find<Confirmed>(reply) != nullptr));
    CHECK(find<Confirmed>(d.server.message(bytes(reply), kStart + 450ms)) != nullptr);
}

// C.7.1: it is deleted over the link that stays.
TEST_CASE("group_llc__a_wrong_confirm_link_of_a_second_link_costs_that_link_alone") {
    Doubled d;
    d.agree();
    auto confirm = sent<ConfirmLink>(d.server.link_connected(2, kStart));
    confirm.qpn = Qpn{99};
    const auto heard = d.client.message(encode(confirm).view(), kStart, 2);
    CHECK(find<LinkUp>(heard) == nullptr);
    REQUIRE(find<Send>(heard) != nullptr);
    CHECK(find<Send>(heard)->link == 1);
    const auto ask = sent<DeleteLink>(heard);
    CHECK((!ask.reply && !ask.all && ask.link_number == 2));
    const auto told = d.server.message(bytes(heard), kStart);
    CHECK(find<LinkGone>(told)->number == 2);
    const auto reply = d.client.message(bytes(told), kStart);
    CHECK(find<Confirmed>(reply) != nullptr);
    CHECK(find<Confirmed>(d.server.message(bytes(reply), kStart)) != nullptr);
    for (const Side* side : {&d.server, &d.client}) {
        CHECK(side->up() == std::vector<std::uint8_t>{1});
    }
}

// Linux has "no alternate path" in a rejection of version 1, and no reason in one of version 2 (golden_test.cc).
TEST_CASE("group_llc__a_rejection_by_linux_means_that_there_is_no_other_path_for_now") {
    const auto [version, reason, unlikely] =
        GENERATE(std::tuple(std::uint8_t{2}, AddLinkReason::kNone, true),
                 std::tuple(std::uint8_t{2}, AddLinkReason::kInvalidMtu, false),
                 std::tuple(std::uint8_t{1}, AddLinkReason::kNoAlternatePath, true),
                 std::tuple(std::uint8_t{1}, AddLinkReason::kNone, false));
    Doubled d(version);
    (void)d.server.offer_link(second(true), {}, kStart);
    AddLink rejection;
    rejection.version = version;
    rejection.reply = rejection.rejected = true;
    rejection.reason = reason;
    const auto over = d.server.message(encode(rejection).view(), kStart);
    REQUIRE(find<AddLinkOver>(over) != nullptr);
    CHECK_FALSE(find<AddLinkOver>(over)->added);
    CHECK(find<AddLinkOver>(over)->unlikely == unlikely);
}

// Linux may handle ADD LINK when its flow before is over.
TEST_CASE("group_llc__a_client_that_accepts_a_link_too_late_is_told_that_there_is_none") {
    Doubled d;
    (void)d.server.no_link(kStart);
    (void)d.client.tick(kStart + 1s, 0);
    const auto offer = d.server.offer_link(second(true), {}, kStart + 1s);
    (void)d.client.message(bytes(offer), kStart + 1s);
    const auto acceptance = d.client.accept_link(second(false), kStart + 1s);
    (void)d.server.tick(kStart + 3s, 0);
    const auto told = d.server.message(bytes(acceptance), kStart + 3s);
    CHECK((sent<DeleteLink>(told).link_number == 2 && !sent<DeleteLink>(told).reply && !sent<DeleteLink>(told).all));
    const auto reply = d.client.message(bytes(told), kStart + 3s);
    CHECK(find<LinkGone>(reply)->number == 2);
    CHECK(find<LinkGone>(d.server.message(bytes(reply), kStart + 3s)) == nullptr);
    for (const Side* side : {&d.server, &d.client}) {
        CHECK((side->up() == std::vector<std::uint8_t>{1} && side->state() == GroupLlc::State::kActive));
    }
}

// SMC v2.1, REQUEST ADD LINK, note 7: ADD LINK may come without an acknowledgement before it.
TEST_CASE("group_llc__an_add_link_answers_the_invitation") {
    Doubled d;
    (void)d.server.no_link(kStart);
    (void)d.client.tick(kStart + 1s, 0);
    REQUIRE(d.client.may_ask_for_link());
    const auto ask = d.client.ask_for_link({second(false).own.gid}, {}, kStart + 1s);
    CHECK_FALSE(sent<RequestAddLink>(ask).reply);
    CHECK_FALSE(d.client.may_ask_for_link());  // not again before the answer
    const auto offer = d.server.offer_link(second(true), {}, kStart + 1s);
    CHECK(find<LinkOffered>(d.client.message(bytes(offer), kStart + 1s)) != nullptr);
    const auto rejected = d.client.reject_link(AddLinkReason::kNoAlternatePath, kStart + 1s);
    CHECK(sent<AddLink>(rejected).rejected);
    CHECK(d.client.may_ask_for_link());  // the answer is not awaited any more
}

// If it said nothing, the server would give up the link that carried ADD LINK, or all of first contact (C.7.1).
TEST_CASE("group_llc__a_client_that_cannot_connect_in_time_rejects_the_link_before_the_server_gives_up") {
    const bool first_contact = GENERATE(true, false);
    Doubled d;
    if (!first_contact) {
        (void)d.server.no_link(kStart);
        (void)d.client.tick(kStart + 1s, 0);
        REQUIRE(d.client.state() == GroupLlc::State::kActive);
    }
    const auto offer = d.server.offer_link(second(true), {}, kStart);
    REQUIRE(find<LinkOffered>(d.client.message(bytes(offer), kStart)) != nullptr);
    const TimePoint late = d.client.next_deadline();
    REQUIRE(late < d.server.next_deadline());
    const auto rejection = d.client.tick(late, 0);
    CHECK((sent<AddLink>(rejection).reply && sent<AddLink>(rejection).rejected));
    CHECK(find<LinkGone>(rejection)->number == 2);
    const auto heard = d.server.message(bytes(rejection), late);
    CHECK((find<AddLinkOver>(heard) != nullptr && find<Over>(heard) == nullptr));
    CHECK((find<Confirmed>(rejection) != nullptr) == first_contact);
    CHECK((find<Confirmed>(heard) != nullptr) == first_contact);
    // The queue pair is connected now.
    CHECK(find<LinkGone>(d.client.accept_link(second(false), late))->number == 2);
    for (const Side* side : {&d.server, &d.client}) {
        CHECK(side->up() == std::vector<std::uint8_t>{1});
    }
}

// The application's connect() waits for first contact, which has a budget.
TEST_CASE("group_llc__at_first_contact_a_server_gives_up_a_second_link_soon") {
    Doubled d;
    const bool connects = GENERATE(true, false);
    d.agree();
    if (connects) {
        REQUIRE(find<Send>(d.server.link_connected(2, kStart)) != nullptr);
    }
    CHECK(d.server.next_deadline() <= kStart + 300ms);
    const auto given_up = d.server.tick(d.server.next_deadline(), 0);
    CHECK(sent<DeleteLink>(given_up).link_number == 2);
    const auto reply = d.client.message(bytes(given_up), kStart + 300ms);
    CHECK(find<Confirmed>(reply) != nullptr);
    CHECK(find<Confirmed>(d.server.message(bytes(reply), kStart + 300ms)) != nullptr);
}

// C.7.1 has the link lost that carried an ADD LINK without an answer. But Linux drops ADD LINK if it has a flow of its
// own, so TEST LINK decides.
TEST_CASE("group_llc__a_later_add_link_that_is_not_answered_costs_the_link_that_carried_it_if_that_is_dead") {
    const bool lives = GENERATE(true, false);
    Doubled d;
    (void)d.server.no_link(kStart);
    (void)d.client.tick(kStart + 1s, 0);
    (void)d.server.offer_link(second(true), {}, kStart);
    CHECK(d.server.tick(kStart + 999ms, 0).empty());
    const TimePoint deadline = d.server.next_deadline();
    const auto late = d.server.tick(deadline, 0);
    CHECK((find<LinkGone>(late)->number == 2 && find<Over>(late) == nullptr && find<AddLinkOver>(late) != nullptr));
    REQUIRE_FALSE(sent<TestLink>(late).reply);
    if (!lives) {
        CHECK(over(d.server.tick(d.server.next_deadline(), 0)) == Reason::kLinkDown);
        return;
    }
    (void)d.server.message(bytes(d.client.message(bytes(late), deadline)), deadline);
    CHECK(d.server.tick(deadline + 3s, 0).empty());
    CHECK((d.server.state() == GroupLlc::State::kActive && d.server.may_offer_link()));
}

TEST_CASE("group_llc__a_later_confirm_link_that_is_not_answered_costs_the_new_link_only") {
    Doubled d;
    (void)d.server.no_link(kStart);
    (void)d.client.tick(kStart + 1s, 0);
    REQUIRE(d.client.state() == GroupLlc::State::kActive);
    d.agree();
    (void)d.server.link_connected(2, kStart);
    const auto late = d.server.tick(d.server.next_deadline(), 1);
    CHECK((find<LinkGone>(late)->number == 2 && find<Over>(late) == nullptr));
    CHECK((sent<DeleteLink>(late).link_number == 2 && find<Send>(late)->link == 1));
    CHECK_FALSE(find<AddLinkOver>(late)->unlikely);
    CHECK(d.server.up() == std::vector<std::uint8_t>{1});
}

// C.7.1: a peer that does not tell the RKey of an RMB on a link does not count on that link.
TEST_CASE("group_llc__a_link_that_a_new_rmb_is_not_told_for_has_failed") {
    Doubled d;
    d.double_up();
    auto m = message<ConfirmRkey>();
    m.rkey = RKey{50};
    const auto answer = d.server.message(encode(m).view(), kStart);
    CHECK((find<LinkGone>(answer)->number == 2 && find<Over>(answer) == nullptr));
    CHECK(d.server.up() == std::vector<std::uint8_t>{1});
}

// Section 3.5.5.3.1.
TEST_CASE("group_llc__while_a_link_is_added_test_link_is_answered_and_the_end_of_that_link_is_obeyed") {
    Doubled d;
    d.agree();
    (void)d.server.link_connected(2, kStart);
    const auto answer = d.server.message(encode(message<TestLink>()).view(), kStart);
    CHECK(sent<TestLink>(answer).reply);
    auto ask = message<DeleteLink>();
    ask.link_number = 2;
    ask.reason = DeleteLinkReason::kLostPath;
    const auto gone = d.server.message(encode(ask).view(), kStart);
    CHECK(find<LinkGone>(gone)->number == 2);
    CHECK((sent<DeleteLink>(gone).link_number == 2 && !sent<DeleteLink>(gone).reply && !sent<DeleteLink>(gone).all));
}

// Section 3.5.5.3.1: the invitation is acknowledged if its version demands that, and has no other effect.
TEST_CASE("group_llc__an_invitation_while_a_link_is_added_changes_nothing") {
    const std::uint8_t version = GENERATE(std::uint8_t{1}, std::uint8_t{2});
    Doubled d(version);
    (void)d.server.no_link(kStart);
    (void)d.client.tick(kStart + 1s, 0);
    const auto offer = d.server.offer_link(second(true), {}, kStart + 1s);
    if (version == 1) {
        auto invitation = message<AddLink>(version);
        invitation.gid = *RoceGid::parse("10.0.7.7");
        invitation.padded = true;
        CHECK(d.server.message(encode(invitation).view(), kStart + 1s).empty());
    } else {
        auto invitation = message<RequestAddLink>();
        invitation.gid_list.push_back(*RoceGid::parse("10.0.7.7"));
        CHECK(sent<RequestAddLink>(d.server.message(encode(invitation).view(), kStart + 1s)).reply);
    }
    CHECK_FALSE(d.server.may_offer_link());
    REQUIRE(find<LinkOffered>(d.client.message(bytes(offer), kStart + 1s)) != nullptr);
    const auto reply = d.client.accept_link(second(false), kStart + 1s);
    CHECK(find<LinkGone>(d.server.message(bytes(reply), kStart + 1s)) == nullptr);  // it goes on
}

// C.7.1: this has the same effect as a missing answer to ADD LINK.
TEST_CASE("group_llc__a_continuation_that_does_not_come_or_does_not_fit_costs_the_link_that_carried_it") {
    const bool comes = GENERATE(true, false);
    Doubled d(1);
    for (const std::uint32_t more : {11U, 12U, 13U}) {
        Doubled::own_rmb(d.server, more);
        Doubled::own_rmb(d.client, more + 10);
    }
    (void)d.server.no_link(kStart);
    (void)d.client.tick(kStart + 1s, 0);
    const auto offer = d.server.offer_link(second(true), {}, kStart + 1s);
    REQUIRE(find<LinkOffered>(d.client.message(bytes(offer), kStart + 1s)) != nullptr);
    const auto first = d.server.message(bytes(d.client.accept_link(second(false), kStart + 1s)), kStart + 1s);
    auto answer = sent<AddLinkContinuation>(d.client.message(bytes(first), kStart + 1s));
    REQUIRE(answer.tokens_left == 4);
    const auto again = d.server.message(encode(answer).view(), kStart + 1s);
    REQUIRE(find<Over>(again) == nullptr);  // it is the server's turn, and then the client's
    answer.tokens_left = 4;                 // two of the tokens were told: at most two can be left
    auto end =
        comes ? d.server.message(encode(answer).view(), kStart + 1s) : d.server.tick(d.server.next_deadline(), 1);
    CHECK(find<LinkGone>(end)->number == 2);
    if (!comes) {
        REQUIRE_FALSE(sent<TestLink>(end).reply);
        end = d.server.tick(d.server.next_deadline(), 1);
    }
    CHECK(over(end) == Reason::kLinkDown);
}

// Version 1: the server does not go on with ADD LINK CONTINUATION.
TEST_CASE("group_llc__tokens_that_do_not_come_at_first_contact_cost_a_client_the_second_link_alone") {
    Doubled d(1);
    const auto offer = d.server.offer_link(second(true), {}, kStart);
    REQUIRE(find<LinkOffered>(d.client.message(bytes(offer), kStart)) != nullptr);
    (void)d.client.accept_link(second(false), kStart);
    CHECK(d.client.tick(kStart + 449ms, 0).empty());
    const auto given_up = d.client.tick(kStart + 450ms, 0);
    CHECK(find<Over>(given_up) == nullptr);
    CHECK(sent<DeleteLink>(given_up).link_number == 2);
    CHECK(find<Confirmed>(d.client.tick(d.client.next_deadline(), 0)) != nullptr);
    CHECK(d.client.up() == std::vector<std::uint8_t>{1});
}

// Section 3.5.5.3.1: the server refuses a CONFIRM RKEY that lacks the new link, and nothing else.
TEST_CASE("group_llc__an_rmb_that_lacks_the_link_that_is_added_is_refused_for_the_moment") {
    Doubled d;
    Doubled::own_rmb(d.client, 30);
    (void)d.server.no_link(kStart);
    (void)d.client.tick(kStart + 1s, 0);
    const auto offer = d.server.offer_link(second(true), {}, kStart + 1s);
    const auto crossed = d.client.GroupLlc::confirm_rkey(RmbId{30}, kStart + 1s);
    CHECK_FALSE(sent<ConfirmRkey>(d.server.message(bytes(crossed), kStart + 1s)).negative);
    REQUIRE(find<LinkOffered>(d.client.message(bytes(offer), kStart + 1s)) != nullptr);
    const auto reply = d.client.accept_link(second(false), kStart + 1s);  // it tells the RKey of that RMB, too
    REQUIRE(find<LinkAccepted>(d.server.message(bytes(reply), kStart + 1s)) != nullptr);
    CHECK(d.server.find_rmb(2, RKey{130}) == d.server.find_rmb(1, RKey{30}));

    // As a Linux client does while the server's CONFIRM LINK for the new link is on its way.
    auto late = message<ConfirmRkey>();
    late.rkey = RKey{40};
    const auto refusal = sent<ConfirmRkey>(d.server.message(encode(late).view(), kStart + 1s));
    CHECK((refusal.negative && refusal.retry && !d.server.knows(RKey{40})));
    late.others = {{2, RKey{140}, {}}};
    late.other_tokens = 1;
    CHECK_FALSE(sent<ConfirmRkey>(d.server.message(encode(late).view(), kStart + 1s)).negative);
    CHECK(d.server.find_rmb(2, RKey{140}) != nullptr);
}

// Section 3.5.5.3.1.
TEST_CASE("group_llc__a_clients_rkeys_wait_while_a_link_is_added") {
    Doubled d;
    (void)d.server.no_link(kStart);
    REQUIRE(d.server.state() == GroupLlc::State::kActive);
    REQUIRE(find<Confirmed>(d.client.tick(kStart + 1s, 0)) != nullptr);
    const auto offer = d.server.offer_link(second(true), {}, kStart + 1s);
    (void)d.client.confirm_rkey(RKey{40}, VirtualAddress{40}, kStart + 1s);
    auto refusal = message<ConfirmRkey>();
    refusal.reply = refusal.negative = refusal.retry = true;
    refusal.rkey = RKey{40};
    REQUIRE(find<LinkOffered>(d.client.message(bytes(offer), kStart + 1s)) != nullptr);
    CHECK(d.client.message(encode(refusal).view(), kStart + 1s).empty());
    CHECK(find<Send>(d.client.tick(kStart + 1500ms, 0)) == nullptr);  // nor while it chooses a port
    const auto done = d.client.reject_link(AddLinkReason::kNoAlternatePath, kStart + 1500ms);
    REQUIRE(std::ranges::count_if(done, [](const Action& a) { return std::holds_alternative<Send>(a); }) == 2);
    CHECK(find<AddLinkOver>(done)->unlikely);
}

TEST_CASE("group_llc__a_client_says_that_it_has_another_port_and_waits_for_nothing") {
    const std::uint8_t version = GENERATE(std::uint8_t{1}, std::uint8_t{2});
    Doubled d(version);
    (void)d.server.no_link(kStart);
    (void)d.client.tick(kStart + 1s, 0);
    REQUIRE(d.client.may_ask_for_link());
    const auto ask = d.client.ask_for_link({second(false).own.gid}, {}, kStart + 1s);
    const auto heard = d.server.message(bytes(ask), kStart + 1s);
    CHECK(find<LinkWanted>(heard)->gids == std::vector<RoceGid>{second(false).own.gid.normalised()});
    CHECK((find<Send>(heard) != nullptr) == (version == 2));
    CHECK(d.client.tick(kStart + 9s, 1).empty());
    CHECK(d.client.state() == GroupLlc::State::kActive);
}

TEST_CASE("group_llc__a_link_between_the_same_two_ports_is_not_added") {
    Doubled d;
    const auto offer = d.server.offer_link(second(true), {}, kStart);
    (void)d.client.message(bytes(offer), kStart);
    LinkTerms parallel = second(false);
    parallel.own.gid = *RoceGid::parse("10.0.0.2");
    AddLink reply = sent<AddLink>(d.client.accept_link(parallel, kStart));
    LinkTerms own = second(true);
    reply.gid = *RoceGid::parse("10.0.1.9");  // another port of the peer: it is accepted
    CHECK(find<LinkAccepted>(d.server.message(encode(reply).view(), kStart)) != nullptr);

    Doubled same;
    own.own.gid = *RoceGid::parse("10.0.0.1");  // the first link's port, an asymmetric attempt
    const auto asymmetric = same.server.offer_link(own, {}, kStart);
    (void)same.client.message(bytes(asymmetric), kStart);
    (void)same.server.message(bytes(same.client.accept_link(parallel, kStart)), kStart);
    const auto refused = same.server.link_connected(2, kStart);
    CHECK((find<LinkGone>(refused)->number == 2 && find<AddLinkOver>(refused)->unlikely));
    CHECK(sent<DeleteLink>(refused).link_number == 2);  // the client counts on it
}
