// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The pages of the specifications, typed off row by row, against the tables of the library: the rows of a page tile the
// message without a hole, every field of the library is a row, and every row that is not reserved is a field.
//
// A row is "offset[.bit] length[b] name"; b means bits, "*" a list up to what follows, "-" reserved.
#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <sstream>
#include <vector>

#include "smc/cdc.h"
#include "smc/clc.h"
#include "smc/llc.h"
#include "smc/tcp_option.h"

using namespace smc;
using wire::Kind;

namespace {

struct Range {
    unsigned start = 0, bits = 0;  // bits 0: a list
    std::string name;

    bool operator==(const Range& other) const { return start == other.start && bits == other.bits; }
};

std::vector<Range> page(const char* text) {
    std::vector<Range> rows;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        std::istringstream words(line);
        std::string offset, length, name;
        if (!(words >> offset >> length)) {
            continue;
        }
        std::getline(words >> std::ws, name);
        const auto dot = offset.find('.');
        const auto start = static_cast<unsigned>(std::stoul(offset)) * 8 +
                           (dot == std::string::npos ? 0 : static_cast<unsigned>(std::stoul(offset.substr(dot + 1))));
        const unsigned bits = length == "*" ? 0 : static_cast<unsigned>(std::stoul(length)) * (length.back() == 'b' ? 1 : 8);
        rows.push_back({start, bits, name});
    }
    return rows;
}

template <class L>
void collect(std::vector<Range>& out, unsigned base) {
    wire::for_each_row<L>([&](const auto& row) {
        using R = std::remove_cvref_t<decltype(row)>;
        const unsigned start = base + row.offset * 8U;
        if constexpr (R::kKind == Kind::kPart) {
            using T = std::remove_cvref_t<decltype(R::in(std::declval<typename wire::Layout<L>::M&>()))>;
            collect<T>(out, start);
        } else if constexpr (R::kKind == Kind::kFlag) {
            out.push_back({start + static_cast<unsigned>(std::countl_zero(static_cast<std::uint8_t>(R::kMask))), 1, row.name});
        } else if constexpr (R::kKind == Kind::kBits) {
            out.push_back({start + row.bit, row.bits, row.name});
        } else {
            out.push_back({start, row.bytes * 8U, row.name});
        }
    });
}

// Tables, each with the offset at which it starts.
template <class... L>
std::vector<Range> fields(std::initializer_list<unsigned> bases) {
    std::vector<Range> out;
    const unsigned* base = bases.begin();
    (collect<L>(out, 8 * *base++), ...);
    return out;
}

void compare(const char* text, const std::vector<Range>& library) {
    unsigned end = 0;
    for (const Range& row : page(text)) {
        INFO("row " << row.name << " at byte " << row.start / 8);
        CHECK(row.start == end);
        end = row.start + row.bits;
        const bool known = std::find(library.begin(), library.end(), row) != library.end();
        CHECK(known == (row.name != "-"));
    }
    const auto rows = page(text);
    for (const Range& field : library) {
        INFO("field " << field.name << " at byte " << field.start / 8);
        CHECK(std::find(rows.begin(), rows.end(), field) != rows.end());
    }
}

}  // namespace

TEST_CASE("rfc_7609_a1__tcp_option") {
    compare(R"(0 1 Kind
               1 1 Length
               2 4 ExID)", fields<tcp::SmcOption>({0}));
}

TEST_CASE("rfc_7609_a22__proposal") {
    compare(R"(0  4  eye catcher
               4  1  Type
               5  2  Length
               7.0 4b Version
               7.4 2b Rsrvd in version 1; SMCv2 type
               7.6 2b Rsrvd in version 1; SMCv1 type
               8  8  Client's Peer ID
               16 16 Client's preferred GID
               32 6  Client's preferred RoCE MAC address
               38 2  Offset to mask/prefix area
               40 4  IPv4 Subnet Mask
               44 1  IPv4 Mask Lgth
               45 2  -
               47 1  Num IPv6 prfx
               48 *  Array of IPv6 prefixes)",
            fields<clc::Header, wire::ProposalBase, clc::Subnet>({0, 0, 40}));
    compare(R"(0  16 IPv6 prefix value
               16 1  Prefix Length)", fields<clc::Ipv6Prefix>({0}));
}

