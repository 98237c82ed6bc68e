// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Pairs of transports for the connection cases: each has two ends, and tasks that have to be driven beside the
// connections.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "datapath/engine.h"
#include "datapath/ism/local_dmb.h"
#include "datapath/smcd/dmb_transport.h"
#include "datapath/smcr/rmbe_transport.h"
#include "memory_link.h"

namespace smc::test {

inline constexpr std::uint32_t kRing = 16 * 1024;

struct End {
    std::unique_ptr<Transport> transport;
    std::shared_ptr<Task> task;  // nullptr: none
};

// SMC-D: two DMBs, each attached by the other side.
struct DmbPair {
    std::array<End, 2> ends;

    DmbPair() {
        std::array<Result<ism::CreatedDmb>, 2> own{ism::create_dmb(kRing), ism::create_dmb(kRing)};
        for (std::size_t i = 0; i < 2; i++) {
            ism::CreatedDmb& peer = *own[1 - i];
            auto attached = ism::attach_dmb(peer.memory, UniqueFd(::dup(peer.bell.get())), kRing);
            ends[i].transport =
                std::make_unique<smcd::DmbTransport>(own[i]->dmb, std::make_shared<smcd::Dmb>(std::move(*attached)));
        }
    }
};

// SMC-R over two ends of a link: two drivers, and for each end an RMBE and all of `sends` as its send element.
template <class Memory>
std::array<End, 2> rmbe_ends(std::array<std::unique_ptr<smcr::Link>, 2> links,
                             const std::array<std::shared_ptr<Memory>, 2>& rmbes,
                             const std::array<std::shared_ptr<Memory>, 2>& sends, bool eye_catchers) {
    std::array<End, 2> ends;
    for (std::size_t i = 0; i < 2; i++) {
        const AlertToken own{static_cast<std::uint32_t>(i + 1)}, peer{static_cast<std::uint32_t>(2 - i)};
        const auto element = [](const std::shared_ptr<Memory>& memory) {
            return smcr::Element(memory, 0, memory->bytes());
        };
        auto group = std::make_shared<smcr::GroupDriver>();
        auto driver = std::make_shared<smcr::LinkDriver>(std::move(links[i]), group, std::uint8_t{1},
                                                         smcr::LinkDriver::Callbacks{[](auto) {}, [](auto) {}});
        group->open(own);
        group->use(1, driver);
        ends[i].task = driver;
        ends[i].transport = std::make_unique<smcr::RmbeTransport>(
            smcr::RmbeTransport::Parts{group,
                                       own,
                                       element(rmbes[i]),
                                       element(sends[i]),
                                       {1, rmbes[1 - i]->rkey(), rmbes[1 - i]->address(), 0, peer, kRing},
                                       eye_catchers});
    }
    return ends;
}

inline std::array<End, 2> memory_ends(std::uint32_t capacity, bool eye_catchers, std::uint32_t send_bytes) {
    auto [a, b] = MemoryLink::pair(capacity);
    std::array<std::shared_ptr<PlainMemory>, 2> rmbes, sends;
    for (std::size_t i = 0; i < 2; i++) {
        rmbes[i] = std::make_shared<PlainMemory>(kRing);
        sends[i] = std::make_shared<PlainMemory>(send_bytes);
    }
    return rmbe_ends<PlainMemory>({std::move(a), std::move(b)}, rmbes, sends, eye_catchers);
}

struct LinkPair {
    std::array<End, 2> ends = memory_ends(64, false, kRing);
};

// With eye catchers, small send elements, and a short queue.
struct NarrowLinkPair {
    std::array<End, 2> ends = memory_ends(6, true, 3000);
};

}  // namespace smc::test
