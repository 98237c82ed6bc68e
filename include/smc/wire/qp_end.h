// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// One end of a link: a queue pair as CLC and ADD LINK tell the other peer of it (RFC 7609 A.2.3, A.3.2).
#pragma once

#include "smc/wire/clc/accept.h"
#include "smc/wire/ids.h"

namespace smc {

struct QpEnd {
    RoceGid gid;
    Mac mac;
    Qpn qpn{};
    Psn psn{};  // of the first packet it sends; 24 bits
    clc::Mtu mtu = clc::Mtu::k1024;

    // True if both are the same queue pair: its GID and its number identify it.
    [[nodiscard]] bool is(const QpEnd& other) const {
        return gid.normalised() == other.gid.normalised() && qpn == other.qpn;
    }
};

inline constexpr std::uint32_t kPsnMask = 0xffffff;

}  // namespace smc
