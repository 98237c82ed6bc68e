// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "smc/wire/clc.h"

#include <algorithm>

namespace smc::clc {

namespace {

template <class T>
Decoded<AnyMessage> widen(Decoded<T>&& decoded) {
    if (auto* fault = std::get_if<Fault>(&decoded)) {
        return *fault;
    }
    return AnyMessage(std::move(std::get<T>(decoded)));
}

}  // namespace

Decoded<AnyMessage> decode(Bytes message) {
    const auto header = decode_header(message.first(message.size() < kHeaderBytes ? message.size() : kHeaderBytes));
    if (const auto* fault = std::get_if<Fault>(&header)) {
        return *fault;
    }
    switch (const Type type = std::get<Header>(header).type) {
        case Type::kProposal:
            return widen(decode_proposal(message));
        case Type::kDecline:
            return widen(decode_decline(message));
        case Type::kAccept:
        case Type::kConfirm: {
            auto decoded = decode_acceptance(message, type);
            if (auto* fault = std::get_if<Fault>(&decoded)) {
                return *fault;
            }
            return std::visit([](const auto& a) -> AnyMessage { return a; }, std::get<Acceptance>(decoded));
        }
    }
    return wire::fault_at<Header, &Header::type>(0, 0, "1 to 4");
}

std::optional<Type> type_of(Bytes message) {
    const auto header = decode_header(message.first(std::min(message.size(), kHeaderBytes)));
    const auto* known = std::get_if<Header>(&header);
    return known != nullptr ? std::optional(known->type) : std::nullopt;
}

Fault wrong_type(Bytes message, const char* expected) {
    Header header;
    if (message.size() >= kHeaderBytes) {
        wire::decode_fixed<Header>(message.data(), header);
    }
    return wire::fault_at<Header, &Header::type>(0, static_cast<std::uint64_t>(header.type), expected);
}

Fault wrong_variant(const Acceptance& acceptance, const char* expected) {
    const bool smcr = std::holds_alternative<AcceptR>(acceptance);
    return wire::fault_at<Header, &Header::eye_catcher>(0, smcr ? kEyeCatcherR : kEyeCatcherD, expected);
}

Message encode(const AnyMessage& message) {
    return std::visit([](const auto& m) { return encode(m); }, message);
}

}  // namespace smc::clc
