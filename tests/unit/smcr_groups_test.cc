// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// SMC-R link groups of a server and a client, with devices that do what they are asked (RFC 7609 sections 3.5 and 4.2).
#include "smc/group/smcr_groups.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "actions.h"

using namespace smc;
using namespace smc::group;
using namespace std::chrono_literals;

namespace {

const TimePoint kStart{};
constexpr std::size_t kLink = 1000, kBuffer = 2 * 16384;  // an RMB of two elements, or as much to send from

SmcrTerms terms(std::size_t memory) {
    SmcrTerms t;
    t.rmbe_bytes = 16384;
    t.rmbes_per_rmb = 2;
    t.link_bytes = kLink;
    t.memory_limit = memory;
    t.idle = 60s;
    t.llc_timeout = 1000ms;
    t.test_interval = 1h;
    return t;
}

template <class T>
long count(const Actions& actions) {
    return std::ranges::count_if(actions, [](const Action& action) { return std::holds_alternative<T>(action); });
}

// What a member was told; nullptr: it was not.
template <class T>
const T* told(const Actions& actions, std::uint64_t member) {
    const T* found = nullptr;
    for (const Action& action : actions) {
        const auto* one = std::get_if<T>(&action);
        found = found == nullptr && one != nullptr && one->member == MemberId{member} ? one : found;
    }
    return found;
}
std::optional<Refusal> refusal(const Actions& actions, std::uint64_t member) {
    const auto* refused = told<JoinRefused>(actions, member);
    return refused != nullptr ? std::optional(refused->refusal) : std::nullopt;
}

struct Node {
    bool server;
    SmcrGroups groups;
    RoceGid gid = *RoceGid::parse(server ? "10.0.0.1" : "10.0.0.2");
    TimePoint now = kStart;
    bool devices_answer = true;
    Actions log{};
    std::vector<SendMessage> sent{};
    std::uint32_t number = 0;  // of queue pairs and memory

    explicit Node(bool is_server, std::size_t memory = 100 * kBuffer) : server(is_server), groups(terms(memory)) {}

    void on(Actions actions) {
        for (std::size_t i = 0; i < actions.size(); i++) {
            log.push_back(actions[i]);
            if (const auto* send = std::get_if<SendMessage>(&log.back())) {
                sent.push_back(*send);
            }
            const Actions more = devices_answer ? answer(log.back()) : Actions{};
            actions.insert(actions.end(), more.begin(), more.end());
        }
    }
    Actions answer(const Action& asked) {
        if (const auto* link = std::get_if<CreateLink>(&asked)) {
            return groups.link_created(link->group, {gid, {}, Qpn{++number}}, {}, {}, false, now);
        }
        if (const auto* memory = std::get_if<RegisterBuffer>(&asked)) {
            return groups.buffer_registered(memory->group, memory->buffer, RKey{++number}, {}, now);
        }
        const auto* link = std::get_if<ConnectLink>(&asked);
        return link != nullptr ? groups.link_connected(link->group, now) : Actions{};
    }
    void join(std::uint64_t member, const clc::SmcrPeer& peer, TimePoint deadline = kNever) {
        const SmcrGroups::Join join{MemberId{member}, peer, {"device", 1, gid}, deadline, AlertToken{7}};
        on(server ? groups.join_as_server(join, now) : groups.join_as_client(join, now));
    }
    void await_link(std::uint64_t member, const clc::SmcrPeer& peer) {
        on(groups.await_link(MemberId{member}, peer, now));
    }
    void leave(std::uint64_t member, SmcrGroups::Leaving how = {}) { on(groups.leave(MemberId{member}, how, now)); }
    void returned(GroupId group, const Seat& seat) {
        on(groups.element_returned(group, seat.send, seat.send_element, now));
        on(groups.element_returned(group, seat.rmb, seat.rmbe, now));
    }
    void tick(TimePoint at) {
        const bool early = at < groups.next_deadline();
        Actions actions = groups.tick(now = at);
        CHECK((!early || actions.empty()));  // nothing happens before the deadline that was told
        on(std::move(actions));
    }
    const SmcrGroup& group(std::uint64_t member) { return *groups.group_of(MemberId{member}); }
};

struct Pair {
    Node server{true}, client{false};
    std::uint8_t limit = 255;  // connections of a link group

