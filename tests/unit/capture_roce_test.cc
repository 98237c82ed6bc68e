// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// SMC in a capture: LLC and CDC in RoCE packets, packets that are not RoCE, and broken files.
#include "capture_bench.h"
#include "ctl/capture/capture_file.h"

using namespace smc;
using namespace smc::capture;
using namespace smc::test::captures;
using smc::test::bytes;

TEST_CASE("cdc__cursors_give_the_bytes_and_flags_the_end") {
    Bench bench;
    negotiate(bench);
    // to the server's queue pair; packet sequence numbers wrap
    bench.to_server(0xfffffe, cdc_to(22, 10000));
    bench.to_server(0xffffff, cdc_to(22, 16000));
    bench.to_server(0xffffff, cdc_to(22, 16000));   // a retransmission
    bench.to_server(0x000000, cdc_to(22, 500, 1));  // after the end of 16 KiB
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
    bench.to_server(0x000001, cdc_to(22, 5000, 2));  // the message with wrap 1 is missing
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

    // CONFIRM LINK tells the version, whichever side sends first
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
    // half of all sequence numbers later, it is still no retransmission
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
    // a faulty message, once the queue pair is known to be one of SMC
    Bench faulty;
    faulty.to_server(1, cdc_to(22, 1));
    faulty.to_server(2, Raw(44, 'x'));
    REQUIRE(faulty.events.size() == 2);
    CHECK(faulty.events[1].message.fault);
    CHECK(faulty.dissector.counters().sends_to_unknown_qps == 0);
    CHECK(bench.events.back().from == "10.0.0.1 qp 0x000001");
    CHECK(bench.events.back().message.version == 2);
    REQUIRE(bench.dissector.unnamed_qps().size() == 1);
    CHECK(bench.dissector.unnamed_qps()[0].tokens.size() == 2);
    CHECK(bench.dissector.counters().retransmissions == 1);
    CHECK(bench.dissector.counters().one_direction == 1);
    // a later connection of that link names it: the same flow continues
    negotiate(bench, false);
    bench.to_server(13, cdc_to(23, 2));
    bench.to_server(14, cdc_to(22, 5));
    CHECK(bench.history().server_half.received == 5);
    CHECK(bench.dissector.counters().retransmissions == 2);
    CHECK(bench.dissector.counters().gaps == 0);
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
