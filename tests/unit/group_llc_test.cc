// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// LLC of a link group, against RFC 7609 sections 3.5.1.5 to 3.5.5, 4.5.3 and C.7, and SMC v2.1.
#include "smc/llc/group_llc.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "actions.h"

using namespace smc;
using namespace smc::llc;
using namespace std::chrono_literals;

namespace {

const TimePoint kStart{};

QpEnd end(const char* gid, std::uint32_t qpn) {
    return {*RoceGid::parse(gid), Mac{{2, 0, 0, 0, 0, static_cast<std::uint8_t>(qpn)}}, Qpn{qpn}};
}

struct Terms {
    GroupTerms group;
    LinkTerms link;
};

Terms terms(bool server, std::uint8_t version = 2, std::uint8_t max_links = 1) {
    Terms t;
    t.group.server = server;
    t.group.version = version;
    t.group.max_links = max_links;
    t.group.negotiated = version >= 2 && max_links == 1;  // else it is release 0
    t.group.reply_timeout = 1000ms;
    t.group.test_interval = 10000ms;
    t.link.own = end(server ? "10.0.0.1" : "10.0.0.2", server ? 11 : 22);
    t.link.peer = end(server ? "10.0.0.2" : "10.0.0.1", server ? 22 : 11);
    t.link.own_id = LinkId{server ? 0x5e : 0xc1U};
    return t;
}

// The ends of a second link.
LinkTerms second(bool server) {
    LinkTerms t;
    t.number = 2;
    t.own = end(server ? "10.0.1.1" : "10.0.1.2", server ? 13 : 24);
    t.peer = end(server ? "10.0.1.2" : "10.0.1.1", server ? 24 : 13);
    t.own_id = LinkId{server ? 0x5eU : 0xc2U};
    return t;
}

// One side. What it is told comes over the first link, unless another one is named.
struct Side : GroupLlc {
    explicit Side(const Terms& t) : GroupLlc(t.group), link(t.link) {}

    Actions start(TimePoint now) { return GroupLlc::start(link, now); }
    Actions message(Bytes bytes, TimePoint now, std::uint8_t over = kFirstLink) {
        return GroupLlc::message(over, bytes, now);
    }
    // An RMB that is registered for the first link, and called as its RKey.
    Actions confirm_rkey(RKey rkey, VirtualAddress address, TimePoint now) {
        rmb_registered(RmbId{static_cast<std::uint32_t>(rkey)}, kFirstLink, {rkey, address});
        return GroupLlc::confirm_rkey(RmbId{static_cast<std::uint32_t>(rkey)}, now);
    }
    Actions delete_rkey(RKey rkey, TimePoint now) {
        rmb_registered(RmbId{static_cast<std::uint32_t>(rkey)}, kFirstLink, {rkey, {}});
        return GroupLlc::delete_rkey(RmbId{static_cast<std::uint32_t>(rkey)}, now);
    }
    bool know(RKey rkey) { return GroupLlc::know(kFirstLink, {rkey, {}}) != nullptr; }
    [[nodiscard]] bool knows(RKey rkey) const { return find_rmb(kFirstLink, rkey) != nullptr; }
    // Nothing happens before the deadline that was told.
    Actions tick(TimePoint now, std::uint64_t messages) {
        heard(kFirstLink, messages, now);
        const bool early = now < next_deadline();
        Actions actions = GroupLlc::tick(now);
        CHECK((!early || actions.empty()));
        return actions;
    }

    LinkTerms link;
};

template <class M>
M sent(const Actions& actions) {
    const auto* send = find<Send>(actions);
    REQUIRE(send != nullptr);
    return std::get<M>(std::get<AnyMessage>(decode(send->message.view())));
}

Bytes bytes(const Actions& actions) {
    const auto* send = find<Send>(actions);
    REQUIRE(send != nullptr);
    return send->message.view();
}

template <class M>
M message(std::uint8_t version = 2) {
    M m;
    m.version = version;
    return m;
}

Reason over(const Actions& actions) {
    const auto* end = find<Over>(actions);
    REQUIRE(end != nullptr);
    return end->reason;
}

// A server and a client whose link is confirmed.
struct Pair {
    Side server, client;

