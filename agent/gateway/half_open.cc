// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/gateway/half_open.h"

#include <algorithm>
#include <cerrno>

#include "agent/log/log.h"
#include "agent/steer/addresses.h"

namespace smc {

void HalfOpen::end(const std::vector<std::pair<std::uint64_t, smc_half_open>>& sockets) {
    if (sockets.empty() || impossible_) {
        return;
    }
    const auto namespaces = namespaces_.all();
    std::size_t applications = 0, legs = 0;
    for (const auto& [cookie, one] : sockets) {
        const auto netns = std::ranges::find(namespaces, one.sender.slot, &Namespace::slot);
        if (netns == namespaces.end()) {
            continue;
        }
        const SockDiag::Socket socket{local_of(one.sender), remote_of(one.sender), cookie, one.bound_device};
        if (const auto done = (*netns)->end_socket(socket); !done) {
            if (done.error().code == EOPNOTSUPP) {
                log()->warn(
                    "half-open connections between applications and legs stay: {}; the kernel needs "
                    "CONFIG_INET_DIAG_DESTROY",
                    done.error().text());
                impossible_ = true;
                break;
            }
            continue;  // already gone, or its addresses are translated: the programs report it a few times more
        }
        log()->debug("socket {} with {} ended: half-open", socket.local.text(), socket.remote.text());
        (one.of_leg != 0 ? legs : applications)++;
    }
    if (applications != 0) {
        log()->info("half-open: ended {} sockets of applications: their legs are gone, and neither FIN nor reset came",
                    applications);
    }
    if (legs != 0) {
        log()->info(
            "half-open: ended {} legs: the sockets of their applications are gone, and neither FIN nor reset came",
            legs);
    }
}

}  // namespace smc