TEST_CASE("v21__proposal_base_message") {
    compare(R"(0  4  Eye catcher 'SMCR'
               4  1  CLC Message Type 01
               5  2  CLC Message Length
               7.0 4b SMC Version
               7.4 2b SMCv2 Type
               7.6 2b SMCv1 Type
               8  8  SMC-R Client Peer ID
               16 16 SMC-R V1 Client Preferred GID
               32 6  SMC-R V1 Client Preferred MAC address
               38 2  SMCv1 IP Subnet Extension Offset
               40 8  SMC-D V1 Client ISM-GID
               48 2  ISMv2 CHID
               50 2  SMC Version 2 Extension Offset
               52 3  Vendor OUI
               55 5  Vendor Unique Experimental Options
               60 20 -)", fields<clc::Header, wire::ProposalBase, wire::ProposalGrowth>({0, 0, 0}));
}

TEST_CASE("v21__proposal_extensions") {
    compare(R"(0  1  EID Number
               1  1  ISMv2 GID Number
               2  1  -
               3.0 4b SMC Version Release Number
               3.4 3b -
               3.7 1b SEID indicator
               4  2  -
               6  2  SMCDv2 Extension Offset
               8  16 RoCEv2 GID
               24 1  Max Conn per LG
               25 1  Max Links per LG
               26 2  V2.1 Feature bit mask
               28 12 -
               40 *  EID Array Area)", fields<clc::V2Extension>({0}));
    compare(R"(0  32 System EID
               32 16 -
               48 *  ISMv2 GID-CHID Array Area)", fields<clc::SmcdExtension>({0}));
    compare(R"(0 8 ISMv2 GID
               8 2 ISMv2 CHID)", fields<clc::GidChid>({0}));
}

TEST_CASE("v21__accept_and_confirm_smcd") {
    compare(R"(0  4  Eye catcher 'SMCD'
               4  1  CLC Message Type
               5  2  Length
               7.0 4b SMC Version
               7.4 1b Contact
               7.5 3b -
               8  8  ISMv2-GID
               16 8  DMB Token
               24 1  DMBE (connection) Index
               25.0 4b DMBE Size
               25.4 4b -
               26 2  -
               28 4  Link ID
               32 2  ISMv2 VCHID
               34 32 EID
               66 8  Extended GID Part 2
               74 1  -
               75.0 4b OS Type
               75.4 4b SMC Version Release Number
               76 2  -
               78 32 FCE Peer Host Name
               110 2 -
               112 2 FCE v2.1 Feature bit mask
               114 4 FCE Vendor Unique Experimental Options Area
               118 8 -)",
            fields<clc::Header, wire::AcceptSmcdV1, wire::AcceptSmcdV2, wire::FceBase, wire::FceRelease1>({0, 0, 0, 74, 74}));
}

TEST_CASE("v21__accept_and_confirm_smcr") {
    compare(R"(0  4  Eye catcher 'SMCR'
               4  1  CLC Message Type
               5  2  Length
               7.0 4b SMC Version
               7.4 1b Contact
               7.5 1b SMC Type RC Saved
               7.6 2b -
               8  8  Sender Peer ID
               16 16 GID
               32 6  MAC Address
               38 3  QP Number
               41 4  Rkey
               45 1  RMBE (connection) Index
               46 4  RMBE Alert Token
               50.0 4b RMBE Size
               50.4 4b MTU Size
               51 1  -
               52 8  RMB PCI Virtual Address
               60 1  -
               61 3  PSN
               64 32 EID
               96 8  -
               104.0 1b V2 Link Type
               104.1 7b -
               105.0 4b OS Type
               105.4 4b SMC Version Release Number
               106 2 -
               108 32 FCE Peer Host Name
               140 1 FCE Max Connections per LG
               141 1 FCE Max Links per LG
               142 2 FCE Feature Bit Mask
               144 4 FCE Vendor Unique Experimental Options Area
               148 8 -
               156 1 GID List No of Entries
               157 3 -
               160 * GID List Array Area)",
            fields<clc::Header, wire::AcceptSmcrV1, wire::AcceptSmcrV2, wire::FceLinkType, wire::FceBase, wire::FceMaxima,
                   wire::FceRelease1, wire::ClientGidList>({0, 0, 0, 104, 104, 104, 104, 156}));
}

