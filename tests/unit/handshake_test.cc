// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "smc/clc/client_handshake.h"
#include "smc/clc/server_handshake.h"

#include <catch2/catch.hpp>

#include "actions.h"

using namespace smc;
using namespace smc::clc;

namespace {

const TimePoint kStart{};

LocalNode node(std::uint8_t id) {
    LocalNode n;
    n.ism = {{{}, Chid{0xff00}}};
    n.ism[0].gid.bytes.fill(id);
    n.ueids = {*Eid::parse("COMMON"), *Eid::parse("OTHER")};
    n.host_name = "host";
    n.step_timeout = std::chrono::milliseconds(1000);
    return n;
}

const LocalNode kClient = node(0x11);
const LocalNode kServer = node(0x22);

Reason declined(const Actions& actions) {
    const auto* send = find<Send>(actions);
    REQUIRE(send != nullptr);
    const auto decoded = decode_decline(send->message.view());
    REQUIRE(std::holds_alternative<Decline>(decoded));
    return std::get<Decline>(decoded).reason;
}

AcceptD smcd(const Message& message, Type type) {
    return std::get<AcceptD>(std::get<Acceptance>(decode_acceptance(message.view(), type)));
}

Message proposal_of(const LocalNode& from) {
    ClientHandshake client(from, {});
    return find<Send>(client.start(kStart))->message;
}

// A server that has sent its Accept.
struct Accepted {
    ServerHandshake server{kServer, {}, kStart};
    Message accept;

    explicit Accepted(const LocalNode& client, bool first_contact = true) {
        REQUIRE(find<CreateDmb>(server.message(proposal_of(client).view(), kStart)) != nullptr);
        CHECK(server.application_ready(kStart).empty());
        const auto actions = server.dmb_ready({DmbToken{5}, BufferSize{4}}, first_contact, 1, kStart);
        accept = find<Send>(actions)->message;
    }
};

}  // namespace

TEST_CASE("handshake__first_contact_ends_in_smcd_on_both_sides") {
    ClientHandshake client(kClient, {});
    auto actions = client.start(kStart);
    ServerHandshake server(kServer, {}, kStart);
    const auto* create = find<CreateDmb>(server.message(find<Send>(actions)->message.view(), kStart));
    REQUIRE(create != nullptr);

    CHECK(server.dmb_ready({DmbToken{5}, BufferSize{4}}, true, 9, kStart).empty());  // the application comes first
    actions = server.application_ready(kStart);
    const auto attach = client.message(find<Send>(actions)->message.view());
    REQUIRE(find<AttachDmb>(attach) != nullptr);
    CHECK(find<AttachDmb>(attach)->peer.token == DmbToken{5});
    CHECK(find<AttachDmb>(attach)->peer.gid == kServer.ism[0].gid);
    CHECK(find<AttachDmb>(attach)->peer.host_name == "host");

    actions = client.attached({DmbToken{6}, BufferSize{3}}, true);
    CHECK(find<Finish>(actions)->outcome.kind == Outcome::Kind::kSmcD);
    const auto confirm = server.message(find<Send>(actions)->message.view(), kStart);
    REQUIRE(find<AttachDmb>(confirm) != nullptr);
    CHECK(find<AttachDmb>(confirm)->peer.token == DmbToken{6});
    CHECK(find<AttachDmb>(confirm)->peer.dmb_size == BufferSize{3});
    const auto done = server.attached();
    CHECK(find<Finish>(done)->outcome.kind == Outcome::Kind::kSmcD);
    CHECK(find<Finish>(done)->outcome.smcd.eid == *Eid::parse("COMMON"));
}

namespace {

IsmDevice device(std::uint8_t id, std::uint16_t chid) {
    IsmDevice out{{}, Chid{chid}};
    out.gid.bytes.fill(id);
    return out;
}

}  // namespace

