// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// CLC messages for SMC-D: Proposal, Accept, Confirm, Decline.
//
// Sources: SMC v2.1 specification, appendix "SMCv2 protocol message specifications" (cited as "v2.1");
// RFC 7609 appendix A.2. Decoders read only what the length they were given covers, allocate nothing, and
// tell what is wrong and what RFC 7609 appendix C.6 wants done about it.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "smc/ids.h"
#include "smc/layout.h"
#include "smc/reason.h"

namespace smc::clc {

using wire::Bytes;

enum class Type : std::uint8_t { kProposal = 1, kAccept = 2, kConfirm = 3, kDecline = 4 };

// v2.1, Proposal offset 7: which variants are offered.
enum class Offer : std::uint8_t { kSmcR = 0, kSmcD = 1, kNone = 2, kBoth = 3 };
constexpr bool offers_d(Offer o) {
    return o == Offer::kSmcD || o == Offer::kBoth;
}
constexpr bool offers_r(Offer o) {
    return o == Offer::kSmcR || o == Offer::kBoth;
}

enum class Os : std::uint8_t { kZos = 1, kLinux = 2, kAix = 3, kUnknown = 15 };

inline constexpr std::uint32_t kEyeCatcherR = 0xe2d4c3d9;  // "SMCR" in EBCDIC
inline constexpr std::uint32_t kEyeCatcherD = 0xe2d4c3c4;  // "SMCD" in EBCDIC
inline constexpr std::uint8_t kVersion2 = 2;
inline constexpr std::uint8_t kRelease1 = 1;
inline constexpr std::uint16_t kFeatureEmulatedIsm = 0x0001;
inline constexpr std::size_t kHeaderBytes = 8;
inline constexpr std::size_t kTrailerBytes = 4;
inline constexpr std::size_t kMaxEids = 8;
inline constexpr std::size_t kMaxGids = 8;
// The longest message: a Proposal with every extension area full.
inline constexpr std::size_t kMaxMessage = 80 + 7 + 1 + 8 * 17 + 40 + 8 * 32 + 48 + 8 * 10 + 4;

struct Header {
    std::uint32_t eye_catcher = kEyeCatcherR;
    Type type = Type::kProposal;
    std::uint16_t length = 0;
    std::uint8_t version = kVersion2;
};

struct Decline {
    std::uint8_t version = kVersion2;
    bool out_of_sync = false;
    PeerId peer_id{};
    Reason reason{};
    Os os = Os::kLinux;
    // SMC Type Diagnosis Information, zero where the type was not offered; version 2 only.
    Reason smcd_v2{}, smcd_v1{}, smcr_v2{}, smcr_v1{};
};

// One ISMv2 GID-CHID array entry. An Extended GID takes two entries in a row with the same CHID.
struct GidChid {
    std::uint64_t gid = 0;
    Chid chid{};
};

struct Proposal {
    std::uint8_t version = kVersion2;
    Offer v2_offer = Offer::kSmcD;
    Offer v1_offer = Offer::kNone;
    PeerId peer_id{};
    std::array<std::uint8_t, 16> v1_gid{};
    std::array<std::uint8_t, 6> mac{};
    std::uint16_t subnet_offset = 0;
    std::uint64_t ism_gid = 0;
    Chid ism_chid{};
    std::uint16_t v2_offset = 0;
    std::array<std::uint8_t, 3> vendor_oui{};
    std::array<std::uint8_t, 5> vendor_options{};

    // V2 extension; all zero in a version 1 Proposal
    std::uint8_t eid_count = 0;
    std::uint8_t gid_count = 0;
    std::uint8_t release = kRelease1;
    bool seid_present = false;
    std::uint16_t smcd_offset = 0;
    std::array<std::uint8_t, 16> roce_gid{};
    std::uint8_t max_connections = 0;
    std::uint8_t max_links = 0;
    std::uint16_t features = 0;
    std::array<Eid, kMaxEids> eids{};

    // SMC-Dv2 extension
    Eid seid{};
    std::array<GidChid, kMaxGids> gids{};
};

// Accept and Confirm of SMC-Dv2; they differ only in their type.
struct Acceptance {
    Type type = Type::kAccept;
    bool first_contact = false;
    Gid gid;  // parts 1 and 2
    DmbToken token{};
    std::uint8_t dmbe_index = 0;
    std::uint8_t dmbe_size = 0;  // compressed
    std::uint32_t link_id = 0;
    Chid chid{};
    Eid eid{};

