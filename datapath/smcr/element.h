// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A piece of registered memory that one connection uses: an RMBE (RFC 7609 section 4.2), or a send element.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

namespace smc::smcr {

// The owner of the memory. Called on the thread that destroys the element.
class ElementOwner {
 public:
    virtual ~ElementOwner() = default;
    virtual void returned(std::size_t at) = 0;
    // The memory's lkey with the device of this link of the group.
    [[nodiscard]] virtual std::uint32_t lkey(std::uint8_t link) const = 0;
};

// Goes back to its owner when it is destroyed, and keeps the memory until then.
class Element {
 public:
    // `at`: the owner's number for this element.
    Element(std::shared_ptr<ElementOwner> owner, std::size_t at, std::span<std::uint8_t> bytes)
        : owner_(std::move(owner)), at_(at), bytes_(bytes) {}
    Element(Element&& other) noexcept = default;
    Element& operator=(Element&& other) noexcept {
        std::swap(owner_, other.owner_);
        std::swap(at_, other.at_);
        std::swap(bytes_, other.bytes_);
        return *this;
    }
    Element(const Element&) = delete;
    Element& operator=(const Element&) = delete;
    ~Element() {
        if (owner_) {
            owner_->returned(at_);
        }
    }

    [[nodiscard]] std::span<std::uint8_t> bytes() const { return bytes_; }
    [[nodiscard]] std::uint32_t lkey(std::uint8_t link) const { return owner_->lkey(link); }

 private:
    std::shared_ptr<ElementOwner> owner_;
    std::size_t at_;
    std::span<std::uint8_t> bytes_;
};

}  // namespace smc::smcr
