// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A connection's way from "wanted" to "moving bytes", on both sides (RFC 7609 section 3.5, appendix C).
#include <catch2/catch.hpp>
#include <cerrno>
#include <functional>

#include "actions.h"
#include "smc/clc/framer.h"
#include "smc/session/client.h"
#include "smc/session/server.h"

using namespace smc;
using namespace smc::session;
using namespace std::chrono_literals;
using Kind = clc::Outcome::Kind;

namespace {

const TimePoint kStart{};
constexpr auto kBudget = 20s;  // longer than any step
const std::vector<std::uint8_t> kRubbish(100, 'x');
const Fault kFault{"", 0, 0, ""};

clc::LocalNode node(std::uint8_t id, std::uint16_t chid, const char* eid) {
    clc::LocalNode n;
    n.ism = {{{}, Chid{chid}}};
    n.ism[0].gid.bytes.fill(id);
    n.ueids = {*Eid::parse(eid)};
    n.step_timeout = 1000ms;
    return n;
}
const clc::LocalNode kClient = node(0x11, 0xff00, "COMMON");
const clc::LocalNode kSmcdServer = node(0x22, 0xff00, "COMMON");
const clc::LocalNode kSmcrServer = node(0x22, 0xff01, "COMMON");  // no fabric in common
const clc::LocalNode kStranger = node(0x22, 0xff00, "OTHER");

clc::RoceOffer roce(const char* own) {
    clc::RoceOffer o;
    o.gids = {*RoceGid::parse(own)};
    return o;
}

clc::LocalRmbe rmbe(const char* gid) {
    clc::LocalRmbe r;
    r.link.gid = *RoceGid::parse(gid);
    r.link.qpn = Qpn{17};
    r.first_contact = true;
    return r;
}

// Exactly these, in this order.
template <class... Kinds>
bool are(const Actions& actions) {
    std::size_t i = 0;
    return actions.size() == sizeof...(Kinds) && (std::holds_alternative<Kinds>(actions[i++]) && ...);
}

clc::Message sent(const Actions& actions) {
    const auto* send = find<SendClc>(actions);
    REQUIRE(send != nullptr);
    return send->message;
}

Reason declined(const Actions& actions) {
    return std::get<clc::Decline>(clc::decode_decline(sent(actions).view())).reason;
}

template <class T>
Reason reason(const Actions& actions) {
    const auto* with = find<T>(actions);
    REQUIRE(with != nullptr);
    return with->reason;
}

// Why it runs on TCP; nothing: it does not.
std::optional<Reason> on_tcp(const Actions& actions) {
    return are<RunOnTcp>(actions) ? std::optional(find<RunOnTcp>(actions)->outcome.reason) : std::nullopt;
}

// Why a client's application is left to TCP, behind what was learnt of the server; nothing: it is not.
template <class... Before>
std::optional<Reason> let_go(const Actions& actions) {
    return are<Before..., ResetClc, LeaveToTcp>(actions) ? std::optional(find<LeaveToTcp>(actions)->outcome.reason)
                                                         : std::nullopt;
}

RememberServer::As learnt(const Actions& actions) {
    const auto* found = find<RememberServer>(actions);
    REQUIRE(found != nullptr);
    return found->as;
}

// A client whose Proposal was sent, and a server that was just accepted from.
struct Pair {
    group::SmcdGroups client_groups, server_groups;
    Client client{kClient, client_groups};
    Server server;
    clc::Message proposal, accept, confirm{};

