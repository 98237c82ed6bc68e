// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <pcap/dlt.h>
#include <catch2/catch.hpp>

#include "ctl/capture/capture_file.h"
#include "ctl/capture/dissector.h"
#include "ctl/capture/summary.h"
#include "messages.h"
#include "smc/wire/tcp_option.h"

using namespace smc;
using namespace smc::capture;
using smc::test::bytes;

namespace {

using Raw = std::vector<std::uint8_t>;

void put(Raw& to, std::uint64_t value, std::size_t bytes) {
    to.resize(to.size() + bytes);
    wire::store_be(&to[to.size() - bytes], bytes, value);
}

Raw operator+(Raw a, const Raw& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

Raw ipv4(std::uint8_t from, std::uint8_t to, std::uint8_t protocol, const Raw& payload, std::uint16_t fragment = 0) {
    Raw ip{0x45, 0};
    put(ip, 20 + payload.size(), 2);
    put(ip, 0, 2);
    put(ip, fragment, 2);
    put(ip, std::uint64_t{64} << 8 | protocol, 2);
    put(ip, 0, 2);
    put(ip, 0x0a000000 | from, 4);
    put(ip, 0x0a000000 | to, 4);
    return ip + payload;
}

Raw tcp_segment(std::uint16_t from, std::uint16_t to, std::uint32_t sequence, std::uint8_t flags, const Raw& payload,
                const Raw& options = {}) {
    Raw tcp;
    put(tcp, from, 2);
    put(tcp, to, 2);
    put(tcp, sequence, 4);
    put(tcp, 0, 4);
    put(tcp, (20 + options.size()) / 4 << 4, 1);
    put(tcp, flags, 1);
    put(tcp, 0, 6);
    return tcp + options + payload;
}

Raw send(Qpn qpn, std::uint32_t psn, const Raw& payload, std::uint8_t opcode = 4) {
    Raw udp;
    put(udp, 50000, 2);
    put(udp, kRoceV2Port, 2);
    put(udp, 8 + 12 + payload.size() + 4, 2);
    put(udp, 0, 2);
    put(udp, opcode, 1);
    put(udp, 0, 1);
    put(udp, 0xffff, 2);
    put(udp, static_cast<std::uint32_t>(qpn), 4);
    put(udp, psn, 4);
    return udp + payload + Raw(4);
}

const Raw kOption{254, 6, 0xe2, 0xd4, 0xc3, 0xd9, 1, 1};

// Host 1 is the client, host 2 the server.
struct Bench {
    std::vector<Event> events;
    Dissector dissector{[this](const Event& event) { events.push_back(event); }};
    std::uint64_t frames = 0;

    void frame(const Raw& raw, int link_type = DLT_RAW) {
        dissector.add({++frames, static_cast<std::int64_t>(frames), link_type, raw});
    }
    void client(std::uint32_t sequence, const Raw& payload, std::uint8_t flags = kAck, const Raw& options = {}) {
        frame(ipv4(1, 2, 6, tcp_segment(1000, 80, sequence, flags, payload, options)));
    }
    void server(std::uint32_t sequence, const Raw& payload, std::uint8_t flags = kAck, const Raw& options = {}) {
        frame(ipv4(2, 1, 6, tcp_segment(80, 1000, sequence, flags, payload, options)));
    }
    void open() {
        client(0xfffffff0, {}, kSyn, kOption);
        server(500, {}, kSyn | kAck, kOption);
    }
    [[nodiscard]] std::string types() const {
        std::string out;
        for (const Event& e : events) {
            out += (out.empty() ? "" : ",") + (e.message.fault ? "fault" : e.message.type);
        }
        return out;
    }
    [[nodiscard]] std::string answer() const {
        const auto& group = history().link_group;
        return answered(history(), group ? &dissector.link_groups()[*group] : nullptr);
    }
    // SENDs to queue pair 2 at the server and 1 at the client.
    void to_server(std::uint32_t psn, const Raw& message) { frame(ipv4(1, 2, 17, send(Qpn{2}, psn, message))); }
    void to_client(std::uint32_t psn, const Raw& message) { frame(ipv4(2, 1, 17, send(Qpn{1}, psn, message))); }
    [[nodiscard]] const Connection& history() const { return dissector.connections().at(0); }
};

Raw proposal() {
    clc::Proposal p;
    p.v2_offer = clc::Offer::kBoth;
    p.v2.emplace().eids = {*Eid::parse("A"), *Eid::parse("B")};
    return bytes(encode(p));
}

clc::AcceptR half(clc::Type type, std::uint8_t host, std::uint32_t token, bool first = true) {
    clc::AcceptR a;
    a.type = type;
    a.first_contact = first;
    a.gid = RoceGid::from_ipv4({10, 0, 0, host});
    a.qpn = Qpn{host};
    a.alert_token = AlertToken{token};
    a.psn = Psn{0xfffffe};
    a.eid = *Eid::parse("B");
    if (first) {
        a.fce.emplace();
        a.gid_list = {a.gid};
    }
    return a;
}

// First contact, with tokens 11 at the client and 22 at the server.
void negotiate(Bench& bench, bool first = true) {
    bench.open();
    const Raw p = proposal();
    bench.client(0xfffffff1, p);
    const Raw accept = bytes(encode(half(clc::Type::kAccept, 2, 22, first)));
    bench.server(501, accept);
    bench.client(static_cast<std::uint32_t>(0xfffffff1 + p.size()),
                 bytes(encode(half(clc::Type::kConfirm, 1, 11, first))));
}

Raw cdc_to(std::uint32_t token, std::uint32_t count, std::uint16_t wrap = 0, std::uint8_t state = 0,
           std::uint32_t consumed = 0) {
    cdc::Message m;
    m.token = AlertToken{token};
    m.producer = {wrap, count};
    m.consumer = {0, consumed};
    m.state = state;
    return bytes(encode(m));
}

}  // namespace

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
    CHECK(bench.dissector.connections().empty());

