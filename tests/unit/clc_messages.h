// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// CLC messages with every field set, and the field that a decoder names when a message is wrong.
#pragma once

#include <catch2/catch.hpp>
#include <cstring>

#include "messages.h"
#include "smc/wire/clc.h"

namespace smc::test::clc_messages {

using namespace smc::clc;

using Raw = std::vector<std::uint8_t>;

inline std::uint64_t at(const Raw& b, std::size_t offset, std::size_t width) {
    return wire::load_be(b.data() + offset, width);
}

inline const Gid kGid =
    Gid{{0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x46, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff}};

inline Proposal smcd_proposal() {
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

inline Proposal everything() {
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

inline AcceptD smcd_accept() {
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

inline AcceptR smcr_confirm() {
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

// The field that the decoder names when one byte of a message is changed.
template <class Encoded>
std::string blamed(const Encoded& message, std::size_t offset, std::uint8_t value) {
    Raw bad = bytes(message);
    bad[offset] = value;
    return fault_of(decode(bad));
}

inline AcceptR smcr(const Message& m, Type type) {
    return std::get<AcceptR>(std::get<Acceptance>(decode_acceptance(m.view(), type)));
}

// `message` with `extra` zeros before its trailer; its length field is adapted.
inline Raw longer(const Message& message, std::size_t extra) {
    Raw b = bytes(message);
    b.insert(b.end() - kTrailerBytes, extra, 0);
    wire::store_be(&b[5], 2, b.size());
    return b;
}

}  // namespace smc::test::clc_messages
