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

// Calls visit.template operator()<Table>(object) for each table behind the header.
template <class M, class Visit>
void for_each_table(const M& m, Visit&& visit) {
    visit.template operator()<M>(m);
}
template <class Visit>
void for_each_table(const ConfirmLink& m, Visit&& visit) {
    visit.template operator()<ConfirmLink>(m);
    if (m.version != 1) {
        visit.template operator()<wire::ConfirmLinkV2>(m);
    } else {
        visit.template operator()<wire::ConfirmLinkLinux>(m);
    }
}
template <class Visit>
void for_each_table(const AddLink& m, Visit&& visit) {
    if (m.version == 1) {
        visit.template operator()<wire::AddLinkV1>(m);
        if (!m.padded) {
            visit.template operator()<wire::AddLinkAddress>(m);
            return;
        }
    } else {
        visit.template operator()<wire::AddLinkV2>(m);
    }
    visit.template operator()<wire::AddLinkPadded>(m);
    if (m.version == 1) {
        return;
    }
    if (m.large && m.little_endian) {
        visit.template operator()<wire::AddLinkLittleEndian>(*m.large);
    } else if (m.large) {
        visit.template operator()<AddLinkLarge>(*m.large);
    }
}
template <class Visit>
void for_each_table(const RequestAddLink& m, Visit&& visit) {
    visit.template operator()<wire::RequestAddLinkFlags>(m);
    if (!m.reply) {
        visit.template operator()<wire::RequestAddLinkGids>(m);
    }
}
template <class Visit>
void for_each_table(const DeleteRkey& m, Visit&& visit) {
    if (m.version == 1) {
        visit.template operator()<wire::DeleteRkeyV1>(m);
    } else if (m.reply) {
        visit.template operator()<wire::DeleteRkeyReplyV2>(m);
    } else {
        visit.template operator()<wire::DeleteRkeyRequestV2>(m);
    }
}

}  // namespace smc::llc