// Fabrics are tried in the client's order; the next one if the first does not reach the client.
TEST_CASE("server__takes_the_first_fabric_of_the_clients_that_reaches_it") {
    LocalNode client = kClient, server_node = kServer;
    client.ism = {device(0x11, 0xff05), device(0x12, 0xff01), device(0x13, 0xff02), device(0x14, 0xff03)};
    server_node.ism = {device(0x24, 0xff03), device(0x22, 0xff01), device(0x13, 0xff02)};  // 0x13: the client's own
    ServerHandshake server(server_node, {}, kStart);
    auto actions = server.message(proposal_of(client).view(), kStart);
    const auto* create = find<CreateDmb>(actions);
    REQUIRE(create != nullptr);
    CHECK((create->peer == client.ism[1].gid && create->chid == Chid{0xff01}));
    actions = server.prepare_failed(Reason::kNoSmcdV2Device, "out of reach");
    create = find<CreateDmb>(actions);
    REQUIRE(create != nullptr);
    CHECK((create->peer == client.ism[3].gid && create->chid == Chid{0xff03}));
    CHECK(server.dmb_ready({DmbToken{5}, BufferSize{4}}, true, 1, kStart).empty());
    actions = server.application_ready(kStart);
    const AcceptD accept = smcd(find<Send>(actions)->message, Type::kAccept);
    CHECK((accept.chid == Chid{0xff03} && join(accept.gid, accept.gid_part2) == server_node.ism[0].gid));

    ClientHandshake one(client, {});
    REQUIRE(find<Send>(one.start(kStart)) != nullptr);
    const auto attach = one.message(find<Send>(actions)->message.view());
    REQUIRE(find<AttachDmb>(attach) != nullptr);
    CHECK(find<AttachDmb>(attach)->peer.chid == Chid{0xff03});
    const auto confirmed = one.attached({DmbToken{6}, BufferSize{4}}, true);
    const AcceptD confirm = smcd(find<Send>(confirmed)->message, Type::kConfirm);
    CHECK((confirm.chid == Chid{0xff03} && join(confirm.gid, confirm.gid_part2) == client.ism[3].gid));
    CHECK(find<AttachDmb>(server.message(find<Send>(confirmed)->message.view(), kStart)) != nullptr);
}

TEST_CASE("server__whom_no_fabric_reaches_is_declined_with_the_last_reason") {
    LocalNode client = kClient;
    client.ism = {device(0x11, 0xff00), device(0x12, 0xff01)};
    LocalNode server_node = kServer;
    server_node.ism = {device(0x21, 0xff01), device(0x22, 0xff00)};
    ServerHandshake server(server_node, {}, kStart);
    REQUIRE(find<CreateDmb>(server.message(proposal_of(client).view(), kStart)) != nullptr);
    REQUIRE(find<CreateDmb>(server.prepare_failed(Reason::kNoSmcdV2Device, "out of reach")) != nullptr);
    CHECK(declined(server.prepare_failed(Reason::kOutOfMemory, "the area is full")) == Reason::kOutOfMemory);
}

TEST_CASE("client__without_a_fabric_offers_no_smcd") {
    LocalNode client = kClient;
    client.ism.clear();
    ClientHandshake handshake(client, {});
    const auto actions = handshake.start(kStart);
    const auto p = std::get<Proposal>(decode_proposal(find<Send>(actions)->message.view()));
    CHECK_FALSE(offers_d(p.v2_offer));
}

TEST_CASE("server__declines_with_the_reason_for_what_is_missing") {
    const auto answer = [](const LocalNode& client) {
        ServerHandshake server(kServer, {}, kStart);
        return declined(server.message(proposal_of(client).view(), kStart));
    };
    LocalNode other = kClient;
    other.ueids = {*Eid::parse("STRANGER")};
    CHECK(answer(other) == Reason::kNoUeid);
    other = kClient;
    other.ism[0].chid = Chid{0xff01};
    CHECK(answer(other) == Reason::kNoSmcdV2Device);

    const auto edited = [](auto edit) {
        auto p = std::get<Proposal>(decode_proposal(proposal_of(kClient).view()));
        edit(p);
        ServerHandshake server(kServer, {}, kStart);
        return declined(server.message(encode(p).view(), kStart));
    };
    CHECK(edited([](Proposal& p) { p.v2_offer = Offer::kSmcR; }) == Reason::kNoSmcrDevice);
    CHECK(edited([](Proposal& p) { p.v2->release = 0; }) == Reason::kNoSmcdV2Device);
    CHECK(edited([](Proposal& p) { p.v2->features = 0; }) == Reason::kNoSmcdV2Device);
    CHECK(edited([](Proposal& p) { p.v2->smcd.reset(); }) == Reason::kNoSmcdV2Extension);
}

TEST_CASE("server__tells_a_reason_for_every_type_offered") {
    auto p = std::get<Proposal>(decode_proposal(proposal_of(kClient).view()));
    p.v2_offer = Offer::kBoth;
    p.v1_offer = Offer::kSmcR;
    p.subnet.emplace();
    p.v2->eids = {*Eid::parse("STRANGER")};
    ServerHandshake server(kServer, {}, kStart);
    const auto actions = server.message(encode(p).view(), kStart);
    const auto d = std::get<Decline>(decode_decline(find<Send>(actions)->message.view()));
    CHECK(d.smcd_v2 == Reason::kNoUeid);
    CHECK(d.smcr_v2 == Reason::kNoSmcrDevice);
    CHECK(d.smcr_v1 == Reason::kNoSmcrDevice);
    CHECK(d.smcd_v1 == Reason::kNone);
}

