// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Members of SMC-R link groups: which group each joins, and its assignment (RFC 7609 sections 3.5 and 4.2).
#include "smcr_groups.h"

using namespace smc;
using namespace smc::group;
using namespace smc::test::groups;
using namespace std::chrono_literals;

namespace {

// The server offers its existing link, which the client's second connection must not use.
void second_connection_is_refused(Pair& q) {
    q.server.log.clear();
    q.server.join(2, q.proposal());
    q.talk();
    q.client.join(2, q.end_of(told<Joined>(q.server.log, 2).value()));
    CHECK(told<JoinRefused>(q.client.log, 2).value().refusal == Refusal::kBusy);
    CHECK(q.client.group(1).active());
}

}  // namespace

TEST_CASE("smcr_groups__a_first_contact_is_told_when_its_queue_pair_and_memory_are_there") {
    Node server{.server = true, .devices_answer = false};
    server.join(1, Pair().proposal());
    const Actions asked = std::exchange(server.log, {});
    CHECK((count<CreateLink>(asked) == 1 && count<RegisterBuffer>(asked) == 2 && asked.size() == 3));
    for (const Action& action : asked) {
        CHECK(server.log.empty());
        server.on(server.answer(action));
    }
    REQUIRE(server.log.size() == 2);  // no LLC message: CLC tells of this RMB (G2)
    const auto local = std::get<Joined>(server.log[1]).local;
    CHECK((local.first_contact && local.rmbe.rkey != RKey{} && local.rmbe.index == 1));
    CHECK(std::get<OpenToken>(server.log[0]).token == local.rmbe.token);  // before the peer hears of it (G1)
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
    for (const std::uint64_t member : {1U, 2U, 3U}) {
        p.server.join(member, p.proposal());
    }
    p.server.join(4, p.proposal("10.0.0.9"));  // a member with another peer does not wait
    CHECK((count<CreateLink>(p.server.log) == 2 && count<Joined>(p.server.log) == 2));
    CHECK((told<Joined>(p.server.log, 1) && told<Joined>(p.server.log, 4)));
    p.server.log.clear();
    p.server.on(p.server.groups.link_refused(p.server.group(1).id(), 1, Refusal::kUnreachable, "", kStart));
    // The first contact fails: the second member begins another one, and the third waits for that.
    CHECK((count<CreateLink>(p.server.log) == 1 && count<Joined>(p.server.log) == 1));
    CHECK(p.confirm(2).local.first_contact);
    CHECK_FALSE(told<Joined>(p.server.log, 3).value().local.first_contact);
    CHECK(&p.server.group(2) == &p.server.group(3));
}

// A first contact may hang, or be that of somebody else who names this peer's GID.
TEST_CASE("smcr_groups__a_first_contact_is_not_waited_for_for_long") {
    Pair p;
    p.server.join(1, p.proposal());
    p.server.join(2, p.proposal());
    p.server.join(3, p.proposal());
    p.server.log.clear();
    CHECK(p.server.groups.next_deadline() == kStart + 2000ms);
    p.server.tick(kStart + 1999ms);
    CHECK(count<CreateLink>(p.server.log) == 0);
    p.server.tick(kStart + 2000ms);
    CHECK((count<CreateLink>(p.server.log) == 1 && told<Joined>(p.server.log, 2).value().local.first_contact));
    CHECK(p.server.groups.next_deadline() == kStart + 4000ms);  // the third waits for the second one's
    CHECK(p.confirm(2).local.first_contact);
    CHECK_FALSE(told<Joined>(p.server.log, 3).value().local.first_contact);
    CHECK(&p.server.group(2) == &p.server.group(3));
    CHECK(&p.server.group(1) != &p.server.group(2));
}

TEST_CASE("smcr_groups__a_group_that_is_up_is_joined_although_another_one_forms") {
    Pair p;
    for (const std::uint64_t member : {1U, 2U, 3U}) {
        p.server.join(member, p.proposal());
    }
    p.server.tick(kStart + 2000ms);  // the second member begins a group of its own, and the third waits for that
    CHECK(p.confirm(1).local.first_contact);
    p.talk();
    CHECK_FALSE(told<Joined>(p.server.log, 3).value().local.first_contact);
    CHECK(&p.server.group(1) == &p.server.group(3));
}

