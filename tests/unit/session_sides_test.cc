// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A client or a server alone: budgets, legs that fail, middleboxes (RFC 7609 appendix C).
#include "session_pair.h"

#include "smc/clc/framer.h"

using namespace smc;
using namespace smc::session;
using namespace smc::test::sessions;
using namespace std::chrono_literals;

TEST_CASE("client_session__a_server_that_was_capable_and_is_not_leaves_tcp_alone") {
    using As = RememberServer::As;
    for (const auto& [option, why, answered, lesson] :
         {std::tuple(PeerOption::kAbsent, Reason::kPeerNoSmc, false, As::kUnknown),
          std::tuple(PeerOption::kAbsent, Reason::kPeerNoSmc, true, As::kPause),
          std::tuple(PeerOption::kEchoed, Reason::kPeerEchoes, false, As::kUnknown),
          std::tuple(PeerOption::kTaken, Reason::kOptionTaken, false, As::kUnknown),
          std::tuple(PeerOption::kTaken, Reason::kOptionTaken, true, As::kPause)}) {
        group::SmcdGroups groups;
        Client client(kClient, groups);
        REQUIRE(are<Connect>(client.start(kStart + kBudget, answered)));
        const auto actions = client.connected(option, {true, roce("10.0.0.1")}, kStart);
        CHECK(let_go<RememberServer>(actions) == why);
        CHECK(learnt(actions) == lesson);
        CHECK_FALSE(client.listens());
    }
}

TEST_CASE("client_session__with_nothing_to_offer_the_server_hears_no_proposal") {
    group::SmcdGroups groups;
    Client client(kClient, groups);
    REQUIRE(are<Connect>(client.start(kStart + kBudget, true)));
    const auto actions = client.connected(PeerOption::kPresent, {false, std::nullopt}, kStart);
    CHECK(let_go<RememberServer>(actions) == Reason::kNoDevice);
    CHECK(learnt(actions) == RememberServer::As::kNotNow);
}

TEST_CASE("client_session__a_connect_that_fails_is_left_to_the_applications_own") {
    for (const int error : {ECONNREFUSED, ETIMEDOUT, ECONNRESET, EHOSTUNREACH}) {
        const bool answered = error == ETIMEDOUT;
        group::SmcdGroups groups;
        Client client(kClient, groups);
        REQUIRE(are<Connect>(client.start(kStart + kBudget, answered)));
        const auto actions = client.connect_failed(error);
        CHECK(let_go<RememberServer>(actions) == Reason::kConnectFailed);
        CHECK(learnt(actions) == (answered ? RememberServer::As::kPause : RememberServer::As::kUnknown));
    }
}

TEST_CASE("client_session__a_negotiation_that_ends_badly_is_followed_by_plain_tcp") {
    const std::vector<std::pair<Reason, std::function<Actions(Pair&)>>> ways = {
        {Reason::kPeerClosed, [](Pair& p) { return p.client.clc_closed(kStart); }},
        {Reason::kPeerClosed, [](Pair& p) { return p.client.clc_not_sent(kStart); }},
        {Reason::kProtocolError, [](Pair& p) { return p.client.clc_message(kRubbish, kStart); }},
        {Reason::kProtocolError, [](Pair& p) { return p.client.clc_fault(kFault, kStart); }},
        {Reason::kHandshakeTimeout, [](Pair& p) { return p.client.tick(p.client.next_deadline()); }},
    };
    for (const auto& [why, way] : ways) {
        for (const bool native : {true, false}) {
            Pair p(kSmcdServer, native);
            CHECK(p.client.tick(p.client.next_deadline() - 1ms).empty());
            const auto actions = way(p);
            CHECK(let_go<GiveBack, RememberServer>(actions) == why);
            CHECK(reason<RememberServer>(actions) == why);
            // An agent may have been killed, or be late.
            const bool pause = !native && why != Reason::kProtocolError;
            CHECK(learnt(actions) == (pause ? RememberServer::As::kPause : RememberServer::As::kNotNow));
        }
    }
}

