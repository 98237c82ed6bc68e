// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// LLC of a link group with one link, against RFC 7609 sections 3.5.1.5, 3.5.4 and C.7, and SMC v2.1.
#include "group_llc.h"

#include <algorithm>

using namespace smc;
using namespace smc::llc;
using namespace smc::test::llc_pair;
using namespace std::chrono_literals;

TEST_CASE("group_llc__first_contact_confirms_the_link_on_both_sides") {
    Side server(terms(true)), client(terms(false));
    const auto request = server.start(kStart);
    CHECK(client.start(kStart).empty());
    const auto r = sent<ConfirmLink>(request);
    CHECK((r.version == 2 && !r.reply && r.link_number == 1 && r.max_links == 1 && r.max_connections == 255));
    CHECK((r.gid == server.link.own.gid && r.qpn == Qpn{11} && r.link_id == LinkId{0x5e}));
    const auto reply = client.message(bytes(request), kStart);
    const auto a = sent<ConfirmLink>(reply);
    CHECK((a.reply && a.link_number == 1 && a.qpn == Qpn{22} && a.link_id == LinkId{0xc1}));
    CHECK((find<Confirmed>(reply) != nullptr && find<LinkUp>(reply)->peer_id == LinkId{0x5e}));
    const auto done = server.message(bytes(reply), kStart);
    CHECK((find<Confirmed>(done) != nullptr && find<LinkUp>(done)->peer_id == LinkId{0xc1}));
    CHECK((server.state() == GroupLlc::State::kActive && client.state() == GroupLlc::State::kActive));
}

TEST_CASE("group_llc__eye_catchers_are_used_if_both_sides_have_them") {
    for (const bool of_server : {false, true}) {
        for (const bool of_client : {false, true}) {
            Terms s = terms(true), c = terms(false);
            s.group.eye_catchers = of_server;
            c.group.eye_catchers = of_client;
            Side server(s), client(c);
            const auto request = server.start(kStart);
            CHECK(client.start(kStart).empty());
            const auto reply = client.message(bytes(request), kStart);
            CHECK(find<Confirmed>(reply)->eye_catchers == (of_server && of_client));
            CHECK(find<Confirmed>(server.message(bytes(reply), kStart))->eye_catchers == (of_server && of_client));
        }
    }
}

TEST_CASE("group_llc__confirm_link_of_another_link_or_none_ends_it") {
    Terms other = terms(false);
    other.link.peer.qpn = Qpn{12};
    Side client(other), server(terms(true));
    CHECK(client.start(kStart).empty());
    CHECK(over(client.message(bytes(server.start(kStart)), kStart)) == Reason::kLlcViolation);
    CHECK(over(server.tick(kStart + 1s, 0)) == Reason::kTimeoutConfirmLink);
    Side patient(terms(false));  // the server's Decline should reach it first
    (void)patient.start(kStart);
    CHECK(patient.tick(kStart + 1499ms, 0).empty());
    CHECK(over(patient.tick(kStart + 1500ms, 0)) == Reason::kTimeoutConfirmLink);
    CHECK(server.tick(kStart + 2s, 0).empty());  // M3
}

