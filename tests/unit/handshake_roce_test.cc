// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// CLC for SMC-R in both roles, against SMC v2.1 and RFC 7609 section 3.5.
#include "handshake_roce.h"

using namespace smc;
using namespace smc::clc;
using namespace smc::test::clc_smcr;

TEST_CASE("smcr_handshake__first_contact_in_both_roles") {
    Agreed a(true);
    const auto accept = smcr(a.accept, Type::kAccept);
    REQUIRE(accept.fce);
    CHECK(
        (accept.first_contact && accept.rc_saved && accept.fce->max_connections == 255 && accept.fce->max_links == 2));
    CHECK((accept.fce->link_type == LinkType::kDirect && accept.eid == *Eid::parse("COMMON")));
    const auto confirm = smcr(a.confirm, Type::kConfirm);
    REQUIRE(confirm.fce);
    CHECK((confirm.first_contact && confirm.fce->max_connections == 255 && confirm.fce->host_name.text() == "host"));
    REQUIRE(confirm.gid_list.size() == 2);  // the port in use comes first
    CHECK(confirm.gid_list[0] == *RoceGid::parse("10.0.0.1"));
    const auto link = a.server.message(bytes(a.confirm), kStart);
    REQUIRE(find<AwaitLink>(link) != nullptr);
    CHECK((find<AwaitLink>(link)->peer.id == kClient.peer_id && find<AwaitLink>(link)->peer.host_name == "host"));
    CHECK(find<Finish>(a.server.link_ready())->outcome.kind == Outcome::Kind::kSmcR);
    CHECK(find<Finish>(a.client.link_ready())->outcome.kind == Outcome::Kind::kSmcR);
    CHECK(a.client.link_ready().empty());  // H4
}

TEST_CASE("smcr_handshake__subsequent_contact_has_no_extension") {
    Agreed a(false);
    CHECK_FALSE(smcr(a.accept, Type::kAccept).fce);
    CHECK((!smcr(a.confirm, Type::kConfirm).fce && smcr(a.confirm, Type::kConfirm).gid_list.empty()));
    CHECK(find<AwaitLink>(a.server.message(bytes(a.confirm), kStart)) != nullptr);
}

