// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Connections that run: what is checked from time to time, and what follows when they end.
#include <chrono>

#include "agent/gateway/gateway.h"
#include "agent/gateway/short_lived.h"
#include "datapath/engine.h"
#include "os/clock.h"

namespace smc {

void Gateway::give_back(Quotas& quotas, const Connection& connection) const {
    const bool was_full = !takes_more();
    quotas.give_back(connection.netns, connection.cgroup);
    if (was_full && takes_more()) {
        p_.obstacle_changed();
    }
}

void Gateway::end_connection(const Handle& connection, Reason reason) {
    if (!p_.connections.find(connection->id)) {
        return;
    }
    p_.connections.end(connection->id, reason);
    give_back(connection_quotas_, *connection);
    if (connection->role == Role::kClient) {
        port_share_.give_back(connection->netns);
    }
}

// Notes once whether a connection was worth its set-up: as soon as it is, or else at its end.
void Gateway::judge(Connection& c, bool ended) const {
    if (c.earned || (!c.smcd && !c.smcr)) {
        return;
    }
    const bool short_lived = is_short_lived(c, os::now());
    const auto netns = short_lived && !ended ? nullptr : p_.namespaces.by_inode(c.netns);
    if (netns) {
        p_.programs.judge(kind_of(c, netns->cookie()), short_lived);
        c.earned = !short_lived;
    }
}

void Gateway::swept(const bpf::Swept& found) {
    for (const auto& [id, connection] : p_.connections.all()) {
        judge(*connection, false);
    }
    for (const auto& [app, terms] : found.keepalives) {
        keepalives_.changed(app, terms);
    }
    half_open_.end(found.half_open);
    swept_ = os::now();
}

void Gateway::balance() {
    const TimePoint now = os::now();
    const std::chrono::duration<double> since = now - std::exchange(balanced_, now);
    std::vector<double> busy(times_.size());
    for (std::size_t i = 0; i < busy.size(); i++) {
        Engine& engine = p_.engines.at(i);
        const EngineTimes now_at{engine.busy_time(), engine.processor_time()},
            before = std::exchange(times_[i], now_at);
        // An engine that waits for a processor is not helped by others, which wait as well.
        busy[i] =
            std::chrono::duration<double>(std::min(now_at.busy - before.busy, now_at.processor - before.processor)) /
            since;
    }
    const auto bytes = [this](std::uint64_t id) {
        const auto c = p_.connections.find(id);
        return c ? c->stats->bytes_sent.load() + c->stats->bytes_received.load() : 0;
    };
    for (const auto& [id, from, to] : placement_.balance(busy, bytes)) {
        const auto it = running_.find(id);
        if (const auto task = it != running_.end() ? it->second.task.lock() : nullptr) {
            it->second.engine->move(task, p_.engines.at(to));
            it->second.engine = &p_.engines.at(to);
            log()->debug("connection {} moves from thread {} of the data path to {}", id, from, to);
        }
    }
}

void Gateway::connection_ended(const ConnectionEnd& end) {
    const auto c = p_.connections.find(end.id);
    if (!c) {
        return;
    }
    keepalives_.remove(end.id);
    running_.erase(end.id);
    placement_.remove(end.id);
    if (c->path == Path::kSmcD) {
        exchanges_.erase(end.id);
        p_.session.smcd_groups.connection_ended(c->smcd->group_id);
    } else if (c->path == Path::kSmcR) {
        p_.session.smcr_groups.leave(group::MemberId{end.id}, {});
    }
    judge(*c, true);
    end_connection(c, end.reason);
    log()->debug("connection {} ended: {} sent {} received {}", end.id, reason_name(end.reason),
                 c->stats->bytes_sent.load(), c->stats->bytes_received.load());
    if (end.reason == Reason::kNone || end.reason == Reason::kApplicationReset || end.reason == Reason::kPeerAborted) {
        return;  // as an application wanted, or for a reason that the peer's agent knows
    }
    // These two are no failures of SMC: TCP, too, resets an application that writes to a peer that has closed; and when
    // close_timeout ends a connection, everything was delivered.
    const bool as_tcp = end.reason == Reason::kPeerClosedEarly || end.reason == Reason::kCloseTimeout;
    if (c->path != Path::kFallback && !as_tcp) {
        p_.connections.count(Path::kBroken, end.reason);
    }
    // A broken link was already logged by its link group, once for all of its connections.
    if (end.reason != Reason::kLinkDown) {
        note(*c, "broken");
    }
}

void Gateway::note(const Connection& c, const char* what) {
    std::uint64_t held_back = 0;
    if (!limiter_.admit(reason_name(c.reason), held_back)) {
        return;
    }
    log()->info("connection {} {} {}: client {} server {} reason {} ({}){}{}{}", c.id,
                c.role == Role::kClient ? "outbound" : "inbound", what, c.client.text(), c.server.text(),
                reason_name(c.reason), reason_text(c.reason), c.detail.empty() ? "" : ", ", c.detail,
                held_back != 0 ? ", and " + std::to_string(held_back) + " more like it" : "");
}

}  // namespace smc
