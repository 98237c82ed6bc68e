// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/connections/connections.h"

namespace smc {

const char* name(Path path) {
    switch (path) {
        case Path::kHandshake:
            return "handshake";
        case Path::kSmcD:
            return "smcd";
        case Path::kSmcR:
            return "smcr";
        case Path::kFallback:
            return "fallback";
        case Path::kRefused:
            return "refused";
        case Path::kBroken:
            return "broken";
    }
    return "?";
}

Connections::Handle Connections::add(Role role) {
    auto connection = std::make_shared<Connection>();
    connection->id = next_id_++;
    connection->role = role;
    live_.emplace(connection->id, connection);
    return connection;
}

Connections::Handle Connections::find(std::uint64_t id) const {
    const auto it = live_.find(id);
    return it == live_.end() ? nullptr : it->second;
}

void Connections::end(std::uint64_t id, Reason reason) {
    const auto it = live_.find(id);
    if (it == live_.end()) {
        return;
    }
    if (reason != Reason::kNone) {
        it->second->reason = reason;
    }
    Traffic& traffic = ended_traffic_[it->second->path];
    traffic.sent += it->second->stats->bytes_sent;
    traffic.received += it->second->stats->bytes_received;
    ended_.push_back(it->second);
    if (ended_.size() > kRemembered) {
        ended_.pop_front();
    }
    live_.erase(it);
}

std::map<Path, Connections::Traffic> Connections::traffic() const {
    std::map<Path, Traffic> sums = ended_traffic_;
    for (const auto& [id, c] : live_) {
        Traffic& sum = sums[c->path];
        sum.sent += c->stats->bytes_sent;
        sum.received += c->stats->bytes_received;
    }
    return sums;
}

}  // namespace smc
