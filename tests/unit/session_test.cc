// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A connection's way from "wanted" to "moving bytes", seen from both sides (RFC 7609 section 3.5, appendix C).
#include "session_pair.h"

using namespace smc;
using namespace smc::session;
using namespace smc::test::sessions;
using namespace std::chrono_literals;

TEST_CASE("session__smcd_agreed_on_runs_once_on_each_side") {
    Pair p;
    const auto client = p.agree_on_smcd();
    CHECK(p.client_groups.all().size() == 1);  // from now on the server counts on the group
    CHECK(are<AttachDmb>(p.server.clc_message(p.confirm.view(), kStart)));
    const auto server = p.server.dmb_attached(kStart);
    REQUIRE((are<SendClc, RememberServer, Run>(client) && are<Run>(server)));
    CHECK(learnt(client) == RememberServer::As::kCapable);
    CHECK((find<Run>(client)->outcome.kind == Kind::kSmcD && find<Run>(server)->outcome.kind == Kind::kSmcD));
    CHECK(find<Run>(client)->outcome.smcd.token == DmbToken{5});
    CHECK(find<Run>(server)->outcome.smcd.token == DmbToken{6});
}

TEST_CASE("session__smcr_agreed_on_runs_when_the_link_is_there") {
    Pair p(kSmcrServer);
    p.agree_on_smcr();
    CHECK((p.client.listens() && p.server.listens()));  // a Decline may come instead
    // A short connection may be over at one end before the other end has heard of its link.
    CHECK((p.client.clc_closed(kStart).empty() && p.server.clc_closed(kStart).empty()));
    CHECK_FALSE((p.client.listens() || p.server.listens()));
    CHECK(are<FinishConnect>(p.client.link_ready(kStart)));
    const auto client = p.client.leg_connected(kStart), server = p.server.link_ready(kStart);
    REQUIRE((are<RememberServer, Run>(client) && are<Run>(server)));
    CHECK((find<Run>(client)->outcome.kind == Kind::kSmcR && find<Run>(server)->outcome.kind == Kind::kSmcR));
}

// Between two agents, the client connects its application after the link is ready; it may fail, or be killed then.
TEST_CASE("session__at_first_contact_the_servers_application_hears_of_a_client_that_is_connected") {
    Pair p(kSmcrServer, false), gone(kSmcrServer, false), quick(kSmcrServer, false), silent(kSmcrServer, false),
        talks(kSmcrServer, false), aborts(kSmcrServer, false);
    for (Pair* pair : {&p, &gone, &quick, &silent, &talks, &aborts}) {
        pair->agree_on_smcr();
        REQUIRE(are<AwaitClient>(pair->server.link_ready(kStart)));
        CHECK(pair->server.listens());  // to notice if the client has gone
    }
    CHECK(are<Run>(p.server.client_announced(false)));
    CHECK((p.server.client_announced(false).empty() && p.server.tick(kStart + 1h).empty()));

    CHECK(gone.server.clc_closed(kStart).empty());
    CHECK(gone.server.next_deadline() < kStart + 1s);
    const auto refused = gone.server.tick(gone.server.next_deadline());
    REQUIRE(are<GiveBack, ResetClc, Refuse>(refused));
    CHECK(find<Refuse>(refused)->reason == Reason::kPeerClosed);
    CHECK(gone.server.client_announced(false).empty());

    CHECK(quick.server.clc_closed(kStart).empty());
    CHECK(are<Run>(
        quick.server.client_announced(false)));  // its CDC message came over the link, after the end of the CLC socket

    // One missed deadline may be this side's own delay.
    CHECK(silent.server.tick(silent.server.next_deadline() + 1h).empty());
    const auto late = silent.server.tick(silent.server.next_deadline() + 1h);
    REQUIRE(are<GiveBack, ResetClc, Refuse>(late));
    CHECK(find<Refuse>(late)->reason == Reason::kHandshakeTimeout);

    CHECK(are<GiveBack, ResetClc, Refuse>(aborts.server.client_announced(true)));
    CHECK(are<GiveBack, ResetClc, Refuse>(talks.server.clc_message(talks.proposal.view(), kStart)));
}