    [[nodiscard]] clc::SmcrPeer proposal(const char* gid = "10.0.0.2") const {
        clc::SmcrPeer peer;
        peer.link.gid = *RoceGid::parse(gid);
        peer.max_connections = limit;
        return peer;
    }
    [[nodiscard]] clc::SmcrPeer end_of(const Joined& joined) const {
        clc::SmcrPeer peer = proposal();
        peer.link = joined.local.link;
        peer.rmbe = joined.local.rmbe;
        peer.first_contact = joined.local.first_contact;
        return peer;
    }
    // Every message arrives, and every answer.
    void talk() {
        while (!server.sent.empty() || !client.sent.empty()) {
            Node& from = server.sent.empty() ? client : server;
            Node& to = server.sent.empty() ? server : client;
            for (const SendMessage& message : std::exchange(from.sent, {})) {
                const QpEnd& end = from.groups.find(message.group)->peer().link;
                const auto all = to.groups.all();
                const auto there = std::ranges::find_if(all, [&](const auto* group) { return group->own().is(end); });
                if (there != all.end()) {
                    to.on(to.groups.message((*there)->id(), message.link, message.bytes, to.now));
                }
            }
        }
    }
    // From the Proposal to the moment that both ends run. The logs begin with it.
    Joined connect(std::uint64_t member) {
        server.log.clear();
        client.log.clear();
        server.join(member, proposal());
        talk();
        return confirm(member);
    }
    // From the Accept on.
    Joined confirm(std::uint64_t member) {
        REQUIRE(told<Joined>(server.log, member) != nullptr);
        const Joined accept = *told<Joined>(server.log, member);
        client.join(member, end_of(accept));
        talk();
        REQUIRE(told<Joined>(client.log, member) != nullptr);
        const clc::SmcrPeer own = end_of(*told<Joined>(client.log, member));
        client.await_link(member, end_of(accept));
        server.await_link(member, own);
        talk();
        for (Node* node : {&server, &client}) {
            REQUIRE(told<LinkReady>(node->log, member) != nullptr);
            node->groups.running(MemberId{member});
        }
        return accept;
    }
    // It ran, and the data path is done with its elements.
    void finish(std::uint64_t member) {
        for (Node* node : {&server, &client}) {
            const GroupId group = node->group(member).id();
            const Seat seat = *node->groups.seat_of(MemberId{member});
            node->leave(member);
            node->returned(group, seat);
        }
    }
};

}  // namespace

TEST_CASE("smcr_groups__a_first_contact_is_told_when_its_queue_pair_and_memory_are_there") {
    Node server(true);
    server.devices_answer = false;
    server.join(1, Pair().proposal());
    const Actions asked = std::exchange(server.log, {});
    CHECK((count<CreateLink>(asked) == 1 && count<RegisterBuffer>(asked) == 2 && asked.size() == 3));
    for (const Action& action : asked) {
        CHECK(server.log.empty());
        server.on(server.answer(action));
    }
    REQUIRE(server.log.size() == 2);  // nothing of LLC: CLC tells of this RMB (G2)
    REQUIRE((std::holds_alternative<OpenToken>(server.log[0]) && std::holds_alternative<Joined>(server.log[1])));
    const auto& joined = std::get<Joined>(server.log[1]);
    CHECK((joined.local.first_contact && joined.local.rmbe.rkey != RKey{} && joined.local.rmbe.index == 1));
    CHECK(std::get<OpenToken>(server.log[0]).token == joined.local.rmbe.token);  // before the peer hears of it
}

