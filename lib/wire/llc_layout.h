// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The tables of the LLC messages (llc.h): RFC 7609 A.3 and SMC v2.1 "LLC V2 messages", page by page. Used to encode,
// decode and print them.
#pragma once

#include "smc/wire/llc.h"

namespace smc::wire {

// Version 1: the two high-order bits of the type say how to treat what is not known; version 2 has its version there.
struct LlcTypeField;
template <>
struct Layout<LlcTypeField> {
    using H = llc::Header;
    static constexpr std::size_t kSize = 1;
    static constexpr auto kFields = std::tuple{
        bits<&H::optional>(0, 0, 1, "type_code_unsupported", "LLC Type Code Unsupported"),
        bits<&H::version>(0, 1, 3, "version", "LLC SMC-R Version"),
        bits<&H::type>(0, 4, 4, "type", "LLC Type Code"),
    };
};
static_assert(fields_fit<LlcTypeField, llc::Header>());

struct LlcHeaderV1;
template <>
struct Layout<LlcHeaderV1> {
    using H = llc::Header;
    static constexpr std::size_t kSize = 4;
    static constexpr auto kFields = std::tuple{
        field<&H::length>(1, 1, "length", "Length"),
        bits<&H::reply>(3, 0, 1, "reply", "Reply flag"),
    };
};
static_assert(fields_fit<LlcHeaderV1, llc::Header>());

struct LlcHeaderV2;
template <>
struct Layout<LlcHeaderV2> {
    using H = llc::Header;
    static constexpr std::size_t kSize = 4;
    static constexpr auto kFields = std::tuple{
        field<&H::length>(1, 2, "length", "Length"),
        bits<&H::reply>(3, 0, 1, "reply", "Request or Reply"),
    };
};
static_assert(fields_fit<LlcHeaderV2, llc::Header>());

template <>
struct Layout<llc::RTokenPair> {
    using P = llc::RTokenPair;
    static constexpr std::size_t kSize = 16;
    static constexpr auto kFields = std::tuple{
        field<&P::reference>(0, 4, "reference_rkey", "Reference RKey (on this link)"),
        field<&P::rkey>(4, 4, "new_rkey", "New RKey (on new link)"),
        field<&P::address>(8, 8, "new_virtual_address", "New Virtual Address (for new link)"),
    };
};
static_assert(fields_fit<llc::RTokenPair>());

template <>
struct Layout<llc::LinkRToken> {
    using R = llc::LinkRToken;
    static constexpr std::size_t kSize = 13;
    static constexpr auto kFields = std::tuple{
        field<&R::link_number>(0, 1, "link_number", "Link number"),
        field<&R::rkey>(1, 4, "rkey", "RMB's RKey for the specified link"),
        field<&R::address>(5, 8, "virtual_address", "RMB's virtual address for the specified link"),
    };
};
static_assert(fields_fit<llc::LinkRToken>());

template <>
struct Layout<llc::ConfirmLink> {
    using M = llc::ConfirmLink;
    static constexpr std::size_t kSize = llc::kSmallBytes;
    static constexpr auto kFields = std::tuple{
        field<&M::mac>(4, 6, "mac_address", "Sender's RoCE MAC address"),
        field<&M::gid>(10, 16, "gid", "Sender's RoCE GID"),
        field<&M::qpn>(26, 3, "qp_number", "Sender's QP number"),
        field<&M::link_number>(29, 1, "link_number", "Link number"),
        field<&M::link_id>(30, 4, "link_user_id", "Sender's link user ID"),
        field<&M::max_links>(34, 1, "max_links", "Max links"),
    };
};
static_assert(fields_fit<llc::ConfirmLink>());

struct ConfirmLinkV2;
template <>
struct Layout<ConfirmLinkV2> {
    using M = llc::ConfirmLink;
    static constexpr std::size_t kSize = llc::kSmallBytes;
    static constexpr auto kFields = std::tuple{
        bits<&M::cache_size>(3, 4, 4, "system_cache_size", "System Cache Size"),
        field<&M::max_connections>(35, 1, "max_connections_per_lg", "Max Connections per LG"),
    };
};
static_assert(fields_fit<ConfirmLinkV2, llc::ConfirmLink>());

// Version 1: bits that Linux uses and that RFC 7609 A.3.1 reserves.
struct ConfirmLinkLinux;
template <>
struct Layout<ConfirmLinkLinux> {
    static constexpr std::size_t kSize = 4;
    static constexpr auto kFields = std::tuple{
        bits<&llc::ConfirmLink::cache_size>(3, 4, 4, "linux_no_rmbe_eye_catcher", "Linux: RMBEs have no eye catcher"),
    };
};
static_assert(fields_fit<ConfirmLinkLinux, llc::ConfirmLink>());

struct AddLinkV1;
template <>
struct Layout<AddLinkV1> {
    using M = llc::AddLink;
    static constexpr std::size_t kSize = llc::kSmallBytes;
    static constexpr auto kFields = std::tuple{
        bits<&M::reason>(2, 4, 4, "reason_code", "RsnCode"),
        bits<&M::rejected>(3, 1, 1, "rejection", "Rejection flag"),
    };
};
static_assert(fields_fit<AddLinkV1, llc::AddLink>());

struct AddLinkV2;
template <>
struct Layout<AddLinkV2> {
    using M = llc::AddLink;
    static constexpr std::size_t kSize = llc::kSmallBytes;
    static constexpr auto kFields = std::tuple{
        bits<&M::rejected>(3, 1, 1, "response_type_negative", "Response Type: negative"),
        bits<&M::reason>(3, 4, 4, "reject_reason_code", "Reject Reason Code"),
    };
};
static_assert(fields_fit<AddLinkV2, llc::AddLink>());

// The rest of the 44 bytes, `padding` bytes further than in figure 32 of RFC 7609.
constexpr auto add_link_address(std::uint16_t padding) {
    using M = llc::AddLink;
    const auto at = [=](unsigned offset) { return static_cast<std::uint16_t>(offset + padding); };
    return std::tuple{
        field<&M::mac>(4, 6, "mac_address", "Sender's RoCE MAC address"),
        field<&M::gid>(at(10), 16, "gid", "Sender's RoCE GID"),
        field<&M::qpn>(at(26), 3, "qp_number", "Sender's QP number"),
        field<&M::link_number>(at(29), 1, "link_number", "Link number"),
        bits<&M::mtu>(at(30), 4, 4, "mtu", "MTU"),
        field<&M::psn>(at(31), 3, "initial_psn", "Initial PSN"),
    };
}
struct AddLinkAddress;
template <>
struct Layout<AddLinkAddress> {
    static constexpr std::size_t kSize = llc::kSmallBytes;
    static constexpr auto kFields = add_link_address(0);
};
static_assert(fields_fit<AddLinkAddress, llc::AddLink>());

struct AddLinkPadded;
template <>
struct Layout<AddLinkPadded> {
    static constexpr std::size_t kSize = llc::kSmallBytes;
    static constexpr auto kFields = add_link_address(2);
};
static_assert(fields_fit<AddLinkPadded, llc::AddLink>());

// `count_bytes` at 70: 2 as specified; 1 where the number, at most 255, is little endian.
constexpr auto add_link_rows(std::uint16_t count_bytes) {
    using M = llc::AddLinkLarge;
    return std::tuple{
        bits<&M::link_type>(44, 0, 1, "link_type", "link type"),
        field<&M::target_gid>(46, 16, "client_target_gid", "Client Target GID"),
        count<&M::rkeys>(70, count_bytes, "no_of_rkeys", "No of RKeys in RKey Array", "0 to 255"),
        list<&M::rkeys>(72, "rkey_array_area", "RKey Array Area"),
    };
}
template <>
struct Layout<llc::AddLinkLarge> {
    static constexpr std::size_t kSize = 72;
    static constexpr auto kFields = add_link_rows(2);
};
static_assert(fields_fit<llc::AddLinkLarge>());

struct AddLinkLittleEndian;
template <>
struct Layout<AddLinkLittleEndian> {
    static constexpr std::size_t kSize = 72;
    static constexpr auto kFields = add_link_rows(1);
};
static_assert(fields_fit<AddLinkLittleEndian, llc::AddLinkLarge>());

template <>
struct Layout<llc::AddLinkContinuation> {
    using M = llc::AddLinkContinuation;
    static constexpr std::size_t kSize = llc::kSmallBytes;
    static constexpr auto kFields = std::tuple{
        field<&M::link_number>(4, 1, "link_number", "Linknum"),
        field<&M::tokens_left>(5, 1, "num_rtokens", "NumRTokens"),
        list<&M::rkeys>(8, "rkey_rtoken_pairs", "RKey/RToken pairs"),
    };
};
static_assert(fields_fit<llc::AddLinkContinuation>());

struct RequestAddLinkFlags;
template <>
struct Layout<RequestAddLinkFlags> {
    using M = llc::RequestAddLink;
    static constexpr std::size_t kSize = llc::kSmallBytes;
    static constexpr auto kFields = std::tuple{
        bits<&M::rejected>(3, 1, 1, "response_type_negative", "Response Type: negative"),
        bits<&M::reason>(3, 4, 4, "reject_reason_code", "Reject Reason Code"),
    };
};
static_assert(fields_fit<RequestAddLinkFlags, llc::RequestAddLink>());

struct RequestAddLinkGids;
template <>
struct Layout<RequestAddLinkGids> {
    using M = llc::RequestAddLink;
    static constexpr std::size_t kSize = llc::kSmallBytes;
    static constexpr auto kFields = std::tuple{
        count<&M::gid_list>(24, 1, "gid_list_no_of_entries", "GID List No of Entries", "1 to 8"),
        list<&M::gid_list>(28, "gid_list_array_area", "GID List Array Area"),
    };
};
static_assert(fields_fit<RequestAddLinkGids, llc::RequestAddLink>());

template <>
struct Layout<llc::DeleteLink> {
    using M = llc::DeleteLink;
    static constexpr std::size_t kSize = llc::kSmallBytes;
    static constexpr auto kFields = std::tuple{
        bits<&M::all>(3, 1, 1, "all", "\"All\" flag"),
        bits<&M::orderly>(3, 2, 1, "orderly", "Orderly flag"),
        field<&M::link_number>(4, 1, "link_number", "Linknum"),
        field<&M::reason>(5, 4, "reason_code", "Reason Code"),
    };
};
static_assert(fields_fit<llc::DeleteLink>());

template <>
struct Layout<llc::ConfirmRkey> {
    using M = llc::ConfirmRkey;
    static constexpr std::size_t kSize = llc::kSmallBytes;
    static constexpr auto kFields = std::tuple{
        bits<&M::negative>(3, 2, 1, "negative_response", "Negative response flag"),
        bits<&M::retry>(3, 3, 1, "configuration_retry", "Configuration Retry bit"),
        field<&M::other_tokens>(4, 1, "num_tkns", "NumTkns: other RToken pairs to be communicated"),
        field<&M::rkey>(5, 4, "new_rmb_rkey", "New RMB RKey for this link"),
        field<&M::address>(9, 8, "new_rmb_virtual_address", "New RMB virtual address for this link"),
        list<&M::others>(17, "other_link_rmb_specifications", "Other link RMB specification"),
    };
};
static_assert(fields_fit<llc::ConfirmRkey>());

template <>
struct Layout<llc::ConfirmRkeyContinuation> {
    using M = llc::ConfirmRkeyContinuation;
    static constexpr std::size_t kSize = llc::kSmallBytes;
    static constexpr auto kFields = std::tuple{
        bits<&M::negative>(3, 2, 1, "negative_response", "Negative response flag"),
        field<&M::tokens_left>(4, 1, "num_tkns_left", "NumTknsLeft"),
        list<&M::others>(5, "other_link_rmb_specifications", "Other link RMB specification"),
    };
};
static_assert(fields_fit<llc::ConfirmRkeyContinuation>());

struct DeleteRkeyV1;
template <>
struct Layout<DeleteRkeyV1> {
    using M = llc::DeleteRkey;
    static constexpr std::size_t kSize = llc::kSmallBytes;
    static constexpr auto kFields = std::tuple{
        bits<&M::negative>(3, 2, 1, "negative_response", "Negative response flag"),
        count<&M::rkeys>(4, 1, "count", "Count", "at most 8"),
        field<&M::error_mask>(5, 1, "error_mask", "Error Mask"),
        list<&M::rkeys>(8, "deleted_rkeys", "Deleted RKeys"),
    };
};
static_assert(fields_fit<DeleteRkeyV1, llc::DeleteRkey>());

struct DeleteRkeyRequestV2;
template <>
struct Layout<DeleteRkeyRequestV2> {
    using M = llc::DeleteRkey;
    static constexpr std::size_t kSize = llc::kSmallBytes;
    static constexpr auto kFields = std::tuple{
        bits<&M::negative>(3, 2, 1, "reply_type_negative", "Reply type: negative"),
        count<&M::rkeys>(4, 1, "count", "Count", "at most 255"),
        list<&M::rkeys>(8, "deleted_rkeys", "RKeys to be deleted"),
    };
};
static_assert(fields_fit<DeleteRkeyRequestV2, llc::DeleteRkey>());

struct DeleteRkeyReplyV2;
template <>
struct Layout<DeleteRkeyReplyV2> {
    using M = llc::DeleteRkey;
    static constexpr std::size_t kSize = llc::kSmallBytes;
    static constexpr auto kFields = std::tuple{
        bits<&M::negative>(3, 2, 1, "reply_type_negative", "Reply type: negative"),
        field<&M::count>(4, 1, "count", "Count"),
        field<&M::invalid_count>(5, 1, "invalid_rkey_count", "Invalid Rkey Count"),
        list<&M::rkeys>(8, "rkeys_not_deleted", "RKeys not deleted"),
    };
};
static_assert(fields_fit<DeleteRkeyReplyV2, llc::DeleteRkey>());

template <>
struct Layout<llc::TestLink> {
    static constexpr std::size_t kSize = llc::kSmallBytes;
    static constexpr auto kFields = std::tuple{
        field<&llc::TestLink::user_data>(4, 16, "user_data", "User Data"),
    };
};
static_assert(fields_fit<llc::TestLink>());

}  // namespace smc::wire
