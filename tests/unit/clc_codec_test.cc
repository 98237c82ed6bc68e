// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <catch2/catch.hpp>
#include <cstring>

#include "messages.h"
#include "smc/wire/clc.h"

using namespace smc;
using namespace smc::clc;
using smc::test::bytes;

namespace {

using Raw = std::vector<std::uint8_t>;

std::uint64_t at(const Raw& b, std::size_t offset, std::size_t width) {
    return wire::load_be(b.data() + offset, width);
}

const Gid kGid = Gid{{0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x46, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff}};

Proposal smcd_proposal() {
    Proposal p;
    p.v2_offer = Offer::kSmcD;
    p.peer_id = {1, 2, 3, 4, 5, 6, 7, 8};
    V2Extension& v2 = p.v2.emplace();
    v2.features = kFeatureEmulatedIsm;
    v2.eids = {*Eid::parse("FIRST"), *Eid::parse("SECOND.EID-2")};
    v2.seid_present = true;
    SmcdExtension& smcd = v2.smcd.emplace();
    smcd.seid = *Eid::parse("SYSTEM");
    add_ism_device(smcd, {kGid, Chid{0xff00}});
    return p;
}

Proposal everything() {
    Proposal p = smcd_proposal();
    p.v2_offer = p.v1_offer = Offer::kBoth;
    p.v1_gid = *RoceGid::parse("fe80::1");
    p.mac = {{0x52, 0x54, 0, 0, 0, 1}};
    p.ism_gid = IsmGid{0x1122334455667788};
    p.ism_chid = Chid{0x07c1};
    p.vendor_oui = {0xaa, 0xbb, 0xcc};
    p.vendor_options = {1, 2, 3, 4, 5};
    Subnet& subnet = p.subnet.emplace();
    subnet.mask = Ipv4Mask{0xffffff00};
    subnet.mask_bits = 24;
    subnet.prefixes = {{*RoceGid::parse("fd00::"), 64}, {*RoceGid::parse("fd01::"), 48}};
    p.v2->roce_gid = RoceGid::from_ipv4({10, 9, 0, 2});
    p.v2->max_connections = 32;
    p.v2->max_links = 1;
    return p;
}

AcceptD smcd_accept() {
    AcceptD a;
    a.first_contact = true;
    a.gid = first_part(kGid);
    a.gid_part2 = second_part(kGid);
    a.token = DmbToken{0x0102030405060708};
    a.dmbe_size = BufferSize{4};
    a.link_id = 77;
    a.chid = Chid{0xff00};
    a.eid = *Eid::parse("FIRST");
    FirstContact& fce = a.fce.emplace();
    fce.features = kFeatureEmulatedIsm;
    fce.host_name = HostName::padded("server.example");
    return a;
}

AcceptR smcr_confirm() {
    AcceptR a;
    a.type = Type::kConfirm;
    a.first_contact = true;
    a.peer_id = {0x48, 0x3d, 0x52, 0x54, 0, 0, 0, 1};
    a.gid = RoceGid::from_ipv4({10, 9, 0, 1});
    a.mac = {{0x52, 0x54, 0, 0, 0, 1}};
    a.qpn = Qpn{0x11};
    a.rkey = RKey{0x39b};
    a.rmbe_index = 1;
    a.alert_token = AlertToken{0x01020304};
    a.rmbe_size = BufferSize{2};
    a.rmb_address = VirtualAddress{0xff24ff3544b00000};
    a.psn = Psn{0x0e65b3};
    a.eid = *Eid::parse("TESTEID");
    FirstContact& fce = a.fce.emplace();
    fce.link_type = LinkType::kDirect;
    fce.max_connections = 255;
    fce.max_links = 2;
    fce.features = kFeatureEmulatedIsm;
    fce.vendor_options = {9, 8, 7, 6};
    a.gid_list = {RoceGid::from_ipv4({10, 9, 0, 1}), *RoceGid::parse("fd00::1")};
    return a;
}

template <class T>
std::string fault_of(const Decoded<T>& decoded) {
    const auto* fault = std::get_if<Fault>(&decoded);
    return fault == nullptr ? "none" : fault->field;
}

// The field that is blamed when a byte of a message is changed.
template <class Encoded>
std::string blamed(const Encoded& message, std::size_t offset, std::uint8_t value) {
    Raw bad = bytes(message);
    bad[offset] = value;
    return fault_of(decode(bad));
}

AcceptR smcr(const Message& m, Type type) {
    return std::get<AcceptR>(std::get<Acceptance>(decode_acceptance(m.view(), type)));
}

// `message` with `extra` zeros before its trailer, and the length to match.
Raw longer(const Message& message, std::size_t extra) {
    Raw b = bytes(message);
    b.insert(b.end() - kTrailerBytes, extra, 0);
    wire::store_be(&b[5], 2, b.size());
    return b;
}

}  // namespace