TEST_CASE("smcr_groups__first_contact_and_the_next_ones_share_a_link_on_both_sides") {
    Pair p;
    const Joined first = p.connect(1);
    for (Node* node : {&p.server, &p.client}) {
        CHECK((count<CreateLink>(node->log) == 1 && count<ConnectLink>(node->log) == 1));
        CHECK((count<GroupUp>(node->log) == 1 && node->group(1).active() && node->group(1).rmbs() == 1));
    }
    const Joined second = p.connect(2);
    CHECK((first.local.first_contact && !second.local.first_contact && second.group == first.group));
    CHECK((second.local.rmbe.rkey == first.local.rmbe.rkey && second.local.rmbe.index == 2));
    CHECK(second.local.rmbe.token != first.local.rmbe.token);
    for (Node* node : {&p.server, &p.client}) {
        CHECK((count<CreateLink>(node->log) == 0 && count<RegisterBuffer>(node->log) == 0));
        CHECK((&node->group(1) == &node->group(2) && node->group(1).connections() == 2));
    }
}

TEST_CASE("smcr_groups__one_first_contact_at_a_time_with_one_peer") {
    Pair p;
    for (const std::uint64_t member : {1, 2, 3}) {
        p.server.join(member, p.proposal());
    }
    p.server.join(4, p.proposal("10.0.0.9"));  // another peer waits for nobody
    CHECK((count<CreateLink>(p.server.log) == 2 && count<Joined>(p.server.log) == 2));
    REQUIRE((told<Joined>(p.server.log, 1) != nullptr && told<Joined>(p.server.log, 4) != nullptr));
    p.server.log.clear();
    p.server.on(p.server.groups.link_refused(p.server.group(1).id(), Refusal::kUnreachable, "", kStart));
    // The first one fails: the second has a first contact of its own, and the third waits for it.
    CHECK((count<CreateLink>(p.server.log) == 1 && count<Joined>(p.server.log) == 1));
    CHECK(p.confirm(2).local.first_contact);
    REQUIRE(told<Joined>(p.server.log, 3) != nullptr);
    CHECK_FALSE(told<Joined>(p.server.log, 3)->local.first_contact);
    CHECK(&p.server.group(2) == &p.server.group(3));
}

TEST_CASE("smcr_groups__what_one_side_does_not_know_of_is_no_group_for_the_other") {
    Pair p;
    clc::SmcrPeer other = p.end_of(p.connect(1));
    other.first_contact = false;
    other.link.qpn = Qpn{99};
    p.client.join(2, other);
    CHECK(refusal(p.client.log, 2) == Refusal::kOutOfSync);
    p.server.join(2, p.proposal());
    p.server.await_link(2, other);  // a Confirm that names another link than the Accept
    REQUIRE(told<LinkFailed>(p.server.log, 2) != nullptr);
    CHECK(told<LinkFailed>(p.server.log, 2)->reason == Reason::kProtocolError);
    p.server.join(3, p.proposal());
    p.talk();
    CHECK_FALSE(told<Joined>(p.server.log, 3)->local.first_contact);
    p.server.leave(3, {.declined = true, .out_of_sync = true});
    CHECK(p.connect(4).local.first_contact);
    CHECK(p.server.group(1).active());  // who is in it may stay
}

TEST_CASE("smcr_groups__nobody_learns_of_another_rmb_before_the_peer_confirmed_it_G2") {
    Pair p;
    p.connect(1);
    const Joined full = p.connect(2);
    p.server.log.clear();
    p.server.join(3, p.proposal());
    p.server.join(4, p.proposal());
    CHECK((count<RegisterBuffer>(p.server.log) == 2 && count<CreateLink>(p.server.log) == 0));  // one RMB for both
    CHECK(count<Joined>(p.server.log) == 0);
    REQUIRE(count<SendMessage>(p.server.log) == 1);  // memory to send from is nobody's business
    const auto request = llc::decode(find<SendMessage>(p.server.log)->bytes);
    p.talk();
    for (const std::uint64_t member : {3, 4}) {
        REQUIRE(told<Joined>(p.server.log, member) != nullptr);
        const RKey rkey = told<Joined>(p.server.log, member)->local.rmbe.rkey;
        CHECK((rkey != full.local.rmbe.rkey && p.client.group(1).knows(rkey)));
        CHECK(std::get<llc::ConfirmRkey>(std::get<llc::AnyMessage>(request)).rkey == rkey);
    }
}