    Bench refused;
    refused.client(100, {}, kSyn, kOption);
    refused.server(500, {}, kSyn | kAck);
    refused.client(101, proposal());
    CHECK(refused.types().empty());
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
                 proposal());  // an application that sends such bytes
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

TEST_CASE("cdc__cursors_give_the_bytes_and_flags_the_end") {
    Bench bench;
    negotiate(bench);
    // to the server's queue pair; packet sequence numbers wrap
    bench.to_server(0xfffffe, cdc_to(22, 10000));
    bench.to_server(0xffffff, cdc_to(22, 16000));
    bench.to_server(0xffffff, cdc_to(22, 16000));   // a retransmission
    bench.to_server(0x000000, cdc_to(22, 500, 1));  // behind the end of 16 KiB
    bench.to_server(0x000001, cdc_to(99, 1));
    bench.to_client(0xfffffe, cdc_to(11, 77, 0, cdc::kConnectionClosed));
    CHECK(bench.history().server_half.received == 16384 + 500);
    CHECK(bench.history().client_half.received == 77);
    CHECK(ended(bench.history()) == "closed by the server only");
    bench.to_server(0x000002, cdc_to(22, 500, 1, cdc::kAbnormalClose));
    CHECK(ended(bench.history()) == "aborted by the client");
    CHECK(bench.dissector.counters().retransmissions == 1);
    CHECK(bench.dissector.counters().cdc_without_connection == 1);
    CHECK(bench.events.back().from == "10.0.0.1 qp 0x000001");
    CHECK(bench.events.back().to == "10.0.0.2 qp 0x000002");
    CHECK(bench.events.back().message.version == 2);
}

TEST_CASE("cdc__a_peer_of_the_rfc_counts_from_4") {
    Bench bench;
    negotiate(bench);
    bench.to_server(0xfffffe, cdc_to(22, 4 + 1000, 0, 0, 4));
    bench.to_server(0xffffff, cdc_to(22, 4 + 20, 1, 0, 4));
    CHECK(bench.history().server_half.received == 16380 + 20);
}

TEST_CASE("cdc__lost_messages_do_not_stop_the_counting") {
    Bench bench;
    negotiate(bench);
    bench.to_server(0xfffffe, cdc_to(22, 10000));
    bench.to_server(0x000001, cdc_to(22, 5000, 2));  // wrap 1 was in a message that is not here
    bench.to_server(0x000002, cdc_to(22, 6000, 2));
    CHECK(bench.history().server_half.received == 2 * 16384 + 6000);
    CHECK(bench.dissector.counters().cdc_missing == 1);
    CHECK(bench.dissector.counters().gaps == 1);
}

