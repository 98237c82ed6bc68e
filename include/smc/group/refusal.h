// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Why a connection gets no RMBE or no link, and what CLC tells the peer about it.
#pragma once

#include <cstdint>

#include "smc/wire/reason.h"

namespace smc::group {

enum class Refusal : std::uint8_t {
    kOutOfSync,        // the server named a link, but no link group with this server is known here
    kNoDevice,         // there is no RoCE port for this connection
    kOutOfMemory,      // the limit of registered memory is reached
    kGroupOver,        // the link group has ended
    kBusy,             // too many first contacts are under way, or the link that the server named has gone
    kTooManyPeerRmbs,  // the peer has more RMBs than a link group may have
    kUnreachable,      // there is no route to the peer's GID
    kDeviceFailed,     // the device refused a queue pair, memory or a connection
    kNoMoreRmbs,       // the peer accepts no more RMBs, or the link group has its maximum
    kTimeout,          // the RMBE, or the queue pair of a first contact, was not ready in time
};

constexpr Reason reason_of(Refusal refusal) {
    switch (refusal) {
        case Refusal::kOutOfSync:
            return Reason::kOutOfSync;
        case Refusal::kNoDevice:
            return Reason::kNoSmcrDevice;
        case Refusal::kOutOfMemory:
            return Reason::kOutOfMemory;
        case Refusal::kGroupOver:
        case Refusal::kBusy:
            return Reason::kNoActiveLink;
        case Refusal::kTooManyPeerRmbs:
            return Reason::kRtokenFailed;
        case Refusal::kUnreachable:
            return Reason::kNoRoute;
        case Refusal::kDeviceFailed:
        case Refusal::kNoMoreRmbs:
        case Refusal::kTimeout:
            return Reason::kRmbNotRegistered;
    }
    return Reason::kInternal;
}

}  // namespace smc::group
