// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// CLC Decline: either side falls back to TCP. 28 bytes in RFC 7609 A.2.5; 44 in v2.1 "CLC V2 Decline Message", which
// has a reason for each type. A version 2 Decline may have the short form.
#pragma once

#include "smc/wire/clc/header.h"
#include "smc/wire/reason.h"

namespace smc::clc {

inline constexpr std::size_t kDeclineV2Bytes = 44;

struct Decline {
    EyeCatcher eye_catcher = EyeCatcher::kSmcr;  // v2.1, note 1: either is allowed
    std::uint8_t version = kVersion2;
    bool out_of_sync = false;  // the receiver must forget the link group
    PeerId peer_id{};
    Reason reason{};
    Os os = Os::kLinux;  // the system that defines the reason codes; version 2 only, like the following
    // SMC Type Diagnosis Information, zero where the type was not offered.
    Reason smcd_v2{}, smcd_v1{}, smcr_v2{}, smcr_v1{};
    bool has_types = true;  // false: the short form, the only one in version 1
};

Decoded<Decline> decode_decline(Bytes message);
Message encode(const Decline& decline);
// The meaning of a code at its sender. Version 1 does not name the sender's system: then the text gives Linux's
// meaning, and says so. Empty: unknown code.
std::string reason_meaning(const Decline& decline, Reason reason);

}  // namespace smc::clc

namespace smc::wire {

struct DeclineV1;
template <>
struct Layout<DeclineV1> {
    using D = clc::Decline;
    static constexpr std::size_t kSize = 24;
    static constexpr auto kFields = std::tuple{
        bits<&D::out_of_sync>(7, 4, 1, "out_of_sync", "Out of Sync"),
        field<&D::peer_id>(8, 8, "sender_peer_id", "Sender Peer ID"),
        field<&D::reason>(16, 4, "sender_diagnosis_information", "Sender Diagnosis Information"),
    };
};
static_assert(fields_fit<DeclineV1, clc::Decline>());

struct DeclineOs;
template <>
struct Layout<DeclineOs> {
    static constexpr std::size_t kSize = 24;
    static constexpr auto kFields = std::tuple{
        bits<&clc::Decline::os>(20, 0, 4, "os_type", "OS Type"),
    };
};
static_assert(fields_fit<DeclineOs, clc::Decline>());

struct DeclineTypes;
template <>
struct Layout<DeclineTypes> {
    using D = clc::Decline;
    static constexpr std::size_t kSize = 40;
    static constexpr auto kFields = std::tuple{
        field<&D::smcd_v2>(24, 4, "smcdv2_reason_code", "SMC-Dv2 Reason Code"),
        field<&D::smcd_v1>(28, 4, "smcdv1_reason_code", "SMC-Dv1 Reason Code"),
        field<&D::smcr_v2>(32, 4, "smcrv2_reason_code", "SMC-Rv2 Reason Code"),
        field<&D::smcr_v1>(36, 4, "smcrv1_reason_code", "SMC-Rv1 Reason Code"),
    };
};
static_assert(fields_fit<DeclineTypes, clc::Decline>());

}  // namespace smc::wire
