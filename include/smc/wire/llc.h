// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Link Layer Control: the messages that manage the links and RMBs of a link group, sent over a link itself (RFC 7609
// A.3, version 1; SMC v2.1 "LLC V2 messages", cited as "v2.1"). Every message is a request or its reply.
//
//                               v1   v2                                      v1   v2
//   CONFIRM LINK                x01  x21        CONFIRM RKEY                 x06  x26
//   ADD LINK                    x02  x22 large  TEST LINK                    x07  x27
//   ADD LINK CONTINUATION       x03  -          CONFIRM RKEY CONTINUATION    x08  -
//   DELETE LINK                 x04  x24        DELETE RKEY                  x09  x29 large request
//   REQUEST ADD LINK            -    x25 large
//
// Messages have 44 bytes; the large ones of version 2 may have more.
#pragma once

#include <optional>
#include <variant>

#include "smc/wire/clc/accept.h"

namespace smc::llc {

using wire::Bytes;

enum class Type : std::uint8_t {
    kConfirmLink = 1,
    kAddLink = 2,
    kAddLinkContinuation = 3,
    kDeleteLink = 4,
    kRequestAddLink = 5,
    kConfirmRkey = 6,
    kTestLink = 7,
    kConfirmRkeyContinuation = 8,
    kDeleteRkey = 9,
};
std::string text(Type type);  // "CONFIRM LINK"

inline constexpr std::size_t kSmallBytes = 44;
inline constexpr std::size_t kMaxRmbs = 255;                    // of a link group (v2.1, ADD LINK, note 3)
inline constexpr std::size_t kMaxMessage = 72 + 16 * kMaxRmbs;  // bytes of the longest message that is known
inline constexpr std::size_t kMaxLength = 8192;                 // that a later release may send (v2.1 LLC types, 3)
// RKeys in a DELETE RKEY of version 1, and in the list of those that were not deleted.
inline constexpr std::size_t kMaxListedRkeys = 8;
// In ConfirmLink::cache_size, Linux's "my RMBEs have no eye catcher".
inline constexpr std::uint8_t kNoEyeCatcher = 3;
// The first byte of credit messages of Anolis kernels, where other messages have their type.
inline constexpr std::uint8_t kCreditsOfAVendor = 0x0a;

// The start of every message.
struct Header {
    bool optional = false;     // bit 0: silently discard what is not known
    std::uint8_t version = 1;  // 1, or the number in bits 1 to 3, which is 0 for version 1
    Type type = Type::kTestLink;
    std::uint16_t length = kSmallBytes;
    bool reply = false;
    // Version 2: the length and ADD LINK's number of RKeys are little endian. Linux writes and reads them in host
    // order, which on most machines is not what the specification says. Decoders take both orders. Encoders write what
    // this member says, because a peer best understands the order that it uses itself.
    bool little_endian = false;
};

// v2.1 and RFC 7609 A.3.1.
struct ConfirmLink : Header {
    // Version 2: "System Cache Size". Linux keeps a flag there, in version 1 too, where the bits are reserved: 3 says
    // that its RMBEs have no eye catcher, and Linux refuses a peer that does not say so. There are eye catchers only if
    // neither side says that it has none.
    std::uint8_t cache_size = 0;
    Mac mac;
    RoceGid gid;
    Qpn qpn{};
    std::uint8_t link_number = 0;
    LinkId link_id{};
    std::uint8_t max_links = 0;
    std::uint8_t max_connections = 0;  // version 2, from v2.1 on
};
// The sender's RMBEs begin with an eye catcher (RFC 7609 section 4.4.1), unless it says that they do not.
inline bool has_eye_catchers(const ConfirmLink& m) {
    return (m.cache_size & kNoEyeCatcher) == 0;  // Linux takes either bit for it
}

// How an RMB is reached over a new link (RFC 7609 A.3.3, figure 34).
struct RTokenPair {
    RKey reference{};  // as known on the link that carries the message
    RKey rkey{};       // on the new link
    VirtualAddress address{};
    bool operator==(const RTokenPair&) const = default;
};

enum class AddLinkReason : std::uint8_t { kNone = 0, kNoAlternatePath = 1, kInvalidMtu = 2 };
std::string text(AddLinkReason reason);

// ADD LINK of version 2 from offset 44 on.
struct AddLinkLarge {
    clc::LinkType link_type = clc::LinkType::kIndirect;  // in the client's reply
    RoceGid target_gid;                                  // in the request; may be zero
    List<RTokenPair, kMaxRmbs> rkeys;
};

// RFC 7609 A.3.2 and v2.1. A client's request of version 1 asks for a link: it has no QP number and no MTU yet.
struct AddLink : Header {
    // Version 1: two reserved bytes stand after the MAC address, as in version 2, and all that follows them is two
    // bytes further. Figure 32 of RFC 7609 does not have them; Linux and Wireshark do. Decoders take two zeros there
    // for them.
    bool padded = false;
    bool rejected = false;
    AddLinkReason reason = AddLinkReason::kNone;
    Mac mac;
    RoceGid gid;
    Qpn qpn{};
    std::uint8_t link_number = 0;
    clc::Mtu mtu = clc::Mtu::k1024;
    Psn psn{};
    std::optional<AddLinkLarge> large;  // version 2; a rejection may lack it, and Linux's does
};

// RFC 7609 A.3.3; version 1 only.
struct AddLinkContinuation : Header {
    std::uint8_t link_number = 0;
    std::uint8_t tokens_left = 0;  // including those in this message
    List<RTokenPair, 2> rkeys;
};

// v2.1; version 2 only, from the client. The request has the GID list.
struct RequestAddLink : Header {
    RequestAddLink() { version = 2; }
    bool rejected = false;
    std::uint8_t reason = 0;
    List<RoceGid, clc::kMaxGids> gid_list;
};

// RFC 7609 A.3.4.
enum class DeleteLinkReason : std::uint32_t {
    kNone = 0,
    kLostPath = 0x00010000,
    kOperator = 0x00020000,
    kInactivity = 0x00030000,
    kProtocolViolation = 0x00040000,
    kAsymmetricNotNeeded = 0x00050000,
    kUnknownLink = 0x00100000,
};
std::string text(DeleteLinkReason reason);  // "0x00010000 (lost path)"

struct DeleteLink : Header {
    bool all = false;
    bool orderly = false;
    std::uint8_t link_number = 0;  // 0 with `all`
    DeleteLinkReason reason{};
};

// How an RMB is reached over one of the other links (RFC 7609 A.3.5, figure 37).
struct LinkRToken {
    std::uint8_t link_number = 0;
    RKey rkey{};
    VirtualAddress address{};
    bool operator==(const LinkRToken&) const = default;
};

// RFC 7609 A.3.5 and v2.1.
struct ConfirmRkey : Header {
    bool negative = false;
    bool retry = false;
    std::uint8_t other_tokens = 0;  // of other links; more than 2 need continuations, in version 1
    RKey rkey{};
    VirtualAddress address{};
    List<LinkRToken, 2> others;
};

// RFC 7609 A.3.6; version 1 only.
struct ConfirmRkeyContinuation : Header {
    bool negative = false;
    std::uint8_t tokens_left = 0;  // including those in this message
    List<LinkRToken, 3> others;
};

// RFC 7609 A.3.7 and v2.1, where request and reply have different formats.
struct DeleteRkey : Header {
    bool negative = false;
    std::uint8_t count = 0;          // of RKeys: in a version 2 reply those of the request, otherwise those listed
    std::uint8_t error_mask = 0;     // version 1, negative reply: bit 0 is the first RKey
    std::uint8_t invalid_count = 0;  // version 2, reply: how many were not deleted, perhaps more than are listed
    // Request and version 1: up to 8, in version 2 up to 255. Version 2 reply: the first 8 that were not deleted.
    List<RKey, kMaxRmbs> rkeys;
};

// RFC 7609 A.3.8.
struct TestLink : Header {
    std::array<std::uint8_t, 16> user_data{};
};

using AnyMessage = std::variant<ConfirmLink, AddLink, AddLinkContinuation, RequestAddLink, DeleteLink, ConfirmRkey,
                                ConfirmRkeyContinuation, DeleteRkey, TestLink>;
using Message = wire::Encoded<kMaxMessage>;

// Decodes a whole message as received. A fault carries the verdict of RFC 7609 C.7.1: reset the link, reject, or
// ignore.
Decoded<AnyMessage> decode(Bytes message);
// Type and length follow from the argument's type and contents. Lists longer than the message can have are cut.
Message encode(const AnyMessage& message);
// The negative reply to an ADD LINK request that decode() says to reject: RFC 7609 C.7.1, reason 2.
AddLink rejection(Bytes request);
inline const Header& header_of(const AnyMessage& message) {
    return std::visit([](const auto& m) -> const Header& { return m; }, message);
}

}  // namespace smc::llc