TEST_CASE("smcr_handshake__version_1_within_a_subnet") {
    RoceOffer c = of_client(), s = of_server();
    c.v1 = s.v1 = true;
    c.v2 = s.v2 = false;
    Agreed a(true, c, s);
    CHECK(bytes(a.accept).size() == 68);
    CHECK(bytes(a.confirm).size() == 68);
    CHECK(find<AwaitLink>(a.server.message(bytes(a.confirm), kStart)) != nullptr);

    const auto answer = [&](RoceOffer client, RoceOffer server) {
        ClientHandshake x(kClient, {true, client});
        ServerHandshake y(kServer, {true, server}, kStart);
        return decline(y.message(bytes(x.start(kStart)), kStart)).reason;
    };
    RoceOffer far = c;
    far.prefix_bits = 16;
    CHECK(answer(far, s) == Reason::kSubnetMismatch);  // another mask is another subnet
    RoceOffer away = s;
    away.peer_address = *RoceGid::parse("10.0.1.1");
    CHECK(answer(c, away) == Reason::kSubnetMismatch);
    // Behind a router that translates the client's address: both ends of the TCP connection look like one subnet.
    RoceOffer translated = c;
    translated.own_address = *RoceGid::parse("192.168.1.7");
    CHECK(answer(translated, s) == Reason::kSubnetMismatch);
    away = s;
    away.v1 = false;
    CHECK(answer(c, away) == Reason::kVersionMismatch);
    // A client that sends its mask, as A.2.2 calls the field.
    ClientHandshake masked(kClient, {true, c});
    Proposal with_mask = std::get<Proposal>(decode_proposal(bytes(masked.start(kStart))));
    with_mask.subnet->mask = Ipv4Mask{UINT32_MAX << (32 - c.prefix_bits)};
    ServerHandshake asked(kServer, {true, s}, kStart);
    CHECK(find<PrepareRmbe>(asked.message(encode(with_mask).view(), kStart)) != nullptr);
    // The mask field carries the number of the subnet, not its mask, because Linux compares that.
    RoceOffer odd = c;
    odd.own_address = *RoceGid::parse("10.20.30.40");
    odd.prefix_bits = 20;
    ClientHandshake numbered(kClient, {true, odd});
    const auto subnet = *std::get<Proposal>(decode_proposal(bytes(numbered.start(kStart)))).subnet;
    CHECK((text(subnet.mask) == "10.20.16.0" && subnet.mask_bits == 20));
    // A device that has RoCEv1 is offered with it: both versions in one Proposal, each with its own GID.
    RoceOffer both = c;
    both.v2 = true;
    both.v1_gid = *RoceGid::parse("fe80::1");
    ClientHandshake two(kClient, {true, both});
    const auto of_both = std::get<Proposal>(decode_proposal(bytes(two.start(kStart))));
    CHECK(of_both.v1_gid == both.v1_gid);
    CHECK(of_both.v2->roce_gid == both.gids.front());
    // IPv6: the listed prefixes are compared
    RoceOffer c6 = c, s6 = s;
    c6.own_address = *RoceGid::parse("fd00::1");
    s6.own_address = *RoceGid::parse("fd00::2");
    c6.prefix_bits = s6.prefix_bits = 64;
    c6.own_address.bytes[8] = 0x12;
    ClientHandshake client(kClient, {true, c6});
    const auto p = std::get<Proposal>(decode_proposal(bytes(client.start(kStart))));
    CHECK(p.subnet->prefixes[0] == Ipv6Prefix{*RoceGid::parse("fd00::"), 64});  // without the host's bits
    Agreed b(true, c6, s6);
    s6.own_address = *RoceGid::parse("fd01::2");
    CHECK(answer(c6, s6) == Reason::kSubnetMismatch);
    // An interface may have several prefixes: one that both ends share is enough.
    RoceOffer also = s6;
    also.other_addresses = {{*RoceGid::parse("fd02::2"), 64}, {*RoceGid::parse("fd00::2"), 64}};
    Agreed c_in_one(true, c6, also);
    c6.other_addresses = {{*RoceGid::parse("fd00::7"), 64}, {*RoceGid::parse("fd01::1"), 48}};
    Agreed s_in_one(true, c6, s6);
    for (std::uint8_t i = 0; i < 20; i++) {
        c6.other_addresses.push_back({*RoceGid::parse("fd03::1"), static_cast<std::uint8_t>(64 - i)});
    }
    ClientHandshake many(kClient, {true, c6});
    const auto listed = *std::get<Proposal>(decode_proposal(bytes(many.start(kStart)))).subnet;
    REQUIRE(listed.prefixes.size() == 8);
    CHECK(listed.prefixes[0] == Ipv6Prefix{*RoceGid::parse("fd00::"), 64});  // once
    CHECK(listed.prefixes[1] == Ipv6Prefix{*RoceGid::parse("fd01::"), 48});
}

TEST_CASE("smcr_handshake__without_smcd_nothing_of_it_is_offered_or_taken") {
    ClientHandshake client(kClient, {false, of_client()});
    const auto proposal = std::get<Proposal>(decode_proposal(bytes(client.start(kStart))));
    CHECK(proposal.v2_offer == Offer::kSmcR);
    CHECK_FALSE(proposal.v2->smcd);
    AcceptD unasked;
    unasked.gid = first_part(kServer.ism[0].gid);
    unasked.gid_part2 = second_part(kServer.ism[0].gid);
    unasked.chid = kClient.ism[0].chid;
    unasked.eid = kClient.ueids.front();
    const auto answer = client.message(encode(unasked).view());
    CHECK(find<AttachDmb>(answer) == nullptr);
    CHECK(find<Finish>(answer)->outcome.kind == Outcome::Kind::kTerminate);

    // A server that may not use SMC-D takes SMC-R, or says that it has no device.
    ClientHandshake both(kClient, {true, of_client()});
    const auto offered = both.start(kStart);
    ServerHandshake server(kServer, {false, of_server()}, kStart);
    CHECK(find<PrepareRmbe>(server.message(bytes(offered), kStart)) != nullptr);
    ServerHandshake neither(kServer, {false, std::nullopt}, kStart);
    CHECK(decline(neither.message(bytes(offered), kStart)).smcd_v2 == Reason::kNoSmcdV2Device);
}

