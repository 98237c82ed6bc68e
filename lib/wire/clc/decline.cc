// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "smc/wire/clc/decline.h"

namespace smc::clc {

using wire::decode_fixed;
using wire::encode_fixed;

Decoded<Decline> decode_decline(Bytes message) {
    const auto frame = decode_frame(message);
    if (const auto* fault = std::get_if<Fault>(&frame)) {
        return *fault;
    }
    const Header& h = std::get<Header>(frame);
    if (h.type != Type::kDecline) {
        return wire::fault_at<Header, &Header::type>(0, static_cast<std::uint64_t>(h.type), "a Decline");
    }
    const bool v2 = h.version >= kVersion2;
    Decline d;
    d.eye_catcher = h.eye_catcher;
    d.version = h.version;
    d.has_types = v2 && message.size() >= kDeclineV2Bytes;
    decode_fixed<wire::DeclineV1>(message.data(), d);
    d.os = Os::kNone;
    if (v2) {
        decode_fixed<wire::DeclineOs>(message.data(), d);
    }
    if (d.has_types) {
        decode_fixed<wire::DeclineTypes>(message.data(), d);
    }
    return d;
}

Message encode(const Decline& d) {
    Message out;
    encode_fixed<wire::DeclineV1>(d, out.bytes.data());
    out.size = wire::Layout<wire::DeclineV1>::kSize;
    if (d.version >= kVersion2) {
        encode_fixed<wire::DeclineOs>(d, out.bytes.data());
        if (d.has_types) {
            encode_fixed<wire::DeclineTypes>(d, out.bytes.data());
            out.size = wire::Layout<wire::DeclineTypes>::kSize;
        }
    }
    finish(out, Type::kDecline, d.eye_catcher, d.version);
    return out;
}

std::string reason_meaning(const Decline& d, Reason reason) {
    const auto meaning = linux_reason_text(reason);
    if (!meaning || (d.os != Os::kLinux && d.version != kVersion1)) {
        return {};
    }
    return (d.os == Os::kLinux ? "" : "in Linux: ") + std::string(*meaning);
}

}  // namespace smc::clc