    // First Contact Extension; present on first contact
    bool has_fce = false;
    Os os = Os::kLinux;
    std::uint8_t release = kRelease1;
    std::array<char, 32> host_name{};
    std::uint16_t features = 0;
    std::array<std::uint8_t, 4> vendor_options{};
};

// RFC 7609 C.6: a reserved value of an enumeration is declined, everything else that does not parse is
// treated as application data, and the connection ends.
enum class Verdict : std::uint8_t { kTreatAsData, kDecline };

struct Fault {
    const char* field;
    std::size_t offset;
    std::uint64_t found;
    const char* expected;
    Verdict verdict = Verdict::kTreatAsData;

    [[nodiscard]] std::string text() const;
};

template <class T>
using Decoded = std::variant<T, Fault>;

// Checks the first 8 bytes of a message; `length` is then what to read in all, both eye catchers included.
Decoded<Header> decode_header(Bytes first8);

// The whole message, exactly `length` bytes.
Decoded<Proposal> decode_proposal(Bytes message);
Decoded<Acceptance> decode_acceptance(Bytes message, Type expected);
Decoded<Decline> decode_decline(Bytes message);

// An encoded message.
struct Message {
    std::array<std::uint8_t, kMaxMessage> bytes{};
    std::size_t size = 0;

    [[nodiscard]] Bytes view() const { return {bytes.data(), size}; }
};

// Lengths, counts and offsets follow from the contents; those members of the argument are not read
// (except eid_count and gid_count, which say how much of the arrays is used).
Message encode(const Proposal& proposal);
Message encode(const Acceptance& acceptance);
Message encode(const Decline& decline);

// Adds an Extended GID: two entries. False when the array is full.
bool add_extended_gid(Proposal& proposal, const Gid& gid, Chid chid);
// Host names are padded with blanks and cut at 32 (v2.1, FCE).
std::array<char, 32> padded_host_name(std::string_view name);

}  // namespace smc::clc

