// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/steer/chosen_buffers.h"

#include "bpf/abi.h"

namespace smc::bpf {

static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t) &&
              std::atomic<std::uint32_t>::is_always_lock_free);

Result<std::shared_ptr<ChosenBuffers>> ChosenBuffers::open(int map_fd, std::uint32_t entries) {
    auto mapping = Mapping::shared(map_fd, entries * sizeof(smc_chosen));
    if (!mapping) {
        return mapping.error();
    }
    return std::shared_ptr<ChosenBuffers>(new ChosenBuffers(std::move(*mapping), entries));
}

ChosenBuffers::ChosenBuffers(Mapping mapping, std::uint32_t entries)
    : mapping_(std::move(mapping)), entries_(reinterpret_cast<Entry*>(mapping_.bytes().data())) {
    for (std::uint32_t number = 1; number < entries && number <= UINT16_MAX; number++) {
        free_.push_back(static_cast<std::uint16_t>(number));
    }
}

std::shared_ptr<const ChosenBuffers::Lease> ChosenBuffers::take(std::uint32_t send) {
    std::uint16_t number = 0;
    {
        const std::lock_guard lock(mutex_);
        if (free_.empty()) {
            return nullptr;
        }
        number = free_.front();
        free_.pop_front();
    }
    static_assert(sizeof(Entry) == sizeof(smc_chosen));
    entries_[number].send.store(send, std::memory_order_relaxed);
    entries_[number].urgent.store(0, std::memory_order_relaxed);
    return std::make_shared<const Lease>(shared_from_this(), number);
}

void ChosenBuffers::give_back(std::uint16_t number) {
    const std::lock_guard lock(mutex_);
    free_.push_back(number);
}

}  // namespace smc::bpf
