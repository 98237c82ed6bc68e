// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/gateway/half_open.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <utility>

#include "agent/log/log.h"
#include "agent/steer/addresses.h"

namespace smc {

namespace {

// Sockets that were reported together; says how many have ended when the last of them is done.
struct Batch {
    std::size_t applications = 0, legs = 0;

    Batch() = default;
    Batch(const Batch&) = delete;
    Batch& operator=(const Batch&) = delete;
    ~Batch() {
        if (applications != 0) {
            log()->info(
                "half-open: ended {} sockets of applications: their legs are gone, and neither FIN nor reset came",
                applications);
        }
        if (legs != 0) {
            log()->info(
                "half-open: ended {} legs: the sockets of their applications are gone, and neither FIN nor reset came",
                legs);
        }
    }
};

void ended(const SockDiag::Socket& socket, bool of_leg, int error, Batch& batch, bool& impossible) {
    if (error == EOPNOTSUPP && !std::exchange(impossible, true)) {
        log()->warn(
            "half-open connections between applications and legs stay: the kernel cannot end sockets (it needs "
            "CONFIG_INET_DIAG_DESTROY)");
    }
    if (error != 0) {
        return;  // already gone, or its addresses are translated: the programs report it a few times more
    }
    log()->debug("socket {} with {} ended: half-open", socket.local.text(), socket.remote.text());
    (of_leg ? batch.legs : batch.applications)++;
}

}  // namespace

void HalfOpen::end(const std::vector<std::pair<std::uint64_t, smc_half_open>>& sockets) {
    if (sockets.empty() || *impossible_) {
        return;
    }
    const auto namespaces = namespaces_.all();
    const auto batch = std::make_shared<Batch>();
    for (const auto& [cookie, one] : sockets) {
        const auto netns = std::ranges::find(namespaces, one.sender.slot, &Namespace::slot);
        if (netns == namespaces.end()) {
            continue;
        }
        const SockDiag::Socket socket{local_of(one.sender), remote_of(one.sender), cookie, one.bound_device};
        const auto asked =
            (*netns)->end_socket(socket, [batch, impossible = impossible_, socket, of_leg = one.of_leg != 0](
                                             int error) { ended(socket, of_leg, error, *batch, *impossible); });
        if (!asked) {
            log()->limited(LogLevel::kWarn, "half-open connections are not ended for now: {}", asked.error().text());
            break;  // the programs report them a few times more
        }
    }
}

}  // namespace smc