TEST_CASE("smcr_handshake__the_server_takes_the_first_type_that_works") {
    // SMC-D, SMC-R version 2 and version 1 are offered; one after the other fails.
    LocalNode server_node = kServer;
    server_node.ism[0].chid = kClient.ism[0].chid;
    RoceOffer c = of_client(), s = of_server();
    c.v1 = s.v1 = true;
    ClientHandshake client(kClient, {true, c});
    ServerHandshake server(server_node, {true, s}, kStart);
    REQUIRE(find<CreateDmb>(server.message(bytes(client.start(kStart)), kStart)) != nullptr);
    const auto second = server.prepare_failed(Reason::kNoSmcdV2Device, "unreachable");
    REQUIRE(find<PrepareRmbe>(second) != nullptr);
    CHECK(find<PrepareRmbe>(second)->peer.version == 2);
    const auto third = server.prepare_failed(Reason::kOutOfMemory, "no RMBE");
    REQUIRE(find<PrepareRmbe>(third) != nullptr);
    CHECK(find<PrepareRmbe>(third)->peer.version == 1);
    const auto none = server.prepare_failed(Reason::kNoSmcrDevice, "gone");
    const auto d = decline(none);
    CHECK((d.smcd_v2 == Reason::kNoSmcdV2Device && d.smcr_v2 == Reason::kOutOfMemory &&
           d.smcr_v1 == Reason::kNoSmcrDevice));
    CHECK(d.reason == Reason::kNoSmcrDevice);  // of the type that was tried last
    CHECK(find<Finish>(none)->outcome.kind == Outcome::Kind::kFallBack);
}

TEST_CASE("smcr_handshake__what_a_proposal_lacks_is_told") {
    const auto answer = [](auto edit, std::optional<RoceOffer> s) {
        ClientHandshake client(kClient, {true, of_client()});
        auto p = std::get<Proposal>(decode_proposal(bytes(client.start(kStart))));
        edit(p);
        ServerHandshake server(kServer, {true, s}, kStart);
        return decline(server.message(encode(p).view(), kStart)).smcr_v2;
    };
    const auto nothing = [](Proposal&) {};
    CHECK(answer(nothing, std::nullopt) == Reason::kNoSmcrDevice);
    CHECK(answer(nothing, offer("fd00::2", "fd00::1")) == Reason::kNoSmcrDevice);  // the other family
    CHECK(answer([](Proposal& p) { p.v2->roce_gid = {}; }, of_server()) == Reason::kNoSmcrDevice);
    CHECK(answer([](Proposal& p) { p.v2->eids = {*Eid::parse("STRANGER")}; }, of_server()) == Reason::kNoUeid);
}

// Between Accept and Confirm the client may have to confirm an RKey, after other LLC exchanges of its link group.
TEST_CASE("smcr_handshake__a_confirm_has_the_time_of_llc_in_front_of_it") {
    ClientHandshake client(kClient, {true, of_client()});
    ServerHandshake server(kServer, {true, of_server()}, kStart);
    (void)server.message(bytes(client.start(kStart)), kStart);
    (void)server.application_ready(kStart);
    REQUIRE(find<Send>(server.rmbe_ready(rmbe("10.0.0.2", false), kStart)) != nullptr);
    CHECK(server.tick(kStart + 2 * kServer.step_timeout - std::chrono::milliseconds(1)).empty());
    const auto late = server.tick(kStart + 2 * kServer.step_timeout);
    CHECK(find<Finish>(late)->outcome.reason == Reason::kHandshakeTimeout);
}

