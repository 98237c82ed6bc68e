// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/gateway/stranded.h"

#include <algorithm>
#include <cerrno>

#include "agent/log/log.h"
#include "agent/steer/addresses.h"

namespace smc {

namespace {

constexpr std::size_t kAtOnce = 1000;

}  // namespace

void Stranded::end_all() {
    if (impossible_) {
        return;
    }
    for (const smc_stranded_socket& one : programs_.stranded(kAtOnce)) {
        const auto spaces = namespaces_.all();
        const auto space = std::ranges::find(spaces, one.front.slot, &Namespace::slot);
        if (space == spaces.end()) {
            continue;
        }
        const SockDiag::Socket socket{local_of(one.front), remote_of(one.front), one.cookie, one.bound_device};
        const auto ended = (*space)->end_socket(socket);
        if (ended) {
            log()->info("{} with {}: its leg's reset was lost, it is ended", socket.local.text(), socket.remote.text());
        } else if (ended.error().code == EOPNOTSUPP) {
            log()->warn("applications whose leg's reset is lost are not told: {}", ended.error().text());
            impossible_ = true;
            return;
        }
    }
}

}  // namespace smc