// The server's application has a connection once the Confirm has come.
TEST_CASE("session__where_no_link_is_to_be_made_the_leg_comes_before_the_confirm") {
    Pair p(kSmcrServer), gone(kSmcrServer), down(kSmcrServer), declined_late(kSmcrServer);
    REQUIRE(are<FinishConnect>(prepare_smcr_again(p)));
    const auto confirmed = p.client.leg_connected(kStart);
    REQUIRE(are<SendClc, AwaitLink>(confirmed));
    REQUIRE(are<AwaitLink>(p.server.clc_message(sent(confirmed).view(), kStart)));
    CHECK(are<RememberServer, Run>(p.client.link_ready(kStart)));
    CHECK(are<Run>(p.server.link_ready(kStart)));

    REQUIRE(are<FinishConnect>(prepare_smcr_again(gone)));
    const auto ends = gone.client.leg_failed(AppState::kGone, "");
    REQUIRE(are<GiveBack, ResetClc, Refuse>(ends));
    CHECK_FALSE(find<ResetClc>(ends)->first);  // this server's application would accept a connection that is reset

    // The application is connected: whatever fails now, it cannot connect by itself any more.
    REQUIRE(are<FinishConnect>(prepare_smcr_again(down)));
    REQUIRE(are<SendClc, AwaitLink>(down.client.leg_connected(kStart)));
    CHECK(
        are<GiveBack, RememberServer, ResetClc, Refuse>(down.client.link_failed(Reason::kLinkDown, "", false, kStart)));

    REQUIRE(are<FinishConnect>(prepare_smcr_again(declined_late)));
    const auto late = declined_late.client.leg_connected(kStart);
    REQUIRE(are<AwaitLink>(declined_late.server.clc_message(sent(late).view(), kStart)));
    const auto decline = declined_late.server.link_failed(Reason::kLinkNotReady, "", true, kStart);
    CHECK(are<GiveBack, RememberServer, RunOnTcp>(declined_late.client.clc_message(sent(decline).view(), kStart)));
}

TEST_CASE("session__a_client_that_confirms_nothing_tells_a_servers_agent_so") {
    Pair gone(kSmcrServer, false), slow(kSmcrServer, false), over_smcd(kSmcdServer, false);
    REQUIRE(are<FinishConnect>(prepare_smcr_again(gone)));
    REQUIRE(are<FinishConnect>(prepare_smcr_again(slow)));
    over_smcd.accept_smcd();
    REQUIRE(are<FinishConnect>(over_smcd.prepare_smcd()));
    const auto expect_decline = [](Pair& pair, const Actions& ends) {
        const auto* reset = find<ResetClc>(ends);
        REQUIRE((reset != nullptr && reset->first));
        const auto heard = pair.server.clc_message(reset->first->view(), kStart);
        REQUIRE(are<GiveBack, LeaveToTcp>(heard));
        CHECK(find<GiveBack>(heard)->outcome.kind == Kind::kFallBack);  // the RMBE was never used
    };
    expect_decline(gone, gone.client.leg_failed(AppState::kGone, ""));
    expect_decline(slow, slow.client.tick(kStart + kBudget));
    expect_decline(over_smcd, over_smcd.client.leg_failed(AppState::kSynSent, ""));
}

TEST_CASE("session__a_decline_means_tcp") {
    Pair p(kStranger);
    const auto refused = p.server.clc_message(p.proposal.view(), kStart);
    CHECK(are<SendClc, GiveBack, ConnectApplication>(refused));
    CHECK_FALSE(p.server.listens());  // what comes is the application's
    CHECK(on_tcp(p.server.application_connected(kStart)) == declined(refused));
    const auto heard = p.client.clc_message(sent(refused).view(), kStart);
    CHECK(are<GiveBack, RememberServer, FinishConnect>(heard));
    CHECK(learnt(heard) == RememberServer::As::kNotNow);
    CHECK_FALSE(p.client.listens());
    CHECK(on_tcp(p.client.leg_connected(kStart)) == Reason::kPeerDeclined);
}

TEST_CASE("session__a_client_that_declines_in_place_of_proposing_gets_its_server_by_tcp") {
    Pair p;
    clc::Decline decline;
    decline.version = clc::kVersion1;
    decline.reason = Reason::kNoDevice;
    CHECK(are<GiveBack, ConnectApplication>(p.server.clc_message(clc::encode(decline).view(), kStart)));
    CHECK_FALSE(p.server.listens());  // what comes is the application's
    CHECK(on_tcp(p.server.application_connected(kStart)) == Reason::kPeerDeclined);
}

TEST_CASE("session__where_the_client_has_an_agent_its_application_comes_by_itself") {
    Pair at_once(kStranger, false), with_application(kSmcdServer, false);
    const auto refused = at_once.server.clc_message(at_once.proposal.view(), kStart);
    REQUIRE(are<SendClc, GiveBack, LeaveToTcp>(refused));
    CHECK(find<LeaveToTcp>(refused)->outcome.reason == declined(refused));
    // Until the server has closed, its leg may hold the tuple of the application's own connection.
    CHECK(are<GiveBack, RememberServer>(at_once.client.clc_message(sent(refused).view(), kStart)));
    CHECK(at_once.client.listens());
    CHECK(at_once.client.tick(kStart + 1s).empty());
    CHECK(let_go<>(at_once.client.clc_closed(kStart)) == Reason::kPeerDeclined);
    with_application.accept_smcd();
    REQUIRE(are<AttachDmb>(with_application.client.clc_message(with_application.accept.view(), kStart)));
    const auto declines = with_application.client.dmb_not_attached(Reason::kFabric, "", kStart);
    CHECK(are<GiveBack, LeaveToTcp>(with_application.server.clc_message(sent(declines).view(), kStart)));
    CHECK(let_go<>(with_application.client.tick(kStart + kBudget)) == Reason::kFabric);
}

