// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// DELETE RKEY: deletes an RMB (RFC 7609 section 3.5.5.2.2, A.3.7; SMC v2.1). The message names the RMB by its RKey on
// the link that carries the message.
#include <algorithm>

#include "smc/llc/rkeys.h"

namespace smc::llc {

std::vector<RTokenSet> answer(const DeleteRkey& request, PeerRmbs& rmbs, const LinkOut& out) {
    DeleteRkey reply = LinkOut::reply(request);
    reply.count = static_cast<std::uint8_t>(request.rkeys.size());
    List<RKey, kMaxRmbs> unknown;
    std::vector<RTokenSet> gone;
    for (std::size_t i = 0; i < request.rkeys.size(); i++) {
        if (auto was = rmbs.forget(out.link, request.rkeys[i])) {
            gone.push_back(std::move(*was));
        } else {
            unknown.push_back(request.rkeys[i]);
            if (i < kMaxListedRkeys) {
                reply.error_mask = static_cast<std::uint8_t>(reply.error_mask | 0x80 >> i);
            }
        }
    }
    reply.negative = !unknown.empty();
    reply.invalid_count = static_cast<std::uint8_t>(unknown.size());
    if (request.version >= 2) {
        reply.rkeys = unknown;
        reply.rkeys.resize(std::min(unknown.size(), kMaxListedRkeys));
    }
    out.send(reply);
    return gone;
}

// A negative reply counts, too: the peer cannot use an RMB that it does not know.
std::optional<RkeyDeleted> OwnRmbs::on_reply(const DeleteRkey&) {
    if (!is_under_way(true)) {
        return std::nullopt;
    }
    const RmbId rmb = waiting_.front().rmb;
    done();
    rmbs_.erase(rmb);
    return RkeyDeleted{rmb};
}

}  // namespace smc::llc
