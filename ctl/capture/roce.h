// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The Base Transport Header of InfiniBand, in UDP port 4791 (RoCEv2) or behind a GRH (RoCEv1), and SENDs put together
// again from their packets (InfiniBand Architecture Specification volume 1, chapter 9; annexes A16 and A17).
#pragma once

#include <bitset>
#include <optional>
#include <vector>

#include "smc/wire/describe.h"
#include "smc/wire/ids.h"
#include "smc/wire/layout.h"

namespace smc::capture {

inline constexpr std::uint16_t kRoceV2Port = 4791;

// Base Transport Header of a request on a reliable connection.
struct RcRequest {
    enum class Operation : std::uint8_t { kSend, kWrite };
    Operation operation = Operation::kSend;
    bool first = false, last = false;  // of the message's packets; both in an "only"
    Qpn destination{};
    Psn psn{};
    wire::Bytes payload;  // without headers, padding and the invariant CRC
    bool cut = false;     // the snap length took some of it
    // Of the first packet of a write: where to, by which key, and how many bytes in all.
    VirtualAddress address{};
    RKey rkey{};
    std::uint32_t bytes = 0;
};

// What a queue pair answers.
struct RcAnswer {
    enum class Kind : std::uint8_t { kTaken, kNotReady, kRefused };  // ACK, RNR NAK, NAK
    Kind kind = Kind::kTaken;
    std::uint8_t code = 0;  // credits, timer, or what is wrong
    Qpn destination{};
    Psn psn{};
};

// nullopt for acknowledgements, other services, and what is no RoCE. `packet` begins with the BTH, and `length` is its
// own on the wire: the CRC is cut off its end.
std::optional<RcRequest> parse_rc_request(wire::Bytes packet, std::size_t length);

std::optional<RcAnswer> parse_rc_answer(wire::Bytes packet, std::size_t length);

// The first packet of a write. `again`: it was seen before.
Description describe(const RcRequest& write, bool again);
Description describe(const RcAnswer& answer);

// SENDs towards one queue pair.
class SendFlow {
 public:
    enum class Seen : std::uint8_t { kNew, kAgain, kAfterGap, kLate };

    // Without `first`, whatever comes first is.
    explicit SendFlow(std::optional<Psn> first) {
        if (first) {
            next_ = static_cast<std::uint32_t>(*first);
        }
    }

    // A packet again is a retransmission and is not to be looked at; a late one was missing so far.
    Seen accept(const RcRequest& request);
    // The message that ended with the last packet accepted; nullopt if it did not end, or not all of it was seen.
    [[nodiscard]] std::optional<wire::Bytes> message() const;

 private:
    static constexpr std::size_t kLongest = 8192;  // v2.1: LLC messages are no longer
    static constexpr std::uint32_t kRemembered = 4096;

    Seen classify(std::uint32_t psn);

    std::optional<std::uint32_t> next_;  // one behind the highest that was seen
    std::bitset<kRemembered> seen_;      // of those before it, by the number modulo kRemembered
    // The message that is being put together; of several packets, it may need some that were seen before.
    std::uint32_t first_ = 0, assembly_next_ = 0;
    std::optional<std::uint32_t> finished_;  // first packet of the last one of several packets
    bool whole_ = false;
    bool complete_ = false;
    std::vector<std::uint8_t> bytes_;
};

}  // namespace smc::capture
