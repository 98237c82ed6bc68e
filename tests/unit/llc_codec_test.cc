// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <catch2/catch.hpp>

#include "messages.h"
#include "smc/wire/llc.h"

using namespace smc;
using namespace smc::llc;
using smc::test::bytes;

namespace {

using Raw = std::vector<std::uint8_t>;

std::uint64_t at(const Raw& b, std::size_t offset, std::size_t width) {
    return wire::load_be(b.data() + offset, width);
}

template <class M>
M version(int v, bool reply = false) {
    M m;
    m.version = static_cast<std::uint8_t>(v);
    m.reply = reply;
    return m;
}

template <class M>
M decoded_as(const Raw& b) {
    const auto decoded = decode(b);
    if (const auto* fault = std::get_if<Fault>(&decoded)) {
        FAIL(fault->text());
    }
    return std::get<M>(std::get<AnyMessage>(decoded));
}

// "field: verdict", or "none".
std::string fault_of(const Raw& b) {
    const auto decoded = decode(b);
    const auto* fault = std::get_if<Fault>(&decoded);
    return fault == nullptr ? "none" : std::string(fault->field) + ": " + text(fault->verdict);
}

std::string blamed(const AnyMessage& message, std::size_t offset, std::uint8_t value) {
    Raw b = bytes(encode(message));
    b[offset] = value;
    return fault_of(b);
}

}  // namespace

TEST_CASE("types__have_the_codes_of_the_specification") {
    const std::pair<AnyMessage, std::uint8_t> codes[] = {
        {version<ConfirmLink>(1), 0x01},
        {version<ConfirmLink>(2), 0x21},
        {version<AddLink>(1), 0x02},
        {version<AddLink>(2), 0x22},
        {version<AddLinkContinuation>(1), 0x03},
        {version<DeleteLink>(1), 0x04},
        {version<DeleteLink>(2), 0x24},
        {version<RequestAddLink>(2), 0x25},
        {version<ConfirmRkey>(1), 0x06},
        {version<ConfirmRkey>(2), 0x26},
        {version<TestLink>(1), 0x07},
        {version<TestLink>(2), 0x27},
        {version<ConfirmRkeyContinuation>(1), 0x08},
        {version<DeleteRkey>(1), 0x09},
        {version<DeleteRkey>(2), 0x29},
    };
    for (const auto& [message, code] : codes) {
        const auto b = bytes(encode(message));
        CHECK(b[0] == code);
        CHECK(b.size() >= 44);
        CHECK(at(b, 1, code < 0x20 ? 1 : 2) == b.size());
    }
}

TEST_CASE("confirm_link__fields") {
    auto m = version<ConfirmLink>(2, true);
    m.cache_size = 3;
    m.mac = {{0x52, 0x54, 0, 0, 0, 1}};
    m.gid = RoceGid::from_ipv4({10, 9, 0, 1});
    m.qpn = Qpn{0x010203};
    m.link_number = 4;
    m.link_id = LinkId{0x05060708};
    m.max_links = 2;
    m.max_connections = 255;
    const auto b = bytes(encode(m));
    REQUIRE(b.size() == 44);
    CHECK(at(b, 1, 2) == 44);
    CHECK(at(b, 3, 1) == 0x83);
    CHECK(at(b, 4, 6) == 0x525400000001);
    CHECK(at(b, 20, 6) == 0xffff0a090001);
    CHECK(at(b, 26, 3) == 0x010203);
    CHECK(at(b, 29, 1) == 4);
    CHECK(at(b, 30, 4) == 0x05060708);
    CHECK(at(b, 34, 1) == 2);
    CHECK(at(b, 35, 1) == 255);
}