// Each occupies a thread for a second, until the kernel gives up on the neighbour.
TEST_CASE("smcr_groups__peers_whose_address_nobody_has_are_declined_beyond_eight") {
    Pair p;
    p.server.neighbours_answer = false;
    for (std::uint64_t member = 1; member <= 9; member++) {
        p.contact(member);
        CHECK(told<LinkFailed>(p.server.log, member).has_value() == (member == 9));
    }
    const auto declined = told<LinkFailed>(p.server.log, 9).value();
    CHECK((declined.reason == Reason::kLinkNotReady && declined.may_decline));
    p.server.on(p.server.groups.link_refused(p.server.group(1).id(), 1, Refusal::kUnreachable, "", kStart));
    p.contact(10);
    CHECK_FALSE(told<LinkFailed>(p.server.log, 10));
}

// The kernel still asks for the neighbour's address after the member has left.
TEST_CASE("smcr_groups__whose_queue_pair_waits_counts_until_it_is_done_though_he_leaves") {
    Pair p;
    p.server.neighbours_answer = false;
    std::vector<GroupId> groups;
    for (std::uint64_t member = 1; member <= 8; member++) {
        p.contact(member);
        groups.push_back(p.server.group(member).id());
        p.server.leave(member);
        CHECK(p.server.groups.find(groups.back()) == nullptr);
    }
    p.contact(9);
    CHECK(told<LinkFailed>(p.server.log, 9).value().may_decline);
    p.server.on(p.server.groups.link_connected(groups[0], 1, kStart));
    p.contact(10);
    CHECK_FALSE(told<LinkFailed>(p.server.log, 10));
    p.contact(11);
    CHECK(told<LinkFailed>(p.server.log, 11));
}

// The client might still write into them.
TEST_CASE("smcr_groups__a_client_that_never_confirms_is_given_16_RMBEs_of_a_link_group") {
    Pair p;
    const Joined first = p.connect(1);
    const auto accept = [&](std::uint64_t member) {
        p.server.join(member, p.proposal());
        p.talk();
        return told<Joined>(p.server.log, member).value();
    };
    for (std::uint64_t member = 2; member < 18; member++) {
        CHECK(accept(member).group == first.group);
        p.server.leave(member);
    }
    const Joined beyond = accept(18);
    CHECK((beyond.group != first.group && beyond.local.first_contact));
    CHECK(p.server.group(1).active());
}

// A first contact ends at the server before it ends at the client.
TEST_CASE("smcr_groups__a_client_waits_for_its_own_first_contact_if_the_server_names_the_link_of_it") {
    Pair p;
    p.server.join(1, p.proposal());
    const Joined first = told<Joined>(p.server.log, 1).value();
    clc::SmcrPeer other = p.end_of(first);
    other.first_contact = false;
    SECTION("the first contact succeeds") {
        p.client.join(1, p.end_of(first));
        p.client.join(2, other);
        CHECK((!told<Joined>(p.client.log, 2) && !told<JoinRefused>(p.client.log, 2)));
        p.client.await(1, p.end_of(first));
        p.server.await(1, p.end_of(told<Joined>(p.client.log, 1).value()));
        p.talk();
        CHECK(told<Joined>(p.client.log, 2).value().group == p.client.group(1).id());
    }
    SECTION("it takes too long") {
        p.client.join(1, p.end_of(first));
        p.client.join(2, other);
        p.client.tick(p.client.groups.next_deadline());
        CHECK(p.client.now == kStart + 2s);
        CHECK(told<JoinRefused>(p.client.log, 2).value().refusal == Refusal::kBusy);
    }
    SECTION("it fails") {
        p.client.join(1, p.end_of(first));
        p.client.join(2, other);
        p.client.on(p.client.groups.link_down(p.client.group(1).id(), llc::kFirstLink, "port down", kStart));
        CHECK(told<JoinRefused>(p.client.log, 2).value().refusal == Refusal::kOutOfSync);
    }
}