    explicit Pair(const Terms& s = terms(true), const Terms& c = terms(false)) : server(s), client(c) {
        const auto request = server.start(kStart);
        CHECK(client.start(kStart).empty());
        const auto reply = client.message(bytes(request), kStart);
        REQUIRE(find<Confirmed>(reply) != nullptr);
        REQUIRE(find<Confirmed>(server.message(bytes(reply), kStart)) != nullptr);
    }
};

}  // namespace

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

TEST_CASE("group_llc__eye_catchers_are_used_unless_neither_side_has_them") {
    for (const bool of_server : {false, true}) {
        for (const bool of_client : {false, true}) {
            Terms s = terms(true), c = terms(false);
            s.group.eye_catchers = of_server;
            c.group.eye_catchers = of_client;
            Side server(s), client(c);
            const auto request = server.start(kStart);
            CHECK(client.start(kStart).empty());
            const auto reply = client.message(bytes(request), kStart);
            CHECK(find<Confirmed>(reply)->eye_catchers == (of_server || of_client));
            CHECK(find<Confirmed>(server.message(bytes(reply), kStart))->eye_catchers == (of_server || of_client));
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
    CHECK(find<Confirmed>(waiting.tick(kStart + 1s, 0)) != nullptr);
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
    // The client's may be what was lost (figure 42); what the server has heard was not.
    Side offerer(terms(true, 1, 2)), offered(terms(false, 1, 2));
    (void)offered.start(kStart);
    (void)offerer.message(bytes(offered.message(bytes(offerer.start(kStart)), kStart)), kStart);
    CHECK((may_decline(offered.down("retries exceeded")) && !may_decline(offerer.down("retries exceeded"))));
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

// --- a second link ---------------------------------------------------------------------------------------------------

namespace {

// Both sides, up to the first contact's second link.
struct Doubled {
    Side server, client;

    explicit Doubled(std::uint8_t version = 2) : server(terms(true, version, 2)), client(terms(false, version, 2)) {
        const auto request = server.start(kStart);
        (void)client.start(kStart);
        REQUIRE(find<WantLink>(server.message(bytes(client.message(bytes(request), kStart)), kStart)) != nullptr);
        own_rmb(server, 10);
        own_rmb(client, 20);
        (void)server.know(RKey{20});
        (void)client.know(RKey{10});
    }
    // An RMB with RKey n on the first link, and n + 100 on the second.
    static void own_rmb(Side& side, std::uint32_t n) {
        side.rmb_registered(RmbId{n}, 1, {RKey{n}, VirtualAddress{n}});
        side.rmb_registered(RmbId{n}, 2, {RKey{n + 100}, VirtualAddress{n + 100}});
    }
    // Until the server is to connect its queue pair.
    Actions agree() {
        const auto offer = server.offer_link(second(true), {}, kStart);
        REQUIRE(find<LinkOffered>(client.message(bytes(offer), kStart)) != nullptr);
        auto to_server = client.accept_link(second(false), kStart);
        for (;;) {
            auto to_client = server.message(bytes(to_server), kStart);
            if (find<LinkAccepted>(to_client) != nullptr) {
                return to_client;
            }
            to_server = client.message(bytes(to_client), kStart);
        }
    }
    void double_up() {
        agree();
        const auto confirm = server.link_connected(2, kStart);
        REQUIRE(find<Send>(confirm)->link == 2);
        const auto reply = client.message(bytes(confirm), kStart, 2);
        REQUIRE((find<LinkUp>(reply)->number == 2 && find<Send>(reply)->link == 2));
        REQUIRE(find<LinkUp>(server.message(bytes(reply), kStart, 2)) != nullptr);
        REQUIRE((server.up().size() == 2 && client.up().size() == 2));
    }
};

}  // namespace

// Figures 9 and 15.
TEST_CASE("group_llc__a_second_link_is_confirmed_and_all_rmbs_are_known_over_it") {
    const std::uint8_t version = GENERATE(std::uint8_t{1}, std::uint8_t{2});
    Doubled d(version);
    for (const std::uint32_t more : {11U, 12U, 13U}) {  // more than fit into one message of version 1
        Doubled::own_rmb(d.server, more);
        (void)d.client.know(RKey{more});
    }
    d.double_up();
    CHECK((d.server.state() == GroupLlc::State::kActive && d.client.state() == GroupLlc::State::kActive));
    for (const std::uint32_t rmb : {10U, 11U, 12U, 13U}) {
        REQUIRE(d.client.find_rmb(1, RKey{rmb}) != nullptr);
        CHECK(d.client.find_rmb(1, RKey{rmb})->at(2) == RToken{RKey{rmb + 100}, VirtualAddress{rmb + 100}});
    }
    CHECK(d.server.find_rmb(2, RKey{120}) == d.server.find_rmb(1, RKey{20}));
    // From now on both links' RKeys are told at once (figure 12), and one of them is enough to delete it.
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

// Linux's, while it waits for ADD LINK CONTINUATION. C.7.1 would have the connection reset.
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
    const auto given_up = d.client.tick(kStart + 3s, 0);
    const auto ask = sent<DeleteLink>(given_up);
    CHECK((!ask.reply && ask.link_number == 2 && !ask.orderly && ask.reason == DeleteLinkReason::kLostPath));
    CHECK(find<Confirmed>(given_up) == nullptr);
    const auto told = d.server.message(bytes(given_up), kStart + 3s);
    CHECK((sent<DeleteLink>(told).link_number == 2 && !sent<DeleteLink>(told).reply));
    const auto reply = d.client.message(bytes(told), kStart + 3s);
    CHECK((sent<DeleteLink>(reply).reply && find<Confirmed>(reply) != nullptr));
    CHECK(find<Confirmed>(d.server.message(bytes(reply), kStart + 3s)) != nullptr);
}

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
    // Until nobody says anything any more.
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
        CHECK(side->tick(kStart + 5s, 1).empty());  // nobody waits for anything
        CHECK(side->state() == GroupLlc::State::kActive);
    }
    CHECK(over(first.link_down(2, "port down", kStart)) == Reason::kLinkDown);
}

// Linux's, while requests of the link that broke are under way, or which has forgotten that link. C.7.1 has the link
// lost that carried the question.
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
    // It does in the end, and is told that there is no such link.
    DeleteLink request = message<DeleteLink>();
    request.link_number = 1;
    request.reason = DeleteLinkReason::kLostPath;
    const auto reply = sent<DeleteLink>(d.client.message(encode(request).view(), deadline + 1s, 2));
    CHECK((reply.reply && reply.reason == DeleteLinkReason::kUnknownLink));
}