TEST_CASE("proposal__smcd_fields_stand_where_the_specification_says") {
    const auto b = bytes(encode(smcd_proposal()));
    CHECK(at(b, 0, 4) == 0xe2d4c3d9);
    CHECK(at(b, 4, 1) == 1);
    CHECK(at(b, 5, 2) == b.size());
    CHECK(at(b, 7, 1) == 0x26);  // version 2, SMC-Dv2, no v1 type
    CHECK(at(b, 8, 8) == 0x0102030405060708);
    CHECK(at(b, 38, 2) == 0);
    CHECK(at(b, 50, 2) == 80 - 52);  // offset counts from behind itself
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
    CHECK(at(b, 38, 2) == 40);  // over the area for future growth
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

    // nothing may stand behind the last prefix, and a GID must be there if SMC-D is offered
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
    // future growth: something behind the last area
    CHECK(fault_of(decode_proposal(longer(encode(smcd_proposal()), 20))) == "none");
    // a later version is read as far as version 2 goes
    good[7] = 0x36;
    CHECK(std::get<Proposal>(decode_proposal(good)).version == 3);
    // the subnet extension without an SMCv1 type is not looked at
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

    // announced, but no extension
    auto b = bytes(smcd);
    b[86] = b[87] = 0;
    CHECK(fault_of(decode_proposal(b)) == "smcdv2_extension_offset");
    b[81] = 0;
    b[83] = 0x10;
    CHECK_FALSE(std::get<Proposal>(decode_proposal(b)).v2->smcd);
}

TEST_CASE("accept_smcd__fields_stand_where_the_specification_says") {
    const auto b = bytes(encode(smcd_accept()));
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

    AcceptD subsequent = smcd_accept();
    subsequent.first_contact = false;
    subsequent.fce.reset();
    CHECK(encode(subsequent).size == 78);
    subsequent.version = kVersion1;
    CHECK(encode(subsequent).size == 48);
}

TEST_CASE("confirm_smcr__fields_stand_where_the_specification_says") {
    const auto b = bytes(encode(smcr_confirm()));
    REQUIRE(b.size() == 156 + 4 + 32 + 4);
    CHECK(at(b, 0, 4) == 0xe2d4c3d9);
    CHECK(at(b, 4, 1) == 3);
    CHECK(at(b, 7, 1) == 0x28);
    CHECK(at(b, 8, 8) == 0x483d525400000001);
    CHECK(at(b, 26, 6) == 0xffff0a090001);
    CHECK(at(b, 32, 6) == 0x525400000001);
    CHECK(at(b, 38, 3) == 0x11);
    CHECK(at(b, 41, 4) == 0x39b);
    CHECK(at(b, 45, 1) == 1);
    CHECK(at(b, 46, 4) == 0x01020304);
    CHECK(at(b, 50, 1) == 0x23);
    CHECK(at(b, 52, 8) == 0xff24ff3544b00000);
    CHECK(at(b, 61, 3) == 0x0e65b3);
    CHECK(std::memcmp(&b[64], "TESTEID ", 8) == 0);
    CHECK(at(b, 104, 1) == 0x80);  // direct
    CHECK(at(b, 105, 1) == 0x21);
    CHECK(at(b, 140, 1) == 255);
    CHECK(at(b, 141, 1) == 2);
    CHECK(at(b, 142, 2) == 1);
    CHECK(at(b, 144, 4) == 0x09080706);
    CHECK(at(b, 156, 1) == 2);
    CHECK(at(b, 170, 6) == 0xffff0a090001);
    CHECK(at(b, 176, 2) == 0xfd00);

    AcceptR a = smcr_confirm();
    a.type = Type::kAccept;
    CHECK(encode(a).size == 160);  // the GID list is the client's
    a.fce.reset();
    a.first_contact = false;
    CHECK(encode(a).size == 108);
    a.version = kVersion1;
    CHECK(encode(a).size == 68);
}