TEST_CASE("smcr_groups__what_one_side_does_not_know_of_is_no_group_for_the_other") {
    Pair p;
    clc::SmcrPeer other = p.end_of(p.connect(1));
    other.first_contact = false;
    clc::SmcrPeer version_1 = other;
    other.link.qpn = Qpn{99};
    p.client.join(2, other);  // the link may have gone meanwhile: no reason to end the group (C.4)
    CHECK(told<JoinRefused>(p.client.log, 2).value().refusal == Refusal::kBusy);
    version_1.version = 1;  // Linux does not compare versions
    p.client.join(4, version_1);
    CHECK(told<JoinRefused>(p.client.log, 4).value().refusal == Refusal::kBusy);
    clc::SmcrPeer stranger = other;
    stranger.id = {9};
    p.client.join(3, stranger);
    CHECK(told<JoinRefused>(p.client.log, 3).value().refusal == Refusal::kOutOfSync);
    p.server.join(2, p.proposal());
    p.server.await(2, other);  // a Confirm that names another link than the Accept
    CHECK(told<LinkFailed>(p.server.log, 2).value().reason == Reason::kProtocolError);
    p.server.sent.clear();
    p.server.leave(2, {.declined = true, .out_of_sync = true});
    CHECK(p.server.sent.size() == 1);  // TEST LINK
    CHECK(p.connect(3).local.first_contact);
    // The peer says that it does not know the group (A.2.5, C.4). Running connections stay until a link fails.
    CHECK(p.server.group(1).active());
    CHECK(count<GroupOver>(p.server.log) == 0);
    p.server.leave(1, {.declined = false, .out_of_sync = false});
    p.server.tick(p.server.groups.next_deadline());
    CHECK(count<GroupOver>(p.server.log) == 1);
    CHECK(p.server.now == kStart);
}

TEST_CASE("smcr_groups__a_group_that_the_peer_does_not_know_and_nobody_uses_is_over_at_once") {
    Pair p;
    p.connect(1);
    for (Node* node : {&p.server, &p.client}) {
        node->leave(1);
    }
    p.server.join(2, p.proposal());
    p.server.leave(2, {.declined = true, .out_of_sync = true});
    CHECK(count<GroupOver>(p.server.log) == 1);
}

TEST_CASE("smcr_groups__a_group_that_is_out_of_sync_and_whose_link_is_dead_is_over") {
    Pair p;
    p.connect(1);
    p.server.join(2, p.proposal());
    p.server.leave(2, {.declined = true, .out_of_sync = true});
    p.server.sent.clear();  // the peer has gone
    p.server.tick(p.server.groups.next_deadline());
    CHECK(count<GroupOver>(p.server.log) == 1);
}

TEST_CASE("smcr_groups__connections_of_two_physical_networks_share_no_group") {
    Pair p;
    p.server.pnet_id = "RACK1";
    const Joined first = p.connect(1);
    p.server.pnet_id = "RACK2";
    const Joined second = p.connect(2);
    CHECK((second.local.first_contact && second.group != first.group));
    CHECK(p.server.group(2).key().pnet_id == "RACK2");

    // If only the client distinguishes physical networks, the server offers its existing link.
    Pair q;
    q.client.pnet_id = "RACK1";
    q.connect(1);
    q.client.pnet_id = "RACK2";
    second_connection_is_refused(q);
}

// RFC 7609 section 2.2.
TEST_CASE("smcr_groups__connections_of_two_vlans_share_no_group") {
    Pair p;
    for (const std::uint16_t vlan : {std::uint16_t{0}, std::uint16_t{100}, std::uint16_t{200}}) {
        p.server.vlan = p.client.vlan = vlan;
        const std::uint64_t member = 10U + vlan;
        const Joined first = p.connect(member);
        const Joined second = p.connect(member + 1);
        CHECK((first.local.first_contact && !second.local.first_contact && second.group == first.group));
        CHECK((p.server.group(member).key().vlan == vlan && p.client.group(member).key().vlan == vlan));
    }
    CHECK(p.server.groups.all().size() == 3);

    // A server that does not distinguish the client's VLANs offers its existing link, which is in another VLAN.
    Pair q;
    q.client.vlan = 100;
    q.connect(1);
    q.client.vlan = 200;
    second_connection_is_refused(q);
}

TEST_CASE("smcr_groups__a_client_takes_the_link_that_the_server_names_whatever_the_eid") {
    Pair p;
    p.connect(1);
    p.server.join(2, p.proposal());
    p.talk();
    clc::SmcrPeer named = p.end_of(told<Joined>(p.server.log, 2).value());
    named.eid = *Eid::parse("ANOTHER");
    REQUIRE_FALSE(named.first_contact);
    p.client.join(2, named);
    p.talk();
    CHECK(told<Joined>(p.client.log, 2).value().group == p.client.group(1).id());

    // A server has a group for each EID.
    clc::SmcrPeer other = p.proposal();
    other.eid = *Eid::parse("ANOTHER");
    p.server.join(3, other);
    CHECK(told<Joined>(p.server.log, 3).value().local.first_contact);
}

