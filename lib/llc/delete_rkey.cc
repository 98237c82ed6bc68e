// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// DELETE RKEY: an RMB goes (RFC 7609 section 3.5.5.2.2, A.3.7; SMC v2.1).
#include <algorithm>

#include "smc/llc/rkeys.h"

namespace smc::llc {

void PeerRkeys::on_request(const DeleteRkey& request, const LinkOut& out) {
    DeleteRkey answer = LinkOut::reply(request);
    answer.count = static_cast<std::uint8_t>(request.rkeys.size());
    List<RKey, kMaxRmbs> unknown;
    for (std::size_t i = 0; i < request.rkeys.size(); i++) {
        if (rkeys_.erase(request.rkeys[i]) == 0) {
            unknown.push_back(request.rkeys[i]);
            if (i < kMaxListedRkeys) {
                answer.error_mask = static_cast<std::uint8_t>(answer.error_mask | 0x80 >> i);
            }
        }
    }
    answer.negative = !unknown.empty();
    answer.invalid_count = static_cast<std::uint8_t>(unknown.size());
    if (request.version >= 2) {
        answer.rkeys = unknown;
        answer.rkeys.resize(std::min(unknown.size(), kMaxListedRkeys));
    }
    out.send(answer);
}

// Whatever the answer: what the peer did not know it cannot use either.
std::optional<RkeyDeleted> RkeyRequests::on_reply(const DeleteRkey&) {
    if (!is_under_way(true)) {
        return std::nullopt;
    }
    const RKey rkey = waiting_.front().rkey;
    done();
    return RkeyDeleted{rkey};
}

}  // namespace smc::llc
