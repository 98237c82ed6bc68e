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
constexpr std::size_t kLink = 1000, kBuffer = std::size_t{2} * 256 * 1024;  // an RMB, or as much to send from

template <class T>
long count(const Actions& actions) {
    return std::ranges::count_if(actions, [](const Action& action) { return std::holds_alternative<T>(action); });
}

// What a member was told.
template <class T>
std::optional<T> told(const Actions& actions, std::uint64_t member) {
    for (const Action& action : actions) {
        if (const auto* one = std::get_if<T>(&action); one != nullptr && one->member == MemberId{member}) {
            return *one;
        }
    }
    return std::nullopt;
}

struct Node {
    bool server;
    std::size_t memory = 100 * kBuffer;
    SmcrGroups groups{{.rmbes_per_rmb = 2, .link_bytes = kLink, .memory_limit = memory, .test_interval = 1h}};
    RoceGid gid = *RoceGid::parse(server ? "10.0.0.1" : "10.0.0.2");
    std::string pnet_id{};  // of the port that joins
    TimePoint now = kStart;
    bool devices_answer = true;
    bool neighbours_answer = true;  // to who asks for their address, to connect a queue pair
    bool has_second_link = true;
    Actions log{};
    std::map<std::pair<GroupId, std::uint8_t>, QpEnd> peers{};  // by group and link
    std::vector<SendMessage> sent{};
    std::uint32_t number = 0;  // of queue pairs and memory

    void on(Actions actions) {
        for (std::size_t i = 0; i < actions.size(); i++) {
            log.push_back(actions[i]);
            const Actions more = devices_answer ? answer(log.back()) : Actions{};
            actions.insert(actions.end(), more.begin(), more.end());
        }
    }
    Actions answer(const Action& asked) {
        if (const auto* create = std::get_if<CreateLink>(&asked)) {
            if (!has_second_link && create->link != llc::kFirstLink) {
                return groups.link_refused(create->group, create->link, Refusal::kOutOfMemory, "", now);
            }
            return groups.link_created(create->group, create->link, {create->port.gid, {}, Qpn{++number}}, {}, false,
                                       now);
        }
        if (const auto* buffer = std::get_if<RegisterBuffer>(&asked)) {
            return groups.buffer_registered(buffer->group, buffer->buffer, buffer->link, RKey{++number}, {}, now);
        }
        if (const auto* connect = std::get_if<ConnectLink>(&asked)) {
            peers[{connect->group, connect->link}] = connect->peer;
            return neighbours_answer ? groups.link_connected(connect->group, connect->link, now) : Actions{};
        }
        if (const auto* send = std::get_if<SendMessage>(&asked)) {
            sent.push_back(*send);
        }
        return {};
    }
    void join(std::uint64_t member, const clc::SmcrPeer& peer, TimePoint deadline = kNever) {
        const SmcrGroups::Join join{
            MemberId{member}, peer, {"device", 1, gid, 2, {}, pnet_id}, deadline, AlertToken{7}};
        on(server ? groups.join_as_server(join, now) : groups.join_as_client(join, now));
    }
    void await(std::uint64_t member, const clc::SmcrPeer& peer) { on(groups.await_link(MemberId{member}, peer, now)); }
    void leave(std::uint64_t member, SmcrGroups::Leaving how = {}) { on(groups.leave(MemberId{member}, how, now)); }
    void tick(TimePoint at) {
        const bool early = at < groups.next_deadline();
        Actions actions = groups.tick(now = at);
        CHECK((!early || actions.empty()));  // nothing happens before the deadline that was told
        on(std::move(actions));
    }
    const SmcrGroup& group(std::uint64_t member) const { return *groups.group_of(MemberId{member}); }
};

struct Pair {
    Node server{.server = true}, client{.server = false};
    std::uint8_t limit = 255;    // connections of a link group
    std::uint8_t max_links = 1;  // likewise