TEST_CASE("smcr_handshake__the_server_lowers_the_maximum_and_the_confirm_repeats_it") {
    LocalNode few = kServer;
    few.max_connections = 16;
    ClientHandshake client(kClient, {true, of_client()});
    ServerHandshake server(few, {true, of_server()}, kStart);
    const auto prepare = server.message(bytes(client.start(kStart)), kStart);
    CHECK(find<PrepareRmbe>(prepare)->peer.max_connections == 16);
    (void)server.application_ready(kStart);
    const auto accept = server.rmbe_ready(rmbe("10.0.0.2", true), kStart);
    CHECK(find<PrepareRmbe>(client.message(bytes(accept)))->peer.max_connections == 16);
    const auto confirm = client.rmbe_ready(rmbe("10.0.0.1", true), kStart);
    auto changed = smcr(confirm, Type::kConfirm);
    changed.fce->max_connections = 17;
    const auto refused = server.message(encoded(changed).view(), kStart);
    CHECK(decline(refused).reason == Reason::kReleaseMismatch);
    CHECK(find<Finish>(refused)->outcome.kind == Outcome::Kind::kFallBack);
}

// v2.1, "Feature negotiation", items 5 and 9.
TEST_CASE("smcr_handshake__features_are_told_and_those_in_common_confirmed") {
    Agreed a(true);
    CHECK(smcr(a.accept, Type::kAccept).fce->features == kFeatureEmulatedIsm);
    auto confirm = smcr(a.confirm, Type::kConfirm);
    CHECK(confirm.fce->features == kFeatureEmulatedIsm);
    confirm.fce->features = 0;
    const auto refused = a.server.message(encoded(confirm).view(), kStart);
    CHECK((decline(refused).reason == Reason::kReleaseMismatch && !decline(refused).out_of_sync));
    CHECK(find<Finish>(refused)->outcome.kind == Outcome::Kind::kFallBack);
    // A client of an earlier release has no features, and confirms none.
    ClientHandshake client(kClient, {true, of_client()});
    auto p = std::get<Proposal>(decode_proposal(bytes(client.start(kStart))));
    p.v2->features = 0;
    ServerHandshake server(kServer, {true, of_server()}, kStart);
    (void)server.message(encode(p).view(), kStart);
    (void)server.application_ready(kStart);
    auto accept = smcr(server.rmbe_ready(rmbe("10.0.0.2", true), kStart), Type::kAccept);
    CHECK(accept.fce->features == kFeatureEmulatedIsm);
    accept.fce->features = 0x0100;  // a server with other features
    (void)client.message(encoded(accept).view());
    const auto none = client.rmbe_ready(rmbe("10.0.0.1", true), kStart);
    CHECK(smcr(none, Type::kConfirm).fce->features == 0);
    CHECK(find<AwaitLink>(server.message(bytes(none), kStart)) != nullptr);
}

// RFC 7609 C.6: a reserved value is declined, as long as a Decline is possible (C.2).
TEST_CASE("smcr_handshake__a_confirm_with_a_reserved_mtu_is_declined_on_first_contact") {
    RoceOffer c = of_client(), s = of_server();
    c.v1 = s.v1 = GENERATE(true, false);
    c.v2 = s.v2 = !c.v1;
    const bool first_contact = GENERATE(true, false);
    Agreed a(first_contact, c, s);
    auto confirm = smcr(a.confirm, Type::kConfirm);
    confirm.mtu = Mtu{9};
    const auto answer = a.server.message(encoded(confirm).view(), kStart);
    if (first_contact) {
        CHECK((decline(answer).version == (c.v1 ? 1 : 2) && bytes(answer).size() == (c.v1 ? 28 : 44)));
        CHECK(find<Finish>(answer)->outcome.kind == Outcome::Kind::kFallBack);
    } else {
        CHECK(find<AwaitLink>(answer) != nullptr);  // then the MTU is ignored
    }
}