TEST_CASE("group_llc__before_release_1_a_second_link_is_attempted_and_one_will_do") {
    const std::uint8_t version = GENERATE(std::uint8_t{1}, std::uint8_t{2});
    const Terms s = terms(true, version, 2);
    Side server(s), client(terms(false, version, 2));
    CHECK(client.start(kStart).empty());
    const auto request = server.start(kStart);
    CHECK((sent<ConfirmLink>(request).max_links == 2 && sent<ConfirmLink>(request).max_connections == 0));
    const auto reply = client.message(bytes(request), kStart);
    CHECK(find<Confirmed>(reply) == nullptr);  // not before the attempt (section 3.5.1.6)
    const auto wanted = server.message(bytes(reply), kStart);
    CHECK((find<WantLink>(wanted) != nullptr && find<Confirmed>(wanted) == nullptr));
    server.rmb_registered(RmbId{1}, 1, {RKey{7}, VirtualAddress{0x7000}});
    server.rmb_registered(RmbId{1}, 2, {RKey{8}, VirtualAddress{0x8000}});
    const auto offer = server.offer_link(second(true), {}, kStart);
    const auto add = sent<AddLink>(offer);
    CHECK((!add.reply && add.qpn == Qpn{13} && add.link_number == 2));
    CHECK((version == 1 || add.large->rkeys[0] == RTokenPair{RKey{7}, RKey{8}, VirtualAddress{0x8000}}));
    const auto asked = client.message(bytes(offer), kStart);
    CHECK((find<LinkOffered>(asked)->peer.qpn == Qpn{13} && find<LinkOffered>(asked)->number == 2));
    const auto refusal = client.reject_link(AddLinkReason::kNoAlternatePath, kStart);
    const auto refused = sent<AddLink>(refusal);
    CHECK((refused.reply && refused.rejected && refused.reason == AddLinkReason::kNoAlternatePath));
    CHECK(find<Confirmed>(refusal) != nullptr);
    CHECK(find<Confirmed>(server.message(bytes(refusal), kStart)) != nullptr);

    // A client goes on at once, if it rejects the attempt because of its MTU (C.7.1).
    Side picky(terms(false, version, 2));
    (void)picky.start(kStart);
    (void)picky.message(bytes(request), kStart);
    AddLink wrong = add;
    wrong.mtu = clc::Mtu{0};
    const auto bad_mtu = picky.message(encode(wrong).view(), kStart);
    CHECK((sent<AddLink>(bad_mtu).rejected && sent<AddLink>(bad_mtu).reason == AddLinkReason::kInvalidMtu));
    CHECK(find<Confirmed>(bad_mtu) != nullptr);

    // A client that never answers breaks it (C.7.1). One that waits in vain goes on, as Linux does.
    Side silent(s);
    (void)silent.start(kStart);
    (void)silent.message(bytes(reply), kStart);
    (void)silent.offer_link(second(true), {}, kStart);
    const auto unanswered = silent.tick(kStart + 1s, 0);
    CHECK((over(unanswered) == Reason::kTimeoutAddLink && !find<Over>(unanswered)->may_decline));
    Side waiting(terms(false, version, 2));
    (void)waiting.start(kStart);
    (void)waiting.message(bytes(request), kStart);
    CHECK(find<Confirmed>(waiting.tick(kStart + 299ms, 0)) == nullptr);
    CHECK(find<Confirmed>(waiting.tick(kStart + 300ms, 0)) != nullptr);
}

TEST_CASE("group_llc__what_is_being_ended_does_not_begin") {
    Side client(terms(false, 1, 2)), server(terms(true, 1, 2));
    const auto request = server.start(kStart);
    CHECK(client.start(kStart).empty());
    (void)server.message(bytes(client.message(bytes(request), kStart)), kStart);
    const auto offer = server.offer_link(second(true), {}, kStart);
    REQUIRE(sent<AddLink>(offer).link_number == 2);
    REQUIRE(find<Send>(client.end(DeleteLinkReason::kOperator, kStart + 500ms)) != nullptr);
    CHECK(find<Confirmed>(client.message(bytes(offer), kStart + 500ms)) == nullptr);
    CHECK(client.state() == GroupLlc::State::kEnding);
    Side waiting(terms(false, 1, 2));
    (void)waiting.start(kStart);
    (void)waiting.message(bytes(request), kStart);
    REQUIRE(find<Send>(waiting.end(DeleteLinkReason::kOperator, kStart + 500ms)) != nullptr);
    CHECK(find<Confirmed>(waiting.tick(kStart + 1s, 0)) == nullptr);  // when ADD LINK is given up

    Pair p;
    REQUIRE(find<Send>(p.client.confirm_rkey(RKey{1}, VirtualAddress{0x1000}, kStart)) != nullptr);
    auto refusal = message<ConfirmRkey>();
    refusal.reply = refusal.negative = refusal.retry = true;
    refusal.rkey = RKey{1};
    refusal.address = VirtualAddress{0x1000};
    CHECK(p.client.message(encode(refusal).view(), kStart).empty());
    const TimePoint retry = p.client.next_deadline();
    REQUIRE(find<Send>(p.client.end(DeleteLinkReason::kOperator, kStart)) != nullptr);
    CHECK(p.client.next_deadline() > retry);  // nothing is sent then, so nobody need come back
}

