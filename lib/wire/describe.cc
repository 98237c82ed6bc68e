// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "smc/wire/describe.h"

#include <cstring>

#include "lib/wire/llc_tables.h"
#include "smc/wire/cdc.h"
#include "smc/wire/clc.h"
#include "smc/wire/tcp_option.h"

namespace smc {

namespace {

using wire::Bytes;
using wire::Kind;

std::string hex(Bytes bytes) {
    std::string out = "0x";
    for (const std::uint8_t byte : bytes) {
        out += "0123456789abcdef"[byte >> 4];
        out += "0123456789abcdef"[byte & 15];
    }
    return out;
}

// The number only: a code means what the sender's operating system defines (v2.1, Decline, note 5).
std::string text(Reason reason) {
    char code[12];
    std::snprintf(code, sizeof code, "0x%08x", static_cast<unsigned>(reason));
    return code;
}

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

void drop(Fields& fields, std::string_view name) {
    std::erase_if(fields, [&](const Field& f) { return f.name == name; });
}

// Types whose values are shown as numbers, although they have names.
template <class T>
constexpr bool kIsCode =
    std::is_same_v<T, Reason> || std::is_same_v<T, llc::AddLinkReason> || std::is_same_v<T, llc::DeleteLinkReason>;
// Types of sizes that are sent in compressed form.
template <class T>
constexpr bool kIsSize = std::is_same_v<T, BufferSize> || std::is_same_v<T, clc::Mtu>;

// "rmbe_size", "mtu" -> "rmbe_bytes", "mtu_bytes".
std::string bytes_name(std::string name) {
    if (name.ends_with("_size")) {
        name.resize(name.size() - std::strlen("_size"));
    }
    return name + "_bytes";
}

bool has_bytes(BufferSize) {
    return true;
}
bool has_bytes(clc::Mtu mtu) {
    return is_valid(mtu);
}

template <class L, class T>
void add_fields(Fields& out, const T& object, const std::string& prefix = "", const std::string& meaning = "");

template <class T>
Value value_of(const T& member) {
    if constexpr (wire::Structure<T>) {
        Fields group;
        add_fields<T>(group, member);
        return group;
    } else if constexpr (std::is_same_v<T, bool>) {
        return member;
    } else if constexpr (kIsCode<T> || kIsSize<T>) {
        return static_cast<std::uint64_t>(member);
    } else if constexpr (std::is_enum_v<T>) {
        return text(member);
    } else if constexpr (std::is_integral_v<T>) {
        return static_cast<std::uint64_t>(member);
    } else if constexpr (requires { member.text(); }) {
        return member.text();
    } else {
        return hex(member);
    }
}

template <class L, class T>
void add_fields(Fields& out, const T& object, const std::string& prefix, const std::string& meaning) {
    wire::for_each_row<L>([&](const auto& row) {
        using R = std::remove_cvref_t<decltype(row)>;
        const auto& member = R::in(object);
        const auto add = [&](Value value) {
            out.push_back({prefix + row.name, meaning + row.meaning, std::move(value)});
        };
        if constexpr (R::kKind == Kind::kPart) {
            add_fields<std::remove_cvref_t<decltype(member)>>(out, member, prefix + row.name, meaning + row.meaning);
        } else if constexpr (R::kKind == Kind::kFlag) {
            add((member & R::kMask) != 0);
        } else if constexpr (R::kKind == Kind::kCount) {
            add(static_cast<std::uint64_t>(member.size()));
        } else if constexpr (R::kKind == Kind::kList) {
            Values values;
            for (const auto& item : member) {
                values.push_back(value_of(item));
            }
            add(std::move(values));
        } else {
            using M = std::remove_cvref_t<decltype(member)>;
            add(value_of(member));
            if constexpr (kIsCode<M>) {
                out.back().text = text(member);
            } else if constexpr (kIsSize<M>) {
                if (has_bytes(member)) {
                    out.push_back({bytes_name(prefix + row.name), meaning + row.meaning + ", in bytes",
                                   std::uint64_t{bytes_of(member)}});
                }
            }
        }
    });
}

template <class L, class T>
void add_group(Fields& out, const char* name, const char* meaning, const T& object) {
    Fields group;
    add_fields<L>(group, object);
    out.push_back({name, meaning, std::move(group)});
}

void add_message(Fields& out, const clc::Proposal& p) {
    add_fields<wire::ProposalBase>(out, p);
    if (p.version == clc::kVersion1) {
        drop(out, "smcv2_type");
    }
    if (p.version != clc::kVersion1 || offers_d(p.v1_offer)) {
        add_fields<wire::ProposalGrowth>(out, p);
    }
    if (p.subnet) {
        add_group<clc::Subnet>(out, "ip_subnet_extension", "CLC Proposal IP Subnet Extension Area", *p.subnet);
    }
    if (p.v2) {
        add_group<clc::V2Extension>(out, "v2_extension", "CLC Proposal V2 Extension", *p.v2);
        if (p.v2->smcd) {
            add_group<clc::SmcdExtension>(out, "smcdv2_extension", "CLC Proposal SMC-Dv2 Extension", *p.v2->smcd);
        }
    }
}

void add_fce(Fields& out, const clc::FirstContact& fce, bool smcr) {
    Fields group;
    if (smcr) {
        add_fields<wire::FceLinkType>(group, fce);
    }
    add_fields<wire::FceBase>(group, fce);
    if (fce.bytes == clc::kFce) {
        if (smcr) {
            add_fields<wire::FceMaxima>(group, fce);
        }
        add_fields<wire::FceRelease1>(group, fce);
    }
    out.push_back({"first_contact_extension", "First Contact Extension (FCE)", std::move(group)});
}

void add_message(Fields& out, const clc::AcceptR& a) {
    add_fields<wire::AcceptSmcrV1>(out, a);
    const bool v1 = a.version == clc::kVersion1, confirm = a.type == clc::Type::kConfirm;
    if (v1 || confirm) {
        drop(out, "smc_type_rc_saved");
    }
    if (v1) {
        drop(out, "smcv2_type");
        if (confirm) {
            drop(out, "contact");
        }
        return;
    }
    add_fields<wire::AcceptSmcrV2>(out, a);
    if (a.fce) {
        add_fce(out, *a.fce, true);
        if (a.type == clc::Type::kConfirm) {
            add_group<wire::ClientGidList>(out, "client_rocev2_gid_list", "Client RoCEv2 GID List", a);
        }
    }
}

void add_message(Fields& out, const clc::AcceptD& a) {
    add_fields<wire::AcceptSmcdV1>(out, a);
    if (a.version == clc::kVersion1) {
        if (a.type == clc::Type::kConfirm) {
            drop(out, "contact");
        }
        return;
    }
    add_fields<wire::AcceptSmcdV2>(out, a);
    if (a.fce) {
        add_fce(out, *a.fce, false);
    }
}

void add_message(Fields& out, const clc::Decline& d) {
    add_fields<wire::DeclineV1>(out, d);
    if (d.version != clc::kVersion1) {
        add_fields<wire::DeclineOs>(out, d);
    }
    if (d.has_types) {
        add_fields<wire::DeclineTypes>(out, d);
    }
    explain_reasons(out, d);
}

}  // namespace

Description describe_clc(Bytes message) {
    Description out{"CLC", {}, 0, {}, {}};
    const auto header = clc::decode_header(message.first(std::min(message.size(), clc::kHeaderBytes)));
    if (const auto* fault = std::get_if<Fault>(&header)) {
        out.fault = *fault;
        return out;
    }
    const auto& h = std::get<clc::Header>(header);
    out.type = clc::text(h.type);
    out.version = h.version;
    add_fields<clc::Header>(out.fields, h);
    const auto decoded = clc::decode(message);
    if (const auto* fault = std::get_if<Fault>(&decoded)) {
        out.fault = *fault;
        return out;
    }
    std::visit([&](const auto& m) { add_message(out.fields, m); }, std::get<clc::AnyMessage>(decoded));
    return out;
}

Description describe_llc(Bytes message) {
    Description out{"LLC", {}, 0, {}, {}};
    const auto decoded = llc::decode(message);
    if (const auto* fault = std::get_if<Fault>(&decoded)) {
        out.fault = *fault;
        if (fault->offset != 0 && !message.empty()) {  // the fault is not in the type
            llc::Header h;
            wire::decode_fixed<wire::LlcTypeField>(message.data(), h);
            out.type = llc::text(h.type);
            out.version = h.version == 0 ? 1 : h.version;
        }
        return out;
    }
    const auto& any = std::get<llc::AnyMessage>(decoded);
    const llc::Header& h = llc::header_of(any);
    out.type = llc::text(h.type);
    out.version = h.version;
    add_fields<wire::LlcHeaderV2>(out.fields, h);
    if (h.little_endian) {
        out.fields.push_back(
            {"little_endian_length", "Length is little endian, as Linux on little-endian machines has it", true});
    }
    std::visit(
        [&](const auto& m) {
            llc::for_each_table(m, [&]<class Table>(const auto& object) { add_fields<Table>(out.fields, object); });
        },
        any);
    return out;
}

Description describe_cdc(Bytes message) {
    Description out{"CDC", "CDC", 1, {}, {}};
    const auto decoded = cdc::decode(message);
    if (const auto* fault = std::get_if<Fault>(&decoded)) {
        out.fault = *fault;
        return out;
    }
    add_fields<cdc::Message>(out.fields, std::get<cdc::Message>(decoded));
    return out;
}

Description describe_smcd_cdc(Bytes memory) {
    Description out{"CDC", "SMC-D CDC", 1, {}, {}};
    const auto decoded = cdc::decode_smcd(memory);
    if (const auto* fault = std::get_if<Fault>(&decoded)) {
        out.fault = *fault;
        return out;
    }
    add_fields<cdc::SmcdMessage>(out.fields, std::get<cdc::SmcdMessage>(decoded));
    return out;
}

Description describe_tcp_option(Bytes bytes) {
    Description out{"TCP", "OPTION 254", 1, {}, {}};
    if (const auto option = tcp::find_smc_option(bytes)) {
        add_fields<tcp::SmcOption>(out.fields, *option);
    } else {
        tcp::SmcOption other;
        other.exid = {};
        if (bytes.size() >= tcp::kOptionBytes) {
            wire::decode_fixed<tcp::SmcOption>(bytes.data(), other);
        }
        out.fault = wire::fault_at<tcp::SmcOption, &tcp::SmcOption::exid>(0, static_cast<std::uint32_t>(other.exid),
                                                                          "SMCR or SMCD in EBCDIC");
    }
    return out;
}

Description describe_send(Bytes message) {
    return !message.empty() && message[0] == cdc::kType ? describe_cdc(message) : describe_llc(message);
}

Description describe_any(Bytes bytes) {
    constexpr std::uint8_t kFirstOfEyeCatcher = kEyeCatcherR >> 24;
    if (!bytes.empty() && bytes[0] == kFirstOfEyeCatcher) {
        return describe_clc(bytes);
    }
    if (bytes.size() == tcp::kOptionBytes && bytes[0] == tcp::kExperimentalKind) {
        return describe_tcp_option(bytes);
    }
    if (bytes.size() == cdc::kSmcdBytes && bytes[0] == cdc::kType) {
        return describe_smcd_cdc(bytes);
    }
    return describe_send(bytes);
}

}  // namespace smc
