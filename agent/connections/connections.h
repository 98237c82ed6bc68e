// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The connections that the agent handles: which path each of them takes, and why. The last ones that ended are kept.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "datapath/task.h"
#include "os/clock.h"
#include "os/endpoint.h"
#include "smc/wire/ids.h"
#include "smc/wire/reason.h"

namespace smc {

enum class Role { kClient, kServer };
// kBroken is for Connections::count() only: a connection over SMC that failed keeps its path.
enum class Path { kHandshake, kSmcD, kSmcR, kFallback, kRefused, kBroken };
const char* name(Path path);

// Resources of an SMC-D or SMC-R connection, for display.
struct SmcdView {
    Chid chid{};
    Gid peer_gid;
    DmbToken token{}, peer_token{};
    std::uint32_t dmb_bytes = 0, peer_dmb_bytes = 0;
    std::uint32_t group_id = 0;
};
struct SmcrView {
    std::uint8_t version = 2;
    bool server = false;
    std::uint32_t group_id = 0;
    LinkId link_id{};
    std::string device;
    std::uint8_t port = 0;
    std::string net_device;
    RoceGid gid, peer_gid;
    AlertToken token{}, peer_token{};
    std::uint32_t rmbe_bytes = 0, peer_rmbe_bytes = 0;
};

struct Connection {
    std::uint64_t id = 0;
    Role role = Role::kClient;
    Path path = Path::kHandshake;
    Reason reason = Reason::kNone;
    Reason peer_reason = Reason::kNone;  // why the peer declined
    std::string detail;
    Endpoint client, server;           // as the applications see them
    std::uint64_t netns = 0;           // inode
    std::uint64_t cgroup = 0;          // ID, of the application on this side
    std::uint32_t pid = 0;             // of the client application; 0 on the server's side
    std::optional<std::uint32_t> uid;  // likewise
    std::chrono::steady_clock::time_point began = os::now();
    std::shared_ptr<ConnectionStats> stats = std::make_shared<ConnectionStats>();

    Eid eid{};
    std::optional<SmcdView> smcd;
    std::optional<SmcrView> smcr;
    bool earned = false;  // it has earned the set-up of SMC, and this was noted
};

// A histogram with bounds that never change, in seconds.
class Durations {
 public:
    static constexpr std::array<double, 12> kBounds{0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2};

    void observe(double seconds) {
        counts_[static_cast<std::size_t>(std::ranges::lower_bound(kBounds, seconds) - kBounds.begin())]++;
        sum_ += seconds;
    }
    // For each bound, the samples up to it and above the bound before; the last element: the samples above all bounds.
    [[nodiscard]] const std::array<std::uint64_t, kBounds.size() + 1>& counts() const { return counts_; }
    [[nodiscard]] double sum() const { return sum_; }

 private:
    std::array<std::uint64_t, kBounds.size() + 1> counts_{};
    double sum_ = 0;
};

class Connections {
 public:
    using Handle = std::shared_ptr<Connection>;

    Handle add(Role role);
    [[nodiscard]] Handle find(std::uint64_t id) const;
    // Moves the connection to ended(). A second call for the same id does nothing.
    void end(std::uint64_t id, Reason reason);

    [[nodiscard]] std::size_t live() const { return live_.size(); }
    // Whether a connection of the namespace with this inode is live.
    [[nodiscard]] bool live_in(std::uint64_t netns) const {
        return std::ranges::any_of(live_, [&](const auto& entry) { return entry.second->netns == netns; });
    }
    [[nodiscard]] const std::map<std::uint64_t, Handle>& all() const { return live_; }
    [[nodiscard]] const std::deque<Handle>& ended() const { return ended_; }

    // Records how long it took until a connection had its path.
    void took(Path path, std::chrono::duration<double> time) { durations_[path].observe(time.count()); }
    [[nodiscard]] const std::map<Path, Durations>& durations() const { return durations_; }

    // The bytes that applications have sent and received, by path, over all connections including ended ones.
    struct Traffic {
        std::uint64_t sent = 0, received = 0;
    };
    [[nodiscard]] std::map<Path, Traffic> traffic() const;

    // Counts the paths that connections took or were left on, and failures of connections over SMC, by reason. Never
    // reset.
    void count(Path path, Reason reason) { totals_[{path, reason}]++; }
    [[nodiscard]] const std::map<std::pair<Path, Reason>, std::uint64_t>& totals() const { return totals_; }

 private:
    static constexpr std::size_t kRemembered = 256;
    std::uint64_t next_id_ = 1;
    std::map<std::uint64_t, Handle> live_;
    std::deque<Handle> ended_;
    std::map<std::pair<Path, Reason>, std::uint64_t> totals_;
    std::map<Path, Durations> durations_;
    std::map<Path, Traffic> ended_traffic_;
};

}  // namespace smc
