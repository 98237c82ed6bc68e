// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Memory of a link group (an RMB, or memory to send from): divided into elements, and registered with the device of
// each link (RFC 7609 sections 4.2 and 3.5.5.2).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "datapath/roce/memory.h"
#include "datapath/smcr/element.h"
#include "smc/group/actions.h"

namespace smc::smcr {

class Buffer final : public ElementOwner, public std::enable_shared_from_this<Buffer> {
 public:
    // Called on any thread when an element is released.
    using OnReturned = std::function<void(std::size_t element)>;

    static Result<std::shared_ptr<Buffer>> allocate(group::BufferKind kind, std::uint32_t element_bytes,
                                                    std::size_t elements, OnReturned on_returned) {
        auto memory = roce::Memory::allocate(element_bytes * elements);
        if (!memory) {
            return memory.error();
        }
        return std::shared_ptr<Buffer>(new Buffer(std::move(*memory), kind, element_bytes, std::move(on_returned)));
    }

    // Registers the memory for a link with this protection domain, and returns RKey and address for the peer.
    Result<llc::RToken> register_for(std::uint8_t link, const std::shared_ptr<roce::ProtectionDomain>& pd) {
        const bool remote = kind_ == group::BufferKind::kRmb;
        const auto region =
            memory_->register_with(pd, remote ? roce::Memory::Access::kRemoteWrite : roce::Memory::Access::kLocal);
        if (!region) {
            return region.error();
        }
        const std::lock_guard lock(mutex_);
        lkeys_[link] = (*region)->lkey();
        return llc::RToken{(*region)->rkey(), (*region)->address()};
    }

    // The element belongs to the caller until the last reference is dropped.
    Element element(std::size_t at) { return {shared_from_this(), at, bytes_of(at)}; }
    [[nodiscard]] std::span<std::uint8_t> bytes_of(std::size_t at) const {
        return memory_->bytes().subspan(at * element_bytes_, element_bytes_);
    }
    void returned(std::size_t at) override { on_returned_(at); }
    // Any thread.
    [[nodiscard]] std::uint32_t lkey(std::uint8_t link) const override {
        const std::lock_guard lock(mutex_);
        const auto it = lkeys_.find(link);
        return it == lkeys_.end() ? 0 : it->second;
    }

 private:
    Buffer(std::shared_ptr<roce::Memory> memory, group::BufferKind kind, std::uint32_t element_bytes,
           OnReturned on_returned)
        : memory_(std::move(memory)),
          kind_(kind),
          element_bytes_(element_bytes),
          on_returned_(std::move(on_returned)) {}

    std::shared_ptr<roce::Memory> memory_;
    group::BufferKind kind_;
    std::uint32_t element_bytes_;
    OnReturned on_returned_;
    mutable std::mutex mutex_;  // guards lkeys_
    std::map<std::uint8_t, std::uint32_t> lkeys_;
};

}  // namespace smc::smcr
