// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// SMC in a capture: CLC in TCP streams, and the history of a connection that is made from it.
#include "capture_bench.h"

using namespace smc;
using namespace smc::capture;
using namespace smc::test::captures;
using smc::test::bytes;

TEST_CASE("clc__is_found_in_segments_of_any_size_and_order") {
    const Raw p = proposal();
    for (const std::size_t step : {1U, 7U, 100U}) {
        Bench bench;
        bench.open();
        for (std::size_t at = 0; at < p.size(); at += step) {
            // sequence numbers wrap in the middle of the Proposal
            bench.client(
                static_cast<std::uint32_t>(0xfffffff1 + at),
                Raw(p.begin() + static_cast<long>(at), p.begin() + static_cast<long>(std::min(p.size(), at + step))));
        }
        CHECK(bench.types() == "PROPOSAL");
        CHECK(bench.events[0].frame == bench.frames);
        CHECK(bench.events[0].from == "10.0.0.1:1000");
    }
    Bench bench;
    bench.open();
    bench.client(0xfffffff1 + 50, Raw(p.begin() + 50, p.end()));  // overtakes
    bench.client(0xfffffff1 + 20, Raw(p.begin() + 20, p.begin() + 60));
    CHECK(bench.types().empty());
    bench.client(0xfffffff1, Raw(p.begin(), p.begin() + 30));
    CHECK(bench.types() == "PROPOSAL");
    bench.client(0xfffffff1, p);  // again
    CHECK(bench.types() == "PROPOSAL");
}

TEST_CASE("clc__only_where_both_sent_option_254") {
    Bench bench;
    bench.client(100, {}, kSyn);
    bench.server(500, {}, kSyn | kAck);
    bench.client(101, proposal());
    CHECK(bench.types().empty());
    CHECK(bench.asked.empty());
    CHECK(bench.dissector.connections().empty());

    Bench refused;
    refused.client(100, {}, kSyn, kOption);
    refused.server(500, {}, kSyn | kAck);
    refused.client(101, proposal());
    CHECK(refused.types().empty());
    REQUIRE(refused.asked.size() == 1);
    CHECK(refused.asked[0].from == "10.0.0.1:1000");
    CHECK(refused.asked[0].to == "10.0.0.2:80");
    CHECK(refused.asked[0].message.type == "OPTION 254");
    CHECK(refused.answer() == "the server did not answer TCP option 254");
    CHECK(carried(refused.history()) == "by TCP");
}

TEST_CASE("clc__ends_with_a_decline_and_what_follows_is_data") {
    Bench bench;
    bench.open();
    const Raw p = proposal();
    clc::Decline d;
    d.reason = Reason::kNoUeid;
    bench.client(0xfffffff1, p);
    bench.server(501, bytes(encode(d)));
    bench.client(static_cast<std::uint32_t>(0xfffffff1 + p.size()),
                 proposal());  // an application that happens to send such bytes
    CHECK(bench.types() == "PROPOSAL,DECLINE");
    CHECK(bench.answer() == "DECLINE by the server: 0x03030008 (no EID in common)");
}

TEST_CASE("clc__what_is_none_is_told_with_its_verdict_once") {
    Bench bench;
    bench.open();
    bench.client(0xfffffff1, Raw(20, 'x'));
    bench.client(0xfffffff1 + 20, Raw(20, 'x'));
    CHECK(bench.types() == "fault");
    CHECK(bench.answer().find("no CLC message from the client: eye_catcher at offset 0") != std::string::npos);
    CHECK(bench.answer().find("treat as data") != std::string::npos);
}

TEST_CASE("history__who_proposed_what_and_what_was_chosen_and_why") {
    Bench bench;
    negotiate(bench);
    CHECK(bench.types() == "PROPOSAL,ACCEPT,CONFIRM");
    CHECK(proposed(bench.history()).starts_with("SMC-Dv2.1 and SMC-Rv2.1; EIDs A, B; RoCEv2 GID"));
    CHECK(bench.answer() ==
          "ACCEPT of SMC-Rv2.1 (passing over SMC-Dv2.1); first contact; EID B, number 2 of those offered; confirmed");
    CHECK(bench.history().link_group == 0U);
    CHECK(ended(bench.history()).empty());
    bench.server(900, {}, kRst);
    CHECK(ended(bench.history()) == "TCP reset by the server");
}

