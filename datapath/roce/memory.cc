// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/roce/memory.h"

#include <algorithm>

namespace smc::roce {

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