    [[nodiscard]] clc::SmcrPeer proposal(const char* gid = "10.0.0.2") const {
        clc::SmcrPeer peer;
        peer.link.gid = *RoceGid::parse(gid);
        peer.max_connections = limit;
        peer.max_links = max_links;
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
                for (const SmcrGroup* group : to.groups.all()) {
                    for (const auto& [number, link] : std::map(group->links().all())) {
                        if (link.own.is(from.peers[{message.group, message.link}])) {
                            to.on(to.groups.message(group->id(), number, message.bytes, to.now));
                        }
                    }
                }
            }
        }
    }
    // A first contact with a peer of its own, up to its queue pair.
    void contact(std::uint64_t member) {
        clc::SmcrPeer peer = proposal(("10.0.1." + std::to_string(member)).c_str());
        server.join(member, peer);
        peer.rmbe.rkey = RKey{static_cast<std::uint32_t>(member)};
        peer.first_contact = true;
        server.await(member, peer);
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
        const Joined accept = told<Joined>(server.log, member).value();
        client.join(member, end_of(accept));
        talk();
        const Joined own = told<Joined>(client.log, member).value();
        client.await(member, end_of(accept));
        server.await(member, end_of(own));
        talk();
        for (Node* node : {&server, &client}) {
            REQUIRE(told<LinkReady>(node->log, member));
            node->groups.running(MemberId{member});
        }
        // The Confirm names the link that the Accept has named.
        CHECK(server.group(member).links().with_peer(own.local.link) == accept.assignment.link);
        return accept;
    }
};

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
    REQUIRE(server.log.size() == 2);  // nothing of LLC: CLC tells of this RMB (G2)
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
    p.server.join(4, p.proposal("10.0.0.9"));  // another peer waits for nobody
    CHECK((count<CreateLink>(p.server.log) == 2 && count<Joined>(p.server.log) == 2));
    CHECK((told<Joined>(p.server.log, 1) && told<Joined>(p.server.log, 4)));
    p.server.log.clear();
    p.server.on(p.server.groups.link_refused(p.server.group(1).id(), 1, Refusal::kUnreachable, "", kStart));
    // The first one fails: the second has a first contact of its own, and the third waits for it.
    CHECK((count<CreateLink>(p.server.log) == 1 && count<Joined>(p.server.log) == 1));
    CHECK(p.confirm(2).local.first_contact);
    CHECK_FALSE(told<Joined>(p.server.log, 3).value().local.first_contact);
    CHECK(&p.server.group(2) == &p.server.group(3));
}

// Each takes a thread for a second, until the kernel gives its neighbour up.
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

// The kernel goes on asking for the neighbour of one who has left.
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

// Nobody knows whether it writes into them some day.
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

TEST_CASE("smcr_groups__what_one_side_does_not_know_of_is_no_group_for_the_other") {
    Pair p;
    clc::SmcrPeer other = p.end_of(p.connect(1));
    other.first_contact = false;
    other.link.qpn = Qpn{99};
    p.client.join(2, other);  // one that has gone meanwhile, perhaps: no reason to end the others (C.4)
    CHECK(told<JoinRefused>(p.client.log, 2).value().refusal == Refusal::kBusy);
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
    // The peer says that it has it no more (A.2.5, C.4). What runs there goes on until that shows.
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
    p.server.sent.clear();  // nobody is there
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

    // Where only the client tells them apart, the server offers the link that there is.
    Pair q;
    q.client.pnet_id = "RACK1";
    q.connect(1);
    q.client.pnet_id = "RACK2";
    q.server.log.clear();
    q.server.join(2, q.proposal());
    q.talk();
    q.client.join(2, q.end_of(told<Joined>(q.server.log, 2).value()));
    CHECK(told<JoinRefused>(q.client.log, 2).value().refusal == Refusal::kBusy);
    CHECK(q.client.group(1).active());
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

    // A server has a group for each.
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
    CHECK(rejected.server.groups.registered() == kLink + 2 * kBuffer);  // what would be sent from went, too
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
           find<GroupOver>(p.server.log)->connections == 1));  // the other one never ran
    CHECK((told<JoinRefused>(p.server.log, 3).value().refusal == Refusal::kGroupOver &&
           !told<LinkFailed>(p.server.log, 2)));
    p.server.await(2, p.end_of(joined));
    p.server.await(2, p.end_of(joined));
    p.server.on(p.server.groups.link_down(joined.group, 1, "again", kStart));
    CHECK_FALSE(told<LinkFailed>(p.server.log, 2).value().may_decline);
    CHECK((count<LinkFailed>(p.server.log) == 1 && count<JoinRefused>(p.server.log) == 1));
    // G3: nobody joins it, and it goes with its last member.
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
    p.server.leave(3);  // it never ran, and the peer's may
    CHECK((count<ForgetToken>(p.server.log) == 0 && count<LingerToken>(p.server.log) == 1));
    const auto gone = std::get<cdc::Message>(cdc::decode(find<SendMessage>(p.server.log)->bytes));
    CHECK((gone.token == AlertToken{0xcc} && gone.state == cdc::kAbnormalClose && gone.sequence == 1));
    p.server.join(4, p.proposal());
    CHECK((count<RegisterBuffer>(p.server.log) == 1 && count<Joined>(p.server.log) == 0));  // its RMBE is not free
}

