// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/bypass/rounds.h"

#include <utility>

#include "os/in_namespace.h"

namespace smc::bypass {

void Rounds::come_round() {
    std::vector<UniqueFd> spaces;
    for (const std::uint64_t cookie : bypass_.turn()) {
        if (const auto space = namespaces_.by_cookie(cookie)) {
            spaces.push_back(space->handle());
        }
    }
    if (spaces.empty() || std::exchange(walking_, true)) {
        return;  // or they are found wanting again in the next round
    }
    auto walk = [&bypass = bypass_, spaces = std::move(spaces)] {
        for (const UniqueFd& space : spaces) {
            const InNamespace inside(space.get());
            if (inside.entered()) {
                bypass.enrol();
            }
        }
        return true;
    };
    walk_.run(std::move(walk), [this](bool) {
        walking_ = false;
        bypass_.turn();  // who is enrolled is a member now
    });
}

}  // namespace smc::bypass
