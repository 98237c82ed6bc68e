// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A decoder's verdict on a message that it cannot accept: what is wrong, and what the specification wants
// done about it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>

namespace smc {

enum class Verdict : std::uint8_t {
    // CLC (RFC 7609 C.6): the bytes are application data; the protocols are out of step, the TCP connection ends.
    kTreatAsData,
    // CLC (RFC 7609 C.6): a reserved value of an enumeration; SMC Decline, and the connection stays TCP.
    kDecline,
    // LLC (RFC 7609 C.7.1): treat as if the link had gone down. CDC: the link is out of step as well.
    kReset,
    // LLC (RFC 7609 C.7.1): the request is answered negatively, the link stays.
    kReject,
    // LLC (RFC 7609 A.3): an optional message that this side does not know; silently discard.
    kIgnore,
};
// "treat as data", "decline", "reset", "reject", "ignore".
const char* text(Verdict verdict);

struct Fault {
    const char* field;   // as in the table of the message
    std::size_t offset;  // bytes from the start of the message
    std::uint64_t found;
    const char* expected;
    Verdict verdict = Verdict::kTreatAsData;

    // "eid_number at offset 80 is 0x9, expected 0 to 8".
    [[nodiscard]] std::string text() const;
};

// The message, or what is wrong with it.
template <class T>
using Decoded = std::variant<T, Fault>;

}  // namespace smc