TEST_CASE("server__answers_a_version_1_client_with_a_version_1_decline") {
    std::vector<std::uint8_t> v1(52);
    wire::store_be(&v1[0], 4, kEyeCatcherR);
    v1[4] = 1;
    wire::store_be(&v1[5], 2, v1.size());
    v1[7] = 0x10;
    wire::store_be(&v1[48], 4, kEyeCatcherR);
    RoceOffer version2;
    version2.gids = {*RoceGid::parse("10.0.0.1")};
    for (const bool has_roce : {false, true}) {
        ServerHandshake server(kServer, {true, has_roce ? std::optional(version2) : std::nullopt}, kStart);
        const auto actions = server.message(v1, kStart);
        CHECK(find<Send>(actions)->message.size == 28);
        CHECK(declined(actions) == (has_roce ? Reason::kVersionMismatch : Reason::kNoSmcrDevice));
    }
}

TEST_CASE("server__a_higher_release_is_answered_with_ours") {
    auto p = std::get<Proposal>(decode_proposal(proposal_of(kClient).view()));
    p.v2->release = 3;
    ServerHandshake server(kServer, {}, kStart);
    CHECK(find<CreateDmb>(server.message(encode(p).view(), kStart)) != nullptr);
    CHECK(server.dmb_ready({DmbToken{5}, BufferSize{4}}, true, 1, kStart).empty());
    const auto actions = server.application_ready(kStart);
    CHECK(smcd(find<Send>(actions)->message, Type::kAccept).fce->release == 1);
}

TEST_CASE("server__a_confirm_must_repeat_the_accept") {
    const auto outcome = [](auto edit) {
        Accepted state(kClient);
        auto c = smcd(state.accept, Type::kAccept);
        c.type = Type::kConfirm;
        c.gid = first_part(kClient.ism[0].gid);
        c.gid_part2 = second_part(kClient.ism[0].gid);
        edit(c);
        const auto actions = state.server.message(encode(c).view(), kStart);
        const auto* finish = find<Finish>(actions);
        return finish != nullptr ? finish->outcome.reason : Reason::kNone;
    };
    CHECK(outcome([](AcceptD&) {}) == Reason::kNone);
    CHECK(outcome([](AcceptD& c) { c.gid = first_part(kServer.ism[0].gid); }) == Reason::kProtocolError);
    CHECK(outcome([](AcceptD& c) { c.chid = Chid{0xff01}; }) == Reason::kProtocolError);
    CHECK(outcome([](AcceptD& c) { c.eid = *Eid::parse("OTHER"); }) == Reason::kProtocolError);
    CHECK(outcome([](AcceptD& c) { c.first_contact = false, c.fce.reset(); }) == Reason::kProtocolError);
    CHECK(outcome([](AcceptD& c) { c.fce->features = 0; }) == Reason::kReleaseMismatch);  // a late Decline
}

TEST_CASE("client__declines_what_it_did_not_offer") {
    const auto answer = [](auto edit) {
        Accepted state(kClient);
        auto a = smcd(state.accept, Type::kAccept);
        edit(a);
        ClientHandshake client(kClient, {});
        [[maybe_unused]] const auto proposal = client.start(kStart);
        return declined(client.message(encode(a).view()));
    };
    CHECK(answer([](AcceptD& a) { a.chid = Chid{0xff01}; }) == Reason::kNoSmcdV2Device);
    CHECK(answer([](AcceptD& a) {
              a.gid = first_part(kClient.ism[0].gid), a.gid_part2 = second_part(kClient.ism[0].gid);
          }) == Reason::kNoSmcdV2Device);
    CHECK(answer([](AcceptD& a) { a.eid = *Eid::parse("STRANGER"); }) == Reason::kNoUeid);
    CHECK(answer([](AcceptD& a) { a.fce->release = 2; }) == Reason::kReleaseMismatch);
    CHECK(answer([](AcceptD& a) { a.fce->release = 0; }) == Reason::kReleaseMismatch);
    CHECK(answer([](AcceptD& a) { a.fce->features = 0; }) == Reason::kReleaseMismatch);
}

TEST_CASE("client__out_of_sync_is_declined_with_the_sync_bit") {
    Accepted state(kClient, false);
    ClientHandshake client(kClient, {});
    [[maybe_unused]] const auto proposal = client.start(kStart);
    REQUIRE(find<AttachDmb>(client.message(state.accept.view())) != nullptr);
    const auto actions = client.attached({DmbToken{6}, BufferSize{3}}, false);
    const auto d = std::get<Decline>(decode_decline(find<Send>(actions)->message.view()));
    CHECK(d.out_of_sync);
    CHECK(d.reason == Reason::kOutOfSync);
    const auto seen = state.server.message(find<Send>(actions)->message.view(), kStart);
    CHECK(find<Finish>(seen)->outcome.peer_out_of_sync);
    CHECK(find<Finish>(seen)->outcome.smcd.gid == kClient.ism[0].gid);
}

