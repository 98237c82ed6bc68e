// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The connection cases over queue pairs of a real device: soft-RoCE. Runs in a virtual machine (tests/vm).
#include <catch2/catch.hpp>

#include "datapath/roce/rc_link.h"
#include "transports.h"

namespace smc::test {

struct DeviceMemory final : smcr::ElementOwner {
    DeviceMemory(const std::shared_ptr<roce::ProtectionDomain>& pd, std::size_t size)
        : memory(*roce::RegisteredMemory::allocate(pd, size, roce::Memory::Access::kRemoteWrite)) {}
    [[nodiscard]] std::span<std::uint8_t> bytes() const { return memory.bytes(); }
    [[nodiscard]] std::uint32_t lkey(std::uint8_t) const override { return memory.lkey(); }
    [[nodiscard]] RKey rkey() const { return memory.rkey(); }
    [[nodiscard]] VirtualAddress address() const { return memory.address(); }
    void returned(std::size_t) override {}
    roce::RegisteredMemory memory;
};

struct RocePair {
    std::array<End, 2> ends;

    explicit RocePair(bool eye_catchers = false) {
        static const std::vector<roce::Port> ports = *roce::ports();
        const auto choice = roce::port_for(ports, *RoceGid::parse("10.99.0.1")).value();
        const auto pd = *roce::ProtectionDomain::allocate(*roce::Context::open(choice.port->device));
        std::array<std::unique_ptr<smcr::Link>, 2> links;
        std::array<std::shared_ptr<DeviceMemory>, 2> rmbes, sends;
        for (std::size_t i = 0; i < 2; i++) {
            links[i] = *roce::RcLink::create(pd, *choice.port, choice.gid, {});
            rmbes[i] = std::make_shared<DeviceMemory>(pd, kRing);
            sends[i] = std::make_shared<DeviceMemory>(pd, kRing);
        }
        REQUIRE(links[0]->connect(links[1]->end()));
        REQUIRE(links[1]->connect(links[0]->end()));
        ends = rmbe_ends<DeviceMemory>(std::move(links), rmbes, sends, eye_catchers);
    }
};

struct EyeCatchersPair : RocePair {
    EyeCatchersPair() : RocePair(true) {}
};

}  // namespace smc::test

#define SMC_TRANSPORTS RocePair, EyeCatchersPair
#include "connection_cases.h"
