// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "smc/wire/describe.h"

#include "lib/wire/llc_tables.h"
#include "lib/wire/row_reader.h"
#include "smc/wire/cdc.h"
#include "smc/wire/tcp_option.h"

namespace smc {

namespace {

using wire::Bytes;
using wire::fault_of;
using wire::RowReader;

// Sets the size of lists whose count is a field of its own.
template <class M>
void size_lists(M& m) {
    if constexpr (std::is_same_v<M, llc::AddLinkContinuation>) {
        m.rkeys.resize(m.tokens_left);
    } else if constexpr (std::is_same_v<M, llc::ConfirmRkey>) {
        m.others.resize(m.other_tokens);
    } else if constexpr (std::is_same_v<M, llc::ConfirmRkeyContinuation>) {
        m.others.resize(m.tokens_left);
    } else if constexpr (std::is_same_v<M, llc::DeleteRkey>) {
        m.rkeys.resize(m.negative ? m.invalid_count : 0);
    }
}

template <class M>
void read_llc(RowReader& reader, Bytes message, const llc::Header& h, Fields& out) {
    M m;
    static_cast<llc::Header&>(m) = h;
    if constexpr (std::is_same_v<M, llc::AddLink>) {
        m.padded = llc::has_padding(message);
        if (message.size() > llc::kSmallBytes) {
            m.large.emplace();
        }
    }
    Fields counts;
    llc::for_each_table(m, [&]<class Table>(auto& object) { reader.read<Table>(0, object, counts); });
    size_lists(m);
    llc::for_each_table(m, [&]<class Table>(auto& object) { reader.read<Table>(0, object, out); });
}

}  // namespace

Description describe_llc(Bytes message) {
    Description out{"LLC", {}, 0, {}, {}};
    RowReader reader(message, message.size());
    const auto decoded = llc::decode(message);
    const auto fault = fault_of(decoded);
    llc::Header h;
    Fields type;
    reader.read<wire::LlcTypeField>(0, h, type);
    const bool known = !message.empty() && (!fault || fault->offset != 0);  // the fault is not in the type
    if (!known) {
        out.fields = std::move(type);
        wire::finish(out, reader, fault);
        return out;
    }
    h.version = h.version == 0 ? 1 : h.version;
    out.type = llc::text(h.type);
    out.version = h.version;
    if (h.version == 1) {
        reader.read<wire::LlcHeaderV1>(0, h, out.fields);
    } else {
        reader.read<wire::LlcHeaderV2>(0, h, out.fields);
        const std::uint16_t swapped = __builtin_bswap16(h.length);
        h.little_endian = fault ? h.length != message.size() && swapped == message.size()
                                : llc::header_of(std::get<llc::AnyMessage>(decoded)).little_endian;
    }
    if (h.little_endian) {
        out.fields.front().value = std::uint64_t{__builtin_bswap16(h.length)};
        out.fields.push_back(
            {"little_endian_length", "Length is little endian, as Linux on little-endian machines has it", true});
    }
    llc::visit_type(
        h.type, [&]<class M>() { read_llc<M>(reader, message, h, out.fields); }, [] {});
    wire::finish(out, reader, fault);
    return out;
}

Description describe_cdc(Bytes message) {
    Description out{"CDC", "CDC", 1, {}, {}};
    RowReader reader(message, message.size());
    cdc::Message m;
    reader.read<cdc::Message>(0, m, out.fields);
    wire::finish(out, reader, fault_of(cdc::decode(message)));
    return out;
}

Description describe_smcd_cdc(Bytes memory) {
    Description out{"CDC", "SMC-D CDC", 1, {}, {}};
    RowReader reader(memory, memory.size());
    cdc::SmcdMessage m;
    reader.read<cdc::SmcdMessage>(0, m, out.fields);
    wire::finish(out, reader, fault_of(cdc::decode_smcd(memory)));
    return out;
}

Description describe_tcp_option(Bytes bytes) {
    Description out{"TCP", "OPTION 254", 0, {}, {}};  // the option has no version
    RowReader reader(bytes, bytes.size());
    tcp::SmcOption option;
    option.exid = {};
    reader.read<tcp::SmcOption>(0, option, out.fields);
    std::optional<Fault> fault;
    if (!tcp::find_smc_option(bytes)) {
        fault = wire::fault_at<tcp::SmcOption, &tcp::SmcOption::exid>(0, static_cast<std::uint32_t>(option.exid),
                                                                      "SMCR or SMCD in EBCDIC");
    }
    wire::finish(out, reader, fault);
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