TEST_CASE("group_llc__before_release_1_the_client_lowers_the_number_of_links") {
    Terms s = terms(true, 1, 8);
    Side server(s), client(terms(false, 1, 2));
    (void)client.start(kStart);
    const auto request = server.start(kStart);
    CHECK(sent<ConfirmLink>(request).max_links == 8);
    CHECK(sent<ConfirmLink>(client.message(bytes(request), kStart)).max_links == 2);
}

// SMC v2.1, CONFIRM LINK, notes 3 and 4; RFC 7609 A.3.1.
TEST_CASE("group_llc__confirm_link_must_repeat_what_clc_agreed_on") {
    Terms s = terms(true), c = terms(false);
    s.link.direct = c.link.direct = GENERATE(true, false);
    Side server(s), client(c);
    const auto request = server.start(kStart);
    CHECK(client.start(kStart).empty());
    const auto reply = sent<ConfirmLink>(client.message(bytes(request), kStart));
    const auto tells_of = [&](auto edit) {
        ConfirmLink m = reply;
        edit(m);
        Side other(s);
        (void)other.start(kStart);
        const auto heard = other.message(encode(m).view(), kStart);
        return find<Over>(heard) != nullptr ? find<Over>(heard)->detail : std::string("what was agreed");
    };
    CHECK(tells_of([](ConfirmLink&) {}) == "what was agreed");
    CHECK(tells_of([](ConfirmLink& m) { m.max_links = 2; }).ends_with("maxima"));
    CHECK(tells_of([](ConfirmLink& m) { m.max_connections = 16; }).ends_with("maxima"));
    CHECK(tells_of([](ConfirmLink& m) { m.link_number = 2; }).ends_with("link number"));
    const auto mac = tells_of([](ConfirmLink& m) { m.mac.bytes[0] ^= 4; });
    CHECK((s.link.direct ? mac.ends_with("MAC address") : mac == "what was agreed"));
}

TEST_CASE("group_llc__until_confirm_link_has_come_clc_may_decline") {
    const auto may_decline = [](const Actions& actions) {
        REQUIRE(find<Over>(actions) != nullptr);
        return find<Over>(actions)->may_decline;
    };
    Side server(terms(true)), client(terms(false));
    (void)server.start(kStart);
    (void)client.start(kStart);
    CHECK((may_decline(server.down("retries exceeded")) && may_decline(client.down("port down"))));  // C.2
    // Linux's client waits for a Decline; one of ours has the time for it (C.7).
    Side late_server(terms(true)), late_client(terms(false));
    (void)late_server.start(kStart);
    (void)late_client.start(kStart);
    CHECK((may_decline(late_server.tick(kStart + 1s, 0)) && !may_decline(late_client.tick(kStart + 1500ms, 0))));
    // C.7.1: incorrect link information.
    Side misled(terms(false)), asker(terms(true));
    (void)misled.start(kStart);
    ConfirmLink wrong = sent<ConfirmLink>(asker.start(kStart));
    wrong.qpn = Qpn{12};
    CHECK(may_decline(misled.message(encode(wrong).view(), kStart)));
    wrong.reply = true;
    CHECK_FALSE(may_decline(asker.message(encode(wrong).view(), kStart)));
    // Once the client has answered, its server may run the connection: it reads no Decline, whatever becomes of ADD
    // LINK.
    Side offerer(terms(true, 1, 2)), offered(terms(false, 1, 2));
    (void)offered.start(kStart);
    (void)offerer.message(bytes(offered.message(bytes(offerer.start(kStart)), kStart)), kStart);
    CHECK_FALSE((may_decline(offered.down("retries exceeded")) || may_decline(offerer.down("retries exceeded"))));
    Pair up;
    CHECK_FALSE((may_decline(up.server.down("gone")) || may_decline(up.client.down("gone"))));
}

