// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/gateway/stranded.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "agent/log/log.h"
#include "agent/steer/addresses.h"

namespace smc {

namespace {

constexpr std::size_t kAtOnce = 256;

}  // namespace

void Stranded::end(const std::vector<smc_stranded_socket>& sockets) {
    if (sockets.empty() || impossible_) {
        return;
    }
    const auto spaces = namespaces_.all();
    std::size_t ended = 0;
    // Some may not be found, because their addresses are translated: the others have their turn all the same.
    for (std::size_t i = 0; i < std::min(sockets.size(), kAtOnce); i++) {
        const smc_stranded_socket& one = sockets[next_++ % sockets.size()];
        const auto space = std::ranges::find(spaces, one.front.slot, &Namespace::slot);
        if (space == spaces.end()) {
            continue;
        }
        const SockDiag::Socket socket{local_of(one.front), remote_of(one.front), one.cookie, one.bound_device};
        if (const auto done = (*space)->end_socket(socket); !done) {
            if (done.error().code == EOPNOTSUPP) {
                log()->warn("applications whose leg's reset is lost are not told: {}", done.error().text());
                impossible_ = true;
                break;
            }
            continue;  // it may just have gone
        }
        log()->debug("{} with {} is ended", socket.local.text(), socket.remote.text());
        ended++;
    }
    if (ended != 0) {
        log()->info("{} applications' sockets are ended whose leg's reset was lost", ended);
    }
}

}  // namespace smc