// C.7.1: over the link that stays.
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

// SMC v2.1, REQUEST ADD LINK, note 7: without an acknowledgement before it.
TEST_CASE("group_llc__an_add_link_answers_the_invitation") {
    Doubled d;
    (void)d.server.no_link(kStart);
    (void)d.client.tick(kStart + 1s, 0);
    REQUIRE(d.client.may_ask_for_link());
    const auto ask = d.client.ask_for_link({second(false).own.gid}, {}, kStart + 1s);
    CHECK_FALSE(sent<RequestAddLink>(ask).reply);
    CHECK_FALSE(d.client.may_ask_for_link());  // once
    const auto offer = d.server.offer_link(second(true), {}, kStart + 1s);
    CHECK(find<LinkOffered>(d.client.message(bytes(offer), kStart + 1s)) != nullptr);
    const auto rejected = d.client.reject_link(AddLinkReason::kNoAlternatePath, kStart + 1s);
    CHECK(sent<AddLink>(rejected).rejected);
    CHECK(d.client.may_ask_for_link());  // nothing is waited for any more
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

// M3: a group is over with its last link, whichever way that goes.
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

    Doubled broken;  // the one that is being deleted works still, and is none to go on with
    broken.double_up();
    (void)broken.server.delete_link(1, DeleteLinkReason::kAsymmetricNotNeeded, kStart);
    CHECK(over(broken.server.link_down(2, "port down", kStart)) == Reason::kLinkDown);

    Doubled asked;  // the client, which the server leaves without one
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

// C.7.1: what was asked over a link that does not answer is asked again over the other one.
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

// C.7.1: whoever asks for the end of a link over another one, and hears nothing, has lost that one, too.
TEST_CASE("group_llc__the_end_of_one_link_that_is_asked_for_in_vain_costs_the_other_one") {
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
    const auto late = side.tick(kStart + 2s, 0);  // a client asks once more, by TEST LINK
    CHECK(over(at_server ? late : side.tick(kStart + 4s, 0)) == Reason::kLinkDown);
}

// C.7.1: an ADD LINK that is not answered has lost the link that carried it.
TEST_CASE("group_llc__a_later_add_link_that_is_not_answered_costs_the_link_that_carried_it") {
    Doubled d;
    (void)d.server.no_link(kStart);
    (void)d.server.offer_link(second(true), {}, kStart);
    CHECK(d.server.tick(kStart + 999ms, 0).empty());
    const auto late = d.server.tick(d.server.next_deadline(), 0);
    CHECK((find<LinkGone>(late)->number == 2 && over(late) == Reason::kLinkDown));
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

// C.7.1: who does not tell how an RMB is reached over a link does not count on that link.
TEST_CASE("group_llc__a_link_that_a_new_rmb_is_not_told_for_has_failed") {
    Doubled d;
    d.double_up();
    auto m = message<ConfirmRkey>();
    m.rkey = RKey{50};
    const auto answer = d.server.message(encode(m).view(), kStart);
    CHECK((find<LinkGone>(answer)->number == 2 && find<Over>(answer) == nullptr));
    CHECK(d.server.up() == std::vector<std::uint8_t>{1});
}

// Section 3.5.5.3.2. What a client that has not heard of it tells of an RMB is complete without that link.
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
    // What it asked over the link that is gone is not waited for.
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

// Section 3.5.5.3.1: it is acknowledged where that is asked for, and otherwise nothing comes of it.
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

// C.7.1: as if the answer to ADD LINK had not come.
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
    answer.tokens_left = 4;                 // two of them were told: no more than two can be left
    const auto end =
        comes ? d.server.message(encode(answer).view(), kStart + 1s) : d.server.tick(d.server.next_deadline(), 1);
    CHECK(find<LinkGone>(end)->number == 2);
    CHECK(over(end) == Reason::kLinkDown);
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

// Section 3.5.5.3.1: the server refuses what lacks the new link, and nothing else.
TEST_CASE("group_llc__an_rmb_that_lacks_the_link_that_is_added_is_refused_for_the_moment") {
    Doubled d;
    Doubled::own_rmb(d.client, 30);
    (void)d.server.no_link(kStart);
    (void)d.client.tick(kStart + 1s, 0);
    const auto offer = d.server.offer_link(second(true), {}, kStart + 1s);
    const auto crossed = d.client.GroupLlc::confirm_rkey(RmbId{30}, kStart + 1s);
    CHECK_FALSE(sent<ConfirmRkey>(d.server.message(bytes(crossed), kStart + 1s)).negative);
    REQUIRE(find<LinkOffered>(d.client.message(bytes(offer), kStart + 1s)) != nullptr);
    const auto reply = d.client.accept_link(second(false), kStart + 1s);  // it tells of that RMB, too
    REQUIRE(find<LinkAccepted>(d.server.message(bytes(reply), kStart + 1s)) != nullptr);
    CHECK(d.server.find_rmb(2, RKey{130}) == d.server.find_rmb(1, RKey{30}));

    // Linux's, whose CONFIRM LINK for the new link is on its way there.
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
    reply.gid = *RoceGid::parse("10.0.1.9");  // another one: that will do
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
    // both sides at once is no collision (section 3.5.5.3)
    CHECK(sent<ConfirmRkey>(p.server.confirm_rkey(RKey{7}, VirtualAddress{}, kStart)).rkey == RKey{7});
    // M2
    CHECK(p.client.tick(kStart + 1999ms, 0).empty());
    CHECK(over(p.client.tick(kStart + 2s, 0)) == Reason::kLinkDown);
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
    // deleting makes room; what is not known is said
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
    (void)p.server.know(RKey{8});
    auto gone = message<DeleteRkey>(1);
    gone.rkeys = {RKey{7}, RKey{8}, RKey{9}};
    gone.count = 3;
    const auto answer = sent<DeleteRkey>(p.server.message(encode(gone).view(), kStart));
    CHECK((answer.negative && answer.error_mask == 0xa0));
}

TEST_CASE("group_llc__delete_rkey_is_over_when_the_peer_answers") {
    Pair p;
    (void)p.server.know(RKey{3});
    const auto request = p.client.delete_rkey(RKey{3}, kStart);
    const auto answer = p.server.message(bytes(request), kStart);
    CHECK_FALSE(sent<DeleteRkey>(answer).negative);
    CHECK_FALSE(p.server.knows(RKey{3}));
    CHECK(find<RkeyDeleted>(p.client.message(bytes(answer), kStart))->rmb == RmbId{3});
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