namespace smc::wire {

template <>
struct Layout<clc::Header> {
    static constexpr std::size_t kSize = clc::kHeaderBytes;
    static constexpr auto kFields = std::tuple{
        field<&clc::Header::eye_catcher>(0, 4, "eye_catcher", "Eye catcher, message start"),
        field<&clc::Header::type>(4, 1, "type", "CLC Message Type"),
        field<&clc::Header::length>(5, 2, "length", "CLC Message Length"),
        bits<&clc::Header::version>(7, 0, 4, "version", "SMC Version"),
    };
};
static_assert(fields_fit<clc::Header>());

// v2.1 "CLC Proposal Base Message"; what the header table has is not repeated. Offsets from the start of the message.
struct ProposalBase;
template <>
struct Layout<ProposalBase> {
    using P = clc::Proposal;
    static constexpr std::size_t kSize = 80;
    static constexpr auto kFields = std::tuple{
        bits<&P::v2_offer>(7, 4, 2, "smcv2_type", "SMCv2 Type"),
        bits<&P::v1_offer>(7, 6, 2, "smcv1_type", "SMCv1 Type"),
        field<&P::peer_id>(8, 8, "peer_id", "SMC-R Client Peer ID"),
        field<&P::v1_gid>(16, 16, "smcr_v1_gid", "SMC-R V1 Client Preferred GID"),
        field<&P::mac>(32, 6, "smcr_v1_mac", "SMC-R V1 Client Preferred MAC address"),
        field<&P::subnet_offset>(38, 2, "subnet_offset", "SMCv1 IP Subnet Extension Offset"),
        field<&P::ism_gid>(40, 8, "smcd_v1_gid", "SMC-D V1 Client ISM-GID"),
        field<&P::ism_chid>(48, 2, "ismv2_chid", "ISMv2 CHID of the associated ISM GID"),
        field<&P::v2_offset>(50, 2, "v2_extension_offset", "SMC Version 2 Extension Offset"),
        field<&P::vendor_oui>(52, 3, "vendor_oui", "V2.1 Vendor Organizationally Unique Identifier"),
        field<&P::vendor_options>(55, 5, "vendor_options", "V2.1 Vendor Unique Experimental Options"),
    };
};
static_assert(fields_fit<ProposalBase>());

// v2.1 "CLC Proposal V2 Extension". Offsets from the start of the extension.
struct ProposalV2;
template <>
struct Layout<ProposalV2> {
    using P = clc::Proposal;
    static constexpr std::size_t kSize = 40;
    static constexpr auto kFields = std::tuple{
        field<&P::eid_count>(0, 1, "eid_number", "EID Number"),
        field<&P::gid_count>(1, 1, "ismv2_gid_number", "ISMv2 GID Number"),
        bits<&P::release>(3, 0, 4, "release", "SMC Version Release Number"),
        bits<&P::seid_present>(3, 7, 1, "seid_indicator", "SEID indicator"),
        field<&P::smcd_offset>(6, 2, "smcdv2_extension_offset", "SMCDv2 Extension Offset"),
        field<&P::roce_gid>(8, 16, "rocev2_gid", "RoCEv2 GID"),
        field<&P::max_connections>(24, 1, "max_connections", "Max Conn per LG"),
        field<&P::max_links>(25, 1, "max_links", "Max Links per LG"),
        field<&P::features>(26, 2, "feature_mask", "V2.1 Feature bit mask"),
    };
};
static_assert(fields_fit<ProposalV2>());

// v2.1 "CLC Proposal SMC-Dv2 Extension". The GID-CHID array follows.
struct ProposalSmcD;
template <>
struct Layout<ProposalSmcD> {
    static constexpr std::size_t kSize = 48;
    static constexpr auto kFields = std::tuple{
        field<&clc::Proposal::seid>(0, 32, "seid", "System EID"),
    };
};
static_assert(fields_fit<ProposalSmcD>());

template <>
struct Layout<clc::GidChid> {
    static constexpr std::size_t kSize = 10;
    static constexpr auto kFields = std::tuple{
        field<&clc::GidChid::gid>(0, 8, "gid", "ISMv2 GID"),
        field<&clc::GidChid::chid>(8, 2, "chid", "ISMv2 CHID"),
    };
};
static_assert(fields_fit<clc::GidChid>());

// v2.1 "CLC Accept Message (SMC-Dv2.1 format)" and Confirm, up to the First Contact Extension. The GID
// stands in two places and is handled beside this table.
template <>
struct Layout<clc::Acceptance> {
    using A = clc::Acceptance;
    static constexpr std::size_t kSize = 74;
    static constexpr auto kFields = std::tuple{
        bits<&A::first_contact>(7, 4, 1, "first_contact", "Contact"),
        field<&A::token>(16, 8, "dmb_token", "DMB Token"),
        field<&A::dmbe_index>(24, 1, "dmbe_index", "DMBE (connection) Index"),
        bits<&A::dmbe_size>(25, 0, 4, "dmbe_size", "DMBE Size"),
        field<&A::link_id>(28, 4, "link_id", "Link ID"),
        field<&A::chid>(32, 2, "ismv2_chid", "ISMv2 VCHID"),
        field<&A::eid>(34, 32, "eid", "EID"),
    };
};
static_assert(fields_fit<clc::Acceptance>());

// v2.1 "First Contact Extension", SMC-D: 36 bytes in release 0, 52 from release 1 on.
struct FirstContact;
template <>
struct Layout<FirstContact> {
    using A = clc::Acceptance;
    static constexpr std::size_t kSize = 36;
    static constexpr auto kFields = std::tuple{
        bits<&A::os>(1, 0, 4, "os_type", "OS Type"),
        bits<&A::release>(1, 4, 4, "release", "SMC Version Release Number"),
        field<&A::host_name>(4, 32, "host_name", "FCE Peer Host Name"),
    };
};
static_assert(fields_fit<FirstContact>());

struct FirstContactR1;
template <>
struct Layout<FirstContactR1> {
    using A = clc::Acceptance;
    static constexpr std::size_t kSize = 16;
    static constexpr auto kFields = std::tuple{
        field<&A::features>(2, 2, "feature_mask", "FCE v2.1 Feature bit mask"),
        field<&A::vendor_options>(4, 4, "vendor_options", "FCE Vendor Unique Experimental Options"),
    };
};
static_assert(fields_fit<FirstContactR1>());

// RFC 7609 A.2.5 and v2.1 "CLC V2 Decline Message"; a version 1 Decline ends after offset 24.
template <>
struct Layout<clc::Decline> {
    using D = clc::Decline;
    static constexpr std::size_t kSize = 40;
    static constexpr auto kFields = std::tuple{
        bits<&D::out_of_sync>(7, 4, 1, "out_of_sync", "Out of Sync"),
        field<&D::peer_id>(8, 8, "peer_id", "Sender Peer ID"),
        field<&D::reason>(16, 4, "diagnosis", "Sender Diagnosis Information"),
        bits<&D::os>(20, 0, 4, "os_type", "OS Type"),
        field<&D::smcd_v2>(24, 4, "smcdv2_reason", "SMC-Dv2 Reason Code"),
        field<&D::smcd_v1>(28, 4, "smcdv1_reason", "SMC-Dv1 Reason Code"),
        field<&D::smcr_v2>(32, 4, "smcrv2_reason", "SMC-Rv2 Reason Code"),
        field<&D::smcr_v1>(36, 4, "smcrv1_reason", "SMC-Rv1 Reason Code"),
    };
};
static_assert(fields_fit<clc::Decline>());

}  // namespace smc::wire
