// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The Base Transport Header of InfiniBand, in UDP port 4791 (RoCEv2) or after a GRH (RoCEv1), and SENDs put together
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
    bool cut = false;     // the snap length cut the payload
    // In the first packet of a write: the remote address, its key, and the bytes of the whole write.
    VirtualAddress address{};
    RKey rkey{};
    std::uint32_t bytes = 0;
};

// An answer of a queue pair to requests.
struct RcAck {
    enum class Kind : std::uint8_t { kAcked, kRnrNak, kNak };
    Kind kind = Kind::kAcked;
    std::uint8_t code = 0;  // credits of an ACK, timer of an RNR NAK, error of a NAK
    Qpn destination{};
    Psn psn{};
};

// nullopt for acknowledgements, other services, and packets that are no RoCE. `packet` begins with the BTH; `length` is
// its length on the wire, with the CRC, which is cut off.
std::optional<RcRequest> parse_rc_request(wire::Bytes packet, std::size_t length);

std::optional<RcAck> parse_rc_answer(wire::Bytes packet, std::size_t length);

// Describes the first packet of a write. `again`: it was seen before.
Description describe(const RcRequest& write, bool again);
Description describe(const RcAck& answer);

// Puts together the SENDs to one queue pair.
class SendReassembly {
 public:
    enum class Seen : std::uint8_t { kNew, kAgain, kAfterGap, kLate };

    // `first`: the PSN of the first packet; nullopt: that of the first packet that is seen.
    explicit SendReassembly(std::optional<Psn> first) {
        if (first) {
            next_ = static_cast<std::uint32_t>(*first);
        }
    }

    // kAgain: a retransmission, which is to be ignored. kLate: a packet that was missing so far.
    Seen accept(const RcRequest& request);
    // The message that ended with the last packet accepted; nullopt if it did not end, or not all of it was seen.
    [[nodiscard]] std::optional<wire::Bytes> message() const;

 private:
    static constexpr std::size_t kLongest = 8192;  // the longest LLC message, of v2.1
    static constexpr std::uint32_t kRemembered = 4096;

    Seen classify(std::uint32_t psn);

    std::optional<std::uint32_t> next_;  // the PSN after the highest one seen
    std::bitset<kRemembered> seen_;      // PSNs before next_ that were seen, modulo kRemembered
    // The message that is being put together. A message of several packets may need packets that were seen before.
    std::uint32_t first_ = 0, assembly_next_ = 0;
    std::optional<std::uint32_t> finished_;  // first PSN of the last whole message of several packets
    bool whole_ = false;
    bool complete_ = false;
    std::vector<std::uint8_t> bytes_;
};

}  // namespace smc::capture