TEST_CASE("v21__decline") {
    compare(R"(0  4  Eye catcher
               4  1  CLC Message Type 04
               5  2  CLC Message Length
               7.0 4b SMC Version
               7.4 1b Out of Sync
               7.5 3b -
               8  8  Sender Peer ID
               16 4  Sender Diagnosis Information
               20.0 4b OS Type
               20.4 4b -
               21 3  -
               24 4  SMC-Dv2 Reason Code
               28 4  SMC-Dv1 Reason Code
               32 4  SMC-Rv2 Reason Code
               36 4  SMC-Rv1 Reason Code)",
            fields<clc::Header, wire::DeclineV1, wire::DeclineOs, wire::DeclineTypes>({0, 0, 0, 0}));
}

TEST_CASE("v21__llc_type_field_and_confirm_link") {
    compare(R"(0.0 1b LLC Type Code Unsupported
               0.1 3b LLC SMC-R Version
               0.4 4b LLC Type Code
               1  2  Length
               3.0 1b Request or Reply
               3.1 3b -
               3.4 4b System Cache Size
               4  6  MAC Address
               10 16 RoCEv2 GID
               26 3  QP number
               29 1  Link number
               30 4  Link ID
               34 1  Max Links per LG
               35 1  Max Connections per LG
               36 8  -)", fields<wire::LlcTypeField, wire::LlcHeaderV2, llc::ConfirmLink>({0, 0, 0}));
}

TEST_CASE("rfc_7609_a32__add_link") {
    compare(R"(0  1  -
               1  1  Length
               2.0 4b -
               2.4 4b RsnCode
               3.0 1b R
               3.1 1b Z
               3.2 6b -
               4  6  Sender's RoCE MAC address
               10 16 Sender's RoCE GID
               26 3  Sender's QP number
               29 1  Link number
               30.0 4b -
               30.4 4b MTU
               31 3  Initial PSN
               34 10 -)", fields<wire::LlcHeaderV1, wire::AddLinkV1>({0, 0}));
}

TEST_CASE("v21__add_link") {
    compare(R"(0  1  -
               1  2  Length
               3.0 1b Request or Reply
               3.1 1b Response Type
               3.2 2b -
               3.4 4b Reject Reason Code
               4  6  MAC Address
               10 2  -
               12 16 RoCEv2 GID
               28 3  QP number
               31 1  Link number
               32.0 4b -
               32.4 4b QP Enumerated MTU
               33 3  Initial PSN
               36 8  -
               44.0 1b link type
               44.1 7b -
               45 1  -
               46 16 Client Target GID
               62 8  -
               70 2  No of RKeys
               72 *  RKey Array Area)", fields<wire::LlcHeaderV2, wire::AddLinkV2, llc::AddLinkLarge>({0, 0, 0}));
    compare(R"(0 4 Reference RKey
               4 4 New RKey
               8 8 New Virtual Address)", fields<llc::RTokenPair>({0}));
}

TEST_CASE("rfc_7609_a33__add_link_continuation") {
    compare(R"(0  1  -
               1  1  Length
               2  1  -
               3.0 1b R
               3.1 7b -
               4  1  Linknum
               5  1  NumRTokens
               6  2  -
               8  *  RKey/RToken pairs)", fields<wire::LlcHeaderV1, llc::AddLinkContinuation>({0, 0}));
}

TEST_CASE("v21__request_add_link_and_delete_link") {
    compare(R"(0  1  -
               1  2  Length
               3.0 1b Request or Reply
               3.1 1b Response Type
               3.2 2b -
               3.4 4b Reject Reason Code
               4  20 -
               24 1  GID List No of Entries
               25 3  -
               28 *  GID List Array Area)",
            fields<wire::LlcHeaderV2, wire::RequestAddLinkFlags, wire::RequestAddLinkGids>({0, 0, 0}));
    compare(R"(0  1  -
               1  2  Length
               3.0 1b Request or Reply
               3.1 1b all links in the LG
               3.2 1b orderly
               3.3 5b -
               4  1  Link number
               5  4  Reason Code
               9  35 -)", fields<wire::LlcHeaderV2, llc::DeleteLink>({0, 0}));
}

