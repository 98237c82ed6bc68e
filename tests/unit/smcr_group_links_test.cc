// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// SMC-R link groups with two links: the ports that they join, and when links are added and deleted (RFC 7609
// section 2.2).
#include "smcr_groups.h"

using namespace smc;
using namespace smc::group;
using namespace smc::test::groups;
using namespace std::chrono_literals;

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

TEST_CASE("smcr_groups__a_first_link_that_is_connected_when_its_group_is_over_changes_nothing") {
    Pair p;
    p.server.join(1, p.proposal());
    clc::SmcrPeer peer = p.proposal();
    peer.first_contact = true;
    p.server.devices_answer = false;
    p.server.await(1, peer);
    REQUIRE(count<ConnectLink>(p.server.log) == 1);
    const GroupId id = p.server.group(1).id();
    p.server.on(p.server.groups.device_gone("device", kStart));
    CHECK(told<LinkFailed>(p.server.log, 1));
    CHECK(p.server.groups.link_connected(id, llc::kFirstLink, kStart).empty());
    p.server.leave(1);
    CHECK(p.server.groups.all().empty());
}

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

TEST_CASE("smcr_groups__a_port_of_another_physical_network_or_vlan_is_no_second_path") {
    Ports p(false, false);
    const bool vlan = GENERATE(true, false);
    for (Node* node : {&p.server, &p.client}) {
        const bool server = node == &p.server;
        LocalPort other = port("other", server ? "10.0.1.1" : "10.0.1.2");
        other.pnet_id = vlan ? "" : "RACK1";
        other.vlan = vlan ? 100 : 0;
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
    for (int i = 0; i < 4 && p.types().first != GroupType::kSymmetric;
         i++) {  // exchanges that are under way are over soon
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

// Linux sends its reply to CONFIRM LINK before it uses the link, and is out of sync with a server that names it sooner.
TEST_CASE("smcr_groups__connections_begin_on_a_link_that_was_added_later_a_second_after_that") {
    Ports p(false, true);
    p.connect(1);
    Ports::tell(p.server, true, "10.0.0.1", "10.0.1.1");
    p.talk();
    for (int i = 0; i < 4 && p.types().first != GroupType::kSymmetric; i++) {
        p.server.tick(p.server.groups.next_deadline());
        p.client.now = p.server.now;
        p.talk();
    }
    REQUIRE(p.types().first == GroupType::kSymmetric);
    const TimePoint added = p.server.now;
    CHECK(p.connect(2).assignment.link == llc::kFirstLink);
    p.server.now = p.client.now = added + 999ms;
    CHECK(p.connect(3).assignment.link == llc::kFirstLink);
    p.server.now = p.client.now = added + 1s;
    CHECK(p.connect(4).assignment.link != llc::kFirstLink);
}

TEST_CASE("smcr_groups__a_client_confirms_with_the_link_that_the_server_has_named") {
    Ports p;
    p.connect(1);
    p.connect(2);
    p.server.leave(2);  // the client does not know, and counts as many connections on either link
    CHECK(p.connect(3).assignment.link == 2);
    CHECK(p.client.groups.assignment_of(MemberId{3})->link == 2);
}

// A Linux server has the RKey of the Confirm for the link that it has named: no other will do.
TEST_CASE("smcr_groups__a_client_refuses_if_the_link_that_the_server_has_named_goes_meanwhile") {
    Ports p;
    p.connect(1);
    p.connect(2);
    p.server.join(3, p.proposal());
    p.talk();
    const Joined accept = told<Joined>(p.server.log, 3).value();
    const GroupId group = p.client.group(1).id();
    p.client.devices_answer = false;  // the third connection needs another RMB
    p.client.join(3, p.end_of(accept));
    REQUIRE(!told<Joined>(p.client.log, 3));
    p.client.on(p.client.groups.link_down(group, accept.assignment.link, "port down", kStart));
    CHECK(told<JoinRefused>(p.client.log, 3).value().refusal == Refusal::kBusy);
    CHECK(p.client.group(1).links().up().size() == 1);
}

// The same until its Confirm leaves: a Linux server does not move the connection before.
TEST_CASE("smcr_groups__a_client_knows_if_the_link_that_the_server_has_named_has_gone") {
    Ports p;
    p.connect(1);
    p.connect(2);
    CHECK((p.client.groups.named_link_is_up(MemberId{1}) && p.server.groups.named_link_is_up(MemberId{1})));
    p.server.join(3, p.proposal());
    p.talk();
    const Joined accept = told<Joined>(p.server.log, 3).value();
    p.client.join(3, p.end_of(accept));
    p.talk();  // its RMBE is in another RMB
    REQUIRE(told<Joined>(p.client.log, 3));
    CHECK(p.client.groups.named_link_is_up(MemberId{3}));
    p.client.on(
        p.client.groups.link_down(p.client.group(1).id(), p.client.groups.peer_link_of(MemberId{3}), "down", kStart));
    CHECK_FALSE(p.client.groups.named_link_is_up(MemberId{3}));
}

TEST_CASE("smcr_groups__the_size_of_an_rmbe_is_known_when_the_link_of_its_connection_has_gone") {
    Ports p;
    p.connect(1);
    const Assignment assignment = *p.server.groups.assignment_of(MemberId{1});
    p.server.on(p.server.groups.link_down(p.server.group(1).id(), assignment.link, "port down", kStart));
    p.talk();
    REQUIRE(p.server.group(1).links().find(assignment.link) == nullptr);
    CHECK(p.server.group(1).rmbe_bytes(assignment) == 256 * 1024);
}

TEST_CASE("smcr_groups__the_link_type_of_a_second_link_is_asked_for_the_port_that_was_offered") {
    Ports p;
    p.connect(1);
    int asked = 0;
    for (const Action& action : p.client.log) {
        if (const auto* create = std::get_if<CreateLink>(&action)) {
            CHECK(create->peer_gid == *RoceGid::parse(create->link == llc::kFirstLink ? "10.0.0.1" : "10.0.1.1"));
            asked++;
        }
    }
    CHECK(asked == 2);
}

// SMC v2.1, Client RoCEv2 GID list, note 6.
TEST_CASE("smcr_groups__a_second_link_is_offered_to_the_clients_port_that_no_link_uses") {
    Ports p;
    p.server.join(1, p.proposal());
    const clc::SmcrPeer accept = p.end_of(told<Joined>(p.server.log, 1).value());
    p.client.join(1, accept);
    clc::SmcrPeer confirm = p.end_of(told<Joined>(p.client.log, 1).value());
    for (const char* gid : {"10.0.0.2", "10.0.1.2"}) {
        confirm.gids.push_back(*RoceGid::parse(gid));
    }
    p.client.await(1, accept);
    p.server.await(1, confirm);
    p.talk();
    int offers = 0;
    for (const Action& action : p.server.log) {
        const auto* send = std::get_if<SendMessage>(&action);
        if (send == nullptr) {
            continue;
        }
        const auto message = std::get<llc::AnyMessage>(llc::decode(send->bytes));
        if (const auto* offer = std::get_if<llc::AddLink>(&message)) {
            REQUIRE(offer->large);
            CHECK(offer->large->target_gid.normalised() == *RoceGid::parse("10.0.1.2"));
            offers++;
        }
    }
    CHECK(offers == 1);
}

TEST_CASE("smcr_groups__the_number_of_a_link_comes_again_when_all_are_used_up") {
    GroupLinks links;
    links.add(llc::kFirstLink, port("device", "10.0.0.1"));
    for (unsigned number = 2; number <= 255; number++) {
        REQUIRE(links.next_number() == number);
        links.add(static_cast<std::uint8_t>(number), port("other", "10.0.1.1"));
        links.erase(static_cast<std::uint8_t>(number));
    }
    CHECK(links.next_number() == 2);  // 1 is in use
}

// RFC 7609 section 3.5.1.3; SMC v2 does not ask for it.
TEST_CASE("smcr_groups__before_version_2_the_mac_address_tells_links_apart") {
    GroupLinks links;
    GroupLink& link = links.add(1, port("device", "10.0.0.1"));
    link.state = GroupLink::State::kUp;
    link.peer = {*RoceGid::parse("10.0.0.2"), Mac{{2, 0, 0, 0, 0, 2}}, Qpn{7}};
    QpEnd other = link.peer;
    other.mac = Mac{{2, 0, 0, 0, 0, 3}};
    CHECK(links.with_peer(other) == 1);
    link.port.version = 1;
    CHECK_FALSE(links.with_peer(other));
    CHECK(links.with_peer(link.peer) == 1);
}

TEST_CASE("smcr_groups__a_port_that_is_down_takes_its_link_with_it_unless_that_is_the_only_one") {
    const bool at_server = GENERATE(true, false);
    Ports p;
    p.connect(1);
    Node& node = at_server ? p.server : p.client;
    const LocalPort first = port("device", at_server ? "10.0.0.1" : "10.0.0.2");
    const LocalPort second = port("other", at_server ? "10.0.1.1" : "10.0.1.2");
    node.on(node.groups.set_ports({first}, {}, node.now));  // the other port has no address for a moment
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
    const auto still = node.group(1).links().up();  // there may be an asymmetric link, too
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

// The application is connected by then: otherwise its connection would be reset.
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

    // A link that never existed is still refused.
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
    p.server.groups.set_in_use(one / 2);  // less than the groups have: some of it is still being registered
    CHECK(p.server.groups.registered() == one);
}

// Each attempt costs a queue pair and the registration of all memory.
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

// C.8: the server must try again, because the client may have lacked a path for a moment only.
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