TEST_CASE("cdc__four_bytes_consumed_are_no_eye_catcher") {
    Bench bench;
    negotiate(bench);
    bench.to_server(0xfffffe, cdc_to(22, 4));           // PING
    bench.to_client(0xfffffe, cdc_to(11, 4, 0, 0, 4));  // PONG; PING is consumed
    bench.to_client(0xffffff, cdc_to(11, 8, 0, 0, 4));
    CHECK(bench.history().client_half.received == 8);
    CHECK(bench.history().server_half.received == 4);

    // CONFIRM LINK tells it, whoever speaks first
    Bench told;
    negotiate(told);
    llc::ConfirmLink confirm;
    confirm.version = 2;
    confirm.cache_size = 3;
    told.to_client(0xfffffe, bytes(encode(confirm)));
    confirm.reply = true;
    told.to_server(0xfffffe, bytes(encode(confirm)));
    told.to_server(0xffffff, cdc_to(22, 8, 0, 0, 4));
    CHECK(told.history().server_half.received == 8);
    CHECK(told.dissector.link_groups()[0].links[0].confirmed);
}

TEST_CASE("cdc__the_first_to_abort_is_named") {
    Bench bench;
    negotiate(bench);
    bench.to_server(0xfffffe, cdc_to(22, 1, 0, cdc::kAbnormalClose));
    bench.to_client(0xfffffe, cdc_to(11, 1, 0, cdc::kAbnormalClose));  // the answer
    CHECK(ended(bench.history()) == "aborted by the client");
}

TEST_CASE("roce__what_was_lost_before_and_comes_again_is_read") {
    Bench bench;
    negotiate(bench);
    bench.to_server(0xfffffe, cdc_to(22, 1));
    bench.to_server(0x000000, cdc_to(22, 3));  // 0xffffff is missing
    bench.to_server(0xffffff, cdc_to(22, 2));  // the sender goes back
    bench.to_server(0x000000, cdc_to(22, 3));
    bench.to_server(0x000001, cdc_to(22, 4));
    CHECK(bench.types() == "PROPOSAL,ACCEPT,CONFIRM,CDC,CDC,CDC,CDC");
    CHECK(bench.dissector.counters().retransmissions == 1);
    CHECK(bench.dissector.counters().gaps == 1);
    CHECK(bench.history().server_half.received == 4);
    // half of all numbers later is still not "again"
    bench.to_server(0x900000, cdc_to(22, 5));
    bench.to_server(0x900001, cdc_to(22, 6));
    CHECK(bench.history().server_half.received == 6);
}

TEST_CASE("a_capture_that_begins_later__learns_from_a_subsequent_contact") {
    Bench bench;
    negotiate(bench, false);
    bench.to_server(77, cdc_to(22, 500));
    bench.to_client(99, cdc_to(11, 600));
    REQUIRE(bench.dissector.link_groups().size() == 1);
    CHECK_FALSE(bench.dissector.link_groups()[0].from_start);
    CHECK(bench.history().server_half.received == 500);
    CHECK(bench.history().client_half.received == 600);
    CHECK(bench.dissector.counters().gaps == 0);
}