TEST_CASE("session__a_client_that_lost_its_group_falls_back_and_the_next_contact_is_the_first") {
    const auto known_to_server = [](Pair& p) {
        p.server_groups.establish({true, kClient.ism[0].gid, kClient.ism[0].chid, kClient.ueids[0]}, "");
        p.accept_smcd();
    };
    Pair p;
    known_to_server(p);
    const auto refused = p.prepare_smcd();
    CHECK(are<SendClc, GiveBack, FinishConnect>(refused));  // the server may be asked again
    CHECK(declined(refused) == Reason::kOutOfSync);
    CHECK(are<GiveBack, RunOnTcp>(p.server.clc_message(sent(refused).view(), kStart)));
    CHECK(p.server_groups.all().empty());
    Pair known;
    known.client_groups.establish({false, kSmcdServer.ism[0].gid, kClient.ism[0].chid, kClient.ueids[0]}, "");
    known_to_server(known);
    CHECK(are<FinishConnect>(known.prepare_smcd()));
}

TEST_CASE("session__a_link_that_fails_leaves_tcp_only_while_a_decline_is_possible") {
    Pair p(kSmcrServer);
    p.agree_on_smcr();
    const auto refused = p.server.link_failed(Reason::kLinkNotReady, "", true, kStart);
    CHECK(are<SendClc, GiveBack, RunOnTcp>(refused));
    CHECK(declined(refused) == Reason::kLinkNotReady);
    CHECK(are<GiveBack, RememberServer, FinishConnect>(p.client.clc_message(sent(refused).view(), kStart)));
    Pair by_client(kSmcrServer);
    by_client.agree_on_smcr();
    const auto given_up = by_client.client.link_failed(Reason::kLinkNotReady, "", true, kStart);
    CHECK(are<SendClc, GiveBack, RememberServer, FinishConnect>(given_up));
    CHECK(declined(given_up) == Reason::kLinkNotReady);
    CHECK(are<GiveBack, RunOnTcp>(by_client.server.clc_message(sent(given_up).view(), kStart)));
    Pair late(kSmcrServer);
    late.agree_on_smcr();
    CHECK(are<GiveBack, ResetClc, Refuse>(late.server.link_failed(Reason::kLinkDown, "", false, kStart)));
    CHECK(let_go<GiveBack, RememberServer>(late.client.link_failed(Reason::kLinkDown, "", false, kStart)) ==
          Reason::kLinkDown);
}

TEST_CASE("session__memory_that_is_not_to_be_had_is_declined_until_the_confirm") {
    Pair client, server, late;
    client.accept_smcd();
    REQUIRE(are<AttachDmb>(client.client.clc_message(client.accept.view(), kStart)));
    const auto refused = client.client.dmb_not_attached(Reason::kFabric, "", kStart);
    CHECK(are<SendClc, GiveBack, RememberServer, FinishConnect>(refused));
    CHECK(declined(refused) == Reason::kFabric);
    CHECK(are<GiveBack, RunOnTcp>(client.server.clc_message(sent(refused).view(), kStart)));
    // Another type is tried before the server declines.
    REQUIRE(are<RegisterDmb>(server.server.clc_message(server.proposal.view(), kStart)));
    CHECK(are<ConnectApplication>(server.server.dmb_refused(Reason::kMaxDmb, "", kStart)));
    CHECK(are<JoinGroup>(server.server.application_connected(kStart)));
    const auto neither = server.server.join_refused(group::Refusal::kOutOfMemory, "", kStart);
    CHECK(are<SendClc, GiveBack, RunOnTcp>(neither));
    CHECK(declined(neither) == Reason::kOutOfMemory);
    late.agree_on_smcd();  // after the Confirm there is no way back (C.3)
    REQUIRE(are<AttachDmb>(late.server.clc_message(late.confirm.view(), kStart)));
    CHECK(are<GiveBack, ResetClc, Refuse>(late.server.dmb_not_attached(Reason::kFabric, "", kStart)));
}

