// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// CLC Proposal: what the client offers. One message for SMC-R and SMC-D, version 1 and version 2 at once:
//
//   0   header                              RFC 7609 A.2.2
//   8   base: peer ID, GID, MAC, offset at 38
//   40  area for future growth              v2.1 base message; absent in RFC 7609's own version 1
//       IP subnet extension                 where the offset at 38 points, when SMCv1 is offered
//       V2 extension and its EIDs           where the offset at 50 points, when SMCv2 is offered
//       SMC-Dv2 extension and its GIDs      where the offset in the V2 extension points, when there
//       trailer
#pragma once

#include <optional>

#include "smc/wire/clc/header.h"

namespace smc::clc {

enum class Ipv4Mask : std::uint32_t {};
std::string text(Ipv4Mask mask);  // "255.255.255.0"

// GID of an ISM device; the parts of an Extended GID travel as two of them.
enum class IsmGid : std::uint64_t {};
std::string text(IsmGid gid);

struct Ipv6Prefix {
    RoceGid prefix;  // not a GID, but the same 16 bytes
    std::uint8_t length = 0;
    bool operator==(const Ipv6Prefix&) const = default;
};

// v2.1 "CLC Proposal IP Subnet Extension Area"; RFC 7609 A.2.2 from "IPv4 Subnet Mask" on.
struct Subnet {
    Ipv4Mask mask{};  // in fact the number of the subnet: 10.1.2.0, as section 3.5.1.2 says and peers do
    std::uint8_t mask_bits = 0;
    List<Ipv6Prefix, kMaxPrefixes> prefixes;
};

// One ISMv2 GID-CHID array entry. An Extended GID takes two entries in a row with the same CHID.
struct GidChid {
    IsmGid gid{};
    Chid chid{};
    bool operator==(const GidChid&) const = default;
};

// v2.1 "CLC Proposal SMC-Dv2 Extension".
struct SmcdExtension {
    Eid seid{};  // zeros when not offered
    List<GidChid, kMaxGids> gids;
};

// Fewest connections that a link group may be limited to, from release 1 on.
inline constexpr std::uint8_t kFewestConnections = 16;

// v2.1 "CLC Proposal V2 Extension".
struct V2Extension {
    std::uint8_t gid_number = 0;  // number of smcd->gids; encoders compute it
    std::uint8_t release = kRelease1;
    bool seid_present = false;
    std::uint16_t smcd_offset = 0;  // encoders compute it
    RoceGid roce_gid;
    std::uint8_t max_connections = 0;  // 16 to 255 from release 1 on; 0: no SMC-R offered
    std::uint8_t max_links = 0;        // 1 or 2
    std::uint16_t features = 0;
    List<Eid, kMaxEids> eids;
    std::optional<SmcdExtension> smcd;
};

struct Proposal {
    std::uint8_t version = kVersion2;
    Offer v2_offer = Offer::kNone;
    Offer v1_offer = Offer::kNone;
    PeerId peer_id{};
    RoceGid v1_gid;
    Mac mac;
    // Bytes from the end of this field to the subnet extension. Encoders compute it; 40 keeps the area for
    // future growth in a version 1 Proposal that has no use for it.
    std::uint16_t subnet_offset = 0;
    IsmGid ism_gid{};
    Chid ism_chid{};
    std::uint16_t v2_offset = 0;  // encoders compute it
    std::array<std::uint8_t, 3> vendor_oui{};
    std::array<std::uint8_t, 5> vendor_options{};
    std::optional<Subnet> subnet;
    std::optional<V2Extension> v2;
};

// The whole message. Versions above 2 are read as 2: their V2 part is what this side has in common with them.
Decoded<Proposal> decode_proposal(Bytes message);
Message encode(const Proposal& proposal);

// An Emulated-ISM device: two entries of the SMC-Dv2 extension, which together hold its Extended GID.
struct IsmDevice {
    Gid gid;
    Chid chid{};  // a reserved one
};
inline constexpr std::size_t kMostIsmDevices = kMaxGids / 2;
// Of UEIDs.
inline constexpr std::size_t kMostUeids = 8;
// False when the array is full.
bool add_ism_device(SmcdExtension& extension, const IsmDevice& device);
// The first Emulated-ISM device at entry `from` or after it; `from` is then after that device. Nothing: there is
// none.
std::optional<IsmDevice> next_ism_device(const SmcdExtension& extension, std::size_t& from);
Gid join(IsmGid part1, IsmGid part2);
IsmGid first_part(const Gid& gid);
IsmGid second_part(const Gid& gid);

}  // namespace smc::clc

