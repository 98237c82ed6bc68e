// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "smc/wire/llc.h"

#include <algorithm>
#include <cstdio>

#include "lib/wire/llc_tables.h"

namespace smc::llc {

namespace {

using wire::decode_area;
using wire::decode_fixed;
using wire::encode_fixed;

constexpr std::uint8_t kVersion1OnTheWire = 0, kVersion2 = 2;

// The link is out of step (C.7.1).
template <class L, auto Member>
Fault reset_at(std::uint64_t found, const char* expected) {
    return wire::fault_at<L, Member>(0, found, expected, Verdict::kReset);
}

// Both versions have the length at the same place.
Fault bad_length(std::uint64_t found, const char* expected) {
    return reset_at<wire::LlcHeaderV1, &Header::length>(found, expected);
}

// Which types are known in which version.
bool is_known(Type type, std::uint8_t version) {
    switch (type) {
        case Type::kConfirmLink:
        case Type::kAddLink:
        case Type::kDeleteLink:
        case Type::kConfirmRkey:
        case Type::kTestLink:
        case Type::kDeleteRkey:
            return true;
        case Type::kAddLinkContinuation:
        case Type::kConfirmRkeyContinuation:
            return version == 1;
        case Type::kRequestAddLink:
            return version == kVersion2;
    }
    return false;
}

// v2.1 calls the length of these messages variable: what a later release appends is ignored. All others have 44 bytes.
bool may_be_large(const Header& h) {
    return h.version == kVersion2 && (h.type == Type::kAddLink || (h.type == Type::kRequestAddLink && !h.reply) ||
                                      (h.type == Type::kDeleteRkey && !h.reply));
}

Decoded<Header> decode_header(Bytes message) {
    if (message.size() < kSmallBytes) {
        return bad_length(message.size(), "at least 44 bytes");
    }
    Header h;
    decode_fixed<wire::LlcTypeField>(message.data(), h);
    const std::uint8_t first = message[0];
    h.version = h.version == kVersion1OnTheWire ? 1 : h.version;
    if ((h.version != 1 && h.version != kVersion2) || !is_known(h.type, h.version) || h.optional) {
        // RFC 7609 A.3: b'10' is for optional messages, b'11' for CDC, every other type must be known. The exception is
        // a type by which kernels of one vendor announce credits to peers that agreed on it.
        const bool may_be_ignored = first >> 6 == 2 || first == kCreditsOfAVendor;
        return wire::fault_at<wire::LlcTypeField, &Header::type>(0, first, "a type of RFC 7609 or SMC v2.1",
                                                                 may_be_ignored ? Verdict::kIgnore : Verdict::kReset);
    }
    if (h.version == 1) {
        decode_fixed<wire::LlcHeaderV1>(message.data(), h);
    } else {
        decode_fixed<wire::LlcHeaderV2>(message.data(), h);
        const std::uint16_t swapped = __builtin_bswap16(h.length);
        if (h.length != message.size() && swapped == message.size()) {
            h.length = swapped;
            h.little_endian = true;
        }
    }
    if (h.length != message.size()) {
        return bad_length(h.length, "the length of the message");
    }
    if (h.length != kSmallBytes && !may_be_large(h)) {
        return bad_length(h.length, "44");
    }
    return h;
}

// The field that a fault names if part of an area is missing: the header's `length`, which equals the message's size.
wire::Pointer length_of(Bytes message) {
    return wire::pointer_at<wire::LlcHeaderV1, &Header::length>(0, message.size());
}

// Decodes the body of the message into `m`, whose header is decoded already.
template <class M>
std::optional<Fault> decode_body(Bytes message, M& m) {
    return decode_area<M>(message, 0, length_of(message), m);
}

std::optional<Fault> decode_body(Bytes message, ConfirmLink& m) {
    decode_fixed<ConfirmLink>(message.data(), m);
    if (m.version != 1) {
        decode_fixed<wire::ConfirmLinkV2>(message.data(), m);
    } else {
        decode_fixed<wire::ConfirmLinkLinux>(message.data(), m);
    }
    return std::nullopt;
}

// Decodes the first 44 bytes only.
void decode_small(Bytes message, AddLink& m) {
    if (m.version == 1) {
        decode_fixed<wire::AddLinkV1>(message.data(), m);
        m.padded = has_padding(message);
    } else {
        decode_fixed<wire::AddLinkV2>(message.data(), m);
    }
    if (m.version != 1 || m.padded) {
        decode_fixed<wire::AddLinkPadded>(message.data(), m);
    } else {
        decode_fixed<wire::AddLinkAddress>(message.data(), m);
    }
}

std::optional<Fault> decode_large(Bytes message, AddLink& m) {
    if (message.size() == kSmallBytes) {
        return m.reply && m.rejected ? std::nullopt
                                     : std::optional(bad_length(message.size(), "72 and 16 for each RKey"));
    }
    // With 124 RKeys the length reads the same in both byte orders, but the number of RKeys does not.
    constexpr std::size_t kRkeysAt = wire::field_of<AddLinkLarge, &AddLinkLarge::rkeys>().offset;
    constexpr std::size_t kRkeys = wire::list_offset<AddLinkLarge, &AddLinkLarge::rkeys>();
    if (message.size() >= kRkeys && message[kRkeysAt] != 0 && __builtin_bswap16(m.length) == m.length) {
        m.little_endian = true;
    }
    auto& large = m.large.emplace();
    // Linux gives its number of connections as the number of RKeys, and lists as many as it has or as fit.
    constexpr bool kCuts = true;
    const auto length = length_of(message);
    auto fault = m.little_endian
                     ? decode_area<wire::AddLinkLittleEndian>(message, 0, length, large, std::nullopt, kCuts)
                     : decode_area<AddLinkLarge>(message, 0, length, large, std::nullopt, kCuts);
    if (!fault && m.little_endian && message[kRkeysAt + 1] != 0) {
        fault = reset_at<AddLinkLarge, &AddLinkLarge::rkeys>(wire::load_be(&message[kRkeysAt], 2), "0 to 255");
    }
    return fault;
}

std::optional<Fault> decode_body(Bytes message, AddLink& m) {
    decode_small(message, m);
    if (m.version != 1) {
        if (auto fault = decode_large(message, m)) {
            return fault;
        }
    }
    const bool invitation = m.version == 1 && !m.reply && m.qpn == Qpn{0};
    if (!m.rejected && !invitation && !clc::is_valid(m.mtu)) {
        // C.7.1: a request is answered with reason 2; a reply has no answer
        const Verdict verdict = m.reply ? Verdict::kReset : Verdict::kReject;
        const auto found = static_cast<std::uint64_t>(m.mtu);
        return m.version == 1 && !m.padded
                   ? wire::fault_at<wire::AddLinkAddress, &AddLink::mtu>(0, found, "1 to 5", verdict)
                   : wire::fault_at<wire::AddLinkPadded, &AddLink::mtu>(0, found, "1 to 5", verdict);
    }
    return std::nullopt;
}

std::optional<Fault> decode_body(Bytes message, AddLinkContinuation& m) {
    decode_fixed<AddLinkContinuation>(message.data(), m);
    m.rkeys.resize(m.tokens_left);
    return decode_area<AddLinkContinuation>(message, 0, length_of(message), m);
}

std::optional<Fault> decode_body(Bytes message, RequestAddLink& m) {
    decode_fixed<wire::RequestAddLinkFlags>(message.data(), m);
    if (m.reply) {
        return std::nullopt;
    }
    if (auto fault = decode_area<wire::RequestAddLinkGids>(message, 0, length_of(message), m)) {
        return fault;
    }
    if (m.gid_list.empty()) {
        return reset_at<wire::RequestAddLinkGids, &RequestAddLink::gid_list>(0, "1 to 8");
    }
    return std::nullopt;
}

std::optional<Fault> decode_body(Bytes message, ConfirmRkey& m) {
    decode_fixed<ConfirmRkey>(message.data(), m);
    if (m.version == kVersion2 && m.other_tokens > m.others.kCapacity) {
        return reset_at<ConfirmRkey, &ConfirmRkey::other_tokens>(m.other_tokens,
                                                                 "0 to 2: version 2 has no continuations");
    }
    m.others.resize(m.other_tokens);
    return decode_area<ConfirmRkey>(message, 0, length_of(message), m);
}

std::optional<Fault> decode_body(Bytes message, ConfirmRkeyContinuation& m) {
    decode_fixed<ConfirmRkeyContinuation>(message.data(), m);
    m.others.resize(m.tokens_left);
    return decode_area<ConfirmRkeyContinuation>(message, 0, length_of(message), m);
}

std::optional<Fault> decode_body(Bytes message, DeleteRkey& m) {
    if (m.version == kVersion2 && m.reply) {
        decode_fixed<wire::DeleteRkeyReplyV2>(message.data(), m);
        m.rkeys.resize(m.negative ? std::min<std::size_t>(m.invalid_count, kMaxListedRkeys) : 0);
        return decode_area<wire::DeleteRkeyReplyV2>(message, 0, length_of(message), m);
    }
    auto fault = m.version == 1 ? decode_area<wire::DeleteRkeyV1>(message, 0, length_of(message), m)
                                : decode_area<wire::DeleteRkeyRequestV2>(message, 0, length_of(message), m);
    if (!fault && m.version == 1 && m.rkeys.size() > kMaxListedRkeys) {
        fault = reset_at<wire::DeleteRkeyV1, &DeleteRkey::rkeys>(m.rkeys.size(), "1 to 8");
    }
    m.count = static_cast<std::uint8_t>(m.rkeys.size());
    return fault;
}

template <class M>
Decoded<AnyMessage> decode_as(Bytes message, const Header& header) {
    Decoded<AnyMessage> decoded(std::in_place_index<0>, std::in_place_type<M>);
    M& m = std::get<M>(std::get<AnyMessage>(decoded));
    static_cast<Header&>(m) = header;
    if (auto fault = decode_body(message, m)) {
        if (fault->verdict != Verdict::kReject) {
            fault->verdict = Verdict::kReset;
        }
        decoded = *fault;
    }
    return decoded;
}

// The message, with its lists cut to what the format or its count field allows.
template <class M>
const M& encodable(const M& m) {
    return m;
}
DeleteRkey encodable(DeleteRkey m) {
    if (m.version == 1 || m.reply) {
        m.rkeys.resize(std::min(m.rkeys.size(), kMaxListedRkeys));
    }
    return m;
}
ConfirmRkey encodable(ConfirmRkey m) {
    m.others.resize(std::min<std::size_t>(m.others.size(), m.other_tokens));
    return m;
}
ConfirmRkeyContinuation encodable(ConfirmRkeyContinuation m) {
    m.others.resize(std::min<std::size_t>(m.others.size(), m.tokens_left));
    return m;
}
AddLinkContinuation encodable(AddLinkContinuation m) {
    m.rkeys.resize(std::min<std::size_t>(m.rkeys.size(), m.tokens_left));
    return m;
}

void encode_header(const Header& h, Type type, Message& out) {
    Header header = h;
    header.type = type;
    header.version = h.version == 1 ? kVersion1OnTheWire : h.version;
    header.length = static_cast<std::uint16_t>(out.size);
    encode_fixed<wire::LlcTypeField>(header, out.bytes.data());
    if (h.version == 1) {
        encode_fixed<wire::LlcHeaderV1>(header, out.bytes.data());
        return;
    }
    if (h.little_endian) {
        header.length = __builtin_bswap16(header.length);
    }
    encode_fixed<wire::LlcHeaderV2>(header, out.bytes.data());
}

std::string with_number(std::uint64_t value, int digits, const char* meaning) {
    char buffer[64];
    std::snprintf(buffer, sizeof buffer, "0x%0*llx (%s)", digits, static_cast<unsigned long long>(value), meaning);
    return buffer;
}

}  // namespace

std::string text(Type type) {
    switch (type) {
        case Type::kConfirmLink:
            return "CONFIRM LINK";
        case Type::kAddLink:
            return "ADD LINK";
        case Type::kAddLinkContinuation:
            return "ADD LINK CONTINUATION";
        case Type::kDeleteLink:
            return "DELETE LINK";
        case Type::kRequestAddLink:
            return "REQUEST ADD LINK";
        case Type::kConfirmRkey:
            return "CONFIRM RKEY";
        case Type::kTestLink:
            return "TEST LINK";
        case Type::kConfirmRkeyContinuation:
            return "CONFIRM RKEY CONTINUATION";
        case Type::kDeleteRkey:
            return "DELETE RKEY";
    }
    return with_number(static_cast<std::uint64_t>(type), 1, "unknown");
}

std::string text(AddLinkReason reason) {
    switch (reason) {
        case AddLinkReason::kNone:
            return "0x0 (none)";
        case AddLinkReason::kNoAlternatePath:
            return "0x1 (no alternate path available)";
        case AddLinkReason::kInvalidMtu:
            return "0x2 (invalid MTU value specified)";
    }
    return with_number(static_cast<std::uint64_t>(reason), 1, "unknown");
}

std::string text(DeleteLinkReason reason) {
    const auto named = [&](const char* meaning) { return with_number(static_cast<std::uint64_t>(reason), 8, meaning); };
    switch (reason) {
        case DeleteLinkReason::kNone:
            return named("none");
        case DeleteLinkReason::kLostPath:
            return named("lost path");
        case DeleteLinkReason::kOperator:
            return named("operator initiated termination");
        case DeleteLinkReason::kInactivity:
            return named("program initiated termination, link inactivity");
        case DeleteLinkReason::kProtocolViolation:
            return named("LLC protocol violation");
        case DeleteLinkReason::kAsymmetricNotNeeded:
            return named("asymmetric link no longer needed");
        case DeleteLinkReason::kUnknownLink:
            return named("unknown link ID");
    }
    return named("unknown");
}

Decoded<AnyMessage> decode(Bytes message) {
    const auto decoded = decode_header(message);
    if (const auto* fault = std::get_if<Fault>(&decoded)) {
        return *fault;
    }
    const Header& header = std::get<Header>(decoded);
    return visit_type(
        header.type, [&]<class M>() { return decode_as<M>(message, header); },
        [&]() -> Decoded<AnyMessage> {
            return reset_at<wire::LlcTypeField, &Header::type>(message[0], "a type of RFC 7609 or SMC v2.1");
        });
}

AddLink rejection(Bytes request) {
    AddLink reply;
    if (request.size() < kSmallBytes) {
        return reply;
    }
    if (const auto header = decode_header(request); const auto* h = std::get_if<Header>(&header)) {
        static_cast<Header&>(reply) = *h;
    }
    decode_small(request, reply);
    reply.reply = reply.rejected = true;
    reply.reason = AddLinkReason::kInvalidMtu;
    return reply;
}

Message encode(const AnyMessage& message) {
    Message out;
    std::visit(
        [&]<class M>(const M& m) {
            std::size_t end = 0;
            const auto& said = encodable(m);
            for_each_table(said, [&]<class Table>(const auto& object) {
                end = std::max(end, wire::encode_area<Table>(object, out.bytes.data()));
            });
            out.size = std::max(end, kSmallBytes);
            encode_header(m, kTypeOf<M>, out);
        },
        message);
    return out;
}

}  // namespace smc::llc