TEST_CASE("smcr_groups__an_rmb_that_is_not_to_be_had_is_refused_to_all_who_wait") {
    const auto refused = [](Pair& p, auto happen) {
        p.connect(1);
        p.connect(2);
        p.server.log.clear();
        p.server.join(3, p.proposal());
        p.server.join(4, p.proposal());
        happen(p.server);
        CHECK((count<Joined>(p.server.log) == 0 && count<JoinRefused>(p.server.log) == 2));
        CHECK(refusal(p.server.log, 3) == refusal(p.server.log, 4));
        return refusal(p.server.log, 3);
    };
    Pair rejected, silent, poor{.server = Node(true, kLink + 3 * kBuffer)};
    CHECK(refused(rejected, [](Node& server) {
              llc::ConfirmRkey no;
              no.version = 2;
              no.reply = no.negative = true;
              no.rkey = RKey{server.number};
              server.on(server.groups.message(server.group(1).id(), 1, llc::encode(no).view(), kStart));
          }) == Refusal::kNoMoreRmbs);
    CHECK(rejected.server.groups.registered() == kLink + 2 * kBuffer);  // what would be sent from went, too
    CHECK(rejected.server.group(1).active());
    CHECK(refused(silent, [](Node& server) { server.tick(kStart + 2s); }) == Refusal::kGroupOver);
    CHECK(refused(poor, [](Node&) {}) == Refusal::kOutOfMemory);
    CHECK(poor.server.groups.registered() <= kLink + 3 * kBuffer);
}

TEST_CASE("smcr_groups__whoever_waits_for_a_link_that_dies_is_told_once_G4") {
    Pair p;
    p.connect(1);
    p.finish(1);
    p.connect(2);  // runs
    p.server.join(3, p.proposal());
    p.server.join(4, p.proposal());  // waits for an RMB
    const Joined seated = *told<Joined>(p.server.log, 3);
    p.server.log.clear();
    p.server.on(p.server.groups.link_down(seated.group, "gone", kStart));
    REQUIRE(find<GroupOver>(p.server.log) != nullptr);
    CHECK((find<GroupOver>(p.server.log)->connections == 2 && count<EndLink>(p.server.log) == 1));
    CHECK((refusal(p.server.log, 4) == Refusal::kGroupOver && count<LinkFailed>(p.server.log) == 0));
    p.server.await_link(3, p.end_of(seated));
    REQUIRE(told<LinkFailed>(p.server.log, 3) != nullptr);
    CHECK_FALSE(told<LinkFailed>(p.server.log, 3)->before_confirm_link);
    p.server.await_link(3, p.end_of(seated));
    p.server.on(p.server.groups.link_down(seated.group, "again", kStart));
    CHECK((count<LinkFailed>(p.server.log) == 1 && count<JoinRefused>(p.server.log) == 1));
    // G3: nobody joins it, and it goes with its last member.
    p.server.join(5, p.proposal());
    CHECK(told<Joined>(p.server.log, 5)->local.first_contact);
    p.server.leave(2);
    CHECK(count<ForgetGroup>(p.server.log) == 0);
    p.server.leave(3);
    CHECK(count<ForgetGroup>(p.server.log) == 1);
    CHECK(p.server.groups.registered() == kLink + 2 * kBuffer);
}

TEST_CASE("smcr_groups__a_first_contact_whose_link_is_not_confirmed_leaves_a_decline_G4") {
    Pair p;
    p.server.join(1, p.proposal());
    p.server.await_link(1, p.proposal());  // CONFIRM LINK is never answered
    CHECK(count<LinkFailed>(p.server.log) == 0);
    p.server.tick(kStart + 1s);
    REQUIRE(told<LinkFailed>(p.server.log, 1) != nullptr);
    CHECK(told<LinkFailed>(p.server.log, 1)->reason == Reason::kTimeoutConfirmLink);
    CHECK(told<LinkFailed>(p.server.log, 1)->before_confirm_link);
    p.server.leave(1, {.declined = true});
    CHECK((count<ForgetGroup>(p.server.log) == 1 && p.server.groups.registered() == 0));
}

