// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// CLC Accept and Confirm: what the server chose, and the client's half of it. The two differ only in their type and
// sender; SMC-R and SMC-D have formats of their own.
//
//   length   SMC-R v1   SMC-R v2                SMC-D v1   SMC-D v2
//   plain    68         108                     48         78
//   with FCE            160                     -          114 in release 0, 130 from release 1 on
//   with FCE and the client's GID list (Confirm): 164 + 16 for each GID
#pragma once

#include <optional>
#include <variant>

#include "smc/wire/clc/header.h"
#include "smc/wire/clc/proposal.h"

namespace smc::clc {

// RFC 7609 A.2.3.
enum class Mtu : std::uint8_t { k256 = 1, k512 = 2, k1024 = 3, k2048 = 4, k4096 = 5 };
constexpr bool is_valid(Mtu mtu) {
    return mtu >= Mtu::k256 && mtu <= Mtu::k4096;
}
constexpr std::uint32_t bytes_of(Mtu mtu) {
    return 128U << static_cast<unsigned>(mtu);
}
std::string text(Mtu mtu);  // "3 (1024)"

inline constexpr std::size_t kShortFce = 36;
inline constexpr std::size_t kFce = 52;

// v2.1 "First Contact Extension".
enum class LinkType : std::uint8_t { kIndirect = 0, kDirect = 1 };
std::string text(LinkType type);  // "v2_Direct"

struct FirstContact {
    LinkType link_type = LinkType::kIndirect;  // SMC-R: direct when the peers are in one subnet
    Os os = Os::kLinux;
    std::uint8_t release = kRelease1;
    HostName host_name = HostName::padded("");
    std::uint8_t max_connections = 0;  // SMC-R, release 1: 16 to 255; final in the Accept
    std::uint8_t max_links = 0;        // SMC-R, release 1: 1 or 2
    std::uint16_t features = 0;
    std::array<std::uint8_t, 4> vendor_options{};
    std::uint8_t bytes = kFce;  // on the wire; kShortFce for SMC-D in release 0
};

// RFC 7609 A.2.3 and A.2.4; v2.1 "CLC Accept Message (SMC-Rv2.1 format)" and Confirm.
struct AcceptR {
    Type type = Type::kAccept;
    std::uint8_t version = kVersion2;
    Offer smc_type = Offer::kSmcR;  // "commentary only"
    bool first_contact = false;
    bool rc_saved = false;  // Accept, v2: the server keeps the reason why it is not SMC-D
    PeerId peer_id{};
    RoceGid gid;
    Mac mac;
    Qpn qpn{};
    RKey rkey{};
    std::uint8_t rmbe_index = 0;  // counts from 1
    AlertToken alert_token{};
    BufferSize rmbe_size{};
    Mtu mtu = Mtu::k1024;
    VirtualAddress rmb_address{};
    Psn psn{};
    Eid eid{};                         // version 2
    std::optional<FirstContact> fce;   // version 2, first contact
    List<RoceGid, kMaxGids> gid_list;  // Confirm with FCE: the client's GIDs, the one in use first
};

// v2.1 "CLC Accept Message (SMC-Dv2.1 format)" and Confirm; version 1 is the first part of it, as Linux sends it.
struct AcceptD {
    Type type = Type::kAccept;
    std::uint8_t version = kVersion2;
    Offer smc_type = Offer::kSmcD;
    bool first_contact = false;
    IsmGid gid{};
    DmbToken token{};
    std::uint8_t dmbe_index = 0;  // counts from 0
    BufferSize dmbe_size{};
    std::uint32_t link_id = 0;
    Chid chid{};                      // version 2
    Eid eid{};                        // version 2
    IsmGid gid_part2{};               // version 2: with an Emulated-ISM CHID
    std::optional<FirstContact> fce;  // version 2, first contact
};

using Acceptance = std::variant<AcceptR, AcceptD>;

// Decodes an Accept or a Confirm, as `expected` says. A First Contact Extension out of place (no first contact) is
// skipped, as v2.1 wants.
Decoded<Acceptance> decode_acceptance(Bytes message, Type expected);
Message encode(const AcceptR& accept);
Message encode(const AcceptD& accept);

}  // namespace smc::clc