TEST_CASE("a_decline_falls_back_and_needs_no_answer") {
    ClientHandshake client(kClient, {});
    [[maybe_unused]] const auto proposal = client.start(kStart);
    Decline d;
    d.reason = Reason::kNoUeid;
    const auto actions = client.message(encode(d).view());
    CHECK(find<Send>(actions) == nullptr);  // H1
    CHECK(find<Finish>(actions)->outcome.kind == Outcome::Kind::kFallBack);
    CHECK(find<Finish>(actions)->outcome.reason == Reason::kPeerDeclined);

    Accepted state(kClient);
    const auto late = state.server.message(encode(d).view(), kStart);
    CHECK(find<Finish>(late)->outcome.kind == Outcome::Kind::kFallBack);
}

// RFC 7609 section 3.5.1.6.4: the client finds out too late that it cannot use SMC, as Linux without a device does.
TEST_CASE("server__a_decline_in_place_of_a_proposal_falls_back") {
    for (const std::uint8_t version : {kVersion1, kVersion2}) {
        ServerHandshake server(kServer, {}, kStart);
        Decline d;
        d.version = version;
        d.reason = Reason::kNoDevice;
        const auto actions = server.message(encode(d).view(), kStart);
        CHECK(find<Send>(actions) == nullptr);
        REQUIRE(find<Finish>(actions) != nullptr);
        const Outcome& outcome = find<Finish>(actions)->outcome;
        CHECK(outcome.kind == Outcome::Kind::kFallBack);
        CHECK((outcome.reason == Reason::kPeerDeclined && outcome.peer_reason == Reason::kNoDevice));
        CHECK(server.tick(kStart + std::chrono::hours(1)).empty());
    }
}

TEST_CASE("what_does_not_parse_terminates__a_reserved_version_declines_H2") {
    const std::vector<std::uint8_t> junk(100, 'x');
    ClientHandshake client(kClient, {});
    [[maybe_unused]] const auto proposal = client.start(kStart);
    CHECK(find<Finish>(client.message(junk))->outcome.kind == Outcome::Kind::kTerminate);
    ServerHandshake server(kServer, {}, kStart);
    CHECK(find<Finish>(server.message(junk, kStart))->outcome.reason == Reason::kProtocolError);

    Accepted state(kClient);
    state.accept.bytes[7] = 0x39;
    ClientHandshake strict(kClient, {});
    [[maybe_unused]] const auto again = strict.start(kStart);
    CHECK(declined(strict.message(state.accept.view())) == Reason::kVersionMismatch);
}

TEST_CASE("every_waiting_state_has_a_deadline_H3") {
    const auto late = kStart + std::chrono::milliseconds(1000);
    ClientHandshake client(kClient, {});
    CHECK(client.tick(late).empty());  // not started
    [[maybe_unused]] const auto proposal = client.start(kStart);
    CHECK(client.tick(late - std::chrono::milliseconds(1)).empty());
    CHECK(find<Finish>(client.tick(late))->outcome.reason == Reason::kHandshakeTimeout);
    CHECK(client.tick(late).empty());
    CHECK(client.message(proposal_of(kClient).view()).empty());

    ServerHandshake server(kServer, {}, kStart);
    CHECK(find<Finish>(server.tick(late))->outcome.reason == Reason::kHandshakeTimeout);
    Accepted state(kClient);
    CHECK(find<Finish>(state.server.tick(late))->outcome.reason == Reason::kHandshakeTimeout);
}

TEST_CASE("server__after_confirm_there_is_no_way_back") {
    Accepted state(kClient);
    auto c = smcd(state.accept, Type::kAccept);
    c.type = Type::kConfirm;
    c.gid = first_part(kClient.ism[0].gid);
    c.gid_part2 = second_part(kClient.ism[0].gid);
    REQUIRE(find<AttachDmb>(state.server.message(encode(c).view(), kStart)) != nullptr);
    const auto actions = state.server.attach_failed(Reason::kFabric, "gone");
    CHECK(find<Send>(actions) == nullptr);  // H1
    CHECK(find<Finish>(actions)->outcome.kind == Outcome::Kind::kTerminate);
}

TEST_CASE("server__an_application_that_refuses_terminates_before_accept") {
    ServerHandshake server(kServer, {}, kStart);
    [[maybe_unused]] const auto create = server.message(proposal_of(kClient).view(), kStart);
    const auto actions = server.application_refused("", false);
    CHECK(find<Send>(actions) == nullptr);
    CHECK(find<Finish>(actions)->outcome.reason == Reason::kServerRefused);
}
