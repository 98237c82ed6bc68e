// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Simulated DMBs: memory that both peers see at once, and doorbells that ring with a delay.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "datapath/smcd/dmb.h"
#include "smc/wire/ids.h"
#include "world.h"

namespace smc::sim {

class Fabric {
 public:
    explicit Fabric(World& world) : world_(world) {}

    struct Registered {
        DmbToken token{};
        std::shared_ptr<smcd::Dmb> dmb;
    };
    Registered register_dmb(const Gid& owner, std::uint32_t bytes);
    void deregister(DmbToken token) { dmbs_.erase(token); }
    // A DMB can be attached once. nullopt: there is no such DMB, or it is attached already.
    std::optional<smcd::Dmb> attach(const Gid& owner, DmbToken token);
    [[nodiscard]] std::size_t registered() const { return dmbs_.size(); }

 private:
    struct Bell {
        explicit Bell(World& world) : descriptor(world, [this] { return rung ? 1U : 0U; }) {}
        Descriptor descriptor;
        bool armed = false, rung = false, notes = true;
        TimePoint noted = kNever;  // the first ring since the owner took the news
    };
    class Doorbell;
    struct Entry {
        Gid owner;
        std::shared_ptr<std::vector<std::uint64_t>> memory;
        std::shared_ptr<Bell> bell;
        std::uint32_t bytes = 0;
        bool attached = false;
    };

    World& world_;
    std::uint64_t next_token_ = 1;
    std::map<DmbToken, Entry> dmbs_;
};

}  // namespace smc::sim