namespace smc::wire {

struct ProposalBase;
template <>
struct Layout<ProposalBase> {
    using P = clc::Proposal;
    static constexpr std::size_t kSize = 40;
    static constexpr auto kFields = std::tuple{
        bits<&P::v2_offer>(7, 4, 2, "smcv2_type", "SMCv2 Type"),
        bits<&P::v1_offer>(7, 6, 2, "smcv1_type", "SMCv1 Type"),
        field<&P::peer_id>(8, 8, "smcr_client_peer_id", "SMC-R Client Peer ID"),
        field<&P::v1_gid>(16, 16, "smcr_v1_client_preferred_gid", "SMC-R V1 Client Preferred GID"),
        field<&P::mac>(32, 6, "smcr_v1_client_preferred_mac_address", "SMC-R V1 Client Preferred MAC address"),
        field<&P::subnet_offset>(38, 2, "smcv1_ip_subnet_extension_offset", "SMCv1 IP Subnet Extension Offset"),
    };
};
static_assert(fields_fit<ProposalBase, clc::Proposal>());

// RFC 7609's "Area for future growth" with what v2.1 put there. Offsets from the start of the message.
struct ProposalGrowth;
template <>
struct Layout<ProposalGrowth> {
    using P = clc::Proposal;
    static constexpr std::size_t kSize = 80;
    static constexpr auto kFields = std::tuple{
        field<&P::ism_gid>(40, 8, "smcd_v1_client_ism_gid", "SMC-D V1 Client ISM-GID (associated ISM GID)"),
        field<&P::ism_chid>(48, 2, "ismv2_chid", "ISMv2 CHID (associated ISM CHID)"),
        field<&P::v2_offset>(50, 2, "smc_version_2_extension_offset", "SMC Version 2 Extension Offset"),
        field<&P::vendor_oui>(52, 3, "vendor_oui", "V2.1 Vendor Organizationally Unique Identifier (OUI)"),
        field<&P::vendor_options>(55, 5, "vendor_unique_experimental_options",
                                  "V2.1 Vendor Unique Experimental Options"),
    };
};
static_assert(fields_fit<ProposalGrowth, clc::Proposal>());

template <>
struct Layout<clc::Ipv6Prefix> {
    static constexpr std::size_t kSize = 17;
    static constexpr auto kFields = std::tuple{
        field<&clc::Ipv6Prefix::prefix>(0, 16, "prefix", "IPv6 prefix value"),
        field<&clc::Ipv6Prefix::length>(16, 1, "prefix_length", "Prefix Length"),
    };
};
static_assert(fields_fit<clc::Ipv6Prefix>());

template <>
struct Layout<clc::Subnet> {
    using S = clc::Subnet;
    static constexpr std::size_t kSize = 8;
    static constexpr auto kFields = std::tuple{
        field<&S::mask>(0, 4, "subnet_mask", "Subnet Mask"),
        field<&S::mask_bits>(4, 1, "number_of_significant_bits", "Number of Significant Bits in mask"),
        count<&S::prefixes>(7, 1, "number_of_ipv6_prefixes", "Number of IPv6 Prefixes in Prefix array", "0 to 8"),
        list<&S::prefixes>(8, "prefix_array", "Prefix Array"),
    };
};
static_assert(fields_fit<clc::Subnet>());

template <>
struct Layout<clc::V2Extension> {
    using E = clc::V2Extension;
    static constexpr std::size_t kSize = 40;
    static constexpr auto kFields = std::tuple{
        count<&E::eids>(0, 1, "eid_number", "EID Number", "0 to 8"),
        field<&E::gid_number>(1, 1, "ismv2_gid_number", "ISMv2 GID Number"),
        bits<&E::release>(3, 0, 4, "smc_version_release_number", "SMC Version Release Number"),
        bits<&E::seid_present>(3, 7, 1, "seid_indicator", "SEID indicator"),
        field<&E::smcd_offset>(6, 2, "smcdv2_extension_offset", "SMCDv2 Extension Offset"),
        field<&E::roce_gid>(8, 16, "rocev2_gid", "RoCEv2 GID (IPv4 or IPv6 address)"),
        field<&E::max_connections>(24, 1, "max_conn_per_lg", "Max Conn per LG (v2.1 client preferred max)"),
        field<&E::max_links>(25, 1, "max_links_per_lg", "Max Links per LG (v2.1 client preferred max)"),
        field<&E::features>(26, 2, "feature_bit_mask", "V2.1 Feature bit mask"),
        list<&E::eids>(40, "eid_array_area", "EID Array Area"),
    };
};
static_assert(fields_fit<clc::V2Extension>());

template <>
struct Layout<clc::GidChid> {
    static constexpr std::size_t kSize = 10;
    static constexpr auto kFields = std::tuple{
        field<&clc::GidChid::gid>(0, 8, "ismv2_gid", "ISMv2 GID"),
        field<&clc::GidChid::chid>(8, 2, "ismv2_chid", "ISMv2 CHID"),
    };
};
static_assert(fields_fit<clc::GidChid>());

// The number of GIDs stands in the V2 extension.
template <>
struct Layout<clc::SmcdExtension> {
    using E = clc::SmcdExtension;
    static constexpr std::size_t kSize = 48;
    static constexpr auto kFields = std::tuple{
        field<&E::seid>(0, 32, "system_eid", "System EID"),
        list<&E::gids>(48, "ismv2_gid_chid_array_area", "ISMv2 GID-CHID Array Area"),
    };
};
static_assert(fields_fit<clc::SmcdExtension>());

}  // namespace smc::wire

namespace smc::clc {

// Every offset counts from the end of the field that holds it (v2.1, Proposal base message, note 5).
template <class L, auto Member>
constexpr std::size_t kBehind = wire::field_of<L, Member>().offset + wire::field_of<L, Member>().bytes;

// Where the extensions begin, in bytes from the start of the message; that of SMC-Dv2 for a V2 extension at `v2_at`.
inline std::size_t subnet_extension_at(const Proposal& p) {
    return kBehind<wire::ProposalBase, &Proposal::subnet_offset> + p.subnet_offset;
}
inline std::size_t v2_extension_at(const Proposal& p) {
    return kBehind<wire::ProposalGrowth, &Proposal::v2_offset> + p.v2_offset;
}
inline std::size_t smcd_extension_at(std::size_t v2_at, const V2Extension& v2) {
    return v2_at + kBehind<V2Extension, &V2Extension::smcd_offset> + v2.smcd_offset;
}

}  // namespace smc::clc