// Actions that followed the message were not carried out.
TEST_CASE("session__a_message_that_cannot_be_written_is_no_agreement") {
    Pair confirming(kSmcrServer), accepting, declining(kStranger), late(kSmcrServer);
    confirming.agree_on_smcr();
    CHECK(let_go<GiveBack, RememberServer>(confirming.client.clc_not_sent(kStart)) == Reason::kPeerClosed);
    accepting.accept_smcd();
    CHECK(are<GiveBack, ResetClc, Refuse>(accepting.server.clc_not_sent(kStart)));
    REQUIRE(find<SendClc>(declining.server.clc_message(declining.proposal.view(), kStart)) != nullptr);
    CHECK(are<GiveBack, ResetClc, Refuse>(declining.server.clc_not_sent(kStart)));
    late.agree_on_smcr();
    REQUIRE(are<SendClc, GiveBack, RunOnTcp>(late.server.link_failed(Reason::kLinkNotReady, "", true, kStart)));
    CHECK(are<GiveBack, ResetClc, Refuse>(late.server.clc_not_sent(kStart)));
}

TEST_CASE("session__nothing_follows_its_end_S1") {
    Pair smc, tcp(kStranger), refused;
    REQUIRE(find<Run>(smc.agree_on_smcd()) != nullptr);
    REQUIRE(are<AttachDmb>(smc.server.clc_message(smc.confirm.view(), kStart)));
    REQUIRE(are<Run>(smc.server.dmb_attached(kStart)));
    CHECK((is_over(smc.server, smc.confirm) && is_over(smc.client, smc.accept)));
    const auto decline = sent(tcp.server.clc_message(tcp.proposal.view(), kStart));
    REQUIRE(find<FinishConnect>(tcp.client.clc_message(decline.view(), kStart)) != nullptr);
    REQUIRE((on_tcp(tcp.server.application_connected(kStart)) && on_tcp(tcp.client.leg_connected(kStart))));
    CHECK((is_over(tcp.server, tcp.proposal) && is_over(tcp.client, decline)));
    REQUIRE(are<GiveBack, ResetClc, Refuse>(refused.server.clc_closed(kStart)));
    Pair gone;
    gone.connect_by_smcd();
    REQUIRE(find<Refuse>(gone.client.leg_failed(AppState::kGone, "")) != nullptr);
    CHECK((is_over(refused.server, refused.proposal) && is_over(gone.client, decline)));
}

TEST_CASE("session__a_decline_of_smcr_leaves_smcd_as_it_was") {
    Pair p;  // with an SMC-D link group of an earlier connection
    p.server_groups.establish({true, kClient.ism[0].gid, kClient.ism[0].chid, kClient.ueids[0]}, "");
    REQUIRE(are<RegisterDmb>(p.server.clc_message(p.proposal.view(), kStart)));
    REQUIRE(are<ConnectApplication>(p.server.dmb_refused(Reason::kMaxDmb, "", kStart)));
    REQUIRE(are<JoinGroup>(p.server.application_connected(kStart)));
    auto own = rmbe("10.0.0.2");
    own.first_contact = false;
    const auto accept = sent(p.server.joined(own, kStart));
    REQUIRE(are<JoinGroup>(p.client.clc_message(accept.view(), kStart)));
    const auto decline = p.client.join_refused(group::Refusal::kOutOfSync, "", kStart);
    CHECK(are<GiveBack, RunOnTcp>(p.server.clc_message(sent(decline).view(), kStart)));
    CHECK(p.server_groups.all().size() == 1);
}

// A Linux server does not move a connection to another link before it has the Confirm.
TEST_CASE("session__a_client_declines_if_the_link_has_gone_while_its_leg_was_connected") {
    for (const bool native : {true, false}) {
        CAPTURE(native);
        Pair p(kSmcrServer, native);
        REQUIRE(are<ConnectApplication>(p.server.clc_message(p.proposal.view(), kStart)));
        REQUIRE(are<JoinGroup>(p.server.application_connected(kStart)));
        auto own = rmbe("10.0.0.2");
        own.first_contact = false;
        const auto accept = sent(p.server.joined(own, kStart));
        REQUIRE(are<JoinGroup>(p.client.clc_message(accept.view(), kStart)));
        own = rmbe("10.0.0.1");
        own.first_contact = false;
        REQUIRE(are<FinishConnect>(p.client.joined(own, kStart)));
        const auto actions = p.client.leg_connected(kStart, false);
        if (native) {
            CHECK(are<SendClc, GiveBack, RememberServer, RunOnTcp>(actions));
            CHECK(declined(actions) == Reason::kNoActiveLink);
            CHECK(learnt(actions) == RememberServer::As::kPause);
            CHECK(are<GiveBack, RunOnTcp>(p.server.clc_message(sent(actions).view(), kStart)));
        } else {
            CHECK(are<SendClc, AwaitLink>(actions));  // an agent begins on another link
        }
    }
}
