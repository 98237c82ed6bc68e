// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Registered memory that connections take their share of: an RMB with its RMBEs (RFC 7609 section 4.2), or memory to
// send from, cut in the same way. Elements may be given back from any thread.
#pragma once

#include <mutex>
#include <optional>
#include <vector>

#include "datapath/roce/verbs.h"

namespace smc::roce {

class Element;

class Rmb : public std::enable_shared_from_this<Rmb> {
 public:
    // `count` elements (1 to 255) of `element_bytes` each.
    static Result<std::shared_ptr<Rmb>> allocate(std::shared_ptr<ProtectionDomain> pd, std::uint32_t element_bytes,
                                                 std::uint8_t count, MemoryRegion::Access access);

    // A free element, zeroed; nullopt: all are in use.
    std::optional<Element> take();
    [[nodiscard]] std::size_t used() const;
    [[nodiscard]] RKey rkey() const { return region_->rkey(); }
    [[nodiscard]] VirtualAddress address() const { return region_->address(); }
    [[nodiscard]] std::uint32_t element_bytes() const { return element_bytes_; }
    [[nodiscard]] std::size_t bytes() const { return region_->bytes().size(); }

 private:
    friend class Element;
    Rmb(std::unique_ptr<MemoryRegion> region, std::uint32_t element_bytes, std::uint8_t count)
        : region_(std::move(region)), element_bytes_(element_bytes), state_(count) {}
    void give_back(std::size_t at);

    enum class State : std::uint8_t { kNew, kInUse, kUsedBefore };
    std::unique_ptr<MemoryRegion> region_;
    std::uint32_t element_bytes_;
    mutable std::mutex mutex_;
    std::vector<State> state_;  // of each element
};

// One element in use: an RMBE, if the region is an RMB. Keeps the region alive.
class Element {
 public:
    Element(std::shared_ptr<Rmb> rmb, std::size_t at) : rmb_(std::move(rmb)), at_(at) {}
    Element(Element&& other) noexcept = default;
    Element& operator=(Element&& other) noexcept {
        std::swap(rmb_, other.rmb_);
        std::swap(at_, other.at_);
        return *this;
    }
    ~Element() {
        if (rmb_) {
            rmb_->give_back(at_);
        }
    }

    [[nodiscard]] std::span<std::uint8_t> bytes() const {
        return rmb_->region_->bytes().subspan(at_ * rmb_->element_bytes_, rmb_->element_bytes_);
    }
    [[nodiscard]] std::uint32_t lkey() const { return rmb_->region_->lkey(); }
    [[nodiscard]] const Rmb& rmb() const { return *rmb_; }
    // As CLC tells it: from 1 on.
    [[nodiscard]] std::uint8_t index() const { return static_cast<std::uint8_t>(at_ + 1); }

 private:
    std::shared_ptr<Rmb> rmb_;
    std::size_t at_ = 0;
};

}  // namespace smc::roce