TEST_CASE("smcr_groups__nobody_learns_of_another_rmb_before_the_peer_confirmed_it_G2") {
    Pair p;
    p.connect(1);
    const Joined full = p.connect(2);
    p.server.log.clear();
    p.server.join(3, p.proposal());
    p.server.join(4, p.proposal());
    CHECK((count<RegisterBuffer>(p.server.log) == 2 && count<CreateLink>(p.server.log) == 0));  // one RMB for both
    CHECK((count<Joined>(p.server.log) == 0 && count<SendMessage>(p.server.log) == 1));
    const auto request = llc::decode(find<SendMessage>(p.server.log)->bytes);
    p.talk();
    for (const std::uint64_t member : {3U, 4U}) {
        const RKey rkey = told<Joined>(p.server.log, member).value().local.rmbe.rkey;
        CHECK((rkey != full.local.rmbe.rkey && p.client.group(1).peer_rmb(1, rkey) != nullptr));
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
        CHECK(told<JoinRefused>(p.server.log, 3).value().refusal == told<JoinRefused>(p.server.log, 4).value().refusal);
        return told<JoinRefused>(p.server.log, 3).value().refusal;
    };
    Pair rejected, silent, poor{.server = {.server = true, .memory = kLink + 3 * kBuffer}};
    const auto reject = [](Node& server) {
        auto no = std::get<llc::ConfirmRkey>(std::get<llc::AnyMessage>(llc::decode(server.sent.back().bytes)));
        no.reply = no.negative = true;
        server.on(server.groups.message(server.group(1).id(), 1, llc::encode(no).view(), kStart));
    };
    CHECK(refused(rejected, reject) == Refusal::kNoMoreRmbs);
    rejected.server.tick(kStart + 10s);
    CHECK(rejected.server.groups.registered() == kLink + 2 * kBuffer);  // the send buffer was dropped, too
    CHECK(rejected.server.group(1).active());
    CHECK(refused(silent, [](Node& server) { server.tick(kStart + 4s); }) == Refusal::kGroupOver);
    CHECK(refused(poor, [](Node&) {}) == Refusal::kOutOfMemory);
}

TEST_CASE("smcr_groups__whoever_waits_for_a_link_that_dies_is_told_once_G4") {
    Pair p;
    p.connect(1);
    p.server.join(2, p.proposal());
    p.server.join(3, p.proposal());  // waits for an RMB
    const Joined joined = told<Joined>(p.server.log, 2).value();
    p.server.on(p.server.groups.link_down(joined.group, 1, "gone", kStart));
    CHECK((count<GroupOver>(p.server.log) == 1 &&
           find<GroupOver>(p.server.log)->connections == 1));  // the other member never ran
    CHECK((told<JoinRefused>(p.server.log, 3).value().refusal == Refusal::kGroupOver &&
           !told<LinkFailed>(p.server.log, 2)));
    p.server.await(2, p.end_of(joined));
    p.server.await(2, p.end_of(joined));
    p.server.on(p.server.groups.link_down(joined.group, 1, "again", kStart));
    CHECK_FALSE(told<LinkFailed>(p.server.log, 2).value().may_decline);
    CHECK((count<LinkFailed>(p.server.log) == 1 && count<JoinRefused>(p.server.log) == 1));
    // G3: no member joins it, and it is forgotten with its last member.
    p.server.join(4, p.proposal());
    CHECK(told<Joined>(p.server.log, 4).value().local.first_contact);
    p.server.leave(1);
    CHECK(count<ForgetGroup>(p.server.log) == 0);
    p.server.leave(2);
    CHECK((count<ForgetGroup>(p.server.log) == 1 && p.server.groups.registered() == kLink + 2 * kBuffer));
}

TEST_CASE("smcr_groups__a_full_group_begins_another_until_elements_come_back") {
    Pair p{.limit = 2};
    const Joined first = p.connect(1);
    CHECK_FALSE(p.connect(2).local.first_contact);
    p.server.leave(1);  // but its peer may still write into the RMBE
    CHECK(p.connect(3).local.first_contact);
    CHECK((p.server.groups.all().size() == 2 && p.client.groups.all().size() == 2));
    p.server.on(
        p.server.groups.element_returned(first.group, first.assignment.send, first.assignment.send_element, kStart));
    p.server.on(p.server.groups.element_returned(first.group, first.assignment.rmb, first.assignment.rmbe, kStart));
    p.client.leave(1);
    const Joined fourth = p.connect(4);
    CHECK((fourth.group == first.group && fourth.local.rmbe.index == first.local.rmbe.index));
    CHECK(fourth.assignment.rmbe_was_used);  // to be zeroed (section 4.4.1)
}