TEST_CASE("accept__lengths_and_the_fce_belong_together") {
    AcceptD d = smcd_accept();
    d.fce.reset();
    CHECK(fault_of(decode_acceptance(encode(d).view(), Type::kAccept)) == "clc_message_length");
    AcceptR r = smcr_confirm();
    r.fce.reset();
    CHECK(fault_of(decode_acceptance(encode(r).view(), Type::kConfirm)) == "clc_message_length");

    // an FCE without the flag is tolerated and ignored
    d = smcd_accept();
    d.first_contact = false;
    const auto ignored = decode_acceptance(encode(d).view(), Type::kAccept);
    CHECK_FALSE(std::get<AcceptD>(std::get<Acceptance>(ignored)).fce);
    r = smcr_confirm();
    r.first_contact = false;
    CHECK_FALSE(smcr(encode(r), Type::kConfirm).fce);
    CHECK(smcr(encode(r), Type::kConfirm).gid_list.empty());

    // SMC-D of release 0 has a short one, SMC-R has not
    d = smcd_accept();
    d.fce->bytes = kShortFce;
    d.fce->release = 0;
    CHECK(encode(d).size == 114);
    CHECK(fault_of(decode_acceptance(encode(d).view(), Type::kAccept)) == "none");
    d.fce->release = 1;
    CHECK(fault_of(decode_acceptance(encode(d).view(), Type::kAccept)) == "clc_message_length");
    r = smcr_confirm();
    r.type = Type::kAccept;
    r.fce->bytes = kShortFce;
    CHECK(encode(r).size == 160);
    r.first_contact = false;
    r.fce.reset();
    Raw cut = longer(encode(r), 36);
    CHECK(fault_of(decode_acceptance(cut, Type::kAccept)) == "none");  // out of place: not looked at
    cut[7] |= 8;
    CHECK(fault_of(decode_acceptance(cut, Type::kAccept)) == "clc_message_length");
    r = smcr_confirm();
    r.type = Type::kAccept;

    CHECK(fault_of(decode_acceptance(encode(smcd_accept()).view(), Type::kConfirm)) == "clc_message_type");
}

