// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The peer's state, as the CDC messages of one SMC-R connection have told it (RFC 7609 section 4.6 and A.4). Each
// message replaces the one before it. Only an urgent byte is announced once, so its announcement is kept.
#pragma once

#include <cstdint>
#include <optional>

#include "smc/flow/receiving.h"
#include "smc/wire/cdc.h"

namespace smc::flow {

// A count that no cursor has: it is outside every ring.
inline constexpr std::uint32_t kNowhere = ~0U;

// If RMBEs begin with an eye catcher, cursors count from 4 on the wire, and from 0 inside the agent. `base`: 4 or 0.
constexpr cdc::Cursor from_wire(cdc::Cursor cursor, std::uint32_t base) {
    cursor.count = cursor.count >= base ? cursor.count - base : kNowhere;
    return cursor;
}
constexpr cdc::Cursor to_wire(cdc::Cursor cursor, std::uint32_t base) {
    cursor.count += base;
    return cursor;
}

class CdcInbox {
 public:
    enum class Taken : std::uint8_t {
        kYes,
        kStale,  // not newer than the latest message
        kLost,   // failover: a message that the peer sent over its old link never came
    };

    Taken take(const cdc::Message& message) {
        const auto ahead = static_cast<std::int16_t>(static_cast<std::uint16_t>(message.sequence - latest_.sequence));
        if ((message.flags & cdc::kFailoverValidation) != 0) {
            return ahead > 0 ? Taken::kLost : Taken::kStale;  // its other fields have no meaning
        }
        if (ahead <= 0) {
            return Taken::kStale;
        }
        latest_ = message;
        empty_ = false;
        if ((message.flags & cdc::kUrgentPresent) != 0) {
            urgent_ = message.producer;
        }
        return Taken::kYes;
    }

    [[nodiscard]] bool empty() const { return empty_; }
    [[nodiscard]] const cdc::Message& latest() const { return latest_; }
    // The peer will not write into the RMBE any more.
    [[nodiscard]] bool peer_is_done() const {
        return (latest_.state & (cdc::kConnectionClosed | cdc::kAbnormalClose)) != 0;
    }
    // The cursor after the last urgent byte that was announced, until forget_urgent(); as on the wire.
    [[nodiscard]] const std::optional<cdc::Cursor>& urgent() const { return urgent_; }
    void forget_urgent() { urgent_.reset(); }

    // The peer's published state, with cursors that count from 0.
    [[nodiscard]] PeerState state(std::uint32_t base) const {
        PeerState state;
        if (!empty_) {
            state.producer = {from_wire(latest_.producer, base), latest_.flags, latest_.state};
            state.consumer = from_wire(latest_.consumer, base);
            state.message = latest_.sequence;
            if (urgent_) {
                state.urgent = from_wire(*urgent_, base);
            }
        }
        return state;
    }

 private:
    cdc::Message latest_;
    std::optional<cdc::Cursor> urgent_;
    bool empty_ = true;
};

}  // namespace smc::flow
