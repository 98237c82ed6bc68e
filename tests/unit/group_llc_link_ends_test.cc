// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// LLC of a link group: how links go, and what the group does about it (RFC 7609 sections 3.5.5.1 and 3.5.5.3).
#include "group_llc.h"

#include <algorithm>

using namespace smc;
using namespace smc::llc;
using namespace smc::test::llc_pair;
using namespace std::chrono_literals;

// Figures 10 and 11.
TEST_CASE("group_llc__a_link_that_breaks_is_deleted_over_the_other_one_whoever_notices") {
    const bool at_server = GENERATE(true, false);
    const bool both = GENERATE(true, false);
    Doubled d;
    d.double_up();
    Side& first = at_server ? d.server : d.client;
    Side& other = at_server ? d.client : d.server;
    auto said = first.link_down(1, "port down", kStart);
    CHECK((find<LinkGone>(said)->number == 1 && find<Send>(said)->link == 2 && find<Over>(said) == nullptr));
    auto also = both ? other.link_down(1, "port down", kStart) : Actions{};
    // Delivers messages until neither side sends any more.
    std::vector<std::pair<Side*, Actions>> news{{&other, said}, {&first, also}};
    bool other_heard = both;
    while (!news.empty()) {
        auto [to, actions] = news.back();
        news.pop_back();
        for (const Action& action : actions) {
            if (const auto* send = std::get_if<Send>(&action)) {
                Side* back = to == &first ? &other : &first;
                Actions more = to->message(send->message.view(), kStart, send->link);
                other_heard |= to == &other && find<LinkGone>(more) != nullptr;
                news.emplace_back(back, std::move(more));
            }
        }
    }
    CHECK(other_heard);
    for (Side* side : {&d.server, &d.client}) {
        CHECK(side->up() == std::vector<std::uint8_t>{2});
        CHECK(side->tick(kStart + 5s, 1).empty());  // neither side waits for anything
        CHECK(side->state() == GroupLlc::State::kActive);
    }
    CHECK(over(first.link_down(2, "port down", kStart)) == Reason::kLinkDown);
}

// As a Linux server does while requests of the broken link are under way, or when it has forgotten that link. By C.7.1
// the link that carried the request would be lost, too.
TEST_CASE("group_llc__a_server_that_does_not_answer_delete_link_costs_no_link_that_test_link_finds_alive") {
    const bool lives = GENERATE(true, false);
    Doubled d;
    d.double_up();
    d.client.heard(2, 5, kStart);
    REQUIRE(sent<DeleteLink>(d.client.link_down(1, "port down", kStart)).link_number == 1);
    const TimePoint deadline = d.client.next_deadline();
    const auto test = d.client.tick(deadline, 0);
    CHECK((find<Over>(test) == nullptr && find<Send>(test)->link == 2 && !sent<TestLink>(test).reply));
    if (!lives) {
        CHECK(over(d.client.tick(d.client.next_deadline(), 0)) == Reason::kLinkDown);
        return;
    }
    (void)d.client.message(bytes(d.server.message(bytes(test), deadline, 2)), deadline, 2);
    CHECK(d.client.tick(deadline + 5s, 0).empty());
    CHECK((d.client.up() == std::vector<std::uint8_t>{2} && d.client.state() == GroupLlc::State::kActive));
    // The server asks to delete the link in the end, and is told that there is no such link.
    DeleteLink request = message<DeleteLink>();
    request.link_number = 1;
    request.reason = DeleteLinkReason::kLostPath;
    const auto reply = sent<DeleteLink>(d.client.message(encode(request).view(), deadline + 1s, 2));
    CHECK((reply.reply && reply.reason == DeleteLinkReason::kUnknownLink));
}