namespace smc::wire {

struct AcceptSmcrV1;
template <>
struct Layout<AcceptSmcrV1> {
    using A = clc::AcceptR;
    static constexpr std::size_t kSize = 64;
    static constexpr auto kFields = std::tuple{
        bits<&A::first_contact>(7, 4, 1, "contact", "Contact (first contact)"),
        bits<&A::rc_saved>(7, 5, 1, "smc_type_rc_saved", "SMC Type RC Saved"),
        bits<&A::smc_type>(7, 6, 2, "smcv2_type", "SMCv2 Type"),
        field<&A::peer_id>(8, 8, "sender_peer_id", "Sender Peer ID"),
        field<&A::gid>(16, 16, "gid", "GID (v2: IPv4 or IPv6 address)"),
        field<&A::mac>(32, 6, "mac_address", "MAC Address"),
        field<&A::qpn>(38, 3, "qp_number", "QP Number"),
        field<&A::rkey>(41, 4, "rkey", "RMB Rkey"),
        field<&A::rmbe_index>(45, 1, "rmbe_index", "RMBE (connection) Index"),
        field<&A::alert_token>(46, 4, "rmbe_alert_token", "RMBE Alert Token"),
        bits<&A::rmbe_size>(50, 0, 4, "rmbe_size", "RMBE Size"),
        bits<&A::mtu>(50, 4, 4, "mtu_size", "MTU Size"),
        field<&A::rmb_address>(52, 8, "rmb_virtual_address", "RMB PCI Virtual Address"),
        field<&A::psn>(61, 3, "psn", "PSN"),
    };
};
static_assert(fields_fit<AcceptSmcrV1, clc::AcceptR>());

// Fields that version 2 adds after version 1. Offsets from the start of the message.
struct AcceptSmcrV2;
template <>
struct Layout<AcceptSmcrV2> {
    static constexpr std::size_t kSize = 104;
    static constexpr auto kFields = std::tuple{
        field<&clc::AcceptR::eid>(64, 32, "eid", "EID (negotiated)"),
    };
};
static_assert(fields_fit<AcceptSmcrV2, clc::AcceptR>());

struct AcceptSmcdV1;
template <>
struct Layout<AcceptSmcdV1> {
    using A = clc::AcceptD;
    static constexpr std::size_t kSize = 44;
    static constexpr auto kFields = std::tuple{
        bits<&A::first_contact>(7, 4, 1, "contact", "Contact (first contact)"),
        bits<&A::smc_type>(7, 6, 2, "smcv2_type", "SMCv2 Type"),
        field<&A::gid>(8, 8, "ismv2_gid", "ISMv2-GID, Extended GID Part 1"),
        field<&A::token>(16, 8, "dmb_token", "DMB Token"),
        field<&A::dmbe_index>(24, 1, "dmbe_index", "DMBE (connection) Index"),
        bits<&A::dmbe_size>(25, 0, 4, "dmbe_size", "DMBE Size"),
        field<&A::link_id>(28, 4, "link_id", "Link ID"),
    };
};
static_assert(fields_fit<AcceptSmcdV1, clc::AcceptD>());

struct AcceptSmcdV2;
template <>
struct Layout<AcceptSmcdV2> {
    using A = clc::AcceptD;
    static constexpr std::size_t kSize = 74;
    static constexpr auto kFields = std::tuple{
        field<&A::chid>(32, 2, "ismv2_vchid", "ISMv2 VCHID"),
        field<&A::eid>(34, 32, "eid", "EID (negotiated)"),
        field<&A::gid_part2>(66, 8, "extended_gid_part_2", "Extended GID Part 2"),
    };
};
static_assert(fields_fit<AcceptSmcdV2, clc::AcceptD>());

// The First Contact Extension, offsets from its start: what it had in release 0 ...
struct FceBase;
template <>
struct Layout<FceBase> {
    using F = clc::FirstContact;
    static constexpr std::size_t kSize = clc::kShortFce;
    static constexpr auto kFields = std::tuple{
        bits<&F::os>(1, 0, 4, "os_type", "OS Type"),
        bits<&F::release>(1, 4, 4, "smc_version_release_number", "SMC Version Release Number"),
        field<&F::host_name>(4, 32, "peer_host_name", "FCE Peer Host Name"),
    };
};
static_assert(fields_fit<FceBase, clc::FirstContact>());

// ... the link type of SMC-R ...
struct FceLinkType;
template <>
struct Layout<FceLinkType> {
    static constexpr std::size_t kSize = 1;
    static constexpr auto kFields = std::tuple{
        bits<&clc::FirstContact::link_type>(0, 0, 1, "v2_link_type", "V2 Link Type"),
    };
};
static_assert(fields_fit<FceLinkType, clc::FirstContact>());

// ... and what release 1 added: for SMC-R all of it, for SMC-D all but the maxima.
struct FceMaxima;
template <>
struct Layout<FceMaxima> {
    using F = clc::FirstContact;
    static constexpr std::size_t kSize = clc::kFce;
    static constexpr auto kFields = std::tuple{
        field<&F::max_connections>(36, 1, "max_connections_per_lg", "FCE Max Connections per LG"),
        field<&F::max_links>(37, 1, "max_links_per_lg", "FCE Max Links per LG"),
    };
};
static_assert(fields_fit<FceMaxima, clc::FirstContact>());

struct FceRelease1;
template <>
struct Layout<FceRelease1> {
    using F = clc::FirstContact;
    static constexpr std::size_t kSize = clc::kFce;
    static constexpr auto kFields = std::tuple{
        field<&F::features>(38, 2, "feature_bit_mask", "FCE v2.1 Feature bit mask"),
        field<&F::vendor_options>(40, 4, "vendor_unique_experimental_options",
                                  "FCE Vendor Unique Experimental Options Area"),
    };
};
static_assert(fields_fit<FceRelease1, clc::FirstContact>());

// v2.1 "Client RoCEv2 GID List" of a Confirm, from its start.
struct ClientGidList;
template <>
struct Layout<ClientGidList> {
    using A = clc::AcceptR;
    static constexpr std::size_t kSize = 4;
    static constexpr auto kFields = std::tuple{
        count<&A::gid_list>(0, 1, "gid_list_no_of_entries", "GID List No of Entries", "1 to 8"),
        list<&A::gid_list>(4, "gid_list_array_area", "GID List Array Area"),
    };
};
static_assert(fields_fit<ClientGidList, clc::AcceptR>());

}  // namespace smc::wire