// v2.1 "Migration, toleration"; Linux reads and forgets what is beyond what it knows, too.
TEST_CASE("clc__what_a_later_release_appends_is_not_looked_at") {
    AcceptR accept = smcr_confirm();
    accept.type = Type::kAccept;
    AcceptD later = smcd_accept();
    later.first_contact = false;
    later.fce.reset();
    Decline shorter;
    shorter.has_types = false;
    const std::size_t extra = GENERATE(as<std::size_t>{}, 1, 15, 16, 17, 500, 60'000);
    for (const Message& message : {encode(everything()), encode(smcd_proposal()), encode(accept),
                                   encode(smcr_confirm()), encode(smcd_accept()), encode(later), encode(Decline{})}) {
        INFO(text(std::get<Header>(decode_header(message.view())).type) << " and " << extra << " bytes");
        const auto decoded = decode(longer(message, extra));
        REQUIRE(fault_of(decoded) == "none");
        CHECK(bytes(encode(std::get<AnyMessage>(decoded))) == bytes(message));
    }
    CHECK(std::get<Decline>(decode_decline(longer(encode(shorter), 12))).reason == shorter.reason);
}

TEST_CASE("clc__version_1_has_one_length_for_each_message") {
    AcceptR r = smcr_confirm();
    AcceptD d = smcd_accept();
    Decline decline;
    r.version = d.version = decline.version = kVersion1;
    r.type = Type::kAccept;
    r.fce.reset();
    d.fce.reset();
    for (const Message& message : {encode(r), encode(d), encode(decline)}) {
        INFO(text(std::get<Header>(decode_header(message.view())).type));
        CHECK(fault_of(decode(bytes(message))) == "none");
        CHECK(fault_of(decode(longer(message, 1))) == "clc_message_length");
        CHECK(fault_of(decode(longer(message, 1000))) == "clc_message_length");
    }
}

TEST_CASE("accept__the_type_must_be_that_of_the_format") {
    const auto verdict = [](const Message& message, std::uint8_t flags) {
        Raw b = bytes(message);
        b[7] = flags;
        const auto decoded = decode(b);
        const auto* fault = std::get_if<Fault>(&decoded);
        return fault == nullptr ? "none" : std::string(fault->field) + ": " + text(fault->verdict);
    };
    const auto d = encode(smcd_accept());
    CHECK(verdict(d, 0x29) == "none");
    CHECK(verdict(d, 0x28) == "smcv2_type: treat as data");
    CHECK(verdict(d, 0x2a) == "smcv2_type: decline");
    CHECK(verdict(d, 0x2b) == "smcv2_type: decline");
    const auto r = encode(smcr_confirm());
    CHECK(verdict(r, 0x28) == "none");
    CHECK(verdict(r, 0x29) == "smcv2_type: treat as data");
    CHECK(verdict(r, 0x2b) == "smcv2_type: decline");
}

TEST_CASE("accept__what_is_wrong_otherwise_is_never_declined") {
    Raw b = bytes(encode(smcr_confirm()));
    b[50] = 0x20;  // a reserved MTU, and
    b[156] = 9;    // a GID list that cannot be
    const auto decoded = decode(b);
    REQUIRE(fault_of(decoded) == "gid_list_no_of_entries");
    CHECK(std::get<Fault>(decoded).verdict == Verdict::kTreatAsData);
}

TEST_CASE("version_1__reserved_bits_are_zero") {
    AcceptR r = smcr_confirm();
    r.version = kVersion1;
    r.rc_saved = true;
    CHECK(bytes(encode(r))[7] == 0x10);
    AcceptD d = smcd_accept();
    d.version = kVersion1;
    CHECK(bytes(encode(d))[7] == 0x19);
    d.type = Type::kConfirm;
    CHECK(bytes(encode(d))[7] == 0x11);
}

TEST_CASE("proposal__areas_do_not_overlap") {
    const auto smcd = encode(smcd_proposal());
    CHECK(blamed(smcd, 51, 0) == "smc_version_2_extension_offset");  // into the reserved bytes
    CHECK(blamed(smcd, 51, 27) == "smc_version_2_extension_offset");
    auto b = bytes(smcd);
    b[86] = 0, b[87] = 32;  // the SMC-Dv2 extension onto the EIDs
    CHECK(fault_of(decode(b)) == "smcdv2_extension_offset");
    b = bytes(encode(everything()));
    b[51] = 28;  // the V2 extension onto the subnet extension
    CHECK(fault_of(decode(b)) == "smc_version_2_extension_offset");
    // a fault tells what stands there
    b[50] = 0x7f;
    CHECK(std::get<Fault>(decode(b)).found == 0x7f1c);
    // an SEID needs a place
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

TEST_CASE("confirm_smcr__the_gid_list_has_one_to_eight_entries_that_are_there") {
    const auto good = encode(smcr_confirm());
    CHECK(smcr(good, Type::kConfirm).gid_list.size() == 2);
    CHECK(blamed(good, 156, 0) == "gid_list_no_of_entries");
    CHECK(blamed(good, 156, 3) == "gid_list_no_of_entries");
    CHECK(blamed(good, 156, 9) == "gid_list_no_of_entries");
}

TEST_CASE("accept_smcr__a_reserved_mtu_declines_on_first_contact_only") {
    AcceptR a = smcr_confirm();
    a.type = Type::kAccept;
    for (const unsigned mtu : {0U, 6U, 15U}) {
        a.mtu = static_cast<Mtu>(mtu);
        const auto decoded = decode_acceptance(encode(a).view(), Type::kAccept);
        REQUIRE(fault_of(decoded) == "mtu_size");
        CHECK(std::get<Fault>(decoded).verdict == Verdict::kDecline);
        CHECK(std::get<Fault>(decoded).found == mtu);
    }
    a.first_contact = false;
    a.fce.reset();
    CHECK(fault_of(decode_acceptance(encode(a).view(), Type::kAccept)) == "none");
    CHECK(bytes_of(Mtu::k256) == 256);
    CHECK(bytes_of(Mtu::k4096) == 4096);
}

TEST_CASE("accept__a_later_version_declines") {
    auto b = bytes(encode(smcd_accept()));
    b[7] = 0x39;
    const auto decoded = decode_acceptance(b, Type::kAccept);
    REQUIRE(fault_of(decoded) == "smc_version");
    CHECK(std::get<Fault>(decoded).verdict == Verdict::kDecline);
}

TEST_CASE("decline__has_28_bytes_in_version_1_and_44_in_version_2") {
    Decline d;
    d.peer_id = {9, 8, 7, 6, 5, 4, 3, 2};
    d.reason = d.smcd_v2 = Reason::kNoUeid;
    d.smcr_v2 = Reason::kNoSmcrDevice;
    d.smcd_v1 = Reason{1};
    d.smcr_v1 = Reason{2};
    const auto b = bytes(encode(d));
    REQUIRE(b.size() == 44);
    CHECK(at(b, 7, 1) == 0x20);
    CHECK(at(b, 16, 4) == 0x03030008);
    CHECK(at(b, 20, 1) == 0x20);
    CHECK(at(b, 24, 4) == 0x03030008);
    CHECK(at(b, 28, 4) == 1);
    CHECK(at(b, 32, 4) == 0x03030002);
    CHECK(at(b, 36, 4) == 2);
    d.version = 1;
    d.out_of_sync = true;
    const auto v1 = bytes(encode(d));
    REQUIRE(v1.size() == 28);
    CHECK(at(v1, 7, 1) == 0x18);
    CHECK(at(v1, 20, 4) == 0);
    CHECK(at(v1, 24, 4) == 0xe2d4c3d9);

    // v2.1, notes 1 and 3: either eye catcher, and the short form
    d.version = 2;
    d.has_types = false;
    d.eye_catcher = EyeCatcher::kSmcd;
    REQUIRE(encode(d).size == 28);
    const auto shorter = std::get<Decline>(decode_decline(encode(d).view()));
    CHECK(shorter.os == Os::kLinux);
    CHECK_FALSE(shorter.has_types);
    CHECK(blamed(encode(d), 7, 0x10) == "none");
    CHECK(blamed(encode(Decline{}), 7, 0x10) == "clc_message_length");  // 44 bytes in version 1
}

TEST_CASE("header__bad_values_are_named") {
    const auto b = encode(smcd_accept());
    CHECK(blamed(b, 0, 0x53) == "eye_catcher");
    CHECK(blamed(b, 4, 0) == "clc_message_type");
    CHECK(blamed(b, 4, 9) == "clc_message_type");
    CHECK(blamed(b, 5, 0xff) == "clc_message_length");
    CHECK(blamed(b, 6, 131) == "clc_message_length");
    CHECK(blamed(b, 7, 0x09) == "smc_version");
    CHECK(blamed(b, 129, 0xd9) == "eye_catcher_message_end");
    CHECK(blamed(b, 4, 1) == "eye_catcher");  // a Proposal is SMCR
    const auto decoded = decode(bytes(b));
    CHECK(fault_of(decoded) == "none");
    const Fault fault{"eid_number", 80, 9, "0 to 8"};
    CHECK(fault.text() == "eid_number at offset 80 is 0x9, expected 0 to 8");
    CHECK(fault.verdict == Verdict::kTreatAsData);
}

TEST_CASE("clc_round_trip__every_generated_message") {
    test::Generator generator(7609);
    for (int i = 0; i < 20000; i++) {
        const auto message = encode(generator.clc());
        const auto decoded = decode(message.view());
        if (const auto* fault = std::get_if<Fault>(&decoded)) {
            FAIL(i << ": " << fault->text());
        }
        REQUIRE(bytes(encode(std::get<AnyMessage>(decoded))) == bytes(message));
    }
}

TEST_CASE("clc_truncation__every_shorter_prefix_is_refused") {
    test::Generator generator(254);
    for (int i = 0; i < 200; i++) {
        const auto message = encode(generator.clc());
        for (std::size_t n = 0; n < message.size; n++) {
            // a copy of exactly that size, so that a sanitizer sees a byte too many
            const Raw prefix(message.bytes.begin(), message.bytes.begin() + static_cast<std::ptrdiff_t>(n));
            const auto decoded = decode(prefix);
            REQUIRE(fault_of(decoded) != "none");
            // the right length over the wrong contents must not be a way past the checks either
            if (n >= 12) {
                Raw relabelled = prefix;
                wire::store_be(&relabelled[5], 2, n);
                wire::store_be(&relabelled[n - 4], 4, wire::load_be(relabelled.data(), 4));
                const auto any = decode(relabelled);
                if (const auto* m = std::get_if<AnyMessage>(&any)) {
                    REQUIRE(encode(*m).size <= kMaxMessage);
                    REQUIRE(fault_of(decode(encode(*m).view())) == "none");
                }
            }
        }
    }
}
