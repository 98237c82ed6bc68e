// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The CLC Proposal on the wire (RFC 7609 A.2.1, SMC v2.1).
#include "clc_messages.h"

using namespace smc;
using namespace smc::clc;
using namespace smc::test::clc_messages;
using smc::test::bytes;

TEST_CASE("proposal__smcd_fields_stand_where_the_specification_says") {
    const auto b = bytes(encode(smcd_proposal()));
    CHECK(at(b, 0, 4) == 0xe2d4c3d9);
    CHECK(at(b, 4, 1) == 1);
    CHECK(at(b, 5, 2) == b.size());
    CHECK(at(b, 7, 1) == 0x26);  // version 2, SMC-Dv2, no v1 type
    CHECK(at(b, 8, 8) == 0x0102030405060708);
    CHECK(at(b, 38, 2) == 0);
    CHECK(at(b, 50, 2) == 80 - 52);  // the offset counts from its own end
    CHECK(at(b, 80, 1) == 2);        // EID Number
    CHECK(at(b, 81, 1) == 2);        // an Extended GID takes two entries
    CHECK(at(b, 83, 1) == 0x11);     // release 1, SEID present
    CHECK(at(b, 86, 2) == 32 + 64);  // to the SMC-Dv2 extension
    CHECK(at(b, 106, 2) == 1);       // Emulated-ISM
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

TEST_CASE("proposal__every_area_at_once") {
    const auto b = bytes(encode(everything()));
    CHECK(at(b, 7, 1) == 0x2f);  // both types in both versions
    CHECK(at(b, 16, 2) == 0xfe80);
    CHECK(at(b, 32, 6) == 0x525400000001);
    CHECK(at(b, 38, 2) == 40);  // skips the area for future growth
    CHECK(at(b, 40, 8) == 0x1122334455667788);
    CHECK(at(b, 48, 2) == 0x07c1);
    CHECK(at(b, 52, 3) == 0xaabbcc);
    CHECK(at(b, 80, 4) == 0xffffff00);
    CHECK(at(b, 84, 1) == 24);
    CHECK(at(b, 87, 1) == 2);
    CHECK(at(b, 88, 2) == 0xfd00);
    CHECK(at(b, 104, 1) == 64);
    const std::size_t v2 = 88 + 2 * 17;
    CHECK(at(b, 50, 2) == v2 - 52);
    CHECK(at(b, v2 + 8 + 10, 6) == 0xffff0a090002);
    CHECK(at(b, v2 + 24, 1) == 32);
    CHECK(at(b, v2 + 25, 1) == 1);
    CHECK(at(b, v2 + 6, 2) == 40 + 64 - 8);

    const auto p = std::get<Proposal>(decode_proposal(b));
    CHECK(p.subnet->prefixes[1].prefix.text() == "fd01::");
    CHECK(p.v2->eids[1].text() == "SECOND.EID-2");
    std::size_t at = 0;
    const auto device = next_ism_device(*p.v2->smcd, at);
    REQUIRE(device);
    CHECK((device->gid == kGid && device->chid == Chid{0xff00}));
    CHECK_FALSE(next_ism_device(*p.v2->smcd, at));
}

TEST_CASE("proposal__version_1_is_rfc_7609s") {
    Proposal p;
    p.version = kVersion1;
    p.v1_gid = *RoceGid::parse("fe80::1");
    p.subnet.emplace().mask = Ipv4Mask{0xffff0000};
    auto b = bytes(encode(p));
    REQUIRE(b.size() == 52);
    CHECK(at(b, 7, 1) == 0x12);  // kNone is what a Proposal starts with; a version 1 client sets SMC-R
    p.v1_offer = Offer::kSmcR;
    b = bytes(encode(p));
    CHECK(at(b, 7, 1) == 0x10);
    CHECK(at(b, 38, 2) == 0);
    CHECK(at(b, 40, 4) == 0xffff0000);
    const auto decoded = std::get<Proposal>(decode_proposal(b));
    CHECK(decoded.v2_offer == Offer::kNone);
    CHECK_FALSE(decoded.v2);

    // with SMC-D, or from Linux, the area for future growth is there
    p.v1_offer = Offer::kBoth;
    p.ism_gid = IsmGid{5};
    b = bytes(encode(p));
    REQUIRE(b.size() == 92);
    CHECK(at(b, 38, 2) == 40);
    CHECK(std::get<Proposal>(decode_proposal(b)).ism_gid == IsmGid{5});

    // no bytes may follow the last prefix, and a GID must be present if SMC-D is offered
    b = bytes(encode(p));
    b[87] = 1;
    CHECK(fault_of(decode_proposal(b)) == "number_of_ipv6_prefixes");
    CHECK(fault_of(decode_proposal(longer(encode(p), 17))) == "clc_message_length");
    p.v1_offer = Offer::kSmcR;
    p.subnet_offset = 0;
    b = bytes(encode(p));
    b[7] = 0x11;
    CHECK(fault_of(decode_proposal(b)) == "smcv1_ip_subnet_extension_offset");
}

TEST_CASE("proposal__what_does_not_matter_is_tolerated") {
    auto good = bytes(encode(smcd_proposal()));
    good[60] = good[79] = good[82] = good[84] = 0xff;  // reserved
    CHECK(fault_of(decode_proposal(good)) == "none");
    // future growth: something after the last area
    CHECK(fault_of(decode_proposal(longer(encode(smcd_proposal()), 20))) == "none");
    // a later version is read as far as version 2 goes
    good[7] = 0x36;
    CHECK(std::get<Proposal>(decode_proposal(good)).version == 3);
    // without an SMCv1 type the subnet extension is ignored
    Proposal p = everything();
    p.v1_offer = Offer::kNone;
    auto b = bytes(encode(p));
    b[87] = 200;
    CHECK_FALSE(std::get<Proposal>(decode_proposal(b)).subnet);
}

TEST_CASE("proposal__offsets_and_counts_are_checked") {
    const auto smcd = encode(smcd_proposal());
    CHECK(blamed(smcd, 51, 0xff) == "smc_version_2_extension_offset");
    CHECK(blamed(smcd, 80, 9) == "eid_number");
    CHECK(blamed(smcd, 80, 8) == "eid_number");
    CHECK(blamed(smcd, 81, 9) == "ismv2_gid_number");
    CHECK(blamed(smcd, 81, 8) == "ismv2_gid_number");
    CHECK(blamed(smcd, 87, 0xf0) == "smcdv2_extension_offset");
    CHECK(blamed(smcd, 86, 0xff) == "smcdv2_extension_offset");
    CHECK(blamed(smcd, 184 + 66 + 1, 0x01) == "ismv2_chid");             // a reserved CHID must be repeated
    CHECK(blamed(smcd, 7, 0x24) == "smcv1_ip_subnet_extension_offset");  // SMC-Rv1 without its area
    const auto all = encode(everything());
    CHECK(blamed(all, 39, 39) == "smcv1_ip_subnet_extension_offset");  // into the growth area
    CHECK(blamed(all, 38, 0xff) == "smcv1_ip_subnet_extension_offset");
    CHECK(blamed(all, 87, 9) == "number_of_ipv6_prefixes");

    // the extension is announced, but missing
    auto b = bytes(smcd);
    b[86] = b[87] = 0;
    CHECK(fault_of(decode_proposal(b)) == "smcdv2_extension_offset");
    b[81] = 0;
    b[83] = 0x10;
    CHECK_FALSE(std::get<Proposal>(decode_proposal(b)).v2->smcd);
}

TEST_CASE("proposal__areas_do_not_overlap") {
    const auto smcd = encode(smcd_proposal());
    CHECK(blamed(smcd, 51, 0) == "smc_version_2_extension_offset");  // into the reserved bytes
    CHECK(blamed(smcd, 51, 27) == "smc_version_2_extension_offset");
    auto b = bytes(smcd);
    b[86] = 0, b[87] = 32;  // the SMC-Dv2 extension overlaps the EIDs
    CHECK(fault_of(decode(b)) == "smcdv2_extension_offset");
    b = bytes(encode(everything()));
    b[51] = 28;  // the V2 extension overlaps the subnet extension
    CHECK(fault_of(decode(b)) == "smc_version_2_extension_offset");
    // a fault reports the value that was found
    b[50] = 0x7f;
    CHECK(std::get<Fault>(decode(b)).found == 0x7f1c);
    // an SEID needs the SMC-Dv2 extension
    b = bytes(smcd);
    b[81] = b[86] = b[87] = 0;
    CHECK(fault_of(decode(b)) == "smcdv2_extension_offset");
}

TEST_CASE("proposal__encoders_forget_old_offsets") {
    auto p = std::get<Proposal>(decode_proposal(encode(everything()).view()));
    p.v2.reset();
    p.subnet.reset();
    p.v2_offer = p.v1_offer = Offer::kNone;
    const auto b = bytes(encode(p));
    CHECK(at(b, 38, 2) == 0);
    CHECK(at(b, 50, 2) == 0);
    CHECK(fault_of(decode(b)) == "none");
}