    // `native`: to each side its peer is one without an agent, which goes on on the same TCP connection when they fall
    // back.
    explicit Pair(const clc::LocalNode& server_node = kSmcdServer, bool native = true)
        : server(server_node, server_groups, {true, roce("10.0.0.2")}, {!native, !native}, kStart) {
        REQUIRE(are<Connect>(client.start(kStart + kBudget, true)));
        const auto option = native ? PeerOption::kPresent : PeerOption::kAgent;
        proposal = sent(client.connected(option, {true, roce("10.0.0.1")}, kStart));
    }
    // Up to the server's Accept. The application is connected before it.
    void accept_smcd() {
        CHECK(find<RegisterDmb>(server.clc_message(proposal.view(), kStart))->peer == kClient.ism[0].gid);
        REQUIRE(are<ConnectApplication>(server.dmb_registered({DmbToken{5}, BufferSize{4}}, kStart)));
        accept = sent(server.application_connected(kStart));
    }
    // Up to the client's own DMB; then its leg or a Decline.
    Actions prepare_smcd() {
        CHECK(find<AttachDmb>(client.clc_message(accept.view(), kStart))->peer.token == DmbToken{5});
        CHECK(find<RegisterDmb>(client.dmb_attached(kStart))->peer == kSmcdServer.ism[0].gid);
        return client.dmb_registered({DmbToken{6}, BufferSize{3}}, kStart);
    }
    // The client's connect() is about to end.
    void connect_by_smcd() {
        accept_smcd();
        REQUIRE(are<FinishConnect>(prepare_smcd()));
    }
    // It has.
    Actions agree_on_smcd() {
        connect_by_smcd();
        auto confirmed = client.leg_connected(kStart);
        confirm = sent(confirmed);
        return confirmed;
    }
    // Both ends of SMC-R are waiting for the link.
    void agree_on_smcr() {
        REQUIRE(are<ConnectApplication>(server.clc_message(proposal.view(), kStart)));
        const auto join = server.application_connected(kStart);
        REQUIRE(are<JoinGroup>(join));
        CHECK(find<JoinGroup>(join)->deadline < server.next_deadline());  // a Decline must still reach the client
        accept = sent(server.joined(rmbe("10.0.0.2"), kStart));
        CHECK(find<JoinGroup>(client.clc_message(accept.view(), kStart))->peer.link.qpn == Qpn{17});
        const auto confirmed = client.joined(rmbe("10.0.0.1"), kStart);
        REQUIRE(are<SendClc, AwaitLink>(confirmed));
        REQUIRE(are<AwaitLink>(server.clc_message(sent(confirmed).view(), kStart)));
    }
};

// What follows the Accept of a server whose group of SMC-R the client is in already.
Actions prepare_smcr_again(Pair& p) {
    REQUIRE(are<ConnectApplication>(p.server.clc_message(p.proposal.view(), kStart)));
    REQUIRE(are<JoinGroup>(p.server.application_connected(kStart)));
    auto own = rmbe("10.0.0.2");
    own.first_contact = false;
    REQUIRE(are<JoinGroup>(p.client.clc_message(sent(p.server.joined(own, kStart)).view(), kStart)));
    own = rmbe("10.0.0.1");
    own.first_contact = false;
    return p.client.joined(own, kStart);
}

// Whatever still happens.
template <class Side>
bool is_over(Side& side, const clc::Message& message) {
    const bool quiet = side.clc_message(message.view(), kStart).empty() && side.clc_fault(kFault, kStart).empty() &&
                       side.clc_closed(kStart).empty() && side.dmb_registered({}, kStart).empty() &&
                       side.dmb_attached(kStart).empty() && side.joined(rmbe("10.0.0.1"), kStart).empty() &&
                       side.link_ready(kStart).empty() &&
                       side.link_failed(Reason::kLinkDown, "", true, kStart).empty() &&
                       side.tick(kStart + 1h).empty() && side.next_deadline() == kNever && !side.listens();
    if constexpr (Side::kServer) {
        return quiet && side.application_connected(kStart).empty() && side.application_refused("", kStart).empty();
    } else {
        return quiet && side.connected(PeerOption::kPresent, {}, kStart).empty() &&
               side.connect_failed(ECONNRESET).empty() && side.leg_connected(kStart).empty() &&
               side.leg_failed(false, "").empty() && side.leg_failed(true, "").empty();
    }
}

}  // namespace