// RFC 7609 A.2.5; a server's agent declines if its application's listener refuses the leg.
TEST_CASE("client_session__a_refusal_by_the_application_is_none_of_the_servers_smc") {
    for (const auto& [why, pause] : {std::pair(Reason::kServerRefused, true), std::pair(Reason::kOutOfMemory, false)}) {
        clc::Decline decline;
        decline.version = clc::kVersion2;
        decline.has_types = true;
        decline.reason = why;
        Pair p(kSmcdServer, false);
        const auto actions = p.client.clc_message(encode(decline).view(), kStart);
        CHECK(reason<RememberServer>(actions) == Reason::kPeerDeclined);
        CHECK(learnt(actions) == (pause ? RememberServer::As::kPause : RememberServer::As::kNotNow));
    }
}

// Linux declines so while it moves connections from a link that it deletes.
TEST_CASE("client_session__a_server_whose_links_change_is_only_paused") {
    for (const auto& [why, pause] : {std::pair(Reason::kNoActiveLink, true), std::pair(Reason::kRmbNotRegistered, true),
                                     std::pair(Reason::kNoDevice, false)}) {
        clc::Decline decline;
        decline.reason = why;
        Pair p(kSmcrServer, true);
        const auto actions = p.client.clc_message(encode(decline).view(), kStart);
        CHECK(reason<RememberServer>(actions) == Reason::kPeerDeclined);
        CHECK(learnt(actions) == (pause ? RememberServer::As::kPause : RememberServer::As::kNotNow));
    }
}

TEST_CASE("client_session__beyond_its_budget_the_application_is_let_go_wherever_it_is") {
    group::SmcdGroups groups;
    Client connecting(kClient, groups);
    REQUIRE(are<Connect>(connecting.start(kStart + kBudget, true)));
    CHECK(connecting.next_deadline() == kStart + kBudget);
    CHECK(connecting.tick(kStart + kBudget - 1ms).empty());
    const auto actions = connecting.tick(kStart + kBudget);
    CHECK(let_go<RememberServer>(actions) == Reason::kBudget);
    CHECK(learnt(actions) == RememberServer::As::kNotNow);

    Pair with_agent(kSmcdServer, false);
    CHECK(learnt(with_agent.client.tick(kStart + kBudget)) == RememberServer::As::kPause);
    Pair negotiating, finishing;
    CHECK(let_go<GiveBack, RememberServer>(negotiating.client.tick(kStart + kBudget)) == Reason::kBudget);
    finishing.connect_by_smcd();
    CHECK(finishing.client.next_deadline() == kStart + kBudget);
    CHECK(let_go<GiveBack, RememberServer>(finishing.client.tick(kStart + kBudget)) == Reason::kBudget);
    CHECK(finishing.client_groups.all().empty());
}

TEST_CASE("client_session__a_leg_that_fails_leaves_tcp_unless_the_application_has_gone") {
    const auto leg_of = [](Pair& p, bool smcr) {
        if (smcr) {
            p.agree_on_smcr();
            REQUIRE(are<FinishConnect>(p.client.link_ready(kStart)));
        } else {
            p.connect_by_smcd();
        }
    };
    for (const bool smcr : {false, true}) {
        const clc::LocalNode& server = smcr ? kSmcrServer : kSmcdServer;
        Pair without_leg(server), gone(server);
        leg_of(without_leg, smcr);
        const auto failed = without_leg.client.leg_failed(AppState::kSynSent, "");
        CHECK(let_go<GiveBack, RememberServer>(failed) == Reason::kNoLeg);
        CHECK(learnt(failed) == RememberServer::As::kPause);
        leg_of(gone, smcr);
        const auto refused = gone.client.leg_failed(AppState::kGone, "");
        REQUIRE(are<GiveBack, ResetClc, Refuse>(refused));
        CHECK(reason<Refuse>(refused) == Reason::kApplicationGone);
        CHECK(find<GiveBack>(refused)->outcome.kind == (smcr ? Kind::kSmcR : Kind::kTerminate));
    }
}

