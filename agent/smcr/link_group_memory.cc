// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The memory of a link group: RMBs that come by CONFIRM RKEY and go by DELETE RKEY (RFC 7609 section 3.5.5), and memory
// to send from.
#include <algorithm>

#include "agent/smcr/link_group.h"

namespace smc::smcr {

namespace {

// An RMB that nobody uses any more is kept for a while: the next burst would register it again.
constexpr auto kSurplusTime = std::chrono::seconds(10);

}  // namespace

Result<std::shared_ptr<roce::Rmb>> LinkGroup::allocate(roce::MemoryRegion::Access access) {
    const std::uint32_t element = parts_.config.rmbe_kib * 1024;
    const auto count = static_cast<std::uint8_t>(parts_.config.rmbes_per_rmb);
    const std::size_t bytes = std::size_t{element} * count;
    if (*parts_.registered + bytes > memory_limit()) {
        return Error{ENOMEM, "roce.memory_mib is used up"};
    }
    auto rmb = roce::Rmb::allocate(pd_, element, count, access);
    if (rmb) {
        *parts_.registered += bytes;
    }
    return rmb;
}

void LinkGroup::release(std::shared_ptr<roce::Rmb> rmb) {
    *parts_.registered -= rmb->bytes();
}

// One more RMB, and as much to send from.
Result<void> LinkGroup::begin_growth() {
    const bool send_is_full =
        std::ranges::all_of(sends_, [&](const auto& m) { return m->used() == parts_.config.rmbes_per_rmb; });
    if (send_is_full) {
        auto memory = allocate(roce::MemoryRegion::Access::kLocal);
        if (!memory) {
            return memory.error();
        }
        sends_.push_back(std::move(*memory));
    }
    const bool rmbs_are_full =
        std::ranges::all_of(rmbs_, [&](const auto& m) { return m->used() == parts_.config.rmbes_per_rmb; });
    if (!rmbs_are_full) {
        return {};
    }
    if (rmbs_.size() >= llc::kMaxRmbs) {
        return Error{ENOSPC, "the link group has as many RMBs as it may have"};
    }
    auto rmb = allocate(roce::MemoryRegion::Access::kRemoteWrite);
    if (!rmb) {
        return rmb.error();
    }
    growth_.emplace(Growth{*rmb, {}});
    apply(machine_->confirm_rkey((*rmb)->rkey(), (*rmb)->address(), std::chrono::steady_clock::now()));
    return {};
}

void LinkGroup::rkey_confirmed(const llc::RkeyConfirmed& done) {
    if (!growth_ || growth_->rmb->rkey() != done.rkey) {
        return;
    }
    if (done.accepted) {
        rmbs_.push_back(std::move(growth_->rmb));
    } else {
        release(std::move(growth_->rmb));
    }
    const auto waiting = std::move(growth_->waiting);
    growth_.reset();
    for (const auto& event : waiting) {
        event->set();
    }
}

void LinkGroup::rkey_deleted(const llc::RkeyDeleted& deleted) {
    const auto it = std::ranges::find_if(going_, [&](const auto& rmb) { return rmb->rkey() == deleted.rkey; });
    if (it != going_.end()) {
        release(std::move(*it));
        going_.erase(it);
    }
}

void LinkGroup::shrink(TimePoint now) {
    const auto unused = [&](const auto& rmb) { return rmb->used() == 0; };
    const auto surplus = sends_.size() > rmbs_.size() ? std::ranges::find_if(sends_, unused) : sends_.end();
    if (surplus != sends_.end()) {
        release(std::move(*surplus));
        sends_.erase(surplus);
    }
    const auto last =
        rmbs_.size() > 1 && !growth_ ? std::ranges::find_if(rmbs_.begin() + 1, rmbs_.end(), unused) : rmbs_.end();
    if (last == rmbs_.end()) {
        surplus_since_ = TimePoint::max();
    } else if (surplus_since_ == TimePoint::max()) {
        surplus_since_ = now;
    } else if (now - surplus_since_ >= kSurplusTime) {
        going_.push_back(*last);
        rmbs_.erase(last);
        apply(machine_->delete_rkey(going_.back()->rkey(), now));
    }
}

}  // namespace smc::smcr
