// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Two ends of a link in the memory of one process: what a queue pair promises (datapath/smcr/link.h), without a device.
// Each end may be driven by a thread of its own.
#pragma once

#include <memory>
#include <vector>

#include "datapath/smcr/element.h"
#include "datapath/smcr/link.h"
#include "os/unique_fd.h"

namespace smc::test {

class MemoryLink final : public smcr::Link {
 public:
    // `capacity`: requests that may be under way.
    static std::pair<std::unique_ptr<MemoryLink>, std::unique_ptr<MemoryLink>> pair(std::uint32_t capacity = 64);
    ~MemoryLink() override;

    [[nodiscard]] const QpEnd& end() const override { return end_; }
    Result<void> connect(const QpEnd&) override { return {}; }
    Posted send(wire::Bytes message) override;
    Posted write(std::span<const std::uint8_t> from, std::uint32_t lkey, RKey rkey, VirtualAddress to) override;
    [[nodiscard]] std::uint64_t next_sequence() const override { return posted_; }
    [[nodiscard]] std::uint64_t retired() const override { return retired_; }
    [[nodiscard]] std::uint32_t room() const override {
        return capacity_ - static_cast<std::uint32_t>(posted_ - retired_);
    }
    [[nodiscard]] std::uint32_t capacity() const override { return capacity_; }
    [[nodiscard]] bool broken() const override { return broken_; }
    void shut(std::string why) override;
    [[nodiscard]] int fd() const override;
    void want_completions(bool wanted) override;
    [[nodiscard]] bool wants_poll() const override { return !broken_ && !failure_.empty(); }
    bool poll(smcr::LinkHandler& handler, bool readable, bool asks) override;
    // Whether fd() becomes readable with the next news.
    [[nodiscard]] bool asked() const;

 private:
    struct Side;
    MemoryLink(std::shared_ptr<Side> own, std::shared_ptr<Side> peer, std::uint32_t capacity, QpEnd end);

    std::shared_ptr<Side> own_, peer_;
    std::uint32_t capacity_;
    QpEnd end_;
    struct Write {
        std::vector<std::uint8_t> bytes;
        std::uint8_t* to;
    };
    std::vector<Write> writes_;  // that leave with the next message
    std::uint64_t posted_ = 0, retired_ = 0;
    std::string failure_;
    bool broken_ = false;
};

// Memory of one element. Its RDMA address is its address in this process.
class PlainMemory final : public smcr::ElementOwner {
 public:
    explicit PlainMemory(std::size_t bytes) : bytes_(bytes) {}
    [[nodiscard]] std::span<std::uint8_t> bytes() { return bytes_; }
    [[nodiscard]] VirtualAddress address() { return VirtualAddress{reinterpret_cast<std::uintptr_t>(bytes_.data())}; }
    [[nodiscard]] std::uint32_t lkey(std::uint8_t) const override { return 0; }
    [[nodiscard]] static RKey rkey() { return {}; }
    void returned(std::size_t) override {}

 private:
    std::vector<std::uint8_t> bytes_;
};

}  // namespace smc::test
