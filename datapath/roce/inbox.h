// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the CDC messages of one connection said so far (RFC 7609 section 4.6 and A.4). Each message replaces what was
// said before, but for an urgent byte, which is announced once.
#pragma once

#include <optional>
#include <utility>

#include "smc/wire/cdc.h"

namespace smc::roce {

class Inbox {
 public:
    enum class Taken : std::uint8_t {
        kYes,
        kStale,  // older than what is known
        kLost,   // the peer moved to another link, and something it sent over the old one never came
    };

    Taken take(const cdc::Message& message) {
        const auto ahead = static_cast<std::int16_t>(static_cast<std::uint16_t>(message.sequence - latest_.sequence));
        if ((message.flags & cdc::kFailoverValidation) != 0) {
            return ahead > 0 ? Taken::kLost : Taken::kStale;  // nothing else in it means anything
        }
        if (ahead <= 0) {
            return Taken::kStale;
        }
        latest_ = message;
        fresh_ = true;
        empty_ = false;
        if ((message.flags & cdc::kUrgentPresent) != 0) {
            urgent_ = message.producer;
        }
        return Taken::kYes;
    }

    [[nodiscard]] bool fresh() const { return fresh_; }
    [[nodiscard]] bool empty() const { return empty_; }
    [[nodiscard]] const cdc::Message& latest() const { return latest_; }
    // The peer will not write into the RMBE any more.
    [[nodiscard]] bool peer_is_done() const {
        return (latest_.state & (cdc::kConnectionClosed | cdc::kAbnormalClose)) != 0;
    }
    const cdc::Message& read() {
        fresh_ = false;
        return latest_;
    }
    std::optional<cdc::Cursor> take_urgent() { return std::exchange(urgent_, std::nullopt); }

 private:
    cdc::Message latest_;
    std::optional<cdc::Cursor> urgent_;
    bool fresh_ = false;
    bool empty_ = true;
};

}  // namespace smc::roce