TEST_CASE("smcr_handshake__before_release_1_there_may_be_two_links") {
    ClientHandshake client(kClient, {true, of_client()});
    auto p = std::get<Proposal>(decode_proposal(bytes(client.start(kStart))));
    p.v2->release = 0;
    ServerHandshake server(kServer, {true, of_server()}, kStart);
    const auto prepare = server.message(encode(p).view(), kStart);
    CHECK((find<PrepareRmbe>(prepare)->peer.release == 0 && find<PrepareRmbe>(prepare)->peer.max_links == 2));
    (void)server.application_ready(kStart);
    const auto accept = server.rmbe_ready(rmbe("10.0.0.2", true), kStart);
    CHECK((smcr(accept, Type::kAccept).fce->max_links == 0 && smcr(accept, Type::kAccept).fce->features == 0));
    CHECK(find<PrepareRmbe>(client.message(bytes(accept)))->peer.max_links == 2);
}

// v2.1, Proposal V2 extension, note 2.
TEST_CASE("smcr_handshake__without_a_ueid_smcr_version_2_is_not_offered") {
    LocalNode seid_only = kClient;
    seid_only.ueids.clear();
    seid_only.seid = Eid::parse("SYSTEM");
    ClientHandshake client(seid_only, {true, of_client()});
    const auto p = std::get<Proposal>(decode_proposal(bytes(client.start(kStart))));
    CHECK((p.v2_offer == Offer::kSmcD && p.v2->roce_gid.is_zero() && p.v2->max_connections == 0));
}

TEST_CASE("smcr_handshake__a_peer_without_id_in_its_proposal_is_known_by_its_confirm") {
    // As Linux sends it in version 2.
    ClientHandshake client(kClient, {true, of_client()});
    auto p = std::get<Proposal>(decode_proposal(bytes(client.start(kStart))));
    p.peer_id = {};
    ServerHandshake server(kServer, {true, of_server()}, kStart);
    REQUIRE(find<PrepareRmbe>(server.message(encode(p).view(), kStart)) != nullptr);
    (void)server.application_ready(kStart);
    REQUIRE(find<PrepareRmbe>(client.message(bytes(server.rmbe_ready(rmbe("10.0.0.2", true), kStart)))) != nullptr);
    const auto link = server.message(bytes(client.rmbe_ready(rmbe("10.0.0.1", true), kStart)), kStart);
    REQUIRE(find<AwaitLink>(link) != nullptr);
    CHECK(find<AwaitLink>(link)->peer.id == kClient.peer_id);
}

TEST_CASE("smcr_handshake__vendor_options_and_unknown_features_are_tolerated") {
    ClientHandshake client(kClient, {true, of_client()});
    auto p = std::get<Proposal>(decode_proposal(bytes(client.start(kStart))));
    p.vendor_oui = {1, 2, 3};
    p.vendor_options = {4, 5, 6, 7, 8};
    p.v2->features |= 0x0100;
    ServerHandshake server(kServer, {true, of_server()}, kStart);
    REQUIRE(find<PrepareRmbe>(server.message(encode(p).view(), kStart)) != nullptr);
    (void)server.application_ready(kStart);
    auto accept = smcr(server.rmbe_ready(rmbe("10.0.0.2", true), kStart), Type::kAccept);
    CHECK(accept.fce->vendor_options == decltype(accept.fce->vendor_options){});  // this side defines none
    accept.fce->vendor_options = {9, 9, 9, 9};
    REQUIRE(find<PrepareRmbe>(client.message(encoded(accept).view())) != nullptr);
    const auto confirm = smcr(client.rmbe_ready(rmbe("10.0.0.1", true), kStart), Type::kConfirm);
    CHECK(confirm.fce->vendor_options == decltype(confirm.fce->vendor_options){});
}
