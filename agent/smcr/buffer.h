// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Registered memory of a link group, cut into elements (RFC 7609 section 4.2).
#pragma once

#include <functional>
#include <memory>

#include "datapath/roce/memory.h"
#include "datapath/smcr/element.h"
#include "smc/group/actions.h"

namespace smc::smcr {

class Buffer final : public ElementOwner, public std::enable_shared_from_this<Buffer> {
 public:
    // Called from any thread when an element is let go.
    using OnReturned = std::function<void(std::size_t element)>;

    static Result<std::shared_ptr<Buffer>> allocate(const std::shared_ptr<roce::ProtectionDomain>& pd,
                                                    group::BufferKind kind, std::uint32_t element_bytes,
                                                    std::size_t elements, OnReturned on_returned) {
        auto memory = roce::RegisteredMemory::allocate(
            pd, element_bytes * elements,
            kind == group::BufferKind::kRmb ? roce::Memory::Access::kRemoteWrite : roce::Memory::Access::kLocal);
        if (!memory) {
            return memory.error();
        }
        return std::shared_ptr<Buffer>(new Buffer(std::move(*memory), element_bytes, std::move(on_returned)));
    }

    // The element is the caller's until it lets go of it.
    Element element(std::size_t at) { return {shared_from_this(), at, bytes_of(at), memory_.lkey()}; }
    [[nodiscard]] std::span<std::uint8_t> bytes_of(std::size_t at) const {
        return memory_.bytes().subspan(at * element_bytes_, element_bytes_);
    }
    [[nodiscard]] RKey rkey() const { return memory_.rkey(); }
    [[nodiscard]] VirtualAddress address() const { return memory_.address(); }
    void returned(std::size_t at) override { on_returned_(at); }

 private:
    Buffer(roce::RegisteredMemory memory, std::uint32_t element_bytes, OnReturned on_returned)
        : memory_(std::move(memory)), element_bytes_(element_bytes), on_returned_(std::move(on_returned)) {}

    roce::RegisteredMemory memory_;
    std::uint32_t element_bytes_;
    OnReturned on_returned_;
};

}  // namespace smc::smcr
