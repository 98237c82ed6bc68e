// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/roce/memory.h"

#include <algorithm>
#include <atomic>

namespace smc::roce {

namespace {

std::atomic<std::size_t> all_in_use{0};

}  // namespace

Memory::Memory(Mapping mapping) : mapping_(std::move(mapping)) {
    all_in_use.fetch_add(bytes().size(), std::memory_order_relaxed);
}

Memory::~Memory() {
    regions_.clear();  // a device may take seconds for that
    all_in_use.fetch_sub(bytes().size(), std::memory_order_relaxed);
}

std::size_t Memory::in_use() {
    return all_in_use.load(std::memory_order_relaxed);
}

Result<std::shared_ptr<Memory>> Memory::allocate(std::size_t bytes) {
    auto mapping = Mapping::anonymous(bytes);
    if (!mapping) {
        return mapping.error();
    }
    return std::shared_ptr<Memory>(new Memory(std::move(*mapping)));
}

Result<const MemoryRegion*> Memory::register_with(const std::shared_ptr<ProtectionDomain>& pd, Access access) {
    const auto known = std::ranges::find_if(regions_, [&](const auto& region) { return &region->pd() == pd.get(); });
    if (known != regions_.end()) {
        return known->get();
    }
    const unsigned remote = access == Access::kRemoteWrite ? unsigned{IBV_ACCESS_REMOTE_WRITE} : 0;
    auto region = MemoryRegion::create(pd, bytes(), IBV_ACCESS_LOCAL_WRITE | remote);
    if (!region) {
        return region.error();
    }
    return regions_.emplace_back(std::move(*region)).get();
}

Result<RegisteredMemory> RegisteredMemory::allocate(const std::shared_ptr<ProtectionDomain>& pd, std::size_t bytes,
                                                    Memory::Access access) {
    auto memory = Memory::allocate(bytes);
    if (!memory) {
        return memory.error();
    }
    const auto region = (*memory)->register_with(pd, access);
    if (!region) {
        return region.error();
    }
    return RegisteredMemory{std::move(*memory), *region};
}

}  // namespace smc::roce
