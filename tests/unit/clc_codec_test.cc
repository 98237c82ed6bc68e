// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <catch2/catch.hpp>
#include <cstring>

#include "smc/clc.h"

using namespace smc;
using namespace smc::clc;

namespace {

std::vector<std::uint8_t> bytes(const Message& m) {
    return {m.bytes.begin(), m.bytes.begin() + static_cast<std::ptrdiff_t>(m.size)};
}

std::uint64_t at(const std::vector<std::uint8_t>& b, std::size_t offset, std::size_t width) {
    return wire::load_be(b.data() + offset, width);
}

const Gid kGid = *Gid::parse("00112233-4455-4677-8899-aabbccddeeff");

Proposal full_proposal() {
    Proposal p;
    p.peer_id = {1, 2, 3, 4, 5, 6, 7, 8};
    p.features = kFeatureEmulatedIsm;
    p.eids[p.eid_count++] = *Eid::parse("FIRST");
    p.eids[p.eid_count++] = *Eid::parse("SECOND.EID-2");
    p.seid_present = true;
    p.seid = *Eid::parse("SYSTEM");
    add_extended_gid(p, kGid, Chid{0xff00});
    return p;
}

Acceptance first_accept() {
    Acceptance a;
    a.first_contact = a.has_fce = true;
    a.gid = kGid;
    a.token = DmbToken{0x0102030405060708};
    a.dmbe_size = 4;
    a.link_id = 77;
    a.chid = Chid{0xff00};
    a.eid = *Eid::parse("FIRST");
    a.features = kFeatureEmulatedIsm;
    a.host_name = padded_host_name("server.example");
    return a;
}

// CLC Proposal, then Decline, of Linux 6.12 (capture linux612-decline-no-common-eid.pcap, frames 11 and 13).
const std::vector<std::uint8_t> kLinuxProposalHead{0xe2, 0xd4, 0xc3, 0xd9, 0x01, 0x00, 0x9c, 0x22};

}  // namespace

TEST_CASE("proposal__fields_stand_where_the_specification_says") {
    const auto b = bytes(encode(full_proposal()));
    CHECK(at(b, 0, 4) == 0xe2d4c3d9);
    CHECK(at(b, 4, 1) == 1);
    CHECK(at(b, 5, 2) == b.size());
    CHECK(at(b, 7, 1) == 0x26);        // version 2, SMC-Dv2, no v1 type
    CHECK(at(b, 8, 8) == 0x0102030405060708);
    CHECK(at(b, 50, 2) == 80 - 52);    // offset counts from behind itself
    CHECK(at(b, 80, 1) == 2);          // EID Number
    CHECK(at(b, 81, 1) == 2);          // an Extended GID takes two entries
    CHECK(at(b, 83, 1) == 0x11);       // release 1, SEID present
    CHECK(at(b, 86, 2) == 32 + 64);    // to the SMC-Dv2 extension
    CHECK(at(b, 106, 2) == 1);         // Emulated-ISM
    CHECK(std::memcmp(&b[120], "FIRST                           ", 32) == 0);
    const std::size_t smcd = 120 + 64;
    CHECK(std::memcmp(&b[smcd], "SYSTEM  ", 8) == 0);
    CHECK(at(b, smcd + 48, 8) == 0x0011223344554677);
    CHECK(at(b, smcd + 56, 2) == 0xff00);
    CHECK(at(b, smcd + 58, 8) == 0x8899aabbccddeeff);
    CHECK(at(b, smcd + 66, 2) == 0xff00);
    CHECK(b.size() == smcd + 68 + 4);
    CHECK(at(b, b.size() - 4, 4) == 0xe2d4c3d9);
}

TEST_CASE("accept__fields_stand_where_the_specification_says") {
    const auto b = bytes(encode(first_accept()));
    REQUIRE(b.size() == 130);
    CHECK(at(b, 0, 4) == 0xe2d4c3c4);
    CHECK(at(b, 7, 1) == 0x29);  // version 2, first contact, SMC-Dv2
    CHECK(at(b, 8, 8) == 0x0011223344554677);
    CHECK(at(b, 16, 8) == 0x0102030405060708);
    CHECK(at(b, 25, 1) == 0x40);
    CHECK(at(b, 28, 4) == 77);
    CHECK(at(b, 32, 2) == 0xff00);
    CHECK(std::memcmp(&b[34], "FIRST ", 6) == 0);
    CHECK(at(b, 66, 8) == 0x8899aabbccddeeff);
    CHECK(at(b, 75, 1) == 0x21);  // Linux, release 1
    CHECK(std::memcmp(&b[78], "server.example  ", 16) == 0);
    CHECK(at(b, 112, 2) == 1);
    CHECK(at(b, 126, 4) == 0xe2d4c3c4);

    Acceptance subsequent = first_accept();
    subsequent.first_contact = subsequent.has_fce = false;
    CHECK(encode(subsequent).size == 78);
}

TEST_CASE("decline__has_28_bytes_in_version_1_and_44_in_version_2") {
    Decline d;
    d.peer_id = {9, 8, 7, 6, 5, 4, 3, 2};
    d.reason = d.smcd_v2 = Reason::kNoUeid;
    d.smcr_v2 = Reason::kNoSmcrDevice;
    const auto b = bytes(encode(d));
    REQUIRE(b.size() == 44);
    CHECK(at(b, 7, 1) == 0x20);
    CHECK(at(b, 16, 4) == 0x03030008);
    CHECK(at(b, 20, 1) == 0x20);
    CHECK(at(b, 24, 4) == 0x03030008);
    CHECK(at(b, 32, 4) == 0x03030002);
    d.version = 1;
    d.out_of_sync = true;
    const auto v1 = bytes(encode(d));
    REQUIRE(v1.size() == 28);
    CHECK(at(v1, 7, 1) == 0x18);
    CHECK(at(v1, 24, 4) == 0xe2d4c3d9);
}