TEST_CASE("smcr_groups__a_full_group_begins_another_until_elements_come_back") {
    Pair p{.limit = 2};
    const Joined first = p.connect(1);
    CHECK_FALSE(p.connect(2).local.first_contact);
    const Seat seat = *p.server.groups.seat_of(MemberId{1});
    p.server.leave(1);  // the peer may still write into its RMBE
    CHECK(p.connect(3).local.first_contact);
    CHECK((p.server.groups.all().size() == 2 && p.client.groups.all().size() == 2));
    p.server.returned(first.group, seat);
    const Joined fourth = p.connect(4);
    CHECK((fourth.group == first.group && fourth.local.rmbe.index == first.local.rmbe.index));
    CHECK(fourth.seat.rmbe_was_used);  // by somebody else: to be zeroed (section 4.4.1)
}

TEST_CASE("smcr_groups__an_rmbe_that_the_peer_knows_lingers_when_its_member_leaves") {
    Pair p;
    p.connect(1);
    p.server.join(2, p.proposal());
    const Joined joined = *told<Joined>(p.server.log, 2);
    p.server.log.clear();
    p.server.leave(2, {.declined = true});  // the peer will not use it
    CHECK((count<ForgetToken>(p.server.log) == 1 && count<LingerToken>(p.server.log) == 0));
    p.server.join(3, p.proposal());
    CHECK(told<Joined>(p.server.log, 3)->seat.rmbe == joined.seat.rmbe);
    clc::SmcrPeer peer = p.proposal();
    peer.link = p.server.group(1).peer().link;
    peer.rmbe.token = AlertToken{0xcc};
    p.server.await_link(3, peer);
    p.server.log.clear();
    p.server.leave(3);  // it never ran, and the peer's may
    CHECK((count<ForgetToken>(p.server.log) == 0 && count<LingerToken>(p.server.log) == 1));
    REQUIRE(count<SendMessage>(p.server.log) == 1);
    const auto gone = std::get<cdc::Message>(cdc::decode(find<SendMessage>(p.server.log)->bytes));
    CHECK((gone.token == AlertToken{0xcc} && gone.state == cdc::kAbnormalClose && gone.sequence == 1));
    p.server.sent.clear();
    p.server.join(4, p.proposal());
    CHECK(count<RegisterBuffer>(p.server.log) == 1);  // its element is not free, but what it would have sent from is
}

TEST_CASE("smcr_groups__a_group_without_connections_ends_after_a_while_at_the_server_first") {
    Pair p;
    p.connect(1);
    p.finish(1);
    p.server.now = p.client.now = kStart + 30s;
    p.connect(2);
    p.server.tick(kStart + 100s);  // somebody is there
    p.client.tick(kStart + 100s);
    p.finish(2);
    p.server.tick(kStart + 160s - 1ms);
    CHECK(count<GroupOver>(p.server.log) == 0);
    p.client.tick(kStart + 170s - 1ms);
    p.server.tick(kStart + 160s);
    p.talk();
    for (Node* node : {&p.server, &p.client}) {
        CHECK((count<GroupOver>(node->log) == 1 && count<EndLink>(node->log) == 1));
        CHECK((count<ForgetGroup>(node->log) == 1 && node->groups.registered() == 0));
    }
}

TEST_CASE("smcr_groups__nobody_waits_for_a_seat_longer_than_it_said") {
    Node server(true);
    server.devices_answer = false;
    server.join(1, Pair().proposal(), kStart + 2s);
    server.join(2, Pair().proposal(), kStart + 1s);
    server.tick(kStart + 1s - 1ms);
    server.tick(kStart + 1s);
    CHECK(refusal(server.log, 2) == Refusal::kBusy);
    CHECK(refusal(server.log, 1) == std::nullopt);
    server.tick(kStart + 2s);
    CHECK(refusal(server.log, 1) == Refusal::kTimeout);
    CHECK((count<ForgetGroup>(server.log) == 1 && server.groups.registered() == 0));
    CHECK(server.groups.next_deadline() == kNever);
}