TEST_CASE("add_link__version_1_and_2_differ") {
    AddLink m;
    m.mac = {{1, 2, 3, 4, 5, 6}};
    m.gid = *RoceGid::parse("fd00::1");
    m.qpn = Qpn{0x010203};
    m.link_number = 2;
    m.mtu = clc::Mtu::k4096;
    m.psn = Psn{0x0a0b0c};
    auto b = bytes(encode(m));
    REQUIRE(b.size() == 44);
    CHECK(at(b, 10, 2) == 0xfd00);
    CHECK(at(b, 26, 3) == 0x010203);
    CHECK(at(b, 29, 1) == 2);
    CHECK(at(b, 30, 1) == 5);
    CHECK(at(b, 31, 3) == 0x0a0b0c);

    m.version = 2;
    auto& large = m.large.emplace();
    large.link_type = clc::LinkType::kDirect;
    large.target_gid = RoceGid::from_ipv4({10, 9, 0, 2});
    large.rkeys = {{RKey{1}, RKey{2}, VirtualAddress{3}}, {RKey{4}, RKey{5}, VirtualAddress{6}}};
    b = bytes(encode(m));
    REQUIRE(b.size() == 72 + 32);
    CHECK(at(b, 1, 2) == 104);
    CHECK(at(b, 12, 2) == 0xfd00);
    CHECK(at(b, 28, 3) == 0x010203);
    CHECK(at(b, 31, 1) == 2);
    CHECK(at(b, 32, 1) == 5);
    CHECK(at(b, 33, 3) == 0x0a0b0c);
    CHECK(at(b, 44, 1) == 0x80);
    CHECK(at(b, 56, 6) == 0xffff0a090002);
    CHECK(at(b, 70, 2) == 2);
    CHECK(at(b, 72, 4) == 1);
    CHECK(at(b, 92, 4) == 5);
    CHECK(at(b, 96, 8) == 6);

    // the place of the reason in a rejection
    AddLink no = version<AddLink>(1, true);
    no.rejected = true;
    no.reason = AddLinkReason::kNoAlternatePath;
    CHECK(at(bytes(encode(no)), 2, 2) == 0x01c0);
    no.version = 2;
    CHECK(at(bytes(encode(no)), 3, 1) == 0xc1);
}

TEST_CASE("add_link__what_linux_sends_is_understood_and_written_back") {
    AddLink m = version<AddLink>(2);
    m.little_endian = true;
    m.large.emplace().rkeys = {{RKey{1}, RKey{2}, VirtualAddress{3}}};
    const auto b = bytes(encode(m));
    CHECK(at(b, 1, 2) == 88 << 8);
    CHECK(at(b, 70, 2) == 1 << 8);
    const auto back = decoded_as<AddLink>(b);
    CHECK(back.little_endian);
    CHECK(back.large->rkeys.size() == 1);
    CHECK(bytes(encode(back)) == b);

    // with 124 RKeys the length, x'0808', does not tell the order
    m.large->rkeys.resize(124);
    CHECK(bytes(encode(decoded_as<AddLink>(bytes(encode(m))))) == bytes(encode(m)));
    m.little_endian = false;
    CHECK(bytes(encode(decoded_as<AddLink>(bytes(encode(m))))) == bytes(encode(m)));
}

TEST_CASE("add_link__version_1_with_two_bytes_more_behind_the_mac") {
    // As Linux sends it: everything after the MAC address is two bytes further than in figure 32.
    Raw linux(44);
    linux[0] = 2;
    linux[1] = 44;
    linux[12] = 0xfe, linux[13] = 0x80;
    linux[30] = 0x11;
    linux[31] = 2;
    linux[32] = 3;
    linux[35] = 0x2b;
    const auto m = decoded_as<AddLink>(linux);
    CHECK(m.padded);
    CHECK(m.gid.text() == "fe80::");
    CHECK(m.qpn == Qpn{0x11});
    CHECK(m.link_number == 2);
    CHECK(m.mtu == clc::Mtu::k1024);
    CHECK(m.psn == Psn{0x2b});
    CHECK(bytes(encode(m)) == linux);
    // a client's invitation has neither queue pair nor MTU
    linux[30] = linux[32] = 0;
    CHECK(decoded_as<AddLink>(linux).qpn == Qpn{0});
}

