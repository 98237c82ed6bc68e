// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Which tables make up an LLC message: for the encoder and the printer alike.
#pragma once

#include "lib/wire/llc_layout.h"

namespace smc::llc {

// The type that a message structure stands for.
template <class M>
inline constexpr Type kTypeOf{};
template <>
inline constexpr Type kTypeOf<ConfirmLink> = Type::kConfirmLink;
template <>
inline constexpr Type kTypeOf<AddLink> = Type::kAddLink;
template <>
inline constexpr Type kTypeOf<AddLinkContinuation> = Type::kAddLinkContinuation;
template <>
inline constexpr Type kTypeOf<RequestAddLink> = Type::kRequestAddLink;
template <>
inline constexpr Type kTypeOf<DeleteLink> = Type::kDeleteLink;
template <>
inline constexpr Type kTypeOf<ConfirmRkey> = Type::kConfirmRkey;
template <>
inline constexpr Type kTypeOf<ConfirmRkeyContinuation> = Type::kConfirmRkeyContinuation;
template <>
inline constexpr Type kTypeOf<DeleteRkey> = Type::kDeleteRkey;
template <>
inline constexpr Type kTypeOf<TestLink> = Type::kTestLink;

// Calls visit.template operator()<M>() with the structure M of messages of that type, or `otherwise` if there is none.
template <class Visit, class Otherwise>
auto visit_type(Type type, Visit&& visit, Otherwise&& otherwise) {
    switch (type) {
        case Type::kConfirmLink:
            return visit.template operator()<ConfirmLink>();
        case Type::kAddLink:
            return visit.template operator()<AddLink>();
        case Type::kAddLinkContinuation:
            return visit.template operator()<AddLinkContinuation>();
        case Type::kDeleteLink:
            return visit.template operator()<DeleteLink>();
        case Type::kRequestAddLink:
            return visit.template operator()<RequestAddLink>();
        case Type::kConfirmRkey:
            return visit.template operator()<ConfirmRkey>();
        case Type::kTestLink:
            return visit.template operator()<TestLink>();
        case Type::kConfirmRkeyContinuation:
            return visit.template operator()<ConfirmRkeyContinuation>();
        case Type::kDeleteRkey:
            return visit.template operator()<DeleteRkey>();
    }
    return otherwise();
}

// Version 1 of ADD LINK may have two reserved bytes after the MAC address, where figure 32 of RFC 7609 has the GID.
inline bool has_padding(Bytes message) {
    constexpr std::size_t kBehindMac = wire::field_of<wire::AddLinkAddress, &AddLink::gid>().offset;
    return message.size() >= kBehindMac + 2 && message[kBehindMac] == 0 && message[kBehindMac + 1] == 0;
}

// Calls visit.template operator()<Table>(object) for each table after the header. `M` may be const.
template <class M, class Visit>
void for_each_table(M& m, Visit&& visit) {
    using T = std::remove_const_t<M>;
    if constexpr (std::is_same_v<T, ConfirmLink>) {
        visit.template operator()<ConfirmLink>(m);
        if (m.version != 1) {
            visit.template operator()<wire::ConfirmLinkV2>(m);
        } else {
            visit.template operator()<wire::ConfirmLinkLinux>(m);
        }
    } else if constexpr (std::is_same_v<T, AddLink>) {
        if (m.version == 1) {
            visit.template operator()<wire::AddLinkV1>(m);
        } else {
            visit.template operator()<wire::AddLinkV2>(m);
        }
        if (m.version == 1 && !m.padded) {
            visit.template operator()<wire::AddLinkAddress>(m);
        } else {
            visit.template operator()<wire::AddLinkPadded>(m);
        }
        if (m.version != 1 && m.large && m.little_endian) {
            visit.template operator()<wire::AddLinkLittleEndian>(*m.large);
        } else if (m.version != 1 && m.large) {
            visit.template operator()<AddLinkLarge>(*m.large);
        }
    } else if constexpr (std::is_same_v<T, RequestAddLink>) {
        visit.template operator()<wire::RequestAddLinkFlags>(m);
        if (!m.reply) {
            visit.template operator()<wire::RequestAddLinkGids>(m);
        }
    } else if constexpr (std::is_same_v<T, DeleteRkey>) {
        if (m.version == 1) {
            visit.template operator()<wire::DeleteRkeyV1>(m);
        } else if (m.reply) {
            visit.template operator()<wire::DeleteRkeyReplyV2>(m);
        } else {
            visit.template operator()<wire::DeleteRkeyRequestV2>(m);
        }
    } else {
        visit.template operator()<T>(m);
    }
}

}  // namespace smc::llc
