// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/gateway/keepalives.h"

#include <string>
#include <utility>

namespace smc {

void Keepalives::pass_on() {
    const auto as_bytes = [](const smc_tuple& tuple) {
        return std::string(reinterpret_cast<const char*>(&tuple), sizeof tuple);
    };
    std::unordered_map<std::string, KeepaliveTerms> wanted;
    for (const auto& [front, terms] : programs_.keepalives()) {
        wanted.emplace(as_bytes(front), terms);
    }
    for (auto& [id, running] : running_) {
        const auto it = wanted.empty() ? wanted.end() : wanted.find(as_bytes(running.front));
        const KeepaliveTerms now = it != wanted.end() ? it->second : KeepaliveTerms{};
        if (now != std::exchange(running.told, now)) {
            tell_(id, now);
        }
    }
}

}  // namespace smc