TEST_CASE("group_llc__request_add_link_is_acknowledged_and_not_rejected") {
    Pair p;
    RequestAddLink request;
    request.gid_list.push_back(p.client.link.own.gid);
    const auto answer = sent<RequestAddLink>(p.server.message(encode(request).view(), kStart));
    CHECK((answer.reply && !answer.rejected && p.server.state() == GroupLlc::State::kActive));
}

TEST_CASE("group_llc__a_later_add_link_is_rejected_and_the_link_stays") {
    Pair p;
    AddLink add = message<AddLink>();
    add.large.emplace();
    add.qpn = Qpn{99};
    add.link_number = 2;
    const auto answer = p.client.message(encode(add).view(), kStart);
    CHECK((sent<AddLink>(answer).rejected && sent<AddLink>(answer).reason == AddLinkReason::kNoAlternatePath));
    CHECK(p.client.state() == GroupLlc::State::kActive);
}
TEST_CASE("group_llc__test_link_is_sent_when_nothing_is_heard_and_must_come_back") {
    Pair p;
    CHECK(p.client.tick(kStart + 9s, 0).empty());
    CHECK(p.client.tick(kStart + 12s, 1).empty());  // something was heard meanwhile
    const auto test = p.client.tick(kStart + 22s, 1);
    const auto answer = p.server.message(bytes(test), kStart + 22s);
    CHECK(sent<TestLink>(answer).user_data == sent<TestLink>(test).user_data);
    CHECK(p.client.message(bytes(answer), kStart + 22s).empty());
    CHECK(p.client.tick(kStart + 24s, 1).empty());

    const auto again = p.client.tick(kStart + 40s, 1);
    auto wrong = sent<TestLink>(again);
    wrong.reply = true;
    wrong.user_data[0] ^= 1;
    CHECK(over(p.client.message(encode(wrong).view(), kStart + 40s)) == Reason::kLlcViolation);

    // Messages after a request that was not answered show that the link works: silence after them needs a new request.
    Pair busy;
    const auto first = busy.client.tick(kStart + 10s, 0);
    CHECK(busy.client.tick(kStart + 15s, 7).empty());
    CHECK(busy.client.tick(kStart + 16999ms, 7).empty());
    const auto second = busy.client.tick(kStart + 17s, 7);
    CHECK(sent<TestLink>(second).user_data != sent<TestLink>(first).user_data);
    CHECK(busy.client.message(bytes(busy.server.message(bytes(first), kStart)), kStart + 17s).empty());
    CHECK(over(busy.client.tick(kStart + 19s, 7)) == Reason::kLinkDown);

    Pair silent;
    (void)silent.server.tick(kStart + 10s, 0);
    CHECK(silent.server.tick(kStart + 11999ms, 0).empty());
    CHECK(over(silent.server.tick(kStart + 12s, 0)) == Reason::kLinkDown);
}

TEST_CASE("group_llc__a_server_ends_the_group_at_once_and_a_client_asks") {
    Pair p;
    const auto told = p.server.end(DeleteLinkReason::kInactivity, kStart);
    CHECK((sent<DeleteLink>(told).all && sent<DeleteLink>(told).orderly));
    CHECK(over(told) == Reason::kNone);
    const auto heard = p.client.message(bytes(told), kStart);
    CHECK(over(heard) == Reason::kNone);
    CHECK(find<Send>(heard) == nullptr);  // all links: no reply (section 3.5.4)

    Pair q;
    const auto asked = q.client.end(DeleteLinkReason::kOperator, kStart);
    CHECK(find<Over>(asked) == nullptr);
    const auto answer = q.server.message(bytes(asked), kStart);
    CHECK((!sent<DeleteLink>(answer).reply && sent<DeleteLink>(answer).all));  // a request of its own
    CHECK(over(answer) == Reason::kNone);
    CHECK(over(q.client.message(bytes(answer), kStart)) == Reason::kNone);

    Pair r;
    (void)r.client.end(DeleteLinkReason::kOperator, kStart);
    CHECK(over(r.client.tick(kStart + 1s, 0)) == Reason::kNone);  // and is not answered
}

