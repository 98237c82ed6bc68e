// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Every connection the agent has to do with: which path, and why. The last ended ones are remembered.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "datapath/task.h"
#include "os/endpoint.h"
#include "smc/wire/ids.h"
#include "smc/wire/reason.h"

namespace smc {

enum class Role { kClient, kServer };
enum class Path { kHandshake, kSmcD, kSmcR, kFallback, kRefused };
const char* name(Path path);

// What an SMC-D or SMC-R connection uses, for display.
struct SmcdView {
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
    std::chrono::system_clock::time_point since = std::chrono::system_clock::now();
    std::shared_ptr<ConnectionStats> stats = std::make_shared<ConnectionStats>();

    Eid eid{};
    std::optional<SmcdView> smcd;
    std::optional<SmcrView> smcr;
};

class Connections {
 public:
    using Handle = std::shared_ptr<Connection>;

    Handle add(Role role);
    [[nodiscard]] Handle find(std::uint64_t id) const;
    // Moves it to the ended ones. The second call for one id does nothing.
    void end(std::uint64_t id, Reason reason);

    [[nodiscard]] std::size_t live() const { return live_.size(); }
    [[nodiscard]] const std::map<std::uint64_t, Handle>& all() const { return live_; }
    [[nodiscard]] const std::deque<Handle>& ended() const { return ended_; }

    // How often a connection ended on or was kept to a path, by reason. Never reset.
    void count(Path path, Reason reason) { totals_[{path, reason}]++; }
    [[nodiscard]] const std::map<std::pair<Path, Reason>, std::uint64_t>& totals() const { return totals_; }

 private:
    static constexpr std::size_t kRemembered = 256;
    std::uint64_t next_id_ = 1;
    std::map<std::uint64_t, Handle> live_;
    std::deque<Handle> ended_;
    std::map<std::pair<Path, Reason>, std::uint64_t> totals_;
};

}  // namespace smc
