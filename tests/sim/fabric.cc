// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "fabric.h"

namespace smc::sim {

// The doorbell of a DMB, for its owner and for its peer.
class Fabric::Doorbell final : public smcd::Doorbell {
 public:
    Doorbell(World& world, std::shared_ptr<Bell> bell) : world_(world), bell_(std::move(bell)) {}
    [[nodiscard]] int fd() const override { return bell_->descriptor.fd(); }
    void arm() override {
        bell_->armed = true;
        bell_->rung = false;
    }
    void heard() override {}
    [[nodiscard]] TimePoint noted() const override { return bell_->noted; }
    void forget() override { bell_->noted = kNever; }
    void disarm() override { bell_->armed = false; }
    void ring() override {
        bell_->noted = bell_->notes ? std::min(bell_->noted, world_.now()) : kNever;
        if (!bell_->armed) {
            return;
        }
        bell_->armed = false;
        world_.after(world_.local(), [weak = std::weak_ptr(bell_)] {
            if (const auto bell = weak.lock()) {
                bell->rung = true;
                bell->descriptor.changed();
            }
        });
    }

 private:
    World& world_;
    std::shared_ptr<Bell> bell_;
};

Fabric::Registered Fabric::register_dmb(const Gid& owner, std::uint32_t bytes) {
    const DmbToken token{next_token_++};
    Entry entry{owner, std::make_shared<std::vector<std::uint64_t>>(bytes / 8), std::make_shared<Bell>(world_), bytes};
    entry.bell->notes = world_.chance(80);  // other peers are of an earlier version
    auto* start = reinterpret_cast<std::uint8_t*>(entry.memory->data());
    auto dmb = std::make_shared<smcd::Dmb>(entry.memory, start, bytes, std::make_unique<Doorbell>(world_, entry.bell));
    dmbs_.emplace(token, std::move(entry));
    return {token, std::move(dmb)};
}

std::optional<smcd::Dmb> Fabric::attach(const Gid& owner, DmbToken token) {
    const auto it = dmbs_.find(token);
    if (it == dmbs_.end() || it->second.owner != owner || std::exchange(it->second.attached, true)) {
        return std::nullopt;
    }
    auto* start = reinterpret_cast<std::uint8_t*>(it->second.memory->data());
    return smcd::Dmb(it->second.memory, start, it->second.bytes, std::make_unique<Doorbell>(world_, it->second.bell));
}

}  // namespace smc::sim
