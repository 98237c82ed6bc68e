// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/gateway/half_open.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "agent/log/log.h"
#include "agent/steer/addresses.h"

namespace smc {

namespace {

void ended(const SockDiag::Socket& socket, bool of_leg, int error, bool& impossible) {
    if (error == EOPNOTSUPP && !std::exchange(impossible, true)) {
        log()->warn(
            "half-open connections between applications and legs stay: the kernel cannot end sockets (it needs "
            "CONFIG_INET_DIAG_DESTROY)");
    }
    if (error != 0) {
        return;  // already gone, or its addresses are translated: the programs report it a few times more
    }
    log()->limited(LogLevel::kInfo,
                   "half-open: ended {} {}, connected to {}: its {} is gone, and neither FIN nor reset came",
                   of_leg ? "the leg" : "the application's socket", socket.local.text(), socket.remote.text(),
                   of_leg ? "application's socket" : "leg");
}

}  // namespace

void HalfOpen::end(const std::vector<std::pair<std::uint64_t, smc_half_open>>& sockets) {
    const auto namespaces = namespaces_.all();
    for (const auto& [cookie, one] : sockets) {
        const auto netns = std::ranges::find(namespaces, one.sender.slot, &Namespace::slot);
        if (state_->impossible || netns == namespaces.end() || !state_->under_way.insert(cookie).second) {
            continue;
        }
        const SockDiag::Socket socket{local_of(one.sender), remote_of(one.sender), cookie, one.bound_device};
        const auto asked = (*netns)->end_socket(socket, [state = state_, socket, of_leg = one.of_leg != 0](int error) {
            state->under_way.erase(socket.cookie);
            ended(socket, of_leg, error, state->impossible);
        });
        if (!asked) {
            state_->under_way.erase(cookie);
            log()->limited(LogLevel::kWarn, "half-open: the socket {}, connected to {}, could not be ended: {}",
                           socket.local.text(), socket.remote.text(), asked.error().text());
        }
    }
}

}  // namespace smc