TEST_CASE("history__what_is_missing_is_said_to_be_unknown") {
    const Raw p = proposal();
    const auto after_proposal = static_cast<std::uint32_t>(0xfffffff1 + p.size());
    // the Proposal is not in the capture; the Confirm is found after the hole
    Bench bench;
    bench.open();
    bench.server(501, bytes(encode(half(clc::Type::kAccept, 2, 22))));
    bench.client(after_proposal, bytes(encode(half(clc::Type::kConfirm, 1, 11))));
    CHECK(bench.types() == "ACCEPT,CONFIRM");
    CHECK(bench.answer() ==
          "ACCEPT of SMC-Rv2.1; first contact; EID B; confirmed; part of its TCP stream is not in the capture");
    CHECK(carried(bench.history()) == "not known: no CDC message of this connection was seen");
    bench.to_server(0xfffffe, cdc_to(22, 500));
    CHECK(bench.history().server_half.received == 500);

    // a Confirm that is not there
    Bench unconfirmed;
    unconfirmed.open();
    unconfirmed.client(0xfffffff1, p);
    unconfirmed.server(501, bytes(encode(half(clc::Type::kAccept, 2, 22))));
    CHECK(unconfirmed.answer().ends_with("no Confirm was seen"));
    CHECK(carried(unconfirmed.history()).starts_with("not known"));

    // cut by the snap length
    Bench cut;
    cut.open();
    Raw frame = ipv4(1, 2, 6, tcp_segment(1000, 80, 0xfffffff1, kAck, p));
    frame.resize(frame.size() - 50);
    cut.frame(frame);
    CHECK(cut.answer() == "no answer was seen; part of its TCP stream is not in the capture");
}

TEST_CASE("history__a_release_that_was_negotiated_down_is_still_what_was_offered") {
    Bench bench;
    bench.open();
    const Raw p = proposal();
    bench.client(0xfffffff1, p);
    clc::AcceptR accept = half(clc::Type::kAccept, 2, 22);
    accept.fce->release = 0;
    bench.server(501, bytes(encode(accept)));
    CHECK(bench.answer().starts_with("ACCEPT of SMC-Rv2 (passing over SMC-Dv2.1); first contact"));
    // a type that was not offered is reported as such
    Bench other;
    other.open();
    other.client(0xfffffff1, p);
    accept.version = clc::kVersion1;
    other.server(501, bytes(encode(accept)));
    CHECK(other.answer().starts_with("ACCEPT of SMC-Rv1 (which was not offered)"));
}

TEST_CASE("clc__messages_that_cross_a_decline_are_told") {
    Bench bench;
    bench.open();
    const Raw p = proposal();
    bench.client(0xfffffff1, p);
    const Raw accept = bytes(encode(half(clc::Type::kAccept, 2, 22)));
    bench.server(501, accept);
    bench.server(static_cast<std::uint32_t>(501 + accept.size()), bytes(encode(clc::Decline{})));
    const Raw confirm = bytes(encode(half(clc::Type::kConfirm, 1, 11)));
    bench.client(static_cast<std::uint32_t>(0xfffffff1 + p.size()), confirm);
    bench.client(static_cast<std::uint32_t>(0xfffffff1 + p.size() + confirm.size()), Raw(100, 'x'));  // the application
    CHECK(bench.types() == "PROPOSAL,ACCEPT,DECLINE,CONFIRM");
}

TEST_CASE("clc__an_accept_that_crosses_the_clients_decline_is_told") {
    Bench bench;
    bench.open();
    const Raw p = proposal();
    bench.client(0xfffffff1, p);
    bench.client(static_cast<std::uint32_t>(0xfffffff1 + p.size()), bytes(encode(clc::Decline{})));
    bench.server(501, bytes(encode(half(clc::Type::kAccept, 2, 22))));
    CHECK(bench.types() == "PROPOSAL,DECLINE,ACCEPT");
}

TEST_CASE("clc__a_syn_ack_that_is_missing_is_made_up_for_by_what_answers") {
    Bench bench;
    bench.client(0xfffffff0, {}, kSyn, kOption);
    bench.client(0xfffffff1, proposal());
    bench.server(501, bytes(encode(half(clc::Type::kAccept, 2, 22))));
    CHECK(bench.types() == "PROPOSAL,ACCEPT");
    CHECK(bench.answer().find("part of its TCP stream is not in the capture") != std::string::npos);
}

TEST_CASE("clc__from_the_wrong_side_is_not_believed") {
    Bench bench;
    bench.open();
    bench.client(0xfffffff1, bytes(encode(half(clc::Type::kAccept, 1, 11))));
    CHECK(bench.answer() == "ACCEPT from the client");
    CHECK(bench.dissector.link_groups().empty());
}

TEST_CASE("tcp__ports_are_used_again") {
    Bench bench;
    negotiate(bench);
    bench.server(900, {}, kFin | kAck);
    // the same ports the other way round
    bench.frame(ipv4(2, 1, 6, tcp_segment(80, 1000, 7000, kSyn, {}, kOption)));
    bench.frame(ipv4(1, 2, 6, tcp_segment(1000, 80, 8000, kSyn | kAck, {}, kOption)));
    bench.frame(ipv4(2, 1, 6, tcp_segment(80, 1000, 7001, kAck, proposal())));
    REQUIRE(bench.dissector.connections().size() == 2);
    CHECK(bench.dissector.connections()[1].proposal);
    // a reset of a connection long ago
    bench.frame(ipv4(2, 1, 6, tcp_segment(80, 1000, 0x90000000, kRst, {})));
    CHECK_FALSE(bench.dissector.connections()[1].reset_by_server);
}

