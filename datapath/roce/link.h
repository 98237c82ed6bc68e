// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// One SMC-R link at this end: a reliable connected queue pair, its receive buffers for LLC and CDC messages, and the
// account of what is under way. Knows neither LLC nor CDC: it carries messages and RDMA writes.
//
// Invariants:
//   Q1  Sends and writes complete in the order in which they were posted, so one completion retires all before it.
//   Every
//       message is signalled, writes are not: a write is retired by the message that tells of it. Nobody is woken for a
//       completed send unless it was asked for.
//   Q2  A message never overtakes the write that was posted before it (InfiniBand: requests of a queue pair execute in
//       order), so a CDC message that arrives describes data that is there.
//   Q3  After the first failure the link is broken for good: the queue pair goes to the error state, the handler hears
//   it once,
//       from poll(), and hears nothing else any more.
//   Q4  The last free place in the queue is for a message: writes alone would never be retired.
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "datapath/roce/ports.h"
#include "datapath/roce/verbs.h"
#include "smc/wire/llc.h"

namespace smc::roce {

// Where a queue pair is: what CLC and ADD LINK tell the other peer.
struct LinkAddress {
    RoceGid gid;
    Mac mac;
    Qpn qpn{};
    Psn psn{};  // of the first packet it sends
    clc::Mtu mtu = clc::Mtu::k1024;
};

struct LinkLimits {
    std::uint32_t sends = 256;     // messages and writes under way
    std::uint32_t receives = 128;  // messages that may arrive before poll() is called again
    std::uint8_t retries = 7;      // transport time-outs before the link breaks
    std::uint8_t timeout = 15;     // of the transport, at least 4.096 us << n: 134 ms
    // 7 is for ever. How long a retry takes is the receiver's to say, and a busy one is not a broken one: TEST LINK
    // tells.
    std::uint8_t rnr_retries = 7;
    std::uint8_t rnr_timer = 5;  // 0.06 ms
};

// Memory that a link registers for its messages.
std::size_t message_bytes(const LinkLimits& limits);

// Called from Link::poll(), and must not destroy the link there.
class LinkHandler {
 public:
    virtual ~LinkHandler() = default;
    // A whole LLC or CDC message; the bytes are gone when this returns.
    virtual void on_message(wire::Bytes message) = 0;
    virtual void on_broken(const std::string& why) = 0;
};

class Link {
 public:
    enum class Posted : std::uint8_t { kYes, kFull, kBroken };

    // The queue pair exists and can be told to the peer; it cannot send yet.
    static Result<std::unique_ptr<Link>> create(std::shared_ptr<ProtectionDomain> pd, const Port& port,
                                                const PortGid& gid, const LinkLimits& limits);
    Link(const Link&) = delete;
    Link& operator=(const Link&) = delete;

    [[nodiscard]] const LinkAddress& address() const { return address_; }
    // Ready to receive and to send. The smaller MTU of both is used.
    Result<void> connect(const LinkAddress& peer);

    // kFull: until room() grows. kBroken: not connected yet, or broken; the next poll() says why. The bytes are copied.
    Posted send(wire::Bytes message);
    // Leaves with the next send(). `from` lies in a region of this link's protection domain and stays as it is until a
    // later message is retired.
    Posted write(std::span<const std::uint8_t> from, std::uint32_t lkey, RKey rkey, VirtualAddress to);
    // What the next send() or write() is called in retired().
    [[nodiscard]] std::uint64_t next_sequence() const { return posted_; }
    // Everything before this one is done.
    [[nodiscard]] std::uint64_t retired() const { return retired_; }
    [[nodiscard]] std::uint32_t room() const { return limits_.sends - static_cast<std::uint32_t>(posted_ - retired_); }
    [[nodiscard]] bool broken() const { return broken_; }
    // Breaks it. The peer must not go on writing into memory whose owner does not look any more.
    void shut(std::string why);
    // poll() must be called although fd() is not readable.
    [[nodiscard]] bool wants_poll() const { return !broken_ && !failure_.empty(); }

    // Readable when a message came, or, if that is wanted, when a send completed.
    [[nodiscard]] int fd() const { return channel_->fd(); }
    void want_completions(bool wanted) { want_completions_ = wanted; }
    // Hands completions to the handler, a bounded number. `readable`: fd() was. True: there may be more; false: fd()
    // tells of the next.
    bool poll(LinkHandler& handler, bool readable);
    // Sends writes that no message follows: for peers that break rules.
    void flush();

 private:
    explicit Link(const LinkLimits& limits) : limits_(limits) {}
    Result<void> allocate(const std::shared_ptr<ProtectionDomain>& pd);
    Result<void> initialise(std::uint8_t port);
    Result<void> post_receive(std::uint64_t slot);
    Posted post(ibv_send_wr& request);
    std::size_t take(CompletionQueue& queue, LinkHandler& handler);
    void complete(const ibv_wc& completion, LinkHandler& handler);
    bool report(LinkHandler& handler);

    LinkLimits limits_;
    LinkAddress address_;
    std::uint8_t gid_index_ = 0, port_ = 1;
    // Before the queue pair, so that they end after it (V1).
    std::unique_ptr<MemoryRegion> receive_memory_, send_memory_;
    std::shared_ptr<CompletionChannel> channel_;
    std::shared_ptr<CompletionQueue> send_queue_, receive_queue_;
    std::unique_ptr<QueuePair> qp_;
    // Writes that wait for their message: one doorbell for all.
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
