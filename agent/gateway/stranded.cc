// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/gateway/stranded.h"

#include <algorithm>
#include <cerrno>

#include "agent/log/log.h"
#include "agent/steer/addresses.h"

namespace smc {

void Stranded::end(const std::vector<std::pair<std::uint64_t, smc_stranded_socket>>& sockets) {
    if (sockets.empty() || impossible_) {
        return;
    }
    const auto spaces = namespaces_.all();
    std::size_t ended = 0;
    for (const auto& [cookie, one] : sockets) {
        const auto space = std::ranges::find(spaces, one.front.slot, &Namespace::slot);
        if (space == spaces.end()) {
            continue;
        }
        const SockDiag::Socket socket{local_of(one.front), remote_of(one.front), cookie, one.bound_device};
        if (const auto done = (*space)->end_socket(socket); !done) {
            if (done.error().code == EOPNOTSUPP) {
                log()->warn("applications whose leg's reset is lost are not told: {}", done.error().text());
                impossible_ = true;
                break;
            }
            continue;  // it has just gone, or its addresses are translated: it is told some times more
        }
        log()->debug("{} with {} is ended", socket.local.text(), socket.remote.text());
        ended++;
    }
    if (ended != 0) {
        log()->info("{} applications' sockets are ended whose leg's reset was lost", ended);
    }
}

}  // namespace smc
