// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A link over a reliable connected queue pair of a RoCE device (port: datapath/smcr/link.h, with its invariants). Every
// message is signalled, writes are not: a write is retired by the message that tells of it (Q1).
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "datapath/roce/memory.h"
#include "datapath/roce/ports.h"
#include "datapath/roce/verbs.h"
#include "datapath/smcr/link.h"
#include "smc/wire/llc.h"

namespace smc::roce {

struct LinkLimits {
    std::uint32_t sends = 256;     // messages and writes under way
    std::uint32_t receives = 128;  // messages that may arrive before poll() is called again
    std::uint8_t retries = 7;      // transport time-outs before the link breaks
    std::uint8_t timeout = 15;     // of the transport, at least 4.096 us << n: 134 ms
    // 7: without end. The receiver decides how long a retry waits, and a busy receiver is no broken link. TEST LINK
    // finds out which it is.
    std::uint8_t rnr_retries = 7;
    std::uint8_t rnr_timer = 5;  // 0.06 ms
};

// Memory that a link registers for its messages.
std::size_t message_bytes(const LinkLimits& limits);

class RcLink final : public smcr::Link {
 public:
    // Creates the queue pair. Its end() can be told to the peer; it cannot send before connect().
    static Result<std::unique_ptr<RcLink>> create(const std::shared_ptr<ProtectionDomain>& pd, const Port& port,
                                                  const PortGid& gid, const LinkLimits& limits);

    [[nodiscard]] const QpEnd& end() const override { return end_; }
    Result<void> connect(const QpEnd& peer) override;
    Posted send(wire::Bytes message) override;
    Posted write(std::span<const std::uint8_t> from, std::uint32_t lkey, RKey rkey, VirtualAddress to) override;
    [[nodiscard]] std::uint64_t next_sequence() const override { return posted_; }
    [[nodiscard]] std::uint64_t retired() const override { return retired_; }
    [[nodiscard]] std::uint32_t room() const override {
        return limits_.sends - static_cast<std::uint32_t>(posted_ - retired_);
    }
    [[nodiscard]] std::uint32_t capacity() const override { return limits_.sends; }
    [[nodiscard]] bool broken() const override { return broken_; }
    void shut(std::string why) override;
    [[nodiscard]] bool wants_poll() const override { return !broken_ && !failure_.empty(); }
    [[nodiscard]] int fd() const override { return channel_->fd(); }
    void want_completions(bool wanted) override { want_completions_ = wanted; }
    bool poll(smcr::LinkHandler& handler, bool readable, bool asks) override;

    // Sends writes that no message follows: for tests of what a peer may do.
    void flush();

 private:
    explicit RcLink(const LinkLimits& limits) : limits_(limits) {}
    Result<void> allocate(const std::shared_ptr<ProtectionDomain>& pd);
    Result<void> initialise(std::uint8_t port);
    Result<void> post_receive(std::uint64_t slot);
    Posted post(ibv_send_wr& request);
    std::size_t take(CompletionQueue& queue, smcr::LinkHandler& handler);
    void complete(const ibv_wc& completion, smcr::LinkHandler& handler);
    bool report(smcr::LinkHandler& handler);

    LinkLimits limits_;
    QpEnd end_;
    std::uint8_t gid_index_ = 0, port_ = 1;
    // Before the queue pair, so that they end after it (V1).
    RegisteredMemory receive_memory_, send_memory_;
    std::shared_ptr<CompletionChannel> channel_;
    std::shared_ptr<CompletionQueue> send_queue_, receive_queue_;
    std::unique_ptr<QueuePair> qp_;
    // Writes that wait for the next message: all are posted with one doorbell.
    struct Write {
        ibv_send_wr request{};
        ibv_sge piece{};
    };
    std::vector<Write> writes_;
    bool want_completions_ = false;
    std::uint64_t posted_ = 0, retired_ = 0;
    bool connected_ = false;
    std::string failure_;  // not reported yet while broken_ is false
    bool broken_ = false;
};

}  // namespace smc::roce
