// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "smc/wire/clc/header.h"

namespace smc::clc {

namespace {

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
            return {48, kMaxMessage};
        case Type::kDecline:
            return {28, 44};
    }
    return {0, 0};
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
        return Fault{"clc_message_length", 5, first8.size(), "at least 8 bytes"};
    }
    Header h;
    wire::decode_fixed<Header>(first8.data(), h);
    if (h.eye_catcher != EyeCatcher::kSmcr && h.eye_catcher != EyeCatcher::kSmcd) {
        return Fault{"eye_catcher", 0, static_cast<std::uint32_t>(h.eye_catcher), "SMCR or SMCD in EBCDIC"};
    }
    if (h.type < Type::kProposal || h.type > Type::kDecline) {
        return Fault{"clc_message_type", 4, static_cast<std::uint64_t>(h.type), "1 to 4"};
    }
    const auto [shortest, longest] = limits(h.type);
    if (h.length < shortest || h.length > longest) {
        return Fault{"clc_message_length", 5, h.length, "a length this message can have"};
    }
    if (h.version == 0) {
        return Fault{"smc_version", 7, 0, "1 or more"};
    }
    return h;
}

Decoded<Header> decode_frame(Bytes message) {
    auto header = decode_header(message.first(message.size() < kHeaderBytes ? message.size() : kHeaderBytes));
    if (auto* h = std::get_if<Header>(&header)) {
        if (h->length != message.size()) {
            return Fault{"clc_message_length", 5, h->length, "the length of the message"};
        }
        const std::size_t end = message.size() - kTrailerBytes;
        const auto trailer = static_cast<EyeCatcher>(wire::load_be(&message[end], kTrailerBytes));
        // v2.1, Decline, note 1
        const bool either = h->type == Type::kDecline;
        const bool known = trailer == EyeCatcher::kSmcr || trailer == EyeCatcher::kSmcd;
        if (either ? !known : trailer != h->eye_catcher) {
            return Fault{"eye_catcher_message_end", end, static_cast<std::uint32_t>(trailer),
                         "the eye catcher of the message start"};
        }
    }
    return header;
}

void finish(Message& out, Type type, EyeCatcher eye_catcher, std::uint8_t version) {
    out.size += kTrailerBytes;
    const Header header{eye_catcher, type, static_cast<std::uint16_t>(out.size), version};
    wire::encode_fixed<Header>(header, out.bytes.data());
    wire::store_be(&out.bytes[out.size - kTrailerBytes], kTrailerBytes, static_cast<std::uint32_t>(eye_catcher));
}

}  // namespace smc::clc