TEST_CASE("tcp__the_end_is_seen_however_much_was_sent") {
    Bench bench;
    bench.open();
    const Raw p = proposal();
    bench.client(0xfffffff1, p);
    bench.server(501, bytes(encode(clc::Decline{})));
    std::uint32_t sequence = 600;
    for (int i = 0; i < 16; i++) {
        sequence += 0x0f000000;  // 16 times 240 MB by TCP: more than there are sequence numbers
        bench.server(sequence, Raw(100));
    }
    bench.server(sequence + 100, {}, kFin | kAck);
    bench.client(static_cast<std::uint32_t>(0xfffffff1 + p.size()), {}, kFin | kAck);
    CHECK(ended(bench.history()) == "TCP closed by both");
}

TEST_CASE("tcp__a_syn_without_its_options_is_counted") {
    Bench bench;
    Raw frame = ipv4(1, 2, 6, tcp_segment(1000, 80, 1, kSyn, {}, kOption));
    frame.resize(frame.size() - 6);
    bench.frame(frame);
    CHECK(bench.dissector.connections().empty());
    CHECK(bench.dissector.counters().cut_syns == 1);
}

TEST_CASE("tcp__fast_open_puts_the_proposal_behind_the_syn") {
    Bench bench;
    const Raw p = proposal();
    bench.client(0xfffffff0, p, kSyn, kOption);
    CHECK(bench.types() == "PROPOSAL");
}

TEST_CASE("clc__without_its_syn_is_told_whoever_speaks_first") {
    const Raw p = proposal(), accept = bytes(encode(half(clc::Type::kAccept, 2, 22)));
    Bench bench;
    bench.server(300, Raw(100, 'x'));  // the application's, of some connection
    bench.server(501, accept);
    CHECK(bench.types() == "ACCEPT");
    CHECK(bench.history().server.text() == "10.0.0.2:80");
    bench.client(900, bytes(encode(half(clc::Type::kConfirm, 1, 11))));
    CHECK(bench.types() == "ACCEPT,CONFIRM");
    CHECK(bench.history().link_group == 0U);
    CHECK(proposed(bench.history()) == "no Proposal was seen");
    // the Decline of a server, and data after it
    Bench declined;
    declined.server(501, bytes(encode(clc::Decline{})) + Raw(30, 'x'));
    declined.client(1, p);
    CHECK(declined.types() == "DECLINE");
    CHECK(declined.history().decline->by_server);
    // SYN and SYN-ACK in the wrong order: two interfaces
    Bench swapped;
    swapped.frame(ipv4(2, 1, 6, tcp_segment(80, 1000, 500, kSyn | kAck, {}, kOption)));
    CHECK(missing(swapped.history()) == "everything that the client sent: only one direction was captured");
    swapped.client(0xffffffff, {}, kSyn, kOption);
    swapped.client(0, p);
    CHECK(swapped.types() == "PROPOSAL");
    CHECK(swapped.dissector.connections().size() == 1);
    CHECK(missing(swapped.history()).empty());
}

TEST_CASE("clc__data_behind_a_decline_that_was_not_captured_is_data") {
    Bench bench;
    const Raw p = proposal();
    bench.client(0xfffffff0, {}, kSyn, kOption);
    bench.client(0xfffffff1, p);
    bench.client(static_cast<std::uint32_t>(0xfffffff1 + p.size()), Raw(100, 'x'));
    CHECK(bench.types() == "PROPOSAL");
    CHECK(bench.answer() == "TCP data follows, as after a Decline that was not captured");
    CHECK(carried(bench.history()) == "by TCP");
}

TEST_CASE("clc__a_silent_server_is_no_direction_that_was_not_captured") {
    Bench bench;
    bench.client(100, {}, kSyn, kOption);
    bench.client(100, {}, kSyn, kOption);
    CHECK(missing(bench.history()).empty());
    bench.client(101, proposal());
    CHECK(missing(bench.history()) == "everything that the server sent: only one direction was captured");
}

TEST_CASE("history__a_client_may_decline_in_place_of_a_proposal") {
    Bench bench;
    bench.open();
    clc::Decline d;
    d.version = clc::kVersion1;
    d.reason = Reason::kIpsec;
    d.has_types = false;
    bench.client(0xfffffff1, bytes(encode(d)));
    CHECK(proposed(bench.history()) == "nothing: the client sent a Decline in place of a Proposal");
    CHECK(bench.answer() == "DECLINE by the client: 0x03020000 (in Linux: IPsec policy in place)");
}

TEST_CASE("history__reason_codes_of_version_1_are_named_if_linux_has_them") {
    clc::Decline d;
    d.version = clc::kVersion1;
    d.os = clc::Os::kNone;
    const auto meaning = [&](std::uint32_t code) { return clc::reason_meaning(d, Reason{code}); };
    CHECK(meaning(0x03030000) == "in Linux: no SMC device for what was offered");
    CHECK(meaning(0x03090000) == "in Linux: the ISM device does not take the VLAN");
    CHECK(meaning(0x12345678).empty());
    CHECK(meaning(static_cast<std::uint32_t>(Reason::kBudget)).empty());  // never on the wire
    d.version = clc::kVersion2;
    CHECK(meaning(0x03030000).empty());
    d.os = clc::Os::kLinux;
    CHECK(meaning(0x03030000) == "no SMC device for what was offered");
}