// C.7.1, DELETE LINK from client.
TEST_CASE("group_llc__a_client_asks_for_the_end_of_all_over_the_link_that_is_left") {
    Doubled other;
    other.double_up();
    CHECK(find<Send>(other.client.end(DeleteLinkReason::kOperator, kStart))->link == 1);
    CHECK(find<Send>(other.client.link_down(2, "port down", kStart)) == nullptr);  // the question is on its way

    Doubled e;
    e.double_up();
    (void)e.client.end(DeleteLinkReason::kOperator, kStart);
    const auto again = e.client.link_down(1, "port down", kStart);
    REQUIRE((find<Send>(again) != nullptr && find<Send>(again)->link == 2));
    CHECK((sent<DeleteLink>(again).all && sent<DeleteLink>(again).reason == DeleteLinkReason::kOperator));
    CHECK(find<Over>(again) == nullptr);
    const auto answer = e.server.message(bytes(again), kStart, 2);
    CHECK(over(answer) == Reason::kNone);
    CHECK(over(e.client.message(bytes(answer), kStart, 2)) == Reason::kNone);
}

TEST_CASE("group_llc__delete_link_of_a_link_that_does_not_exist_is_answered") {
    Pair p;
    auto m = message<DeleteLink>();
    m.link_number = 2;
    const auto answer = sent<DeleteLink>(p.client.message(encode(m).view(), kStart));
    CHECK((answer.reply && answer.reason == DeleteLinkReason::kUnknownLink));
    const auto of_server = sent<DeleteLink>(p.server.message(encode(m).view(), kStart));
    CHECK((of_server.reply && of_server.reason == DeleteLinkReason::kUnknownLink));
    CHECK(p.client.state() == GroupLlc::State::kActive);
    m.link_number = 1;  // the only one
    const auto gone = p.client.message(encode(m).view(), kStart);
    CHECK(sent<DeleteLink>(gone).reply);
    CHECK(over(gone) == Reason::kLinkDown);
}

TEST_CASE("group_llc__answers_have_the_peers_byte_order_M4") {
    Pair p;
    auto test = message<TestLink>();
    test.little_endian = true;
    const auto answer = p.server.message(encode(test).view(), kStart);
    CHECK(sent<TestLink>(answer).little_endian);
    CHECK(sent<ConfirmRkey>(p.server.confirm_rkey(RKey{1}, {}, kStart)).little_endian);
}

TEST_CASE("group_llc__what_is_malformed_or_out_of_place_ends_the_link") {
    Pair p;
    const std::vector<std::uint8_t> nonsense(44, 0x2f);
    CHECK(over(p.client.message(nonsense, kStart)) == Reason::kLlcViolation);
    CHECK(p.client.message(nonsense, kStart).empty());
    CHECK(p.client.end(DeleteLinkReason::kOperator, kStart).empty());
    CHECK(p.client.down("late").empty());
    Pair q;
    auto m = message<ConfirmLink>();
    CHECK(over(q.client.message(encode(m).view(), kStart)) == Reason::kLlcViolation);
    for (const bool server : {false, true}) {
        Pair other;
        auto test = message<TestLink>();
        test.version = 1;
        CHECK(over((server ? other.server : other.client).message(encode(test).view(), kStart)) ==
              Reason::kLlcViolation);
    }
    Pair r;  // late replies are nobody's fault
    auto late = message<ConfirmRkey>();
    late.reply = true;
    CHECK(r.client.message(encode(late).view(), kStart).empty());
}