TEST_CASE("group_llc__a_link_that_is_not_needed_is_retired_before_it_goes") {
    const bool server_asks = GENERATE(true, false);
    Doubled d;
    d.double_up();
    if (!server_asks) {  // then it is the server that deletes it (section 3.5.5.1.2)
        const auto wish = d.client.delete_link(1, DeleteLinkReason::kAsymmetricNotNeeded, kStart);
        CHECK((find<LinkRetired>(wish)->number == 1 && find<LinkGone>(wish) == nullptr));
        CHECK((sent<DeleteLink>(wish).orderly && !sent<DeleteLink>(wish).reply && find<Send>(wish)->link == 2));
        const auto ordered = d.server.message(bytes(wish), kStart, 2);
        CHECK((sent<DeleteLink>(ordered).orderly && !sent<DeleteLink>(ordered).reply));
        CHECK(find<LinkRetired>(ordered)->number == 1);
        const auto answer = d.client.message(bytes(ordered), kStart, 2);
        CHECK((sent<DeleteLink>(answer).reply && find<LinkGone>(answer)->number == 1));
        CHECK(find<LinkGone>(d.server.message(bytes(answer), kStart, 2))->number == 1);
        return;
    }
    const auto ask = d.server.delete_link(1, DeleteLinkReason::kAsymmetricNotNeeded, kStart);
    CHECK((find<LinkRetired>(ask)->number == 1 && find<LinkGone>(ask) == nullptr));
    CHECK((sent<DeleteLink>(ask).orderly && find<Send>(ask)->link == 2));
    const auto reply = d.client.message(bytes(ask), kStart, 2);
    CHECK((find<LinkRetired>(reply)->number == 1 && find<LinkGone>(reply)->number == 1));
    CHECK(find<LinkGone>(d.server.message(bytes(reply), kStart, 2))->number == 1);
    CHECK(d.server.delete_link(2, DeleteLinkReason::kOperator, kStart).empty());  // the last one is the group's
}

// Linux sets the orderly flag for a lost path, too. At the other end of that path nothing arrives any more.
TEST_CASE("group_llc__a_client_leaves_a_lost_path_at_once_unless_it_brings_the_request") {
    const std::uint8_t over = GENERATE(std::uint8_t{1}, std::uint8_t{2});
    Doubled d;
    d.double_up();
    auto ask = message<DeleteLink>();
    ask.orderly = true;
    ask.reason = DeleteLinkReason::kLostPath;
    ask.link_number = 1;
    const auto said = d.client.message(encode(ask).view(), kStart, over);
    CHECK((find<LinkRetired>(said) != nullptr) == (over == 1));
    CHECK((sent<DeleteLink>(said).reply && find<LinkGone>(said)->number == 1));
    CHECK(d.client.up() == std::vector<std::uint8_t>{2});
}

// M3: a group is over with its last link, however that link ends.
TEST_CASE("group_llc__a_peer_that_deletes_one_link_after_the_other_ends_the_group") {
    Doubled d;
    d.double_up();
    auto ask = message<DeleteLink>();
    ask.orderly = true;
    ask.reason = DeleteLinkReason::kOperator;
    ask.link_number = 2;
    auto told = sent<DeleteLink>(d.server.message(encode(ask).view(), kStart));
    CHECK((told.link_number == 2 && !told.all && d.server.up() == std::vector<std::uint8_t>{1}));
    ask.link_number = 1;
    const auto end = d.server.message(encode(ask).view(), kStart, 2);
    CHECK((find<Over>(end) != nullptr && sent<DeleteLink>(end).all));

    Doubled broken;  // the link that is being deleted still works, but cannot carry the group
    broken.double_up();
    (void)broken.server.delete_link(1, DeleteLinkReason::kAsymmetricNotNeeded, kStart);
    CHECK(over(broken.server.link_down(2, "port down", kStart)) == Reason::kLinkDown);

    Doubled asked;  // the server leaves the client without a link
    asked.double_up();
    auto gone = message<DeleteLink>();
    gone.link_number = 1;
    (void)asked.client.message(encode(gone).view(), kStart, 2);
    gone.link_number = 2;
    CHECK(find<Over>(asked.client.message(encode(gone).view(), kStart, 2)) != nullptr);
    CHECK(asked.client.next_deadline() == kNever);
}

TEST_CASE("group_llc__what_was_under_way_when_the_group_was_ended_is_waited_for_no_more") {
    Doubled d;
    d.double_up();
    Doubled::own_rmb(d.client, 30);
    (void)d.client.GroupLlc::confirm_rkey(RmbId{30}, kStart);
    (void)d.client.end(DeleteLinkReason::kOperator, kStart);
    const auto said = d.client.link_down(1, "port down", kStart);
    CHECK((said.size() == 1 && sent<DeleteLink>(said).all));       // over the other one, and no CONFIRM RKEY
    CHECK(over(d.client.tick(kStart + 10s, 0)) == Reason::kNone);  // the server's DELETE LINK has not come
}