TEST_CASE("client_session__a_late_leg_waits_for_the_answer_that_its_application_sends_again") {
    Pair in_time, too_late, broken, unheard;
    for (Pair* p : {&in_time, &too_late, &broken}) {
        p->connect_by_smcd();
        REQUIRE(p->client.leg_late(AppState::kSynRecv, "", kStart + kBudget - 100ms).empty());
        REQUIRE(p->client.next_deadline() > kStart + kBudget);
        REQUIRE(p->client.tick(kStart + kBudget).empty());
        REQUIRE(p->client.leg_late(AppState::kSynRecv, "", kStart + kBudget).empty());
    }
    CHECK(find<SendClc>(in_time.client.leg_connected(kStart + kBudget + 1s)) != nullptr);

    const auto ended = too_late.client.leg_late(AppState::kSynRecv, "", too_late.client.next_deadline());
    REQUIRE(are<GiveBack, RememberServer, EndApplication, ResetClc, Refuse>(ended));
    CHECK(learnt(ended) == RememberServer::As::kPause);
    CHECK(reason<Refuse>(ended) == Reason::kNoLeg);
    CHECK(too_late.client.next_deadline() == kNever);

    Pair left_by_tick, gave_up;
    for (Pair* p : {&left_by_tick, &gave_up}) {
        p->connect_by_smcd();
        REQUIRE(p->client.leg_late(AppState::kSynRecv, "", kStart).empty());
    }
    CHECK(are<GiveBack, RememberServer, EndApplication, ResetClc, Refuse>(
        left_by_tick.client.tick(left_by_tick.client.next_deadline())));
    const auto gone = gave_up.client.leg_late(AppState::kSynSent, "", kStart + kBudget);  // its socket is not there
    REQUIRE(are<GiveBack, EndApplication, ResetClc, Refuse>(gone));
    CHECK(reason<Refuse>(gone) == Reason::kApplicationGone);

    const auto failed = broken.client.leg_failed(AppState::kSynRecv, "");
    CHECK(are<GiveBack, RememberServer, EndApplication, ResetClc, Refuse>(failed));

    unheard.connect_by_smcd();
    const auto left = unheard.client.leg_late(AppState::kSynSent, "", kStart + 300ms);
    CHECK(let_go<GiveBack, RememberServer>(left) == Reason::kNoLeg);
}

// The application has a connection already, of which the server's TCP knows nothing.
TEST_CASE("client_session__an_application_that_is_connected_is_reset_when_the_server_has_gone") {
    Pair p;
    REQUIRE(find<Run>(p.agree_on_smcd()) != nullptr);
    const auto actions = p.client.clc_not_sent(kStart);
    REQUIRE(are<GiveBack, RememberServer, ResetClc, Refuse>(actions));
    CHECK(reason<Refuse>(actions) == Reason::kPeerClosed);
}

TEST_CASE("server_session__the_application_hears_only_of_what_can_become_a_connection") {
    Pair rubbish, silent(kSmcdServer, false);
    CHECK(are<GiveBack, ResetClc, Refuse>(rubbish.server.clc_message(kRubbish, kStart)));
    CHECK(silent.server.tick(silent.server.next_deadline() - 1ms).empty());
    CHECK(are<GiveBack, ResetClc, Refuse>(silent.server.tick(silent.server.next_deadline())));
}

TEST_CASE("server_session__an_application_that_refuses_leaves_no_accept_and_no_tcp") {
    Pair smcd, tcp(kStranger), late(kStranger);
    REQUIRE(are<RegisterDmb>(smcd.server.clc_message(smcd.proposal.view(), kStart)));
    REQUIRE(are<ConnectApplication>(smcd.server.dmb_registered({}, kStart)));
    const auto actions = smcd.server.application_refused("", kStart);
    CHECK(are<GiveBack, ResetClc, Refuse>(actions));
    CHECK(reason<Refuse>(actions) == Reason::kServerRefused);
    // A client with an agent is told the reason.
    Pair agents(kSmcdServer, false);
    REQUIRE(are<RegisterDmb>(agents.server.clc_message(agents.proposal.view(), kStart)));
    REQUIRE(are<ConnectApplication>(agents.server.dmb_registered({}, kStart)));
    const auto left = agents.server.application_refused("", kStart);
    CHECK(declined(left) == Reason::kServerRefused);
    REQUIRE(are<SendClc, GiveBack, LeaveToTcp>(left));
    const auto heard = agents.client.clc_message(sent(left).view(), kStart);
    REQUIRE(are<GiveBack, RememberServer>(heard));
    CHECK(learnt(heard) == RememberServer::As::kPause);
    CHECK(let_go<>(agents.client.clc_closed(kStart)) == Reason::kPeerDeclined);
    REQUIRE(find<SendClc>(tcp.server.clc_message(tcp.proposal.view(), kStart)) != nullptr);
    CHECK(are<ResetClc, Refuse>(tcp.server.application_refused("", kStart)));
    REQUIRE(find<SendClc>(late.server.clc_message(late.proposal.view(), kStart)) != nullptr);
    CHECK(late.server.tick(late.server.next_deadline() - 1ms).empty());
    CHECK(are<ResetClc, Refuse>(late.server.tick(late.server.next_deadline())));
}

