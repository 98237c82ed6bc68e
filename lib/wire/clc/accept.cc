// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "smc/wire/clc/accept.h"

namespace smc::clc {

namespace {

using wire::decode_fixed;
using wire::encode_area;
using wire::fault_at;
using wire::Layout;

constexpr std::size_t kSmcrV1 = Layout<wire::AcceptSmcrV1>::kSize;
constexpr std::size_t kSmcrV2 = Layout<wire::AcceptSmcrV2>::kSize;
constexpr std::size_t kSmcdV1 = Layout<wire::AcceptSmcdV1>::kSize;
constexpr std::size_t kSmcdV2 = Layout<wire::AcceptSmcdV2>::kSize;

Fault bad_length(std::size_t body, const char* expected) {
    return fault_at<Header, &Header::length>(0, body + kTrailerBytes, expected);
}

// `fce` is the extension from its start to the end of the body.
FirstContact decode_fce(Bytes fce, bool smcr) {
    FirstContact f;
    decode_fixed<wire::FceBase>(fce.data(), f);
    f.bytes = static_cast<std::uint8_t>(fce.size() < kFce ? kShortFce : kFce);  // size of the part that is known here
    if (smcr) {
        decode_fixed<wire::FceLinkType>(fce.data(), f);
    }
    if (f.bytes == kFce) {
        decode_fixed<wire::FceRelease1>(fce.data(), f);
        if (smcr) {
            decode_fixed<wire::FceMaxima>(fce.data(), f);
        }
    }
    return f;
}

std::size_t encode_fce(FirstContact f, bool smcr, std::uint8_t* to) {
    f.bytes = smcr ? kFce : f.bytes;
    encode_area<wire::FceBase>(f, to);
    if (smcr) {
        encode_area<wire::FceLinkType>(f, to);
    }
    if (f.bytes == kFce) {
        encode_area<wire::FceRelease1>(f, to);
        if (smcr) {
            encode_area<wire::FceMaxima>(f, to);
        }
    }
    return f.bytes == kFce ? kFce : kShortFce;
}

// An undefined value is declined; the other defined type is simply wrong.
Fault bad_type(Offer found, Offer wrong, const char* expected) {
    return fault_at<wire::AcceptSmcrV1, &AcceptR::smc_type>(0, static_cast<std::uint64_t>(found), expected,
                                                            found == wrong ? Verdict::kTreatAsData : Verdict::kDecline);
}

// The message without the bits that are reserved in its version and type.
AcceptR without_reserved(AcceptR a) {
    const bool v2 = a.version >= kVersion2;
    a.first_contact = a.first_contact && (v2 || a.type == Type::kAccept);
    a.rc_saved = a.rc_saved && v2 && a.type == Type::kAccept;
    a.smc_type = v2 ? a.smc_type : Offer::kSmcR;
    return a;
}

AcceptD without_reserved(AcceptD a) {
    a.first_contact = a.first_contact && (a.version >= kVersion2 || a.type == Type::kAccept);
    return a;
}

std::optional<Fault> decode_first_contact(Bytes body, AcceptR& a) {
    if (body.size() < kSmcrV2 + kFce) {
        return bad_length(body.size(), "a First Contact Extension");
    }
    a.fce = decode_fce(body.subspan(kSmcrV2), true);
    if (a.type == Type::kConfirm) {
        const std::size_t end = kSmcrV2 + kFce;
        const auto length = wire::pointer_at<Header, &Header::length>(0, body.size() + kTrailerBytes);
        if (auto fault = wire::decode_area<wire::ClientGidList>(body, end, length, a)) {
            return fault;
        }
        if (a.gid_list.empty()) {
            return fault_at<wire::ClientGidList, &AcceptR::gid_list>(end, 0, "1 to 8");
        }
    }
    return std::nullopt;  // a later release may append to it
}

Decoded<Acceptance> decode_smcr(Bytes body, const Header& h) {
    const bool v2 = h.version == kVersion2;
    if (v2 ? body.size() < kSmcrV2 : body.size() != kSmcrV1) {
        return bad_length(body.size(), v2 ? "at least 108 in version 2" : "68 in version 1");
    }
    Decoded<Acceptance> decoded(std::in_place_index<0>, std::in_place_index<0>);
    AcceptR& a = std::get<AcceptR>(std::get<Acceptance>(decoded));
    a.type = h.type;
    a.version = h.version;
    decode_fixed<wire::AcceptSmcrV1>(body.data(), a);
    a = without_reserved(a);
    if (v2) {
        decode_fixed<wire::AcceptSmcrV2>(body.data(), a);
        if (a.first_contact) {
            if (auto fault = decode_first_contact(body, a)) {
                return *fault;
            }
        }
        if (a.smc_type != Offer::kSmcR) {
            return bad_type(a.smc_type, Offer::kSmcD, "SMC-R");
        }
    }
    // Checked last: a message is declined only if nothing but a reserved enumeration value is wrong with it. A Confirm
    // of version 1 does not say whether it is a first contact; its receiver knows.
    if (a.first_contact && !is_valid(a.mtu)) {
        return fault_at<wire::AcceptSmcrV1, &AcceptR::mtu>(0, static_cast<std::uint64_t>(a.mtu), "1 to 5",
                                                           Verdict::kDecline);
    }
    return decoded;
}

Decoded<Acceptance> decode_smcd(Bytes body, const Header& h) {
    const bool v2 = h.version == kVersion2;
    if (v2 ? body.size() < kSmcdV2 : body.size() != kSmcdV1) {
        return bad_length(body.size(), v2 ? "at least 78 in version 2" : "48 in version 1");
    }
    Decoded<Acceptance> decoded(std::in_place_index<0>, std::in_place_index<1>);
    AcceptD& a = std::get<AcceptD>(std::get<Acceptance>(decoded));
    a.type = h.type;
    a.version = h.version;
    decode_fixed<wire::AcceptSmcdV1>(body.data(), a);
    a = without_reserved(a);
    // Checked last: a message is declined only if nothing else is wrong with it.
    const bool right_type = a.smc_type == Offer::kSmcD;
    if (!v2) {
        return right_type ? decoded : bad_type(a.smc_type, Offer::kSmcR, "SMC-D");
    }
    decode_fixed<wire::AcceptSmcdV2>(body.data(), a);
    if (!a.first_contact) {
        return right_type ? decoded : bad_type(a.smc_type, Offer::kSmcR, "SMC-D");
    }
    if (body.size() < kSmcdV2 + kShortFce) {
        return bad_length(body.size(), "a First Contact Extension");
    }
    a.fce = decode_fce(body.subspan(kSmcdV2), false);
    if (a.fce->bytes == kShortFce && a.fce->release != 0) {
        return bad_length(body.size(), "130 from release 1 on");
    }
    return right_type ? decoded : bad_type(a.smc_type, Offer::kSmcR, "SMC-D");
}

}  // namespace

std::string text(LinkType type) {
    return type == LinkType::kDirect ? "v2_Direct" : "v2_Indirect";
}

std::string text(Mtu mtu) {
    const std::string value = std::to_string(static_cast<unsigned>(mtu));
    return is_valid(mtu) ? value + " (" + std::to_string(bytes_of(mtu)) + ")" : value + " (reserved)";
}

Decoded<Acceptance> decode_acceptance(Bytes message, Type expected) {
    const auto frame = decode_frame(message);
    if (const auto* fault = std::get_if<Fault>(&frame)) {
        return *fault;
    }
    const Header& h = std::get<Header>(frame);
    if (h.type != expected) {
        return fault_at<Header, &Header::type>(0, static_cast<std::uint64_t>(h.type),
                                               "the expected message, Accept or Confirm");
    }
    if (h.version > kVersion2) {
        return fault_at<Header, &Header::version>(0, h.version, "1 or 2", Verdict::kDecline);
    }
    const Bytes body = message.first(message.size() - kTrailerBytes);
    return h.eye_catcher == EyeCatcher::kSmcd ? decode_smcd(body, h) : decode_smcr(body, h);
}

Message encode(const AcceptR& in) {
    const AcceptR a = without_reserved(in);
    Message out;
    encode_area<wire::AcceptSmcrV1>(a, out.bytes.data());
    out.size = kSmcrV1;
    if (a.version >= kVersion2) {
        encode_area<wire::AcceptSmcrV2>(a, out.bytes.data());
        out.size = kSmcrV2;
        if (a.fce) {
            out.size += encode_fce(*a.fce, true, &out.bytes[out.size]);
            if (a.type == Type::kConfirm) {
                out.size += encode_area<wire::ClientGidList>(a, &out.bytes[out.size]);
            }
        }
    }
    finish(out, a.type, EyeCatcher::kSmcr, a.version);
    return out;
}

Message encode(const AcceptD& in) {
    const AcceptD a = without_reserved(in);
    Message out;
    encode_area<wire::AcceptSmcdV1>(a, out.bytes.data());
    out.size = kSmcdV1;
    if (a.version >= kVersion2) {
        encode_area<wire::AcceptSmcdV2>(a, out.bytes.data());
        out.size = kSmcdV2;
        if (a.fce) {
            out.size += encode_fce(*a.fce, false, &out.bytes[out.size]);
        }
    }
    finish(out, a.type, EyeCatcher::kSmcd, a.version);
    return out;
}

}  // namespace smc::clc
