// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "smc/wire/clc/proposal.h"

#include <cstdio>

namespace smc::clc {

namespace {

using wire::decode_area;
using wire::encode_area;
using wire::fault_at;
using wire::Layout;
using wire::pointer_at;

constexpr std::size_t kBase = Layout<wire::ProposalBase>::kSize;
constexpr std::size_t kGrowth = Layout<wire::ProposalGrowth>::kSize;

// An Emulated-ISM CHID must stand in two entries in a row (v2.1, SMC-Dv2 extension, note 4).
std::optional<Fault> check_pairs(const SmcdExtension& extension, std::size_t gids_at) {
    const auto& gids = extension.gids;
    for (std::size_t i = 0; i < gids.size(); i++) {
        if (!is_emulated(gids[i].chid)) {
            continue;
        }
        if (i + 1 == gids.size() || gids[i + 1].chid != gids[i].chid) {
            return fault_at<GidChid, &GidChid::chid>(gids_at + i * Layout<GidChid>::kSize,
                                                     static_cast<std::uint64_t>(gids[i].chid),
                                                     "the same reserved CHID in two consecutive entries");
        }
        i++;
    }
    return std::nullopt;
}

std::optional<Fault> decode_smcd(Bytes body, std::size_t v2_at, V2Extension& v2) {
    const auto pointer = pointer_at<V2Extension, &V2Extension::smcd_offset>(v2_at, v2.smcd_offset);
    const auto number = pointer_at<V2Extension, &V2Extension::gid_number>(v2_at, v2.gid_number);
    if (v2.smcd_offset == 0) {
        // Only the associated ISM device is offered (note 3 of the V2 extension) ...
        if (v2.gid_number == 0 && !v2.seid_present) {
            return std::nullopt;
        }
        // ... otherwise the extension that was announced is missing.
        return Fault{pointer.field, pointer.offset, 0, "an extension for the SEID and the GIDs"};
    }
    if (v2.gid_number > kMaxGids) {
        return Fault{number.field, number.offset, number.value, "0 to 8"};
    }
    const std::size_t at = smcd_extension_at(v2_at, v2);
    if (at < v2_at + Layout<V2Extension>::kSize + v2.eids.size() * sizeof(Eid)) {
        return Fault{pointer.field, pointer.offset, pointer.value, "an extension after the EIDs"};
    }
    auto& smcd = v2.smcd.emplace();
    smcd.gids.resize(v2.gid_number);
    if (auto fault = decode_area<SmcdExtension>(body, at, pointer, smcd, number)) {
        return fault;
    }
    return check_pairs(smcd, at + Layout<SmcdExtension>::kSize);
}

// `earliest` is the end of the areas that must stand before it (v2.1, base message, note 6).
std::optional<Fault> decode_v2(Bytes body, std::size_t earliest, Proposal& p) {
    const auto pointer = pointer_at<wire::ProposalGrowth, &Proposal::v2_offset>(0, p.v2_offset);
    const std::size_t at = v2_extension_at(p);
    if (at < earliest) {
        return Fault{pointer.field, pointer.offset, pointer.value, "an extension after the areas before it"};
    }
    auto& v2 = p.v2.emplace();
    if (auto fault = decode_area<V2Extension>(body, at, pointer, v2)) {
        return fault;
    }
    return offers_d(p.v2_offer) ? decode_smcd(body, at, v2) : std::nullopt;
}

std::optional<Fault> decode_subnet(Bytes body, Proposal& p) {
    const std::size_t at = subnet_extension_at(p);
    const auto pointer = pointer_at<wire::ProposalBase, &Proposal::subnet_offset>(0, p.subnet_offset);
    return decode_area<Subnet>(body, at, pointer, p.subnet.emplace());
}

// Bytes of the body up to the end of the subnet extension.
std::size_t end_of_subnet(const Proposal& p) {
    return subnet_extension_at(p) + Layout<Subnet>::kSize + p.subnet->prefixes.size() * Layout<Ipv6Prefix>::kSize;
}

// RFC 7609 A.2.2: one subnet area, and nothing after it.
std::optional<Fault> decode_version1(Bytes body, Proposal& p) {
    p.v2_offer = Offer::kNone;
    if (kBase + p.subnet_offset >= kGrowth && body.size() >= kGrowth) {
        wire::decode_fixed<wire::ProposalGrowth>(body.data(), p);
    } else if (offers_d(p.v1_offer)) {
        return fault_at<wire::ProposalBase, &Proposal::subnet_offset>(0, p.subnet_offset,
                                                                      "at least 40, with an ISM GID");
    }
    if (auto fault = decode_subnet(body, p)) {
        return fault;
    }
    if (end_of_subnet(p) != body.size()) {
        return fault_at<Header, &Header::length>(0, body.size() + kTrailerBytes, "the end after the last prefix");
    }
    return std::nullopt;
}

std::optional<Fault> decode_version2(Bytes body, Proposal& p) {
    if (body.size() < kGrowth) {
        return fault_at<Header, &Header::length>(0, body.size() + kTrailerBytes, "at least 84 in version 2");
    }
    wire::decode_fixed<wire::ProposalGrowth>(body.data(), p);
    // Without SMCv1 the extension is ignored (v2.1, IP subnet extension, note); SMC-D alone may come without one.
    if (offers_r(p.v1_offer) || (offers_d(p.v1_offer) && p.subnet_offset != 0)) {
        if (kBase + p.subnet_offset < kGrowth) {
            return fault_at<wire::ProposalBase, &Proposal::subnet_offset>(0, p.subnet_offset,
                                                                          "40 or more in version 2");
        }
        if (auto fault = decode_subnet(body, p)) {
            return fault;
        }
    }
    return p.v2_offer == Offer::kNone ? std::nullopt : decode_v2(body, p.subnet ? end_of_subnet(p) : kGrowth, p);
}

}  // namespace

std::string text(Ipv4Mask mask) {
    const auto v = static_cast<std::uint32_t>(mask);
    char buffer[16];
    std::snprintf(buffer, sizeof buffer, "%u.%u.%u.%u", v >> 24, v >> 16 & 255, v >> 8 & 255, v & 255);
    return buffer;
}

std::string text(IsmGid gid) {
    return text(DmbToken{static_cast<std::uint64_t>(gid)});
}

Decoded<Proposal> decode_proposal(Bytes message) {
    const auto frame = decode_frame(message);
    if (const auto* fault = std::get_if<Fault>(&frame)) {
        return *fault;
    }
    const Header& h = std::get<Header>(frame);
    if (h.type != Type::kProposal) {
        return fault_at<Header, &Header::type>(0, static_cast<std::uint64_t>(h.type), "a Proposal");
    }
    if (h.eye_catcher != EyeCatcher::kSmcr) {
        return fault_at<Header, &Header::eye_catcher>(0, static_cast<std::uint32_t>(h.eye_catcher), "SMCR in EBCDIC");
    }
    Decoded<Proposal> decoded;
    Proposal& p = std::get<Proposal>(decoded);
    p.version = h.version;
    wire::decode_fixed<wire::ProposalBase>(message.data(), p);
    const Bytes body = message.first(message.size() - kTrailerBytes);
    if (auto fault = h.version == kVersion1 ? decode_version1(body, p) : decode_version2(body, p)) {
        return *fault;
    }
    return decoded;
}

Message encode(const Proposal& in) {
    Proposal p = in;
    Message out;
    const Proposal at_their_fields;  // every offset is 0
    const bool v2 = p.version >= kVersion2;
    const bool growth = v2 || offers_d(p.v1_offer) || p.subnet_offset >= kGrowth - kBase;
    out.size = growth ? kGrowth : kBase;
    p.subnet_offset = p.v2_offset = 0;
    if (p.subnet || !v2) {
        p.subnet_offset = static_cast<std::uint16_t>(out.size - subnet_extension_at(at_their_fields));
        out.size += encode_area<Subnet>(p.subnet.value_or(Subnet{}), &out.bytes[out.size]);
    }
    if (v2 && p.v2) {
        p.v2_offset = static_cast<std::uint16_t>(out.size - v2_extension_at(at_their_fields));
        V2Extension& extension = *p.v2;
        const std::size_t at = out.size;
        out.size += Layout<V2Extension>::kSize + extension.eids.size() * sizeof(Eid);
        extension.smcd_offset = 0;
        extension.gid_number = 0;
        if (extension.smcd) {
            extension.smcd_offset = static_cast<std::uint16_t>(out.size - smcd_extension_at(at, V2Extension{}));
            extension.gid_number = static_cast<std::uint8_t>(extension.smcd->gids.size());
            out.size += encode_area<SmcdExtension>(*extension.smcd, &out.bytes[out.size]);
        }
        encode_area<V2Extension>(extension, &out.bytes[at]);
    }
    if (!v2) {
        p.v2_offer = Offer{0};  // reserved bits
    }
    encode_area<wire::ProposalBase>(p, out.bytes.data());
    if (growth) {
        encode_area<wire::ProposalGrowth>(p, out.bytes.data());
    }
    finish(out, Type::kProposal, EyeCatcher::kSmcr, p.version);
    return out;
}

Gid join(IsmGid part1, IsmGid part2) {
    Gid gid;
    wire::store_be(gid.bytes.data(), 8, static_cast<std::uint64_t>(part1));
    wire::store_be(gid.bytes.data() + 8, 8, static_cast<std::uint64_t>(part2));
    return gid;
}

IsmGid first_part(const Gid& gid) {
    return IsmGid{wire::load_be(gid.bytes.data(), 8)};
}

IsmGid second_part(const Gid& gid) {
    return IsmGid{wire::load_be(gid.bytes.data() + 8, 8)};
}

bool add_ism_device(SmcdExtension& extension, const IsmDevice& device) {
    if (extension.gids.size() + 2 > kMaxGids) {
        return false;
    }
    return extension.gids.push_back({first_part(device.gid), device.chid}) &&
           extension.gids.push_back({second_part(device.gid), device.chid});
}

std::optional<IsmDevice> next_ism_device(const SmcdExtension& extension, std::size_t& from) {
    const auto& gids = extension.gids;
    while (from + 1 < gids.size()) {
        const std::size_t at = from;
        from += is_emulated(gids[at].chid) ? 2 : 1;
        if (is_emulated(gids[at].chid)) {
            return IsmDevice{join(gids[at].gid, gids[at + 1].gid), gids[at].chid};
        }
    }
    return std::nullopt;
}

}  // namespace smc::clc
