// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/gateway/keepalives.h"

namespace smc {

namespace {

std::string bytes_of(const smc_tuple& tuple) {
    return {reinterpret_cast<const char*>(&tuple), sizeof tuple};
}

}  // namespace

void Keepalives::add(std::uint64_t id, const smc_tuple& app, bool was_swept) {
    running_[id] = bytes_of(app);
    ids_[bytes_of(app)] = id;
    // The BPF programs report only changes, and a change reported before this call found no connection here.
    if (const KeepaliveTerms terms = was_swept ? seen_(app) : KeepaliveTerms{}; terms != KeepaliveTerms{}) {
        tell_(id, terms);
    }
}

void Keepalives::remove(std::uint64_t id) {
    const auto it = running_.find(id);
    if (it == running_.end()) {
        return;
    }
    // Another connection may already use the same tuple.
    if (const auto other = ids_.find(it->second); other != ids_.end() && other->second == id) {
        ids_.erase(other);
    }
    running_.erase(it);
}

void Keepalives::changed(const smc_tuple& app, const KeepaliveTerms& terms) const {
    if (const auto it = ids_.find(bytes_of(app)); it != ids_.end()) {
        tell_(it->second, terms);
    }
}

}  // namespace smc
