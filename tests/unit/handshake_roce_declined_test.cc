// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// CLC for SMC-R: messages that do not fit, and how either side declines (RFC 7609 section 3.5, A.2.5).
#include "handshake_roce.h"

using namespace smc;
using namespace smc::clc;
using namespace smc::test::clc_smcr;

TEST_CASE("smcr_handshake__a_confirm_that_does_not_fit_terminates") {
    const auto outcome = [](auto edit) {
        Agreed a(true);
        auto c = smcr(a.confirm, Type::kConfirm);
        edit(c);
        const auto actions = a.server.message(encoded(c).view(), kStart);
        REQUIRE(find<Finish>(actions) != nullptr);
        return find<Finish>(actions)->outcome.kind;
    };
    CHECK(outcome([](AcceptR& c) { c.eid = *Eid::parse("OTHER"); }) == Outcome::Kind::kTerminate);
    CHECK(outcome([](AcceptR& c) { c.first_contact = false; }) == Outcome::Kind::kTerminate);
    CHECK(outcome([](AcceptR& c) { c.peer_id[0] ^= 1; }) == Outcome::Kind::kTerminate);
    CHECK(outcome([](AcceptR& c) { c.rmbe_index = 0; }) == Outcome::Kind::kTerminate);
    CHECK(outcome([](AcceptR& c) { c.version = 1; }) == Outcome::Kind::kTerminate);
    CHECK(outcome([](AcceptR& c) { c.gid = c.gid_list[0] = *RoceGid::parse("fd00::1"); }) == Outcome::Kind::kTerminate);
    CHECK(outcome([](AcceptR& c) { c.gid_list[0] = *RoceGid::parse("10.0.0.9"); }) == Outcome::Kind::kTerminate);
    CHECK(outcome([](AcceptR& c) { c.mac.bytes[0] ^= 4; }) == Outcome::Kind::kFallBack);  // not the Proposal's
}

TEST_CASE("smcr_handshake__a_client_declines_an_accept_that_it_cannot_take") {
    const auto answer = [](auto edit) {
        ClientHandshake client(kClient, {true, of_client()});
        ServerHandshake server(kServer, {true, of_server()}, kStart);
        (void)server.message(bytes(client.start(kStart)), kStart);
        (void)server.application_ready(kStart);
        auto a = smcr(server.rmbe_ready(rmbe("10.0.0.2", true), kStart), Type::kAccept);
        edit(a);
        return decline(client.message(encoded(a).view())).reason;
    };
    CHECK(answer([](AcceptR& a) { a.eid = *Eid::parse("STRANGER"); }) == Reason::kNoUeid);
    CHECK(answer([](AcceptR& a) { a.fce->max_connections = 15; }) == Reason::kMaxConnectionsMismatch);
    CHECK(answer([](AcceptR& a) { a.fce->max_links = 3; }) == Reason::kMaxLinksMismatch);
    CHECK(answer([](AcceptR& a) { a.fce->release = 2; }) == Reason::kReleaseMismatch);
    CHECK(answer([](AcceptR& a) { a.gid = *RoceGid::parse("fd00::2"); }) == Reason::kNoSmcrDevice);

    ClientHandshake client(kClient, {true, of_client()});
    (void)client.start(kStart);
    AcceptR unasked;
    unasked.version = 1;
    unasked.rmbe_index = 1;
    CHECK(find<Finish>(client.message(encoded(unasked).view()))->outcome.kind == Outcome::Kind::kTerminate);
}

TEST_CASE("smcr_handshake__a_link_the_client_does_not_know_is_out_of_sync") {
    ClientHandshake client(kClient, {true, of_client()});
    ServerHandshake server(kServer, {true, of_server()}, kStart);
    (void)server.message(bytes(client.start(kStart)), kStart);
    (void)server.application_ready(kStart);
    (void)client.message(bytes(server.rmbe_ready(rmbe("10.0.0.2", false), kStart)));
    const auto refused = client.prepare_failed(Reason::kOutOfSync, "no such link");
    CHECK((decline(refused).out_of_sync && decline(refused).version == 2 && bytes(refused).size() == 44));
    const auto heard = server.message(bytes(refused), kStart);
    CHECK(find<Finish>(heard)->outcome.kind == Outcome::Kind::kFallBack);
    CHECK(find<Finish>(heard)->outcome.peer_out_of_sync);
    CHECK(find<Finish>(heard)->outcome.peer_reason == Reason::kOutOfSync);
}

