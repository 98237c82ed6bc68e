// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The smcctl commands that change something, for root and the agent's user only. None makes the agent open a file or
// act on a process that the client names.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "agent/bypass/bypass.h"
#include "agent/connections/connections.h"
#include "agent/loop/deadline.h"
#include "agent/upgrade/departure.h"
#include "smc/clc/node.h"

namespace smc {

// While draining, new connections stay plain TCP, so that the existing ones can end and the agent can be stopped.
struct Drain {
    bool on = false;
    TimePoint since{};
};

class Admin {
 public:
    struct Parts {
        asio::io_context& io;
        const std::string& pin_path;
        clc::LocalNode& node;
        const Connections& connections;
        const std::unique_ptr<bypass::Bypass>& bypass;  // null: there is no bypass
        Drain& drain;
        upgrade::Departure& departure;
        bool in_pod;
        std::chrono::milliseconds timeout;  // after which an unread tap is closed
        std::function<void()> drain_changed;
    };
    explicit Admin(const Parts& parts) : p_(parts), look_(parts.io, [this] { close_idle_taps(); }) {}

    // Nothing: the command is none of those that this class handles.
    [[nodiscard]] std::optional<nlohmann::json> answer(const nlohmann::json& request, pid_t asker);

 private:
    [[nodiscard]] nlohmann::json revoke() const;
    // `wanted`: a boolean, or null to change nothing.
    [[nodiscard]] nlohmann::json drain(const nlohmann::json& wanted);
    [[nodiscard]] nlohmann::json leave(const std::string& pin_path, pid_t asker);
    [[nodiscard]] nlohmann::json upgrade();
    [[nodiscard]] nlohmann::json ueid(const std::string& what, const std::string& eid);
    [[nodiscard]] nlohmann::json seid(const std::string& what);
    // `tap`: the number from the first answer; 0: open a tap.
    [[nodiscard]] nlohmann::json capture(std::uint64_t id, std::uint64_t tap, bool end);
    [[nodiscard]] std::string open_tap(std::uint64_t id);
    void close_idle_taps();

    struct OpenTap {
        std::weak_ptr<Connection> connection;
        std::shared_ptr<Tap> tap;
        std::uint64_t number = 0;
        TimePoint asked{};
    };

    Parts p_;
    std::optional<Eid> seid_;                // while it is disabled
    std::map<std::uint64_t, OpenTap> taps_;  // by connection id
    std::uint64_t last_tap_ = 0;
    loop::Deadline look_;
};

}  // namespace smc
