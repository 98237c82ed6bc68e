// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/roce/buffers.h"

#include <algorithm>

namespace smc::roce {

Result<std::shared_ptr<Rmb>> Rmb::allocate(std::shared_ptr<ProtectionDomain> pd, std::uint32_t element_bytes,
                                           std::uint8_t count, MemoryRegion::Access access) {
    auto region = MemoryRegion::allocate(std::move(pd), std::size_t{element_bytes} * count, access);
    if (!region) {
        return region.error();
    }
    return std::shared_ptr<Rmb>(new Rmb(std::move(*region), element_bytes, count));
}

std::optional<Element> Rmb::take() {
    const std::lock_guard lock(mutex_);
    const auto free = std::find_if(state_.begin(), state_.end(), [](State s) { return s != State::kInUse; });
    if (free == state_.end()) {
        return std::nullopt;
    }
    Element element(shared_from_this(), static_cast<std::size_t>(free - state_.begin()));
    if (*free == State::kUsedBefore) {
        std::ranges::fill(element.bytes(), std::uint8_t{0});  // RFC 7609 section 4.4.1
    }
    *free = State::kInUse;
    return element;
}

std::size_t Rmb::used() const {
    const std::lock_guard lock(mutex_);
    return static_cast<std::size_t>(std::count(state_.begin(), state_.end(), State::kInUse));
}

void Rmb::give_back(std::size_t at) {
    const std::lock_guard lock(mutex_);
    state_[at] = State::kUsedBefore;
}

}  // namespace smc::roce