TEST_CASE("session__smcd_agreed_on_runs_once_on_each_side") {
    Pair p;
    const auto client = p.agree_on_smcd();
    CHECK(p.client_groups.all().size() == 1);  // from now on the server counts on it
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
    // A short connection may be over for one before the other has heard of its link.
    CHECK((p.client.clc_closed(kStart).empty() && p.server.clc_closed(kStart).empty()));
    CHECK_FALSE((p.client.listens() || p.server.listens()));
    CHECK(are<FinishConnect>(p.client.link_ready(kStart)));
    const auto client = p.client.leg_connected(kStart), server = p.server.link_ready(kStart);
    REQUIRE((are<RememberServer, Run>(client) && are<Run>(server)));
    CHECK((find<Run>(client)->outcome.kind == Kind::kSmcR && find<Run>(server)->outcome.kind == Kind::kSmcR));
}

// Between two agents the client connects its application behind the link: it may fail to, or be killed just then.
TEST_CASE("session__at_first_contact_the_servers_application_hears_of_a_client_that_is_connected") {
    Pair p(kSmcrServer, false), gone(kSmcrServer, false), quick(kSmcrServer, false), silent(kSmcrServer, false),
        talks(kSmcrServer, false), aborts(kSmcrServer, false);
    for (Pair* pair : {&p, &gone, &quick, &silent, &talks, &aborts}) {
        pair->agree_on_smcr();
        REQUIRE(are<AwaitClient>(pair->server.link_ready(kStart)));
        CHECK(pair->server.listens());  // whether it is still there
    }
    CHECK(are<Run>(p.server.client_spoke(false)));
    CHECK((p.server.client_spoke(false).empty() && p.server.tick(kStart + 1h).empty()));

    CHECK(gone.server.clc_closed(kStart).empty());
    CHECK(gone.server.next_deadline() < kStart + 1s);
    const auto refused = gone.server.tick(gone.server.next_deadline());
    REQUIRE(are<GiveBack, ResetClc, Refuse>(refused));
    CHECK(find<Refuse>(refused)->reason == Reason::kPeerClosed);
    CHECK(gone.server.client_spoke(false).empty());

    CHECK(quick.server.clc_closed(kStart).empty());
    CHECK(are<Run>(quick.server.client_spoke(false)));  // what it said came by another way

    // Once it is this side that was late.
    CHECK(silent.server.tick(silent.server.next_deadline() + 1h).empty());
    const auto late = silent.server.tick(silent.server.next_deadline() + 1h);
    REQUIRE(are<GiveBack, ResetClc, Refuse>(late));
    CHECK(find<Refuse>(late)->reason == Reason::kHandshakeTimeout);

    CHECK(are<GiveBack, ResetClc, Refuse>(aborts.server.client_spoke(true)));
    CHECK(are<GiveBack, ResetClc, Refuse>(talks.server.clc_message(talks.proposal.view(), kStart)));
}

// The server's application has a connection from the Confirm on.
TEST_CASE("session__where_no_link_is_to_be_made_the_leg_comes_before_the_confirm") {
    Pair p(kSmcrServer), gone(kSmcrServer), down(kSmcrServer), declined_late(kSmcrServer);
    REQUIRE(are<FinishConnect>(prepare_smcr_again(p)));
    const auto confirmed = p.client.leg_connected(kStart);
    REQUIRE(are<SendClc, AwaitLink>(confirmed));
    REQUIRE(are<AwaitLink>(p.server.clc_message(sent(confirmed).view(), kStart)));
    CHECK(are<RememberServer, Run>(p.client.link_ready(kStart)));
    CHECK(are<Run>(p.server.link_ready(kStart)));

    REQUIRE(are<FinishConnect>(prepare_smcr_again(gone)));
    CHECK(are<GiveBack, ResetClc, Refuse>(gone.client.leg_failed(true, "")));

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
    CHECK(are<SendClc, GiveBack, FinishConnect>(refused));  // it is no reason not to ask again
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
    late.agree_on_smcd();  // behind the Confirm there is no way back (C.3)
    REQUIRE(are<AttachDmb>(late.server.clc_message(late.confirm.view(), kStart)));
    CHECK(are<GiveBack, ResetClc, Refuse>(late.server.dmb_not_attached(Reason::kFabric, "", kStart)));
}