// C.7.1: a request over a link that does not answer is sent again over the other one.
TEST_CASE("group_llc__a_request_without_an_answer_costs_the_link_that_carried_it") {
    Doubled d;
    d.double_up();
    Doubled::own_rmb(d.client, 30);
    (void)d.client.GroupLlc::confirm_rkey(RmbId{30}, kStart);
    const auto late = d.client.tick(kStart + 2s, 0);
    CHECK(
        (find<LinkGone>(late)->number == 1 && sent<DeleteLink>(late).link_number == 1 && find<Send>(late)->link == 2));
    const auto told = d.server.message(bytes(late), kStart + 2s, 2);
    const auto again = d.client.message(bytes(told), kStart + 2s, 2);
    REQUIRE(std::ranges::count_if(again, [](const Action& a) { return std::holds_alternative<Send>(a); }) == 2);
    const auto& request = std::get<Send>(again.back());
    CHECK(std::get<ConfirmRkey>(std::get<AnyMessage>(decode(request.message.view()))).rkey == RKey{130});
}

// Section 4.5.3.
TEST_CASE("group_llc__a_link_that_test_link_finds_dead_goes_and_the_other_one_stays") {
    Doubled d;
    d.double_up();
    const auto tests = d.client.tick(kStart + 10s, 0);
    REQUIRE(std::ranges::count_if(tests, [](const Action& a) { return std::holds_alternative<Send>(a); }) == 2);
    for (const Action& action : tests) {
        const auto& test = std::get<Send>(action);
        if (test.link == 2) {
            const auto answer = d.server.message(test.message.view(), kStart + 10s, 2);
            CHECK(d.client.message(bytes(answer), kStart + 10s, 2).empty());
        }
    }
    const auto late = d.client.tick(kStart + 12s, 0);
    CHECK((find<LinkGone>(late)->number == 1 && find<Over>(late) == nullptr));
    CHECK((sent<DeleteLink>(late).link_number == 1 && find<Send>(late)->link == 2));
    CHECK(d.client.up() == std::vector<std::uint8_t>{2});
}

// C.7.1: if a request to delete a link is not answered, the link that carried the request is lost, too.
// Linux may drop the request: see the next case.
TEST_CASE("group_llc__a_client_that_does_not_answer_delete_link_costs_no_link_that_test_link_finds_alive") {
    Doubled d;
    d.double_up();
    const auto ask = d.server.delete_link(1, DeleteLinkReason::kAsymmetricNotNeeded, kStart);
    REQUIRE(find<Send>(ask)->link == 2);
    const auto test = d.server.tick(kStart + 2s, 0);
    REQUIRE((find<LinkGone>(test) != nullptr && find<Over>(test) == nullptr));
    CHECK((find<LinkGone>(test)->number == 1 && !sent<TestLink>(test).reply));
    (void)d.server.message(bytes(d.client.message(bytes(test), kStart + 2s, 2)), kStart + 2s, 2);
    CHECK(d.server.tick(kStart + 4s, 0).empty());
    CHECK((d.server.up() == std::vector<std::uint8_t>{2} && d.server.state() == GroupLlc::State::kActive));
}

TEST_CASE("group_llc__the_end_of_one_link_that_is_asked_for_in_vain_costs_a_dead_one") {
    const bool at_server = GENERATE(true, false);
    const bool works = GENERATE(true, false);
    Doubled d;
    d.double_up();
    Side& side = at_server ? d.server : d.client;
    if (works && at_server) {
        (void)side.delete_link(1, DeleteLinkReason::kAsymmetricNotNeeded, kStart);
    } else {
        (void)side.link_down(1, "port down", kStart);
    }
    CHECK(side.tick(kStart + 999ms, 0).empty());
    REQUIRE_FALSE(sent<TestLink>(side.tick(kStart + 2s, 0)).reply);
    CHECK(over(side.tick(kStart + 4s, 0)) == Reason::kLinkDown);
}

