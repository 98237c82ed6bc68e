// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "smc/wire/clc/header.h"

namespace smc::clc {

namespace {

using wire::fault_at;

struct Limits {
    std::size_t shortest;
    std::size_t longest;
};

// Version 1 will not change any more, so it has upper limits. Bytes that later versions or releases append are ignored.
constexpr Limits limits(Type type, std::uint8_t version) {
    constexpr std::size_t kAnything = 0xffff;
    const bool v1 = version == kVersion1;
    switch (type) {
        case Type::kProposal:
            return {52, v1 ? kMaxMessage : kAnything};
        case Type::kAccept:
        case Type::kConfirm:
            return {48, v1 ? kMaxMessage : kAnything};
        case Type::kDecline:
            return {28, v1 ? std::size_t{28} : kAnything};
    }
    return {0, 0};
}

bool is_known(EyeCatcher eye_catcher) {
    return eye_catcher == EyeCatcher::kSmcr || eye_catcher == EyeCatcher::kSmcd;
}

std::string reserved(unsigned value) {
    return std::to_string(value) + " (reserved)";
}

}  // namespace

std::string text(Type type) {
    switch (type) {
        case Type::kProposal:
            return "PROPOSAL";
        case Type::kAccept:
            return "ACCEPT";
        case Type::kConfirm:
            return "CONFIRM";
        case Type::kDecline:
            return "DECLINE";
    }
    return reserved(static_cast<unsigned>(type));
}

std::string text(EyeCatcher eye_catcher) {
    switch (eye_catcher) {
        case EyeCatcher::kSmcr:
            return "SMCR";
        case EyeCatcher::kSmcd:
            return "SMCD";
    }
    return reserved(static_cast<unsigned>(eye_catcher));
}

std::string text(Offer offer) {
    switch (offer) {
        case Offer::kSmcR:
            return "SMC-R";
        case Offer::kSmcD:
            return "SMC-D";
        case Offer::kNone:
            return "none";
        case Offer::kBoth:
            return "SMC-R and SMC-D";
    }
    return reserved(static_cast<unsigned>(offer));
}

std::string text(Os os) {
    switch (os) {
        case Os::kNone:
            return "none";
        case Os::kZos:
            return "z/OS";
        case Os::kLinux:
            return "Linux";
        case Os::kAix:
            return "AIX";
        case Os::kUnknown:
            return "unknown";
    }
    return reserved(static_cast<unsigned>(os));
}

Decoded<Header> decode_header(Bytes first8) {
    if (first8.size() < kHeaderBytes) {
        return fault_at<Header, &Header::length>(0, first8.size(), "at least 8 bytes");
    }
    Header h;
    wire::decode_fixed<Header>(first8.data(), h);
    if (!is_known(h.eye_catcher)) {
        return fault_at<Header, &Header::eye_catcher>(0, static_cast<std::uint32_t>(h.eye_catcher),
                                                      "SMCR or SMCD in EBCDIC");
    }
    if (h.type < Type::kProposal || h.type > Type::kDecline) {
        return fault_at<Header, &Header::type>(0, static_cast<std::uint64_t>(h.type), "1 to 4");
    }
    const auto [shortest, longest] = limits(h.type, h.version);
    if (h.length < shortest || h.length > longest) {
        return fault_at<Header, &Header::length>(0, h.length, "a valid length for this type of message");
    }
    if (h.version == 0) {
        return fault_at<Header, &Header::version>(0, 0, "1 or more");
    }
    return h;
}

Decoded<Header> decode_frame(Bytes message) {
    auto header = decode_header(message.first(message.size() < kHeaderBytes ? message.size() : kHeaderBytes));
    if (auto* h = std::get_if<Header>(&header)) {
        const bool kept_in_part = h->length > kMaxMessage && message.size() == kMaxMessage;
        if (h->length != message.size() && !kept_in_part) {
            return fault_at<Header, &Header::length>(0, h->length, "the length of the message");
        }
        const std::size_t end = message.size() - kTrailerBytes;
        Trailer trailer;
        wire::decode_fixed<Trailer>(&message[end], trailer);
        // v2.1, Decline, note 1
        const bool either = h->type == Type::kDecline;
        if (either ? !is_known(trailer.eye_catcher) : trailer.eye_catcher != h->eye_catcher) {
            return fault_at<Trailer, &Trailer::eye_catcher>(end, static_cast<std::uint32_t>(trailer.eye_catcher),
                                                            "the eye catcher of the message start");
        }
    }
    return header;
}

void finish(Message& out, Type type, EyeCatcher eye_catcher, std::uint8_t version) {
    out.size += kTrailerBytes;
    const Header header{eye_catcher, type, static_cast<std::uint16_t>(out.size), version};
    wire::encode_fixed<Header>(header, out.bytes.data());
    wire::encode_fixed<Trailer>(Trailer{eye_catcher}, &out.bytes[out.size - kTrailerBytes]);
}

}  // namespace smc::clc