TEST_CASE("v21_and_rfc_7609_a35_a36__confirm_rkey") {
    compare(R"(0  1  -
               1  2  Length
               3.0 1b Request or Reply
               3.1 1b -
               3.2 1b negative reply
               3.3 1b Retry RKey set
               3.4 4b -
               4  1  No of other RToken pairs
               5  4  New RMB RKey
               9  8  New RMB Virtual Address
               17 *  Other RMB RToken Pairs)", fields<wire::LlcHeaderV2, llc::ConfirmRkey>({0, 0}));
    compare(R"(0  1  -
               1  1  Length
               2  1  -
               3.0 1b R
               3.1 1b -
               3.2 1b Z
               3.3 5b -
               4  1  NumTknsLeft
               5  *  Other link RMB specifications)", fields<wire::LlcHeaderV1, llc::ConfirmRkeyContinuation>({0, 0}));
    compare(R"(0 1 Link Number
               1 4 Rkey for this link
               5 8 RMB Virtual Address for this link)", fields<llc::LinkRToken>({0}));
}

TEST_CASE("v21_and_rfc_7609_a37_a38__delete_rkey_and_test_link") {
    const char* v1_and_reply = R"(0  1  -
               1  2  Length
               3.0 1b Request or Reply
               3.1 1b -
               3.2 1b negative reply
               3.3 5b -
               4  1  Count
               5  1  Invalid Rkey Count; Error Mask in version 1
               6  2  -
               8  *  RKeys)";
    compare(v1_and_reply, fields<wire::LlcHeaderV2, wire::DeleteRkeyReplyV2>({0, 0}));
    compare(R"(0  1  -
               1  1  Length
               2  1  -
               3.0 1b R
               3.1 1b -
               3.2 1b Z
               3.3 5b -
               4  1  Count
               5  1  Error Mask
               6  2  -
               8  *  RKeys)", fields<wire::LlcHeaderV1, wire::DeleteRkeyV1>({0, 0}));
    compare(R"(0  1  -
               1  2  Length
               3.0 1b Request or Reply
               3.1 1b -
               3.2 1b negative reply
               3.3 5b -
               4  1  Count
               5  3  -
               8  *  RKeys to be deleted)", fields<wire::LlcHeaderV2, wire::DeleteRkeyRequestV2>({0, 0}));
    compare(R"(0  1  -
               1  2  Length
               3.0 1b Request or Reply
               3.1 7b -
               4  16 User Data
               20 24 -)", fields<wire::LlcHeaderV2, llc::TestLink>({0, 0}));
}

TEST_CASE("rfc_7609_a4__cdc") {
    compare(R"(0  1  Type
               1  1  Length
               2  2  Sequence number
               4  4  SMC-R alert token
               8  2  -
               10 2  Producer cursor wrap seqno
               12 4  Producer Cursor
               16 2  -
               18 2  Consumer cursor wrap seqno
               20 4  Consumer Cursor
               24.0 1b B
               24.1 1b P
               24.2 1b U
               24.3 1b R
               24.4 1b F
               24.5 3b -
               25.0 1b D
               25.1 1b C
               25.2 1b A
               25.3 5b -
               26 18 -)", fields<cdc::Message>({0}));
}

TEST_CASE("enumerations__have_the_values_of_the_pages") {
    CHECK(clc::text(clc::Offer{0}) == "SMC-R");
    CHECK(clc::text(clc::Offer{1}) == "SMC-D");
    CHECK(clc::text(clc::Offer{2}) == "none");
    CHECK(clc::text(clc::Offer{3}) == "SMC-R and SMC-D");
    CHECK(clc::text(clc::Os{1}) == "z/OS");
    CHECK(clc::text(clc::Os{2}) == "Linux");
    CHECK(clc::text(clc::Os{3}) == "AIX");
    CHECK(clc::text(clc::Os{15}) == "unknown");
    const char* mtu[] = {"0 (reserved)", "1 (256)", "2 (512)", "3 (1024)", "4 (2048)", "5 (4096)", "6 (reserved)"};
    for (unsigned i = 0; i < 7; i++) {
        CHECK(clc::text(static_cast<clc::Mtu>(i)) == mtu[i]);
    }
    CHECK(text(llc::DeleteLinkReason{0x00010000}) == "0x00010000 (lost path)");
    CHECK(text(llc::DeleteLinkReason{0x00100000}) == "0x00100000 (unknown link ID)");
    CHECK(text(llc::AddLinkReason{1}) == "0x1 (no alternate path available)");
    CHECK(text(llc::AddLinkReason{2}) == "0x2 (invalid MTU value specified)");
}