TEST_CASE("history__what_is_missing_is_said_to_be_unknown") {
    const Raw p = proposal();
    const auto after_proposal = static_cast<std::uint32_t>(0xfffffff1 + p.size());
    // the Proposal is not in the capture; the Confirm is found behind the hole
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
    // and what was not offered is said to be so
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

TEST_CASE("cdc__impossible_cursors_are_not_counted") {
    Bench bench;
    negotiate(bench);
    bench.to_server(0xfffffe, cdc_to(22, 100));
    bench.to_server(0xffffff, cdc_to(22, 0xfffffff0));
    bench.to_server(0x000000, cdc_to(22, 50));
    CHECK(bench.history().server_half.received == 100);
    CHECK(bench.dissector.counters().cdc_missing == 0);
}

TEST_CASE("roce__unknown_queue_pairs_are_told_if_they_are_of_smc") {
    Bench bench;
    Raw other = cdc_to(22, 1);
    other.back() = 1;  // reserved
    bench.to_server(7, other);
    bench.to_server(8, Raw(44, 'x'));
    bench.to_server(9, {});
    CHECK(bench.events.empty());
    CHECK(bench.dissector.counters().sends_to_unknown_qps == 3);
    bench.to_server(10, cdc_to(22, 1));
    bench.to_server(10, cdc_to(22, 1));  // a retransmission
    bench.to_server(11, cdc_to(23, 1));
    REQUIRE(bench.types() == "CDC,CDC");
    CHECK(bench.events[0].from == "10.0.0.1 qp unknown");
    CHECK(bench.events[0].to == "10.0.0.2 qp 0x000002");
    CHECK(bench.events[0].message.version == 0);
    llc::ConfirmLink confirm;
    confirm.version = 2;
    confirm.qpn = Qpn{1};
    bench.to_server(12, bytes(encode(confirm)));
    bench.to_server(13, cdc_to(23, 2));
    CHECK(bench.types() == "CDC,CDC,CONFIRM LINK,CDC");
    CHECK(bench.events.back().from == "10.0.0.1 qp 0x000001");
    CHECK(bench.events.back().message.version == 2);
    REQUIRE(bench.dissector.unnamed_qps().size() == 1);
    CHECK(bench.dissector.unnamed_qps()[0].tokens.size() == 2);
    CHECK(bench.dissector.counters().retransmissions == 1);
    CHECK(bench.dissector.counters().one_direction == 1);
    // named by a later connection of that link: the same flow goes on
    negotiate(bench, false);
    bench.to_server(13, cdc_to(23, 2));
    bench.to_server(14, cdc_to(22, 5));
    CHECK(bench.history().server_half.received == 5);
    CHECK(bench.dissector.counters().retransmissions == 2);
    CHECK(bench.dissector.counters().gaps == 0);
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
    // the Decline of a server, and data behind it
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
    CHECK(bench.answer() == "TCP data follows, as behind a Decline that was not captured");
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

TEST_CASE("describe__numbers_are_numbers") {
    const auto find = [](const Description& message, const std::string& name) {
        const auto found = std::find_if(message.fields.begin(), message.fields.end(),
                                        [&](const Field& field) { return field.name == name; });
        REQUIRE(found != message.fields.end());
        return *found;
    };
    const auto number = [&](const Description& message, const char* name) {
        return std::get<std::uint64_t>(find(message, name).value);
    };
    clc::AcceptR accept = half(clc::Type::kAccept, 2, 22);
    accept.rmbe_size = BufferSize{2};
    accept.mtu = clc::Mtu::k1024;
    const Description clc = describe_clc(bytes(encode(accept)));
    CHECK((number(clc, "rmbe_size") == 2 && number(clc, "rmbe_bytes") == 65536));
    CHECK((number(clc, "mtu_size") == 3 && number(clc, "mtu_bytes") == 1024));
    llc::DeleteLink del;
    del.reason = llc::DeleteLinkReason::kLostPath;
    const Description llc = describe_llc(bytes(encode(del)));
    CHECK(number(llc, "reason_code") == 0x00010000);
    CHECK(find(llc, "reason_code").text == "0x00010000 (lost path)");
    clc::Decline decline;
    decline.reason = Reason::kNoUeid;
    const Description declined = describe_clc(bytes(encode(decline)));
    CHECK(number(declined, "sender_diagnosis_information") == 0x03030008);
    CHECK(find(declined, "sender_diagnosis_information").text == "0x03030008 (no EID in common)");
}

TEST_CASE("llc__add_link_over_several_packets_brings_a_second_link") {
    Bench bench;
    negotiate(bench);
    llc::AddLink add;
    add.version = 2;
    add.gid = RoceGid::from_ipv4_right_aligned({10, 0, 0, 22});
    add.qpn = Qpn{5};
    add.link_number = 2;
    add.psn = Psn{100};
    auto& large = add.large.emplace();
    for (std::uint32_t i = 0; i < 100; i++) {
        large.rkeys.push_back({RKey{i}, RKey{i}, VirtualAddress{i}});
    }
    const Raw request = bytes(encode(add));
    REQUIRE(request.size() > 1024);
    const auto to_client = [&](std::uint32_t psn, const Raw& m, std::uint8_t opcode) {
        bench.frame(ipv4(2, 1, 17, send(Qpn{1}, psn, m, opcode)));
    };
    to_client(0xfffffe, Raw(request.begin(), request.begin() + 1024), 0x00);
    CHECK(bench.types() == "PROPOSAL,ACCEPT,CONFIRM");
    to_client(0xffffff, Raw(request.begin() + 1024, request.end()), 0x02);
    CHECK(bench.types() == "PROPOSAL,ACCEPT,CONFIRM,ADD LINK");
    llc::AddLink reply = add;
    reply.reply = true;
    reply.gid = RoceGid::from_ipv4({10, 0, 0, 11});
    reply.qpn = Qpn{6};
    reply.psn = Psn{200};
    bench.frame(ipv4(1, 2, 17, send(Qpn{2}, 0xfffffe, Raw(), 0x00)));
    bench.frame(ipv4(1, 2, 17, send(Qpn{2}, 0xffffff, bytes(encode(reply)), 0x02)));

    // the new link carries its own CONFIRM LINK, under the addresses of ADD LINK
    llc::ConfirmLink confirm;
    confirm.version = 2;
    confirm.link_number = 2;
    bench.frame(ipv4(22, 11, 17, send(Qpn{6}, 100, bytes(encode(confirm)))));
    confirm.reply = true;
    bench.frame(ipv4(11, 22, 17, send(Qpn{5}, 200, bytes(encode(confirm)))));
    const LinkGroup& group = bench.dissector.link_groups().at(0);
    REQUIRE(group.links.size() == 2);
    CHECK(group.links[1].confirmed);
    CHECK(group.links[1].number == 2);

    llc::DeleteLink del;
    del.version = 2;
    del.link_number = 2;
    del.reason = llc::DeleteLinkReason::kLostPath;
    bench.frame(ipv4(2, 1, 17, send(Qpn{1}, 0, bytes(encode(del)))));
    CHECK(group.links[1].deleted == "server, 0x00010000 (lost path)");
    CHECK(group.ended.empty());
}

TEST_CASE("llc__a_message_of_several_packets_survives_their_loss") {
    Bench bench;
    negotiate(bench);
    llc::AddLink add;
    add.version = 2;
    add.qpn = Qpn{5};
    add.large.emplace().rkeys.resize(100);
    const Raw request = bytes(encode(add));
    const Raw first(request.begin(), request.begin() + 1024), last(request.begin() + 1024, request.end());
    const auto to_client = [&](std::uint32_t psn, const Raw& m, std::uint8_t opcode) {
        bench.frame(ipv4(2, 1, 17, send(Qpn{1}, psn, m, opcode)));
    };
    to_client(0xfffffe, first, 0x00);
    bench.to_client(0x000000, cdc_to(11, 1));  // the last packet is missing
    CHECK(bench.types() == "PROPOSAL,ACCEPT,CONFIRM,CDC");
    to_client(0xfffffe, first, 0x00);  // everything again
    to_client(0xffffff, last, 0x02);
    bench.to_client(0x000000, cdc_to(11, 1));
    CHECK(bench.types() == "PROPOSAL,ACCEPT,CONFIRM,CDC,ADD LINK");
    to_client(0xfffffe, first, 0x00);
    to_client(0xffffff, last, 0x02);
    CHECK(bench.types() == "PROPOSAL,ACCEPT,CONFIRM,CDC,ADD LINK");
    // and parts of two messages are never one
    to_client(0x000001, first, 0x00);
    to_client(0x000003, last, 0x02);
    CHECK(bench.types() == "PROPOSAL,ACCEPT,CONFIRM,CDC,ADD LINK");
}

TEST_CASE("llc__a_clients_invitation_is_not_the_servers_request") {
    Bench bench;
    negotiate(bench);
    llc::AddLink add;
    add.gid = *RoceGid::parse("fe80::1");
    add.qpn = Qpn{0x55};
    add.link_number = 2;
    bench.to_client(0xfffffe, bytes(encode(add)));
    bench.to_server(0xfffffe, bytes(encode(llc::AddLink{})));  // crosses it
    add.reply = true;
    bench.to_server(0xffffff, bytes(encode(add)));
    const LinkGroup& group = bench.dissector.link_groups().at(0);
    REQUIRE(group.links.size() == 2);
    CHECK(group.links[1].server.qpn == Qpn{0x55});
}

TEST_CASE("cdc__one_direction_that_was_not_seen_is_not_known") {
    Bench bench;
    negotiate(bench);
    bench.to_server(0xfffffe, cdc_to(22, 500));
    CHECK(carried(bench.history()) == "client to server 500, server to client not known (CDC cursors)");
}

TEST_CASE("subsequent_contact__joins_the_link_group_and_data_may_overtake_the_confirm") {
    Bench bench;
    negotiate(bench);
    bench.client(50, {}, kSyn, kOption);
    bench.server(700, {}, kSyn | kAck, kOption);
    const Raw p = proposal();
    bench.client(51, p);
    bench.server(701, bytes(encode(half(clc::Type::kAccept, 2, 23, false))));
    bench.frame(ipv4(1, 2, 17, send(Qpn{2}, 0xfffffe, cdc_to(23, 5))));
    bench.client(static_cast<std::uint32_t>(51 + p.size()), bytes(encode(half(clc::Type::kConfirm, 1, 12, false))));
    REQUIRE(bench.dissector.connections().size() == 2);
    const Connection& second = bench.dissector.connections()[1];
    CHECK(second.link_group == 0U);
    CHECK(second.server_half.received == 5);
    CHECK(bench.dissector.link_groups().size() == 1);
}

TEST_CASE("packet__link_layers_and_what_is_none") {
    const Raw ip = ipv4(1, 2, 6, tcp_segment(1000, 80, 7, kAck, {'x'}));
    const auto port = [](int link_type, const Raw& frame) {
        const auto parsed = parse_packet(link_type, frame);
        const auto* packet = std::get_if<Packet>(&parsed);
        return packet != nullptr ? packet->to.port : 0;
    };
    CHECK(port(DLT_RAW, ip) == 80);
    CHECK(port(DLT_EN10MB, Raw(12) + Raw{8, 0} + ip) == 80);
    CHECK(port(DLT_EN10MB, Raw(12) + Raw{0x88, 0xa8, 0, 1, 0x81, 0, 0, 2, 8, 0} + ip) == 80);  // two VLAN tags
    CHECK(port(DLT_LINUX_SLL, Raw(14) + Raw{8, 0} + ip) == 80);
    CHECK(port(DLT_LINUX_SLL2, Raw{8, 0} + Raw(18) + ip) == 80);
    CHECK(port(DLT_NULL, Raw{2, 0, 0, 0} + ip) == 80);
    CHECK(port(DLT_EN10MB, Raw(12) + Raw{8, 6} + ip) == 0);  // ARP

    Raw v6{0x60, 0, 0, 0};
    const Raw tcp = tcp_segment(1000, 81, 7, kAck, {'x'});
    put(v6, 8 + tcp.size(), 2);
    put(v6, 0x0040, 2);  // hop-by-hop options follow
    v6 = v6 + Raw(32) + Raw{6, 0, 0, 0, 0, 0, 0, 0} + tcp;
    CHECK(port(DLT_RAW, v6) == 81);

    CHECK(port(DLT_RAW, ipv4(1, 2, 6, tcp_segment(1000, 80, 7, kAck, {'x'}), 0x2000)) == 0);  // a fragment
    CHECK(port(DLT_RAW, ipv4(1, 2, 1, Raw(40))) == 0);                                        // ICMP
    for (std::size_t n = 0; n < ip.size() - 1; n++) {
        CHECK(port(DLT_RAW, Raw(ip.begin(), ip.begin() + static_cast<long>(n))) == 0);
    }
}

TEST_CASE("packet__what_the_snap_length_cut_is_no_message") {
    Bench bench;
    negotiate(bench);
    Raw cut = ipv4(1, 2, 17, send(Qpn{2}, 0xfffffe, cdc_to(22, 100)));
    cut.resize(cut.size() - 20);
    bench.frame(cut);
    CHECK(bench.types() == "PROPOSAL,ACCEPT,CONFIRM");
    CHECK(bench.dissector.counters().cut_packets == 1);
}

TEST_CASE("read_capture__what_is_broken_is_told_after_what_could_be_read") {
    const auto read = [](const Raw& file, std::uint64_t& frames) {
        frames = 0;
        std::FILE* memory = ::fmemopen(const_cast<std::uint8_t*>(file.data()), file.size(), "rb");
        return read_capture(memory, [&](const Frame& frame) { frames = frame.number; });
    };
    std::FILE* whole = std::fopen(SMC_CAPTURES "/linux612-decline-no-common-eid.pcap", "rb");
    REQUIRE(whole != nullptr);
    Raw file(20000);
    file.resize(std::fread(file.data(), 1, file.size(), whole));
    std::fclose(whole);
    std::uint64_t frames = 0;
    CHECK_FALSE(read(file, frames));
    CHECK(frames == 31);
    CHECK(read(Raw(file.begin(), file.end() - 10), frames)->find("truncated") != std::string::npos);
    CHECK(frames == 30);
    CHECK(read(Raw(100, 'x'), frames));
    CHECK(frames == 0);
    file[20] = 105;                   // IEEE 802.11
    CHECK_FALSE(read(file, frames));  // the dissector skips and counts
    Dissector dissector([](const Event&) {});
    dissector.add({1, 0, 105, Raw(30)});
    CHECK(dissector.skipped() == std::map<int, std::uint64_t>{{105, 1}});
}
