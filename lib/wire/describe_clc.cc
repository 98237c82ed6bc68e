// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "lib/wire/row_reader.h"
#include "smc/wire/clc.h"
#include "smc/wire/describe.h"

namespace smc {

namespace {

using wire::Bytes;
using wire::RowReader;

void explain_reasons(Fields& fields, const clc::Decline& d) {
    const std::pair<const char*, Reason> reasons[] = {{"sender_diagnosis_information", d.reason},
                                                      {"smcdv2_reason_code", d.smcd_v2},
                                                      {"smcdv1_reason_code", d.smcd_v1},
                                                      {"smcrv2_reason_code", d.smcr_v2},
                                                      {"smcrv1_reason_code", d.smcr_v1}};
    for (Field& field : fields) {
        for (const auto& [name, reason] : reasons) {
            const std::string meaning = clc::reason_meaning(d, reason);
            if (field.name == name && reason != Reason::kNone && !meaning.empty()) {
                field.text += " (" + meaning + ")";
            }
        }
    }
}

void read_v2_extension(RowReader& reader, std::size_t at, clc::Offer offer, Fields& out) {
    clc::V2Extension v2;
    reader.read_group<clc::V2Extension>(at, v2, out, "v2_extension", "CLC Proposal V2 Extension");
    if (offers_d(offer) && v2.smcd_offset != 0) {
        clc::SmcdExtension smcd;
        smcd.gids.resize(v2.gid_number);
        reader.read_group<clc::SmcdExtension>(clc::smcd_extension_at(at, v2), smcd, out, "smcdv2_extension",
                                              "CLC Proposal SMC-Dv2 Extension");
    }
}

void read_proposal(RowReader& reader, const clc::Header& h, Fields& out) {
    const bool v1 = h.version == clc::kVersion1;
    clc::Proposal p;
    reader.read<wire::ProposalBase>(0, p, out, v1 ? RowReader::Names{"smcv2_type"} : RowReader::Names{});
    if (!v1 || offers_d(p.v1_offer)) {
        reader.read<wire::ProposalGrowth>(0, p, out);
    }
    if (v1 || offers_r(p.v1_offer) || (offers_d(p.v1_offer) && p.subnet_offset != 0)) {
        clc::Subnet subnet;
        reader.read_group<clc::Subnet>(clc::subnet_extension_at(p), subnet, out, "ip_subnet_extension",
                                       "CLC Proposal IP Subnet Extension Area");
    }
    if (!v1 && p.v2_offer != clc::Offer::kNone) {
        read_v2_extension(reader, clc::v2_extension_at(p), p.v2_offer, out);
    }
}

// The First Contact Extension at `at`, after the part of version 2.
void read_first_contact(RowReader& reader, std::size_t at, bool smcr, Fields& out) {
    if (at >= reader.body()) {
        return;
    }
    clc::FirstContact fce;
    Fields group;
    if (smcr) {
        reader.read<wire::FceLinkType>(at, fce, group);
    }
    reader.read<wire::FceBase>(at, fce, group);
    if (reader.body() - at >= clc::kFce) {
        if (smcr) {
            reader.read<wire::FceMaxima>(at, fce, group);
        }
        reader.read<wire::FceRelease1>(at, fce, group);
    }
    out.push_back({"first_contact_extension", "First Contact Extension (FCE)", std::move(group), {}, at, {}});
}

void read_smcr(RowReader& reader, const clc::Header& h, Fields& out) {
    const bool v1 = h.version == clc::kVersion1, confirm = h.type == clc::Type::kConfirm;
    clc::AcceptR a;
    reader.read<wire::AcceptSmcrV1>(0, a, out,
                                    v1 && confirm ? RowReader::Names{"contact", "smc_type_rc_saved", "smcv2_type"}
                                    : v1          ? RowReader::Names{"smc_type_rc_saved", "smcv2_type"}
                                    : confirm     ? RowReader::Names{"smc_type_rc_saved"}
                                                  : RowReader::Names{});
    if (v1) {
        return;
    }
    reader.read<wire::AcceptSmcrV2>(0, a, out);
    constexpr std::size_t kFceAt = wire::Layout<wire::AcceptSmcrV2>::kSize, kGidsAt = kFceAt + clc::kFce;
    if (a.first_contact) {
        read_first_contact(reader, kFceAt, true, out);
        if (confirm) {
            reader.read_group<wire::ClientGidList>(kGidsAt, a, out, "client_rocev2_gid_list", "Client RoCEv2 GID List");
        }
    }
}

void read_smcd(RowReader& reader, const clc::Header& h, Fields& out) {
    const bool v1 = h.version == clc::kVersion1, confirm = h.type == clc::Type::kConfirm;
    clc::AcceptD a;
    reader.read<wire::AcceptSmcdV1>(0, a, out, v1 && confirm ? RowReader::Names{"contact"} : RowReader::Names{});
    if (v1) {
        return;
    }
    reader.read<wire::AcceptSmcdV2>(0, a, out);
    if (a.first_contact) {
        read_first_contact(reader, wire::Layout<wire::AcceptSmcdV2>::kSize, false, out);
    }
}

void read_decline(RowReader& reader, const clc::Header& h, Fields& out) {
    clc::Decline d;
    d.version = h.version;
    d.os = clc::Os::kNone;
    reader.read<wire::DeclineV1>(0, d, out);
    if (h.version != clc::kVersion1) {
        reader.read<wire::DeclineOs>(0, d, out);
        reader.read<wire::DeclineTypes>(0, d, out);
    }
    explain_reasons(out, d);
}

// Bytes in front of the trailer, or all of them if there is none.
std::size_t body_of(Bytes message) {
    if (message.size() < clc::kHeaderBytes + clc::kTrailerBytes) {
        return message.size();
    }
    const auto end = static_cast<std::uint32_t>(wire::load_be(&message[message.size() - 4], 4));
    return message.size() - (end == kEyeCatcherR || end == kEyeCatcherD ? clc::kTrailerBytes : 0);
}

}  // namespace

Description describe_clc(Bytes message) {
    Description out{"CLC", {}, 0, {}, {}};
    RowReader reader(message, body_of(message));
    clc::Header h;
    h.version = 0;
    reader.read<clc::Header>(0, h, out.fields);
    out.version = h.version;
    const bool smc = h.eye_catcher == clc::EyeCatcher::kSmcr || h.eye_catcher == clc::EyeCatcher::kSmcd;
    if (smc && message.size() >= clc::kHeaderBytes && h.type >= clc::Type::kProposal && h.type <= clc::Type::kDecline) {
        out.type = clc::text(h.type);
        reader.skip(reader.body(), message.size() - reader.body());
        if (h.type == clc::Type::kProposal) {
            read_proposal(reader, h, out.fields);
        } else if (h.type == clc::Type::kDecline) {
            read_decline(reader, h, out.fields);
        } else if (h.eye_catcher == clc::EyeCatcher::kSmcd) {
            read_smcd(reader, h, out.fields);
        } else {
            read_smcr(reader, h, out.fields);
        }
    }
    const auto fault = wire::fault_of(clc::decode(message));
    constexpr const char* trailer = wire::field_of<clc::Trailer, &clc::Trailer::eye_catcher>().name;
    if (fault && fault->field == std::string_view(trailer) && fault->offset + clc::kTrailerBytes == message.size()) {
        const char* const meaning = "Eye catcher (EBCDIC) message end";
        out.fields.push_back(
            {fault->field, meaning, wire::hex(message.last(clc::kTrailerBytes)), {}, fault->offset, {}});
        reader.skip(fault->offset, clc::kTrailerBytes);
    }
    wire::finish(out, reader, fault);
    return out;
}

}  // namespace smc