TEST_CASE("round_trip__every_message") {
    const auto p = encode(full_proposal());
    const auto decoded = decode_proposal(p.view());
    REQUIRE(std::holds_alternative<Proposal>(decoded));
    CHECK(bytes(encode(std::get<Proposal>(decoded))) == bytes(p));

    const auto a = encode(first_accept());
    const auto accepted = decode_acceptance(a.view(), Type::kAccept);
    REQUIRE(std::holds_alternative<Acceptance>(accepted));
    CHECK(std::get<Acceptance>(accepted).gid == kGid);
    CHECK(bytes(encode(std::get<Acceptance>(accepted))) == bytes(a));

    Decline d;
    d.reason = Reason::kPeerDeclined;
    const auto declined = decode_decline(encode(d).view());
    REQUIRE(std::holds_alternative<Decline>(declined));
    CHECK(std::get<Decline>(declined).reason == Reason::kPeerDeclined);
}

TEST_CASE("truncation__every_shorter_prefix_is_refused") {
    const auto p = encode(full_proposal());
    for (std::size_t n = 0; n < p.size; n++) {
        CHECK(std::holds_alternative<Fault>(decode_proposal(p.view().first(n))));
    }
    const auto a = encode(first_accept());
    for (std::size_t n = 0; n < a.size; n++) {
        CHECK(std::holds_alternative<Fault>(decode_acceptance(a.view().first(n), Type::kAccept)));
    }
    const auto d = encode(Decline{});
    for (std::size_t n = 0; n < d.size; n++) {
        CHECK(std::holds_alternative<Fault>(decode_decline(d.view().first(n))));
    }
}

TEST_CASE("header__bad_values_are_named") {
    auto head = kLinuxProposalHead;
    REQUIRE(std::holds_alternative<Header>(decode_header(head)));
    const auto fault = [&](std::size_t offset, std::uint8_t value) {
        auto bad = head;
        bad[offset] = value;
        const auto decoded = decode_header(bad);
        return std::holds_alternative<Fault>(decoded) ? std::string(std::get<Fault>(decoded).field) : "none";
    };
    CHECK(fault(0, 0x53) == "eye_catcher");
    CHECK(fault(4, 0) == "type");
    CHECK(fault(4, 9) == "type");
    CHECK(fault(5, 0xff) == "length");
    CHECK(fault(7, 0x02) == "version");
}

TEST_CASE("proposal__reserved_bits_are_tolerated_and_offsets_checked") {
    auto good = bytes(encode(full_proposal()));
    good[60] = good[79] = good[82] = good[84] = 0xff;  // reserved
    CHECK(std::holds_alternative<Proposal>(decode_proposal(good)));

    const auto fault = [](std::size_t offset, std::uint8_t value) {
        auto bad = bytes(encode(full_proposal()));
        bad[offset] = value;
        const auto decoded = decode_proposal(bad);
        return std::holds_alternative<Fault>(decoded) ? std::string(std::get<Fault>(decoded).field) : "none";
    };
    CHECK(fault(51, 0xff) == "v2_extension_offset");
    CHECK(fault(80, 9) == "eid_number");
    CHECK(fault(80, 8) == "eid_number");
    CHECK(fault(81, 9) == "ismv2_gid_number");
    CHECK(fault(87, 0xf0) == "smcdv2_extension_offset");
    CHECK(fault(87 - 1, 0xff) == "smcdv2_extension_offset");
    // a reserved CHID must be repeated in the next entry
    CHECK(fault(184 + 66 + 1, 0x01) == "chid");
}

TEST_CASE("accept__lengths_and_the_fce_belong_together") {
    Acceptance a = first_accept();
    a.has_fce = false;
    CHECK(std::holds_alternative<Fault>(decode_acceptance(encode(a).view(), Type::kAccept)));

    // an FCE without the flag is tolerated and ignored
    a = first_accept();
    a.first_contact = false;
    const auto ignored = decode_acceptance(encode(a).view(), Type::kAccept);
    REQUIRE(std::holds_alternative<Acceptance>(ignored));
    CHECK_FALSE(std::get<Acceptance>(ignored).has_fce);

    // release 0 has the short one
    a = first_accept();
    a.release = 0;
    CHECK(encode(a).size == 114);
    const auto old = decode_acceptance(encode(a).view(), Type::kAccept);
    REQUIRE(std::holds_alternative<Acceptance>(old));
    CHECK(std::get<Acceptance>(old).release == 0);

    CHECK(std::holds_alternative<Fault>(decode_acceptance(encode(first_accept()).view(), Type::kConfirm)));
}

TEST_CASE("eid__rules") {
    CHECK(Eid::parse("A"));
    CHECK(Eid::parse("0-A.B"));
    CHECK_FALSE(Eid::parse(""));
    CHECK_FALSE(Eid::parse("a"));
    CHECK_FALSE(Eid::parse("-A"));
    CHECK_FALSE(Eid::parse("A..B"));
    CHECK_FALSE(Eid::parse(std::string(33, 'A')));
    CHECK(Eid::parse("TESTEID")->text() == "TESTEID");
}
