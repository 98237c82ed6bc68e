// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Members of SMC-R link groups that leave, and groups that end (RFC 7609 sections 3.5 and 4.2).
#include "smcr_groups.h"

using namespace smc;
using namespace smc::group;
using namespace smc::test::groups;
using namespace std::chrono_literals;

TEST_CASE("smcr_groups__an_rmbe_that_the_peer_knows_lingers_when_its_member_leaves_C2") {
    Pair p;
    p.connect(1);
    p.server.join(2, p.proposal());
    p.server.leave(2, {.declined = true});  // the peer will not use it
    CHECK((count<ForgetToken>(p.server.log) == 1 && count<LingerToken>(p.server.log) == 0));
    p.server.join(3, p.proposal());
    CHECK(told<Joined>(p.server.log, 3).value().assignment.rmbe ==
          told<Joined>(p.server.log, 2).value().assignment.rmbe);
    clc::SmcrPeer confirm = p.server.group(1).peer();
    confirm.rmbe.token = AlertToken{0xcc};
    p.server.await(3, confirm);
    p.server.log.clear();
    p.server.leave(3);  // it never ran, but the peer's connection may
    CHECK((count<ForgetToken>(p.server.log) == 0 && count<LingerToken>(p.server.log) == 1));
    const auto gone = std::get<cdc::Message>(cdc::decode(find<SendMessage>(p.server.log)->bytes));
    CHECK((gone.token == AlertToken{0xcc} && gone.state == cdc::kAbnormalClose && gone.sequence == 1));
    p.server.join(4, p.proposal());
    CHECK((count<RegisterBuffer>(p.server.log) == 1 && count<Joined>(p.server.log) == 0));  // its RMBE is not free
}

// The client's leg failed, so no Confirm was sent: the server will not write there, nor say that it is done.
TEST_CASE("smcr_groups__an_rmbe_that_no_confirm_has_named_is_free_at_once") {
    Pair p;
    p.connect(1);
    p.server.join(2, p.proposal());
    p.client.join(2, p.end_of(told<Joined>(p.server.log, 2).value()));
    const auto first = told<Joined>(p.client.log, 2).value();
    p.client.log.clear();
    p.client.leave(2);
    CHECK((count<ForgetToken>(p.client.log) == 1 && count<LingerToken>(p.client.log) == 0));
    CHECK(count<SendMessage>(p.client.log) == 1);  // the server counts on the connection since its Accept
    p.client.join(3, p.end_of(told<Joined>(p.server.log, 2).value()));
    CHECK(told<Joined>(p.client.log, 3).value().assignment.rmbe == first.assignment.rmbe);
}

TEST_CASE("smcr_groups__a_group_without_connections_ends_after_a_while_at_the_server_first") {
    Pair p;
    p.connect(1);
    p.server.leave(1);
    p.client.leave(1);
    p.server.now = p.client.now = kStart + 500s;
    p.connect(2);
    for (Node* node : {&p.server, &p.client}) {
        node->tick(kStart + 1000s);  // it has a member
        node->leave(2);
        node->tick(kStart + 1600s - 1ms);
    }
    p.client.tick(kStart + 1610s - 1ms);
    CHECK((count<GroupOver>(p.server.log) == 0 && count<SendMessage>(p.client.log) == 0));
    p.server.tick(kStart + 1600s);
    p.talk();
    for (Node* node : {&p.server, &p.client}) {
        CHECK((count<GroupOver>(node->log) == 1 && count<EndGroup>(node->log) == 1));
        CHECK((count<ForgetGroup>(node->log) == 1 && node->groups.registered() == 0));
    }
}

TEST_CASE("smcr_groups__every_wait_has_an_end") {
    Pair p{.server = {.server = true, .devices_answer = false}};
    p.server.join(1, p.proposal(), kStart + 2s);
    p.server.join(2, p.proposal(), kStart + 1s);
    p.server.tick(kStart + 1s - 1ms);
    p.server.tick(kStart + 1s);
    CHECK(
        (told<JoinRefused>(p.server.log, 2).value().refusal == Refusal::kBusy && !told<JoinRefused>(p.server.log, 1)));
    p.server.tick(kStart + 2s);
    CHECK(told<JoinRefused>(p.server.log, 1).value().refusal == Refusal::kTimeout);
    CHECK((count<ForgetGroup>(p.server.log) == 1 && p.server.groups.registered() == 0));
    // CONFIRM LINK is never answered: the client can still be declined (C.7).
    p.server.devices_answer = true;
    p.server.join(3, p.proposal());
    p.server.await(3, p.proposal());
    p.server.tick(kStart + 4s);
    const LinkFailed failed = told<LinkFailed>(p.server.log, 3).value();
    CHECK((failed.reason == Reason::kTimeoutConfirmLink && failed.may_decline));
}

// RFC 7609 C.2: a side whose CONFIRM LINK has not arrived may still decline.
TEST_CASE("smcr_groups__a_first_contact_whose_queue_pair_gives_up_is_declined_and_nothing_is_lost") {
    for (const bool at_server : {true, false}) {
        Pair p;
        p.server.join(1, p.proposal());
        const Joined accept = told<Joined>(p.server.log, 1).value();
        p.client.join(1, p.end_of(accept));
        p.client.await(1, p.end_of(accept));
        p.server.await(1, p.end_of(told<Joined>(p.client.log, 1).value()));
        Node& node = at_server ? p.server : p.client;
        node.on(node.groups.link_down(node.group(1).id(), 1, "transport retry counter exceeded", kStart));
        const LinkFailed failed = told<LinkFailed>(node.log, 1).value();
        CHECK((failed.may_decline && failed.reason == Reason::kLinkNotReady));
        CHECK(find<GroupOver>(node.log)->connections == 0);
    }
}

// RFC 7609 sections 3.5.2.2, 3.5.2.3 and 4.4.2.
TEST_CASE("smcr_groups__an_rmbe_of_the_peer_that_is_in_use_ends_who_had_it_G5") {
    Pair p;
    const Joined first = p.connect(1);
    const Assignment client_assignment = *p.client.groups.assignment_of(MemberId{1});
    const Joined second = p.connect(2);  // another element: no connection ends
    CHECK((count<EndConnection>(p.server.log) == 0 && count<EndConnection>(p.client.log) == 0));
    // The server gives the client the RMBE of the first connection, and the client does the same.
    p.server.leave(2);
    p.client.leave(2);
    clc::SmcrPeer again = p.end_of(first);
    again.first_contact = false;
    p.client.log.clear();
    p.client.join(3, again);
    p.talk();  // its own RMBE is in another RMB
    REQUIRE(find<EndConnection>(p.client.log) != nullptr);
    CHECK(find<EndConnection>(p.client.log)->token == client_assignment.token);
    CHECK(told<Joined>(p.client.log, 3));  // the new connection continues (section 4.4.2)
    p.client.join(4, again);
    CHECK(count<EndConnection>(p.client.log) == 2);  // also if the RMBE has a new owner

    const clc::Rmbe of_client = p.client.group(1).rmbe(client_assignment);
    p.server.join(5, p.proposal());
    p.talk();
    p.server.log.clear();
    clc::SmcrPeer confirm = p.server.group(1).peer();
    confirm.first_contact = false;
    confirm.rmbe = of_client;
    p.server.await(5, confirm);
    REQUIRE(find<EndConnection>(p.server.log) != nullptr);
    CHECK(find<EndConnection>(p.server.log)->token == first.assignment.token);
    CHECK((told<LinkReady>(p.server.log, 5) && second.group == first.group));
}