TEST_CASE("rejection__repeats_what_was_asked_with_reason_2") {
    AddLink m = version<AddLink>(2);
    m.link_number = 7;
    m.mtu = clc::Mtu{9};
    m.little_endian = true;
    m.large.emplace();
    const auto request = bytes(encode(m));
    REQUIRE(fault_of(request) == "mtu: reject");
    const auto reply = bytes(encode(rejection(request)));
    REQUIRE(reply.size() == 44);
    CHECK(at(reply, 1, 3) == 0x2c00c2);
    CHECK(reply[31] == 7);
    CHECK(fault_of(reply) == "none");
}

TEST_CASE("large_messages__may_have_something_behind_their_last_element") {
    const auto longer = [](const AnyMessage& message) {
        Raw b = bytes(encode(message));
        const Raw before = b;
        b.resize(b.size() + 16, 0xee);
        wire::store_be(&b[1], 2, b.size());
        const auto decoded = decode(b);
        if (const auto* known = std::get_if<AnyMessage>(&decoded)) {
            CHECK(bytes(encode(*known)) == before);
        }
        return fault_of(b);
    };
    AddLink add = version<AddLink>(2);
    add.large.emplace();
    CHECK(longer(add) == "none");
    auto rkeys = version<DeleteRkey>(2);
    rkeys.rkeys = {RKey{1}};
    CHECK(longer(rkeys) == "none");
    RequestAddLink ask;
    ask.gid_list = {RoceGid{}};
    CHECK(longer(ask) == "none");
    ask.reply = true;
    CHECK(longer(ask) == "length: reset");  // fixed (v2.1 Request Add Link, note 5)
    // the high byte of a little-endian number of RKeys is 0
    add.little_endian = true;
    add.large->rkeys = {{RKey{1}, RKey{2}, VirtualAddress{3}}};
    CHECK(blamed(add, 71, 1) == "no_of_rkeys: reset");
}

TEST_CASE("encode__leaves_out_what_a_message_cannot_say") {
    auto rkeys = version<DeleteRkey>(1);
    for (std::uint32_t i = 0; i < 20; i++) {
        rkeys.rkeys.push_back(RKey{i});
    }
    CHECK(decoded_as<DeleteRkey>(bytes(encode(rkeys))).rkeys.size() == 8);
    auto confirm = version<ConfirmRkey>(2);
    confirm.others = {{1, RKey{1}, VirtualAddress{1}}};
    CHECK(bytes(encode(confirm))[17] == 0);  // other_tokens is 0
    auto v1 = version<ConfirmLink>(1);
    v1.cache_size = 3;
    v1.max_connections = 255;
    CHECK(bytes(encode(v1))[3] == 3);  // Linux's flag, in both versions
    CHECK(decoded_as<ConfirmLink>(bytes(encode(v1))).cache_size == 3);
    CHECK(bytes(encode(v1))[35] == 0);
}

TEST_CASE("add_link__a_bad_mtu_is_rejected_but_not_in_a_rejection") {
    AddLink m = version<AddLink>(2);
    m.large.emplace();
    m.mtu = clc::Mtu{6};
    m.qpn = Qpn{1};
    m.gid = *RoceGid::parse("fe80::1");
    CHECK(fault_of(bytes(encode(m))) == "mtu: reject");
    m.version = 1;
    CHECK(fault_of(bytes(encode(m))) == "mtu: reject");
    m.reply = true;
    CHECK(fault_of(bytes(encode(m))) == "mtu: reset");
    m.rejected = true;
    CHECK(fault_of(bytes(encode(m))) == "none");
}

TEST_CASE("add_link__keys_must_be_there") {
    AddLink m = version<AddLink>(2);
    m.large.emplace().rkeys = {{RKey{1}, RKey{2}, VirtualAddress{3}}};
    auto b = bytes(encode(m));
    b[71] = 200;  // Linux counts its connections, and lists what there is
    const auto decoded = decoded_as<AddLink>(b);
    CHECK((decoded.large && decoded.large->rkeys == m.large->rkeys));
    CHECK(blamed(m, 70, 1) == "no_of_rkeys: reset");
    m.large.reset();
    CHECK(fault_of(bytes(encode(m))) == "length: reset");  // only a rejection may be short
}