// RFC 7609 A.2.5: version 1 has 28 bytes.
TEST_CASE("smcr_handshake__a_decline_has_the_version_of_the_accept_that_it_answers") {
    RoceOffer c = of_client(), s = of_server();
    c.v1 = s.v1 = true;
    c.v2 = s.v2 = false;
    const auto declined = [&](auto how) {
        ClientHandshake client(kClient, {true, c});
        ServerHandshake server(kServer, {true, s}, kStart);
        (void)server.message(bytes(client.start(kStart)), kStart);
        (void)server.application_ready(kStart);
        const auto actions = how(client, smcr(server.rmbe_ready(rmbe("10.0.0.2", true), kStart), Type::kAccept));
        return bytes(actions).size() == 28 && decline(actions).version == 1;
    };
    CHECK(declined([](ClientHandshake& client, const AcceptR& accept) {
        (void)client.message(encoded(accept).view());
        return client.prepare_failed(Reason::kOutOfMemory, "");
    }));
    CHECK(declined([](ClientHandshake& client, AcceptR accept) {
        accept.mtu = Mtu{0};
        return client.message(encoded(accept).view());
    }));
    CHECK(declined([](ClientHandshake& client, const AcceptR& accept) {
        (void)client.message(encoded(accept).view());
        (void)client.rmbe_ready(rmbe("10.0.0.1", true), kStart);
        return client.link_refused(Reason::kLinkNotReady, "");
    }));
}

TEST_CASE("smcr_handshake__behind_the_confirm_there_may_be_a_decline_and_nothing_else") {
    for (const bool server_side : {false, true}) {
        Decline late;
        late.reason = Reason::kTimeoutConfirmLink;
        late.has_types = false;
        Agreed a(true);
        (void)a.server.message(bytes(a.confirm), kStart);
        const auto heard =
            server_side ? a.server.message(encode(late).view(), kStart) : a.client.message(encode(late).view());
        CHECK(find<Finish>(heard)->outcome.kind == Outcome::Kind::kFallBack);

        Agreed b(true);
        (void)b.server.message(bytes(b.confirm), kStart);
        const auto again = server_side ? b.server.message(bytes(b.confirm), kStart) : b.client.message(bytes(b.accept));
        CHECK(find<Finish>(again)->outcome.kind == Outcome::Kind::kTerminate);
    }
}

TEST_CASE("smcr_handshake__a_link_that_does_not_come_up_ends_the_connection") {
    Agreed a(true);
    (void)a.server.message(bytes(a.confirm), kStart);
    CHECK(find<Finish>(a.client.link_failed(Reason::kTimeoutConfirmLink, "late"))->outcome.kind ==
          Outcome::Kind::kTerminate);
    CHECK(find<Finish>(a.server.link_failed(Reason::kTimeoutConfirmLink, "late"))->outcome.kind ==
          Outcome::Kind::kTerminate);
    Agreed b(true);  // nothing was sent on the link yet: a Decline is still possible (C.7)
    (void)b.server.message(bytes(b.confirm), kStart);
    const auto refused = b.server.link_refused(Reason::kLinkNotReady, "no route");
    CHECK(decline(refused).reason == Reason::kLinkNotReady);
    CHECK(find<Finish>(refused)->outcome.kind == Outcome::Kind::kFallBack);
    const auto given_up = b.client.link_refused(Reason::kLinkNotReady, "port down");  // nor by the client (C.2)
    CHECK(decline(given_up).reason == Reason::kLinkNotReady);
    CHECK(find<Finish>(given_up)->outcome.kind == Outcome::Kind::kFallBack);
    CHECK(b.client.link_refused(Reason::kLinkNotReady, "").empty());  // H4
    Agreed c(true);
    CHECK(find<Finish>(c.client.tick(kStart + std::chrono::seconds(2)))->outcome.reason == Reason::kHandshakeTimeout);
}
