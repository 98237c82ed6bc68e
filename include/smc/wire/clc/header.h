// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Parts that all CLC messages share: the first 8 bytes, the end, and the enumerations.
//
// Sources of this folder: RFC 7609 appendix A.2, and the appendix "SMCv2 protocol message specifications" of the SMC
// v2.1 specification, cited as "v2.1". Decoders read nothing but the bytes that they are given, allocate nothing, and
// say what is wrong and what RFC 7609 C.6 wants done about it.
#pragma once

#include <cstdint>
#include <string>

#include "smc/wire/ebcdic.h"
#include "smc/wire/fault.h"
#include "smc/wire/ids.h"
#include "smc/wire/layout.h"

namespace smc::clc {

using smc::Decoded;
using smc::Fault;
using smc::Verdict;
using wire::Bytes;

enum class Type : std::uint8_t { kProposal = 1, kAccept = 2, kConfirm = 3, kDecline = 4 };
std::string text(Type type);  // "PROPOSAL"

enum class EyeCatcher : std::uint32_t { kSmcr = kEyeCatcherR, kSmcd = kEyeCatcherD };
std::string text(EyeCatcher eye_catcher);  // "SMCR"

// v2.1, Proposal offset 7: which variants are offered; in other messages, the one that was chosen.
enum class Offer : std::uint8_t { kSmcR = 0, kSmcD = 1, kNone = 2, kBoth = 3 };
constexpr bool offers_d(Offer o) {
    return o == Offer::kSmcD || o == Offer::kBoth;
}
constexpr bool offers_r(Offer o) {
    return o == Offer::kSmcR || o == Offer::kBoth;
}
std::string text(Offer offer);  // "SMC-R and SMC-D"

enum class Os : std::uint8_t { kNone = 0, kZos = 1, kLinux = 2, kAix = 3, kUnknown = 15 };
std::string text(Os os);  // "Linux"

inline constexpr std::uint8_t kVersion1 = 1;
inline constexpr std::uint8_t kVersion2 = 2;
inline constexpr std::uint8_t kRelease1 = 1;
// v2.1 supplemental features, bit 15 of the mask.
inline constexpr std::uint16_t kFeatureEmulatedIsm = 0x0001;
inline constexpr std::size_t kHeaderBytes = 8;
inline constexpr std::size_t kTrailerBytes = 4;
inline constexpr std::size_t kMaxEids = 8;
inline constexpr std::size_t kMaxGids = 8;
inline constexpr std::size_t kMaxPrefixes = 8;
// The longest known message: a Proposal with every extension area full. A later release may send a longer one; of that,
// this much is kept: its beginning and its last four bytes.
inline constexpr std::size_t kMaxMessage =
    80 + 8 + kMaxPrefixes * 17 + 40 + kMaxEids * 32 + 48 + kMaxGids * 10 + kTrailerBytes;

struct Header {
    EyeCatcher eye_catcher = EyeCatcher::kSmcr;
    Type type = Type::kProposal;
    std::uint16_t length = 0;  // bytes of the whole message, both eye catchers included
    std::uint8_t version = kVersion2;
};

// The last four bytes of every message.
struct Trailer {
    EyeCatcher eye_catcher = EyeCatcher::kSmcr;
};

using Message = wire::Encoded<kMaxMessage>;

// Checks the first 8 bytes of a message; `length` is then the size of the whole message.
Decoded<Header> decode_header(Bytes first8);
// Checks start and end of a whole message, or of what is kept of one.
Decoded<Header> decode_frame(Bytes message);

// For the encoders of this folder: header and trailer of a message whose body is written up to out.size.
void finish(Message& out, Type type, EyeCatcher eye_catcher, std::uint8_t version);

}  // namespace smc::clc

namespace smc::wire {

template <>
struct Layout<clc::Header> {
    using H = clc::Header;
    static constexpr std::size_t kSize = clc::kHeaderBytes;
    static constexpr auto kFields = std::tuple{
        field<&H::eye_catcher>(0, 4, "eye_catcher", "Eye catcher (EBCDIC) message start"),
        field<&H::type>(4, 1, "clc_message_type", "CLC Message Type"),
        field<&H::length>(5, 2, "clc_message_length", "CLC Message Length"),
        bits<&H::version>(7, 0, 4, "smc_version", "SMC Version"),
    };
};
static_assert(fields_fit<clc::Header>());

template <>
struct Layout<clc::Trailer> {
    static constexpr std::size_t kSize = clc::kTrailerBytes;
    static constexpr auto kFields = std::tuple{
        field<&clc::Trailer::eye_catcher>(0, 4, "eye_catcher_message_end", "Eye catcher (EBCDIC) message end"),
    };
};
static_assert(fields_fit<clc::Trailer>());

}  // namespace smc::wire