TEST_CASE("continuations__count_what_is_left_and_hold_two_or_three") {
    auto add = version<AddLinkContinuation>(1);
    add.link_number = 2;
    add.tokens_left = 255;
    add.rkeys = {{RKey{1}, RKey{2}, VirtualAddress{3}}, {RKey{4}, RKey{5}, VirtualAddress{6}}};
    auto b = bytes(encode(add));
    CHECK(at(b, 4, 2) == 0x02ff);
    CHECK(at(b, 8, 4) == 1);
    CHECK(at(b, 24, 4) == 4);
    CHECK(decoded_as<AddLinkContinuation>(b).rkeys == add.rkeys);
    b[5] = 1;
    CHECK(decoded_as<AddLinkContinuation>(b).rkeys.size() == 1);

    auto rkey = version<ConfirmRkeyContinuation>(1);
    rkey.tokens_left = 4;
    rkey.others = {{2, RKey{1}, VirtualAddress{3}}, {3, RKey{4}, VirtualAddress{6}}, {4, RKey{7}, VirtualAddress{8}}};
    b = bytes(encode(rkey));
    CHECK(at(b, 4, 1) == 4);
    CHECK(at(b, 5, 1) == 2);
    CHECK(at(b, 18, 1) == 3);
    CHECK(at(b, 31, 1) == 4);
    CHECK(at(b, 36, 8) == 8);
    CHECK(decoded_as<ConfirmRkeyContinuation>(b).others == rkey.others);
}

TEST_CASE("confirm_rkey__fields") {
    auto m = version<ConfirmRkey>(2, true);
    m.negative = true;
    m.other_tokens = 1;
    m.rkey = RKey{0x628};
    m.address = VirtualAddress{0xff24ff3544b20000};
    m.others = {{2, RKey{9}, VirtualAddress{10}}};
    const auto b = bytes(encode(m));
    CHECK(at(b, 3, 1) == 0xa0);
    CHECK(at(b, 4, 1) == 1);
    CHECK(at(b, 5, 4) == 0x628);
    CHECK(at(b, 9, 8) == 0xff24ff3544b20000);
    CHECK(at(b, 17, 1) == 2);
    CHECK(at(b, 18, 4) == 9);
    CHECK(at(b, 22, 8) == 10);
    m.retry = true;
    CHECK(at(bytes(encode(m)), 3, 1) == 0xb0);
    CHECK(blamed(m, 4, 3) == "num_tkns: reset");  // version 2 has no continuations
    m.version = 1;
    CHECK(blamed(m, 4, 7) == "none");
}

TEST_CASE("delete_rkey__three_formats") {
    auto v1 = version<DeleteRkey>(1, true);
    v1.negative = true;
    v1.error_mask = 0x50;
    v1.rkeys = {RKey{1}, RKey{2}};
    auto b = bytes(encode(v1));
    CHECK(at(b, 3, 3) == 0xa00250);
    CHECK(at(b, 8, 4) == 1);
    CHECK(at(b, 12, 4) == 2);
    b[4] = 9;  // there is room for nine, but eight is the maximum
    CHECK(fault_of(b) == "count: reset");

    auto request = version<DeleteRkey>(2);
    for (std::uint32_t i = 0; i < 255; i++) {
        request.rkeys.push_back(RKey{i});
    }
    b = bytes(encode(request));
    REQUIRE(b.size() == 1028);  // v2.1, note 2
    CHECK(decoded_as<DeleteRkey>(b).rkeys.size() == 255);
    request.rkeys = {RKey{1}};
    CHECK(encode(request).size == 44);
    CHECK(blamed(request, 4, 10) == "count: reset");

    auto reply = version<DeleteRkey>(2, true);
    reply.negative = true;
    reply.count = 20;
    reply.invalid_count = 12;  // more than are listed
    for (std::uint32_t i = 0; i < 8; i++) {
        reply.rkeys.push_back(RKey{i + 1});
    }
    b = bytes(encode(reply));
    REQUIRE(b.size() == 44);
    CHECK(at(b, 4, 2) == 0x140c);
    CHECK(decoded_as<DeleteRkey>(b).rkeys == reply.rkeys);
    CHECK(decoded_as<DeleteRkey>(b).count == 20);
}