// Section 3.5.5.3.2. A client that has not heard of the deletion tells RKeys without that link, and they are complete.
TEST_CASE("group_llc__while_a_link_is_deleted_rkeys_are_taken_and_the_end_of_all_links_does_not_wait") {
    Doubled d;
    d.double_up();
    const auto ask = d.server.delete_link(1, DeleteLinkReason::kAsymmetricNotNeeded, kStart);
    Doubled::own_rmb(d.client, 30);
    const auto crossed = d.client.GroupLlc::confirm_rkey(RmbId{30}, kStart);
    const auto taken_at_once = d.server.message(bytes(crossed), kStart);
    CHECK_FALSE(sent<ConfirmRkey>(taken_at_once).negative);
    CHECK(d.server.find_rmb(2, RKey{130}) != nullptr);

    // Section 3.5.5.3.3: the client answers at once, and asks again over the link that is left.
    const auto reply = d.client.message(bytes(ask), kStart, 2);
    CHECK((sent<DeleteLink>(reply).reply && find<LinkGone>(reply)->number == 1));
    REQUIRE(find<LinkGone>(d.server.message(bytes(reply), kStart, 2)) != nullptr);
    // The answer to its request over the link that is gone is not awaited.
    REQUIRE(std::ranges::count_if(reply, [](const Action& a) { return std::holds_alternative<Send>(a); }) == 2);
    const auto& again = std::get<Send>(
        *std::find_if(reply.rbegin(), reply.rend(), [](const Action& a) { return std::holds_alternative<Send>(a); }));
    CHECK(again.link == 2);
    const auto taken = d.server.message(again.message.view(), kStart, 2);
    CHECK_FALSE(sent<ConfirmRkey>(taken).negative);
    CHECK(d.server.find_rmb(2, RKey{130}) != nullptr);

    Doubled ended;
    ended.double_up();
    (void)ended.server.delete_link(1, DeleteLinkReason::kAsymmetricNotNeeded, kStart);
    const auto all = ended.client.end(DeleteLinkReason::kOperator, kStart);
    const auto over_at_once = ended.server.message(bytes(all), kStart);
    CHECK(sent<DeleteLink>(over_at_once).all);
    CHECK(over(over_at_once) == Reason::kNone);
}

// Section 3.5.5.3.2.
TEST_CASE("group_llc__an_invitation_while_a_link_is_deleted_is_for_later") {
    const std::uint8_t version = GENERATE(std::uint8_t{1}, std::uint8_t{2});
    Doubled d(version);
    d.double_up();
    const auto ask = d.server.delete_link(1, DeleteLinkReason::kAsymmetricNotNeeded, kStart);
    Actions heard;
    if (version == 1) {
        auto invitation = message<AddLink>(version);
        invitation.gid = *RoceGid::parse("10.0.7.7");
        invitation.padded = true;
        heard = d.server.message(encode(invitation).view(), kStart, 2);
    } else {
        auto invitation = message<RequestAddLink>();
        invitation.gid_list.push_back(*RoceGid::parse("10.0.7.7"));
        heard = d.server.message(encode(invitation).view(), kStart, 2);
        CHECK(sent<RequestAddLink>(heard).reply);
    }
    CHECK(find<LinkWanted>(heard) != nullptr);
    CHECK_FALSE(d.server.may_offer_link());
    (void)d.server.message(bytes(d.client.message(bytes(ask), kStart, 2)), kStart, 2);
    REQUIRE(d.server.up() == std::vector<std::uint8_t>{2});
    CHECK(d.server.may_offer_link());
}

// C.7.1.
TEST_CASE("group_llc__a_client_ignores_what_comes_over_a_link_that_it_gave_up") {
    Doubled d;
    d.double_up();
    auto rkey = message<ConfirmRkey>();
    rkey.rkey = RKey{50};
    rkey.others = {{2, RKey{150}, {}}};
    rkey.other_tokens = 1;
    REQUIRE(find<LinkGone>(d.client.link_down(1, "port down", kStart)) != nullptr);
    CHECK(d.client.message(encode(rkey).view(), kStart).empty());
    CHECK_FALSE(d.client.knows(RKey{50}));
    auto all = message<DeleteLink>();
    all.all = true;
    CHECK(find<Over>(d.client.message(encode(all).view(), kStart)) != nullptr);
}
