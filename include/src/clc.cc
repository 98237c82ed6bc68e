// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "smc/clc.h"

#include <algorithm>
#include <cstdio>

namespace smc::clc {

namespace {

using wire::decode_fixed;
using wire::encode_fixed;
using wire::Layout;
using wire::load_be;
using wire::store_be;

constexpr std::size_t kDeclineV1Bytes = 28;
constexpr std::size_t kDeclineV2Bytes = 44;
constexpr std::size_t kAcceptanceBytes = 78;
constexpr std::size_t kGidOffset = 8;
constexpr std::size_t kGidPart2Offset = 66;
constexpr std::size_t kFceOffset = 74;
constexpr std::size_t kFceR0Bytes = 36;
constexpr std::size_t kFceR1Bytes = 52;
// Offsets in a Proposal count from behind the offset field (v2.1, Proposal base message, note 5).
constexpr std::size_t kBehindV2Offset = 52;
constexpr std::size_t kBehindSmcdOffset = 8;
constexpr std::size_t kGidEntryBytes = Layout<GidChid>::kSize;

struct Limits {
    std::size_t shortest;
    std::size_t longest;
};

constexpr Limits limits(Type type) {
    switch (type) {
        case Type::kProposal:
            return {52, kMaxMessage};
        case Type::kAccept:
        case Type::kConfirm:
            return {68, 512};  // SMC-D v1 has 48, v1 SMC-R 68; neither is ever an answer to a V2 offer
        case Type::kDecline:
            return {kDeclineV1Bytes, kDeclineV2Bytes};
    }
    return {0, 0};
}

// The parts every message shares: start, length, version, end.
Decoded<Header> decode_frame(Bytes message) {
    if (message.size() < kHeaderBytes) {
        return Fault{"length", 5, message.size(), "at least 8 bytes"};
    }
    auto header = decode_header(message.first(kHeaderBytes));
    if (auto* h = std::get_if<Header>(&header)) {
        if (h->length != message.size()) {
            return Fault{"length", 5, h->length, "the length of the message"};
        }
        const std::size_t end = message.size() - kTrailerBytes;
        const auto trailer = static_cast<std::uint32_t>(load_be(&message[end], kTrailerBytes));
        const bool decline = h->type == Type::kDecline;
        const bool known = trailer == kEyeCatcherR || trailer == kEyeCatcherD;
        if (decline ? !known : trailer != h->eye_catcher) {
            return Fault{"trailer", end, trailer, "the eye catcher of the message start"};
        }
    }
    return header;
}

std::optional<Fault> decode_gids(Bytes area, Proposal& p) {
    for (std::size_t i = 0; i < p.gid_count; i++) {
        decode_fixed<GidChid>(&area[i * kGidEntryBytes], p.gids[i]);
    }
    // An Emulated-ISM CHID must stand in two entries in a row (v2.1, SMC-Dv2 extension, note 4).
    for (std::size_t i = 0; i < p.gid_count; i++) {
        if (!is_emulated(p.gids[i].chid)) {
            continue;
        }
        if (i + 1 == p.gid_count || p.gids[i + 1].chid != p.gids[i].chid) {
            return Fault{"chid",
                         i,
                         static_cast<std::uint64_t>(p.gids[i].chid),
                         "the same reserved CHID in two consecutive entries"};
        }
        i++;
    }
    return std::nullopt;
}

std::optional<Fault> decode_v2(Bytes message, Proposal& p) {
    const std::size_t end = message.size() - kTrailerBytes;
    const std::size_t start = kBehindV2Offset + p.v2_offset;
    if (start + Layout<wire::ProposalV2>::kSize > end) {
        return Fault{"v2_extension_offset", 50, p.v2_offset, "an extension inside the message"};
    }
    decode_fixed<wire::ProposalV2>(&message[start], p);
    if (p.eid_count > kMaxEids) {
        return Fault{"eid_number", start, p.eid_count, "0 to 8"};
    }
    if (p.gid_count > kMaxGids) {
        return Fault{"ismv2_gid_number", start + 1, p.gid_count, "0 to 8"};
    }
    const std::size_t eids = start + Layout<wire::ProposalV2>::kSize;
    if (eids + p.eid_count * sizeof(Eid) > end) {
        return Fault{"eid_number", start, p.eid_count, "EIDs inside the message"};
    }
    for (std::size_t i = 0; i < p.eid_count; i++) {
        std::memcpy(p.eids[i].chars.data(), &message[eids + i * sizeof(Eid)], sizeof(Eid));
    }
    const bool has_smcd = offers_d(p.v2_offer) && p.smcd_offset != 0;
    if (!has_smcd) {
        if (p.gid_count != 0 && offers_d(p.v2_offer)) {
            return Fault{"smcdv2_extension_offset", start + 6, 0, "an extension for the GIDs"};
        }
        p.gid_count = 0;
        return std::nullopt;
    }
    const std::size_t smcd = start + kBehindSmcdOffset + p.smcd_offset;
    const std::size_t gids = smcd + Layout<wire::ProposalSmcD>::kSize;
    if (gids + p.gid_count * kGidEntryBytes > end) {
        return Fault{"smcdv2_extension_offset", start + 6, p.smcd_offset, "GIDs inside the message"};
    }
    decode_fixed<wire::ProposalSmcD>(&message[smcd], p);
    return decode_gids(message.subspan(gids), p);
}

void finish(Message& out, Type type, std::uint32_t eye_catcher, std::uint8_t version) {
    const Header header{eye_catcher, type, static_cast<std::uint16_t>(out.size), version};
    encode_fixed<Header>(header, out.bytes.data());
    store_be(&out.bytes[out.size - kTrailerBytes], kTrailerBytes, eye_catcher);
}

}  // namespace

std::string Fault::text() const {
    char buffer[192];
    std::snprintf(buffer, sizeof buffer, "%s at offset %zu is 0x%llx, expected %s", field, offset,
                  static_cast<unsigned long long>(found), expected);
    return buffer;
}

Decoded<Header> decode_header(Bytes first8) {
    if (first8.size() < kHeaderBytes) {
        return Fault{"length", 5, first8.size(), "at least 8 bytes"};
    }
    Header h;
    decode_fixed<Header>(first8.data(), h);
    if (h.eye_catcher != kEyeCatcherR && h.eye_catcher != kEyeCatcherD) {
        return Fault{"eye_catcher", 0, h.eye_catcher, "SMCR or SMCD in EBCDIC"};
    }
    if (h.type < Type::kProposal || h.type > Type::kDecline) {
        return Fault{"type", 4, static_cast<std::uint64_t>(h.type), "1 to 4"};
    }
    const auto [shortest, longest] = limits(h.type);
    if (h.length < shortest || h.length > longest) {
        return Fault{"length", 5, h.length, "a length this message can have"};
    }
    if (h.version == 0) {
        return Fault{"version", 7, 0, "1 or more"};
    }
    return h;
}

Decoded<Proposal> decode_proposal(Bytes message) {
    auto frame = decode_frame(message);
    if (auto* fault = std::get_if<Fault>(&frame)) {
        return *fault;
    }
    const Header& h = std::get<Header>(frame);
    if (h.type != Type::kProposal || h.eye_catcher != kEyeCatcherR) {
        return Fault{"type", 4, static_cast<std::uint64_t>(h.type), "a Proposal"};
    }
    Proposal p;
    p.version = h.version;
    if (h.version == 1) {
        // Version 1 ends behind its IP area; what is not there reads as zero.
        std::array<std::uint8_t, Layout<wire::ProposalBase>::kSize> base{};
        std::copy_n(message.begin(), std::min<std::size_t>(base.size(), 40), base.begin());
        decode_fixed<wire::ProposalBase>(base.data(), p);
        p.v2_offer = Offer::kNone;
        p.release = 0;
        return p;
    }
    if (message.size() < Layout<wire::ProposalBase>::kSize + kTrailerBytes) {
        return Fault{"length", 5, message.size(), "at least 84 in version 2"};
    }
    decode_fixed<wire::ProposalBase>(message.data(), p);
    if (p.v2_offer != Offer::kNone) {
        if (auto fault = decode_v2(message, p)) {
            return *fault;
        }
    }
    return p;
}

Decoded<Acceptance> decode_acceptance(Bytes message, Type expected) {
    auto frame = decode_frame(message);
    if (auto* fault = std::get_if<Fault>(&frame)) {
        return *fault;
    }
    const Header& h = std::get<Header>(frame);
    if (h.type != expected) {
        return Fault{"type", 4, static_cast<std::uint64_t>(h.type), "the message whose turn it is"};
    }
    if (h.version != kVersion2) {
        return Fault{"version", 7, h.version, "2", Verdict::kDecline};
    }
    if (h.eye_catcher != kEyeCatcherD) {
        return Fault{"eye_catcher", 0, h.eye_catcher, "SMCD: nothing else was offered"};
    }
    if (message.size() < kAcceptanceBytes) {
        return Fault{"length", 5, message.size(), "at least 78"};
    }
    Acceptance a;
    a.type = h.type;
    decode_fixed<Acceptance>(message.data(), a);
    std::memcpy(a.gid.bytes.data(), &message[kGidOffset], 8);
    std::memcpy(a.gid.bytes.data() + 8, &message[kGidPart2Offset], 8);

    // The FCE may stand there without the flag and is then ignored (v2.1, FCE notes).
    const std::size_t fce = message.size() - kTrailerBytes - kFceOffset;
    if (fce != 0 && fce != kFceR0Bytes && fce != kFceR1Bytes) {
        return Fault{"length", 5, message.size(), "78, 114 or 130"};
    }
    if (a.first_contact && fce == 0) {
        return Fault{"length", 5, message.size(), "a First Contact Extension"};
    }
    a.release = 0;
    if (a.first_contact) {
        a.has_fce = true;
        decode_fixed<wire::FirstContact>(&message[kFceOffset], a);
        if (fce == kFceR1Bytes) {
            decode_fixed<wire::FirstContactR1>(&message[kFceOffset + kFceR0Bytes], a);
        } else if (a.release != 0) {
            return Fault{"length", 5, message.size(), "130 from release 1 on"};
        }
    }
    return a;
}

Decoded<Decline> decode_decline(Bytes message) {
    auto frame = decode_frame(message);
    if (auto* fault = std::get_if<Fault>(&frame)) {
        return *fault;
    }
    const Header& h = std::get<Header>(frame);
    if (h.type != Type::kDecline) {
        return Fault{"type", 4, static_cast<std::uint64_t>(h.type), "a Decline"};
    }
    if (message.size() != kDeclineV1Bytes && message.size() != kDeclineV2Bytes) {
        return Fault{"length", 5, message.size(), "28 or 44"};
    }
    std::array<std::uint8_t, Layout<Decline>::kSize> fields{};
    const std::size_t present = message.size() - kTrailerBytes;
    std::copy_n(message.begin(), present, fields.begin());
    Decline d;
    d.version = h.version;
    decode_fixed<Decline>(fields.data(), d);
    return d;
}

Message encode(const Proposal& in) {
    Proposal p = in;
    Message out;
    const bool v2 = p.version >= kVersion2;
    const bool smcd = p.gid_count != 0 || p.seid_present;
    const std::size_t base = Layout<wire::ProposalBase>::kSize;
    const std::size_t eids = base + Layout<wire::ProposalV2>::kSize;
    const std::size_t smcd_at = eids + p.eid_count * sizeof(Eid);
    const std::size_t gids = smcd_at + Layout<wire::ProposalSmcD>::kSize;
    out.size = base;
    if (v2) {
        p.v2_offset = static_cast<std::uint16_t>(base - kBehindV2Offset);
        p.smcd_offset =
            smcd ? static_cast<std::uint16_t>(smcd_at - base - kBehindSmcdOffset) : std::uint16_t{0};
        encode_fixed<wire::ProposalV2>(p, &out.bytes[base]);
        for (std::size_t i = 0; i < p.eid_count; i++) {
            std::memcpy(&out.bytes[eids + i * sizeof(Eid)], p.eids[i].chars.data(), sizeof(Eid));
        }
        out.size = smcd_at;
        if (smcd) {
            encode_fixed<wire::ProposalSmcD>(p, &out.bytes[smcd_at]);
            for (std::size_t i = 0; i < p.gid_count; i++) {
                encode_fixed<GidChid>(p.gids[i], &out.bytes[gids + i * kGidEntryBytes]);
            }
            out.size = gids + p.gid_count * kGidEntryBytes;
        }
    }
    encode_fixed<wire::ProposalBase>(p, out.bytes.data());
    out.size += kTrailerBytes;
    finish(out, Type::kProposal, kEyeCatcherR, p.version);
    return out;
}

Message encode(const Acceptance& a) {
    Message out;
    encode_fixed<Acceptance>(a, out.bytes.data());
    std::memcpy(&out.bytes[kGidOffset], a.gid.bytes.data(), 8);
    std::memcpy(&out.bytes[kGidPart2Offset], a.gid.bytes.data() + 8, 8);
    out.bytes[7] |= 1;  // SMCv2 Type: SMC-Dv2
    out.size = kFceOffset;
    if (a.has_fce) {
        encode_fixed<wire::FirstContact>(a, &out.bytes[kFceOffset]);
        out.size += kFceR0Bytes;
        if (a.release >= kRelease1) {
            encode_fixed<wire::FirstContactR1>(a, &out.bytes[kFceOffset + kFceR0Bytes]);
            out.size += kFceR1Bytes - kFceR0Bytes;
        }
    }
    out.size += kTrailerBytes;
    finish(out, a.type, kEyeCatcherD, kVersion2);
    return out;
}

Message encode(const Decline& d) {
    Message out;
    encode_fixed<Decline>(d, out.bytes.data());
    out.size = d.version >= kVersion2 ? kDeclineV2Bytes : kDeclineV1Bytes;
    if (d.version < kVersion2) {
        std::fill(out.bytes.begin() + 20, out.bytes.end(), std::uint8_t{0});
    }
    finish(out, Type::kDecline, kEyeCatcherR, d.version);
    return out;
}

bool add_extended_gid(Proposal& p, const Gid& gid, Chid chid) {
    if (p.gid_count + 2U > kMaxGids) {
        return false;
    }
    p.gids[p.gid_count++] = {load_be(gid.bytes.data(), 8), chid};
    p.gids[p.gid_count++] = {load_be(gid.bytes.data() + 8, 8), chid};
    return true;
}

std::array<char, 32> padded_host_name(std::string_view name) {
    std::array<char, 32> padded;
    padded.fill(' ');
    std::copy_n(name.begin(), std::min(name.size(), padded.size()), padded.begin());
    return padded;
}

}  // namespace smc::clc