TEST_CASE("request_add_link__has_the_gid_list_in_the_request_only") {
    auto m = version<RequestAddLink>(2);
    for (std::uint8_t i = 1; i <= 8; i++) {
        m.gid_list.push_back(RoceGid::from_ipv4({10, 9, 0, i}));
        // v2.1, note 4: 44 with one GID, 60 with two, 156 with eight
        CHECK(encode(m).size == 28U + 16U * i);
    }
    CHECK(decoded_as<RequestAddLink>(bytes(encode(m))).gid_list == m.gid_list);
    CHECK(blamed(m, 24, 0) == "gid_list_no_of_entries: reset");
    CHECK(blamed(m, 24, 9) == "gid_list_no_of_entries: reset");
    m.reply = true;
    CHECK(encode(m).size == 44);
    CHECK(at(bytes(encode(m)), 24, 20) == 0);
    CHECK(decoded_as<RequestAddLink>(bytes(encode(m))).gid_list.empty());
}

TEST_CASE("delete_link_and_test_link__fields") {
    auto m = version<DeleteLink>(1);
    m.all = m.orderly = true;
    m.reason = DeleteLinkReason::kInactivity;
    const auto b = bytes(encode(m));
    CHECK(at(b, 3, 1) == 0x60);
    CHECK(at(b, 5, 4) == 0x00030000);
    auto test = version<TestLink>(2, true);
    test.user_data[15] = 7;
    CHECK(at(bytes(encode(test)), 19, 1) == 7);
    CHECK(at(bytes(encode(test)), 3, 1) == 0x80);
}

TEST_CASE("unknown_types__are_ignored_or_an_error_by_their_first_bits") {
    Raw b(44);
    b[1] = 44;
    const auto with_type = [&](std::uint8_t type) {
        b[0] = type;
        return fault_of(b);
    };
    CHECK(with_type(0x05) == "type: reset");   // b'00': must be supported; version 1 has no REQUEST ADD LINK
    CHECK(with_type(0x0a) == "type: ignore");  // a vendor's credits
    CHECK(with_type(0x0b) == "type: reset");
    CHECK(with_type(0x23) == "type: reset");   // version 2 has no continuations
    CHECK(with_type(0x37) == "type: reset");   // version 3
    CHECK(with_type(0x87) == "type: ignore");  // b'10'
    CHECK(with_type(0xaa) == "type: ignore");
    CHECK(with_type(0xc0) == "type: reset");  // b'11': the range of CDC, but not CDC's type
}

TEST_CASE("length__must_be_that_of_the_message") {
    auto test = version<TestLink>(1);
    CHECK(blamed(test, 1, 43) == "length: reset");
    CHECK(blamed(test, 1, 45) == "length: reset");
    test.version = 2;
    CHECK(blamed(test, 2, 43) == "length: reset");
    Raw b = bytes(encode(test));
    b.resize(60);
    CHECK(fault_of(b) == "length: reset");
    b[2] = 60;
    CHECK(fault_of(b) == "length: reset");  // TEST LINK is never large
    b.resize(43);
    CHECK(fault_of(b) == "length: reset");
}

TEST_CASE("llc_round_trip__every_generated_message") {
    test::Generator generator(7609);
    for (int i = 0; i < 20000; i++) {
        const auto message = encode(generator.llc());
        const auto decoded = decode(message.view());
        if (const auto* fault = std::get_if<Fault>(&decoded)) {
            FAIL(i << ": " << fault->text());
        }
        REQUIRE(bytes(encode(std::get<AnyMessage>(decoded))) == bytes(message));
    }
}

TEST_CASE("llc_truncation__every_shorter_prefix_is_refused") {
    test::Generator generator(1);
    for (int i = 0; i < 100; i++) {
        const auto message = encode(generator.llc());
        for (std::size_t n = 0; n < message.size; n++) {
            const Raw prefix(message.bytes.begin(), message.bytes.begin() + static_cast<std::ptrdiff_t>(n));
            REQUIRE(fault_of(prefix) == "length: reset");
        }
    }
}