// Its leg did not come: the Confirm was not sent, so nobody will write there, nor ever say that he is done.
TEST_CASE("smcr_groups__an_rmbe_that_no_confirm_has_named_is_free_at_once") {
    Pair p;
    p.connect(1);
    p.server.join(2, p.proposal());
    p.client.join(2, p.end_of(told<Joined>(p.server.log, 2).value()));
    const auto first = told<Joined>(p.client.log, 2).value();
    p.client.log.clear();
    p.client.leave(2);
    CHECK((count<ForgetToken>(p.client.log) == 1 && count<LingerToken>(p.client.log) == 0));
    CHECK(count<SendMessage>(p.client.log) == 1);  // the server counts on it, from its Accept on
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
        node->tick(kStart + 1000s);  // somebody is there
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

// RFC 7609 C.2: whose CONFIRM LINK was not heard may still decline.
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
    const Joined second = p.connect(2);  // another element: nobody ends
    CHECK((count<EndConnection>(p.server.log) == 0 && count<EndConnection>(p.client.log) == 0));
    // The server gives the client the RMBE of the first one, and the other way round.
    p.server.leave(2);
    p.client.leave(2);
    clc::SmcrPeer again = p.end_of(first);
    again.first_contact = false;
    p.client.log.clear();
    p.client.join(3, again);
    p.talk();  // its own RMBE is in another RMB
    REQUIRE(find<EndConnection>(p.client.log) != nullptr);
    CHECK(find<EndConnection>(p.client.log)->token == client_assignment.token);
    CHECK(told<Joined>(p.client.log, 3));  // and it goes on (section 4.4.2)
    p.client.join(4, again);
    CHECK(count<EndConnection>(p.client.log) == 2);  // whoever has it now

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

TEST_CASE("smcr_groups__memory_for_half_an_assignment_is_not_taken") {
    Pair p{.server = {.server = true, .memory = kLink + 3 * kBuffer}};
    p.connect(1);
    p.connect(2);
    p.server.join(3, p.proposal());
    CHECK(p.server.groups.registered() == kLink + 2 * kBuffer);
}

// --- two links ------------------------------------------------------------------------------------------------------

namespace {

LocalPort port(const char* device, const char* gid) {
    return {device, 1, *RoceGid::parse(gid), 2, {}};
}

// A server and a client with two ports each, or with one.
struct Ports : Pair {
    explicit Ports(bool server_has_two = true, bool client_has_two = true) {
        max_links = 2;
        tell(server, server_has_two, "10.0.0.1", "10.0.1.1");
        tell(client, client_has_two, "10.0.0.2", "10.0.1.2");
    }
    static void tell(Node& node, bool two, const char* first, const char* second) {
        std::vector<LocalPort> ports{port("device", first)};
        if (two) {
            ports.push_back(port("other", second));
        }
        node.on(node.groups.set_ports(std::move(ports), {}, node.now));
    }
    [[nodiscard]] std::pair<GroupType, GroupType> types(std::uint64_t member = 1) const {
        return {server.group(member).links().type(), client.group(member).links().type()};
    }
};

}  // namespace

// RFC 7609 section 2.2.1.
TEST_CASE("smcr_groups__a_first_contact_makes_the_best_group_that_the_ports_allow") {
    using enum GroupType;
    for (const auto& [server_two, client_two, expected] :
         {std::tuple(true, true, std::pair(kSymmetric, kSymmetric)),
          std::tuple(true, false, std::pair(kAsymmetricPeer, kAsymmetricLocal)),
          std::tuple(false, true, std::pair(kAsymmetricLocal, kAsymmetricPeer)),
          std::tuple(false, false, std::pair(kSingle, kSingle))}) {
        Ports p(server_two, client_two);
        p.connect(1);
        CHECK(p.types() == expected);
        CHECK(p.server.groups.registered() == p.client.groups.registered());
    }
}

TEST_CASE("smcr_groups__a_port_of_another_physical_network_is_no_second_path") {
    Ports p(false, false);
    for (Node* node : {&p.server, &p.client}) {
        const bool server = node == &p.server;
        LocalPort other = port("other", server ? "10.0.1.1" : "10.0.1.2");
        other.pnet_id = "RACK1";
        node->on(node->groups.set_ports({port("device", server ? "10.0.0.1" : "10.0.0.2"), other}, {}, node->now));
    }
    p.connect(1);
    CHECK(p.types() == std::pair(GroupType::kSingle, GroupType::kSingle));
}

TEST_CASE("smcr_groups__a_port_that_comes_makes_an_asymmetric_group_symmetric_and_its_link_goes") {
    const bool at_server = GENERATE(true, false);
    Ports p(!at_server, at_server);
    p.connect(1);
    REQUIRE(p.types().first != GroupType::kSymmetric);
    Ports::tell(at_server ? p.server : p.client, true, at_server ? "10.0.0.1" : "10.0.0.2",
                at_server ? "10.0.1.1" : "10.0.1.2");
    p.talk();
    for (int i = 0; i < 4 && p.types().first != GroupType::kSymmetric; i++) {  // what was under way is over soon
        p.server.tick(p.server.groups.next_deadline());
        p.client.now = p.server.now;
        p.talk();
    }
    CHECK(p.types() == std::pair(GroupType::kSymmetric, GroupType::kSymmetric));
    for (const Node* node : {&p.server, &p.client}) {
        CHECK(node->group(1).links().all().size() == 2);
        CHECK(node->groups.registered() == 2 * kLink + 2 * kBuffer);
    }
}

TEST_CASE("smcr_groups__a_client_confirms_with_the_link_that_the_server_has_named") {
    Ports p;
    p.connect(1);
    p.connect(2);
    p.server.leave(2);  // the client has not heard of it, and counts two links that are used alike
    CHECK(p.connect(3).assignment.link == 2);
    CHECK(p.client.groups.assignment_of(MemberId{3})->link == 2);
}

TEST_CASE("smcr_groups__a_port_that_is_down_takes_its_link_with_it_unless_that_is_the_only_one") {
    const bool at_server = GENERATE(true, false);
    Ports p;
    p.connect(1);
    Node& node = at_server ? p.server : p.client;
    const LocalPort first = port("device", at_server ? "10.0.0.1" : "10.0.0.2");
    const LocalPort second = port("other", at_server ? "10.0.1.1" : "10.0.1.2");
    node.on(node.groups.set_ports({first}, {}, node.now));  // the other one has no address for a moment
    p.talk();
    CHECK(p.types() == std::pair(GroupType::kSymmetric, GroupType::kSymmetric));
    node.on(node.groups.set_ports({first}, {second}, node.now));
    p.talk();
    for (const Node* side : {&p.server, &p.client}) {
        REQUIRE(side->group(1).links().up().size() == 1);
        const std::uint8_t left = side->group(1).links().up().front();
        CHECK(side->group(1).links().find(left)->port.device == "device");
        CHECK(count<GroupOver>(side->log) == 0);
    }
    const auto left = node.group(1).links().up();
    node.on(node.groups.set_ports({}, {first, second}, node.now));
    p.talk();
    const auto still = node.group(1).links().up();  // there may be an asymmetric one, too
    CHECK(std::ranges::includes(still, left));
    CHECK(count<GroupOver>(node.log) == 0);
}

TEST_CASE("smcr_groups__connections_are_spread_and_survive_a_link_and_new_ones_join_what_is_left") {
    Ports p;
    p.connect(1);
    p.connect(2);
    CHECK(p.server.groups.assignment_of(MemberId{1})->link != p.server.groups.assignment_of(MemberId{2})->link);
    const GroupId id = p.server.group(1).id();
    p.server.log.clear();
    p.client.log.clear();
    p.server.on(p.server.groups.link_down(id, 1, "port down", kStart));
    p.talk();
    for (const Node* node : {&p.server, &p.client}) {
        CHECK((count<EndLink>(node->log) == 1 && count<GroupOver>(node->log) == 0));
        CHECK(node->group(1).links().up() == std::vector<std::uint8_t>{2});
        CHECK(node->groups.registered() == kLink + 2 * kBuffer);
    }
    p.server.leave(2);
    p.client.leave(2);
    CHECK_FALSE(p.connect(3).local.first_contact);
    CHECK(&p.server.group(3) == &p.server.group(1));
    p.server.on(p.server.groups.link_down(id, 2, "port down", kStart));
    CHECK(count<GroupOver>(p.server.log) == 1);
}

// The application has its connection by then: it would be reset.
TEST_CASE("smcr_groups__a_confirm_that_names_a_link_that_has_gone_meanwhile_is_good_for_another_link") {
    Ports p;
    const Joined first = p.connect(1);
    p.server.log.clear();
    p.client.log.clear();
    p.server.join(2, p.proposal());
    const Joined accept = told<Joined>(p.server.log, 2).value();
    p.client.join(2, p.end_of(accept));
    const Joined own = told<Joined>(p.client.log, 2).value();
    const std::uint8_t named = p.client.groups.assignment_of(MemberId{2})->link;
    p.client.await(2, p.end_of(accept));
    p.server.on(p.server.groups.link_down(first.group, named, "its port is down", kStart));
    p.talk();
    CHECK(p.server.group(1).links().with_peer(own.local.link) == std::nullopt);
    p.server.await(2, p.end_of(own));
    CHECK_FALSE(told<LinkFailed>(p.server.log, 2));
    CHECK(told<LinkReady>(p.server.log, 2));

    // One that never was is still none.
    p.server.join(3, p.proposal());
    p.talk();
    REQUIRE(told<Joined>(p.server.log, 3));
    clc::SmcrPeer invented = p.end_of(own);
    invented.link.qpn = Qpn{9999};
    p.server.await(3, invented);
    CHECK(told<LinkFailed>(p.server.log, 3).value().reason == Reason::kProtocolError);
}

// A device may take seconds to end a queue pair.
TEST_CASE("smcr_groups__memory_of_what_ends_counts_until_it_is_given_back") {
    Pair p;
    const std::size_t one = kLink + 2 * kBuffer;
    const auto first = p.connect(1);
    CHECK(p.server.groups.registered() == one);
    p.server.on(p.server.groups.link_down(first.group, 1, "gone", kStart));
    p.server.leave(1);
    CHECK(p.server.groups.registered() == 0);
    p.server.groups.set_in_use(p.server.memory - one + 1);
    CHECK(p.server.groups.registered() == p.server.memory - one + 1);
    p.contact(2);
    CHECK(told<JoinRefused>(p.server.log, 2).value().refusal == Refusal::kOutOfMemory);
    p.server.groups.set_in_use(p.server.memory - one);
    p.contact(3);
    CHECK(told<Joined>(p.server.log, 3));
    CHECK(p.server.groups.registered() == p.server.memory);
    p.server.groups.set_in_use(one / 2);  // fewer than the groups have: they are still being registered
    CHECK(p.server.groups.registered() == one);
}

// Each attempt costs a queue pair, and the registration of all memory.
TEST_CASE("smcr_groups__a_peer_that_wishes_for_a_link_again_and_again_has_one_attempt_a_second") {
    Ports p;
    p.client.has_second_link = false;
    const Joined first = p.connect(1);
    REQUIRE(p.types() == std::pair(GroupType::kSingle, GroupType::kSingle));
    llc::RequestAddLink wish;
    for (const char* gid : {"10.0.0.2", "10.0.1.2"}) {
        wish.gid_list.push_back(*RoceGid::parse(gid));
    }
    const auto attempts = [&](int wishes) {
        p.server.log.clear();
        for (int i = 0; i < wishes; i++) {
            p.server.on(p.server.groups.message(first.group, llc::kFirstLink, encode(wish).view(), p.server.now));
            if (p.server.groups.next_deadline() <= p.server.now) {
                p.server.tick(p.server.now);
            }
            p.talk();
        }
        return count<CreateLink>(p.server.log);
    };
    CHECK(attempts(10) == 0);  // the first contact's own attempt has just been
    p.server.now += 1s;
    p.client.now = p.server.now;
    CHECK(attempts(10) == 1);
}

// C.8: it must try again, in case that what the client lacked was there for a moment only.
TEST_CASE("smcr_groups__a_second_link_that_the_client_has_refused_is_tried_again_later_and_later") {
    Ports p;
    p.client.has_second_link = false;
    p.connect(1);
    REQUIRE(p.types() == std::pair(GroupType::kSingle, GroupType::kSingle));
    std::vector<std::chrono::seconds> waits;
    for (TimePoint before = p.server.now; waits.size() < 7; before = p.server.now) {
        p.server.log.clear();
        while (count<CreateLink>(p.server.log) == 0) {
            p.server.tick(p.server.groups.next_deadline());
            p.client.now = p.server.now;
        }
        p.talk();
        waits.push_back(std::chrono::duration_cast<std::chrono::seconds>(p.server.now - before));
    }
    CHECK(waits == std::vector<std::chrono::seconds>{30s, 60s, 120s, 240s, 480s, 480s, 480s});
    p.client.has_second_link = true;
    p.server.tick(p.server.groups.next_deadline());
    p.talk();
    CHECK(p.types() == std::pair(GroupType::kSymmetric, GroupType::kSymmetric));
}