TEST_CASE("client_session__a_server_that_was_capable_and_is_not_leaves_tcp_alone") {
    using As = RememberServer::As;
    for (const auto& [option, why, answered, lesson] :
         {std::tuple(PeerOption::kAbsent, Reason::kPeerNoSmc, false, As::kUnknown),
          std::tuple(PeerOption::kAbsent, Reason::kPeerNoSmc, true, As::kPause),
          std::tuple(PeerOption::kEchoed, Reason::kPeerEchoes, false, As::kUnknown)}) {
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
        const auto failed = without_leg.client.leg_failed(false, "");
        CHECK(let_go<GiveBack, RememberServer>(failed) == Reason::kNoLeg);
        CHECK(learnt(failed) == RememberServer::As::kPause);
        leg_of(gone, smcr);
        const auto refused = gone.client.leg_failed(true, "");
        REQUIRE(are<GiveBack, ResetClc, Refuse>(refused));
        CHECK(reason<Refuse>(refused) == Reason::kApplicationGone);
        CHECK(find<GiveBack>(refused)->outcome.kind == (smcr ? Kind::kSmcR : Kind::kTerminate));
    }
}

// It has a connection already, which TCP knows nothing of.
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
    // A client with an agent hears why.
    Pair agents(kSmcdServer, false);
    REQUIRE(are<RegisterDmb>(agents.server.clc_message(agents.proposal.view(), kStart)));
    REQUIRE(are<ConnectApplication>(agents.server.dmb_registered({}, kStart)));
    const auto left = agents.server.application_refused("", kStart);
    CHECK(declined(left) == Reason::kServerRefused);
    REQUIRE(are<SendClc, GiveBack, LeaveToTcp>(left));
    const auto heard = agents.client.clc_message(sent(left).view(), kStart);
    REQUIRE(are<GiveBack, RememberServer>(heard));
    CHECK(learnt(heard) == RememberServer::As::kNotNow);
    CHECK(let_go<>(agents.client.clc_closed(kStart)) == Reason::kPeerDeclined);
    REQUIRE(find<SendClc>(tcp.server.clc_message(tcp.proposal.view(), kStart)) != nullptr);
    CHECK(are<ResetClc, Refuse>(tcp.server.application_refused("", kStart)));
    REQUIRE(find<SendClc>(late.server.clc_message(late.proposal.view(), kStart)) != nullptr);
    CHECK(late.server.tick(late.server.next_deadline() - 1ms).empty());
    CHECK(are<ResetClc, Refuse>(late.server.tick(late.server.next_deadline())));
}

// What stands behind that message was not carried out.
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
    REQUIRE(find<Refuse>(gone.client.leg_failed(true, "")) != nullptr);
    CHECK((is_over(refused.server, refused.proposal) && is_over(gone.client, decline)));
}

TEST_CASE("session__a_decline_of_smcr_leaves_smcd_as_it_was") {
    Pair p;  // with a group of SMC-D from before
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

// --- something on the way to the client takes the option out of answers ----------------------------------------------

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

        Pair with_agent(kSmcdServer, false);  // whose CLC socket refuses answers without the option
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

TEST_CASE("server_session__who_was_asked_for_by_a_question_is_the_application_itself") {
    group::SmcdGroups groups;
    Server server(kSmcdServer, groups, {true, std::nullopt}, {.has_agent = true, .answer_lost = true}, kStart);
    REQUIRE(are<ConnectApplication>(server.begin(kStart)));
    CHECK_FALSE(server.listens());
    CHECK(on_tcp(server.application_connected(kStart)) == Reason::kAnswerLost);
    Pair heard;
    CHECK(heard.server.begin(kStart).empty());
}
