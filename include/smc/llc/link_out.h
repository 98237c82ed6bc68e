// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How an LLC flow sends over one link: in the group's version and in the peer's byte order.
//
// Invariant:
//   M4  Requests and replies have the peer's byte order, once it is known (Linux writes version 2's length in host
//       order).
#pragma once

#include <cstdint>

#include "smc/llc/terms.h"

namespace smc::llc {

struct LinkOut {
    Actions& actions;
    std::uint8_t link;
    std::uint8_t version;
    bool little_endian;  // M4

    template <class M>
    [[nodiscard]] M request() const {
        M message;
        message.version = version;
        message.little_endian = little_endian;
        return message;
    }
    // A reply repeats the request, header and all.
    template <class M>
    [[nodiscard]] static M reply(M request) {
        request.reply = true;
        return request;
    }
    void send(const AnyMessage& message) const { actions.push_back(Send{link, encode(message)}); }
};

}  // namespace smc::llc