// --- a box on the way takes the option out of answers ----------------------------------------------

namespace {

Fault not_clc() {
    clc::Framer framer;
    framer.free_space()[0] = 'G';
    return std::get<Fault>(*framer.filled(1));
}

}  // namespace

TEST_CASE("server_session__bytes_that_are_no_clc_or_none_at_all_are_the_applications") {
    const std::vector<std::function<Actions(Pair&)>> ways = {
        [](Pair& p) { return p.server.clc_fault(not_clc(), kStart); },
        [](Pair& p) { return p.server.tick(p.server.next_deadline()); },
        [](Pair& p) { return p.server.clc_closed(kStart, true); },
    };
    for (const auto& way : ways) {
        Pair native;
        REQUIRE(are<ConnectApplication>(way(native)));
        CHECK_FALSE(native.server.listens());
        CHECK(on_tcp(native.server.application_connected(kStart)) == Reason::kAnswerLost);
        CHECK(is_over(native.server, native.proposal));

        Pair refused;
        REQUIRE(are<ConnectApplication>(way(refused)));
        CHECK(reason<Refuse>(refused.server.application_refused("", kStart)) == Reason::kServerRefused);

        Pair late;  // it was a CLC socket after all
        REQUIRE(are<ConnectApplication>(way(late)));
        CHECK(reason<Refuse>(late.server.clc_message(late.proposal.view(), kStart)) == Reason::kHandshakeTimeout);

        Pair with_agent(kSmcdServer, false);  // its CLC socket refuses answers without the option
        CHECK(are<GiveBack, ResetClc, Refuse>(way(with_agent)));
    }
}

TEST_CASE("server_session__a_message_with_something_wrong_in_it_is_no_applications") {
    Pair behind_the_proposal, rubbish, begun;
    behind_the_proposal.accept_smcd();
    CHECK(find<ConnectApplication>(behind_the_proposal.server.clc_fault(not_clc(), kStart)) == nullptr);
    CHECK(reason<Refuse>(rubbish.server.clc_fault(kFault, kStart)) == Reason::kProtocolError);
    begun.server.clc_began();
    CHECK(reason<Refuse>(begun.server.tick(begun.server.next_deadline())) == Reason::kHandshakeTimeout);
}

TEST_CASE("server_session__a_reset_is_nobodys_connection_and_one_that_was_late_looks_once_more") {
    Pair gone;
    CHECK(reason<Refuse>(gone.server.clc_closed(kStart, false)) == Reason::kPeerClosed);
    Pair late;
    const TimePoint when = late.server.next_deadline() + 1h;
    CHECK(late.server.tick(when).empty());
    CHECK(late.server.next_deadline() == when + kSmcdServer.last_word);
    CHECK(late.server.tick(late.server.next_deadline() - 1ms).empty());
    REQUIRE(are<ConnectApplication>(late.server.tick(late.server.next_deadline())));
    Pair spoke;
    CHECK(spoke.server.tick(when).empty());
    CHECK(find<RegisterDmb>(spoke.server.clc_message(spoke.proposal.view(), when)) != nullptr);
}

TEST_CASE("server_session__a_client_that_has_not_seen_the_option_is_the_application_itself") {
    for (const Reason why : {Reason::kAnswerLost, Reason::kOptionTaken}) {
        group::SmcdGroups groups;
        Server server(kSmcdServer, groups, {true, std::nullopt}, {.has_agent = true, .no_option = why}, kStart);
        REQUIRE(are<ConnectApplication>(server.begin(kStart)));
        CHECK_FALSE(server.listens());
        CHECK(on_tcp(server.application_connected(kStart)) == why);
        Server spoke(kSmcdServer, groups, {true, std::nullopt}, {.has_agent = true, .no_option = why}, kStart);
        REQUIRE(are<ConnectApplication>(spoke.begin(kStart)));
        const Pair other;
        const auto actions = spoke.clc_message(other.proposal.view(), kStart);
        CHECK(find<Refuse>(actions) != nullptr);
    }
    Pair heard;
    CHECK(heard.server.begin(kStart).empty());
}
