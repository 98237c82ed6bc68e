// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Helpers for the tests of ivshmem, memory that several machines share.
#pragma once

#include <sys/mman.h>

#include <asio/io_context.hpp>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "datapath/ivshmem/area.h"
#include "datapath/ivshmem/ivshmem_fabric.h"
#include "os/unique_fd.h"

namespace smc::ivshmem {

using namespace std::chrono_literals;

constexpr std::size_t kBytes = 4U << 20;

inline Gid gid(std::uint8_t n) {
    Gid out;
    out.bytes.fill(n);
    return out;
}

// A file that all peers of a test map, as machines map a BAR.
class Shared {
 public:
    explicit Shared(std::size_t bytes = kBytes) : fd_(::memfd_create("area", MFD_CLOEXEC)) {
        REQUIRE(::ftruncate(fd_.get(), static_cast<off_t>(bytes)) == 0);
        bytes_ = bytes;
    }
    [[nodiscard]] Mapping map() const { return std::move(*Mapping::shared(fd_.get(), bytes_)); }
    [[nodiscard]] Result<std::unique_ptr<Area>> open(std::uint8_t n) const { return Area::open(map(), gid(n)); }
    [[nodiscard]] std::string path() const { return "/proc/self/fd/" + std::to_string(fd_.get()); }

 private:
    UniqueFd fd_;
    std::size_t bytes_;
};

// Lets `area` write its heartbeat and check those of the others for `time`: by default until every silent peer counts
// as dead and its blocks are free again.
inline void watch(Area& area,
                  std::chrono::milliseconds time = 2 * Area::kDead + Area::kReclaimAfter + 4 * Area::kBeat) {
    static TimePoint now{};
    for (auto passed = 0ms; passed <= time; passed += Area::kBeat) {
        area.say_alive();
        (void)area.look(now += Area::kBeat);
        REQUIRE(area.has_slot());
    }
}

// The control structures before the blocks.
inline std::span<std::uint8_t> control_of(const Mapping& mapping) {
    const Geometry geometry = geometry_of(kBytes);
    return mapping.bytes().first(geometry.words_offset + geometry.blocks * sizeof(std::uint64_t));
}

inline std::span<PeerSlot> slots_of(const Mapping& mapping) {
    return {reinterpret_cast<PeerSlot*>(mapping.bytes().data() + kPage), kPeers};
}

// A peer with its fabric.
struct Node {
    asio::io_context io;
    std::vector<Gid> lost;
    std::unique_ptr<IvshmemFabric> fabric;

    Node(const Shared& shared, std::uint8_t n)
        : fabric(std::move(*IvshmemFabric::open(io, shared.path(), gid(n), Chid{0xff10},
                                                [this](const Gid& peer) { lost.push_back(peer); }))) {}
    Result<smcd::Dmb> attach(std::uint8_t peer, DmbToken token, std::uint32_t bytes) const {
        std::optional<Result<smcd::Dmb>> got;
        fabric->attach(gid(peer), token, bytes, 1s, [&](Result<smcd::Dmb> dmb) { got.emplace(std::move(dmb)); });
        REQUIRE(got);
        return std::move(*got);
    }
};

}  // namespace smc::ivshmem
