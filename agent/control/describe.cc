// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/control/describe.h"

#include <fmt/format.h>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "agent/steer/addresses.h"
#include "os/clock.h"
#include "smc/wire/cdc.h"

namespace smc {

using nlohmann::json;

namespace {

// Names as `ss` shows them.
const char* tcp_state(std::uint32_t state) {
    constexpr std::array<const char*, 13> kNames{"",           "ESTAB",     "SYN-SENT",    "SYN-RECV",   "FIN-WAIT-1",
                                                 "FIN-WAIT-2", "TIME-WAIT", "UNCONN",      "CLOSE-WAIT", "LAST-ACK",
                                                 "LISTEN",     "CLOSING",   "NEW-SYN-RECV"};
    return state < kNames.size() ? kNames[state] : "";
}

// "0001:00000a00 c000": wrap count and offset, producer flags and connection state.
std::string cursor(std::uint64_t packed) {
    const cdc::Producer p = cdc::unpack_producer(packed);
    char buffer[32];
    std::snprintf(buffer, sizeof buffer, "%04x:%08x %02x%02x", p.cursor.wrap, p.cursor.count, p.flags, p.state);
    return buffer;
}

}  // namespace

json describe(Reason reason) {
    return {{"name", reason_name(reason)},
            {"code", fmt::format("{:#010x}", static_cast<std::uint32_t>(reason))},
            {"text", reason_text(reason)}};
}

json describe(const Connection& c) {
    json out = {
        {"id", c.id},
        {"role", c.role == Role::kClient ? "client" : "server"},
        {"path", name(c.path)},
        {"reason", describe(c.reason)},
        {"detail", c.detail},
        {"client", c.client.text()},
        {"server", c.server.text()},
        {"netns", c.netns},
        {"pid", c.pid},
        {"age_s", std::chrono::duration<double>(os::now() - c.began).count()},
        {"state", c.stats->state.load()},
        {"bytes_sent", c.stats->bytes_sent.load()},
        {"bytes_received", c.stats->bytes_received.load()},
    };
    if (c.uid) {
        out["uid"] = *c.uid;
    }
    if (c.peer_reason != Reason::kNone) {
        out["peer_reason"] = describe(c.peer_reason);
    }
    if (c.path == Path::kSmcD || c.path == Path::kSmcR) {
        out["cursors"] = {{"rx_producer", cursor(c.stats->rx_producer)},
                          {"rx_consumer", cursor(c.stats->rx_consumer)},
                          {"tx_producer", cursor(c.stats->tx_producer)},
                          {"tx_consumer", cursor(c.stats->tx_consumer)}};
        out["signals"] = c.stats->signals.load();
        out["blocked"] = c.stats->blocked.load();
    }
    if (c.smcr) {
        const SmcrView& r = *c.smcr;
        out["smcr"] = {{"version", r.version},
                       {"role", r.server ? "SERV" : "CLNT"},
                       {"group", r.group_id},
                       {"link_id", text(r.link_id)},
                       {"device", r.device},
                       {"port", r.port},
                       {"net_device", r.net_device},
                       {"gid", r.gid.text()},
                       {"peer_gid", r.peer_gid.text()},
                       {"token", text(r.token)},
                       {"peer_token", text(r.peer_token)},
                       {"rmbe_bytes", r.rmbe_bytes},
                       {"peer_rmbe_bytes", r.peer_rmbe_bytes},
                       {"eid", c.eid.text()}};
    }
    if (c.smcd) {
        const SmcdView& d = *c.smcd;
        out["smcd"] = {{"chid", text(d.chid)},     {"peer_gid", d.peer_gid.text()},
                       {"token", text(d.token)},   {"peer_token", text(d.peer_token)},
                       {"dmb_bytes", d.dmb_bytes}, {"peer_dmb_bytes", d.peer_dmb_bytes},
                       {"eid", c.eid.text()},      {"group", d.group_id}};
    }
    return out;
}

json describe(std::uint64_t cookie, const smc_tuned_socket& socket) {
    const Endpoint local = local_of(socket.app), remote = remote_of(socket.app);
    const bool client = socket.client != 0;
    return {{"id", cookie},
            {"role", client ? "client" : "server"},
            {"path", "tuned"},
            {"reason", describe(Reason::kNone)},
            {"detail", ""},
            {"client", (client ? local : remote).text()},
            {"server", (client ? remote : local).text()},
            {"netns", socket.netns},
            {"state", tcp_state(socket.state)},
            {"bytes_sent", socket.sent},
            {"bytes_received", socket.received}};
}

json live_by_path(const Connections& connections) {
    json counts = json::object();
    for (const Path path : {Path::kHandshake, Path::kSmcD, Path::kSmcR, Path::kFallback}) {
        counts[name(path)] = 0;
    }
    for (const auto& [id, c] : connections.all()) {
        counts[name(c->path)] = counts[name(c->path)].get<int>() + 1;
    }
    return counts;
}

}  // namespace smc
