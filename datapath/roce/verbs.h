// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Owners of libibverbs objects. Each keeps alive the objects that it depends on, so they may be destroyed in any order.
// Each is used by one thread.
//
// Invariant:
//   V1  A memory region ends only when no queue pair may still read from it or write to it: a link owns the regions of
//       its messages; an RMB ends after its link, or after the peer has agreed to that (DELETE RKEY).
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "os/result.h"
#include "smc/wire/ids.h"

namespace smc::roce {

class Context {
 public:
    static Result<std::shared_ptr<Context>> open(const std::string& device);
    ~Context();
    Context(const Context&) = delete;
    Context& operator=(const Context&) = delete;

    [[nodiscard]] ibv_context* get() const { return context_; }
    [[nodiscard]] const std::string& name() const { return name_; }
    // False: the device is gone, even if another one has its name now.
    [[nodiscard]] bool alive() const;
    // Readable when take_events() has something: a port or the device changed, or an object of it failed.
    [[nodiscard]] int async_fd() const { return context_->async_fd; }
    // Takes all asynchronous events and returns their names, such as "port error".
    [[nodiscard]] std::vector<std::string> take_events() const;

 private:
    Context(ibv_context* context, std::string name) : context_(context), name_(std::move(name)) {}
    ibv_context* context_;
    std::string name_;
};

class ProtectionDomain {
 public:
    static Result<std::shared_ptr<ProtectionDomain>> allocate(std::shared_ptr<Context> context);
    ~ProtectionDomain();
    ProtectionDomain(const ProtectionDomain&) = delete;
    ProtectionDomain& operator=(const ProtectionDomain&) = delete;

    [[nodiscard]] ibv_pd* get() const { return pd_; }
    [[nodiscard]] const std::shared_ptr<Context>& context() const { return context_; }

 private:
    ProtectionDomain(std::shared_ptr<Context> context, ibv_pd* pd) : context_(std::move(context)), pd_(pd) {}
    std::shared_ptr<Context> context_;
    ibv_pd* pd_;
};

// The descriptor that becomes readable when an armed completion queue gets a completion.
class CompletionChannel {
 public:
    static Result<std::shared_ptr<CompletionChannel>> create(std::shared_ptr<Context> context);
    ~CompletionChannel();
    CompletionChannel(const CompletionChannel&) = delete;
    CompletionChannel& operator=(const CompletionChannel&) = delete;

    [[nodiscard]] ibv_comp_channel* get() const { return channel_; }
    [[nodiscard]] int fd() const { return channel_->fd; }
    [[nodiscard]] const std::shared_ptr<Context>& context() const { return context_; }
    // Takes the events that made fd() readable. Their completion queues are not armed any more.
    void acknowledge();

 private:
    CompletionChannel(std::shared_ptr<Context> context, ibv_comp_channel* channel)
        : context_(std::move(context)), channel_(channel) {}
    std::shared_ptr<Context> context_;
    ibv_comp_channel* channel_;
};

class CompletionQueue {
 public:
    static Result<std::shared_ptr<CompletionQueue>> create(const std::shared_ptr<CompletionChannel>& channel,
                                                           int entries);
    ~CompletionQueue();
    CompletionQueue(const CompletionQueue&) = delete;
    CompletionQueue& operator=(const CompletionQueue&) = delete;

    [[nodiscard]] ibv_cq* get() const { return cq_; }
    // Returns how many of `out` were filled. Never blocks. An error means that the device has failed.
    Result<std::size_t> poll(std::span<ibv_wc> out);
    // From now on the next completion makes the channel readable. Poll once more afterwards: completions that came
    // before cause no event.
    Result<void> arm();
    [[nodiscard]] bool armed() const { return armed_; }

 private:
    friend class CompletionChannel;
    explicit CompletionQueue(std::shared_ptr<CompletionChannel> channel) : channel_(std::move(channel)) {}
    std::shared_ptr<CompletionChannel> channel_;
    ibv_cq* cq_ = nullptr;
    bool armed_ = false;
};

// A registration of memory with one protection domain. The owner of the memory keeps it for as long (memory.h).
class MemoryRegion {
 public:
    // `flags`: IBV_ACCESS_...
    static Result<std::unique_ptr<MemoryRegion>> create(std::shared_ptr<ProtectionDomain> pd,
                                                        std::span<std::uint8_t> memory, unsigned flags);
    ~MemoryRegion();
    MemoryRegion(const MemoryRegion&) = delete;
    MemoryRegion& operator=(const MemoryRegion&) = delete;

    [[nodiscard]] const ProtectionDomain& pd() const { return *pd_; }
    [[nodiscard]] std::uint32_t lkey() const { return mr_->lkey; }
    [[nodiscard]] RKey rkey() const { return RKey{mr_->rkey}; }
    [[nodiscard]] VirtualAddress address() const { return VirtualAddress{reinterpret_cast<std::uintptr_t>(mr_->addr)}; }

 private:
    MemoryRegion(std::shared_ptr<ProtectionDomain> pd, ibv_mr* mr) : pd_(std::move(pd)), mr_(mr) {}
    std::shared_ptr<ProtectionDomain> pd_;
    ibv_mr* mr_;
};

// A queue pair of the reliable connected service.
class QueuePair {
 public:
    struct Limits {
        std::uint32_t sends = 128;
        std::uint32_t receives = 64;
        std::uint32_t inline_bytes = 44;
    };

    static Result<std::unique_ptr<QueuePair>> create(std::shared_ptr<ProtectionDomain> pd,
                                                     std::shared_ptr<CompletionQueue> send_queue,
                                                     std::shared_ptr<CompletionQueue> receive_queue,
                                                     const Limits& limits);
    ~QueuePair();
    QueuePair(const QueuePair&) = delete;
    QueuePair& operator=(const QueuePair&) = delete;

    [[nodiscard]] ibv_qp* get() const { return qp_; }
    [[nodiscard]] Qpn number() const { return Qpn{qp_->qp_num}; }
    // The limit that the device has granted, which may be more than was asked for.
    [[nodiscard]] std::uint32_t inline_bytes() const { return inline_bytes_; }

 private:
    QueuePair(std::shared_ptr<ProtectionDomain> pd, std::shared_ptr<CompletionQueue> send_queue,
              std::shared_ptr<CompletionQueue> receive_queue)
        : pd_(std::move(pd)), send_queue_(std::move(send_queue)), receive_queue_(std::move(receive_queue)) {}
    std::shared_ptr<ProtectionDomain> pd_;
    std::shared_ptr<CompletionQueue> send_queue_, receive_queue_;
    ibv_qp* qp_ = nullptr;
    std::uint32_t inline_bytes_ = 0;
};

}  // namespace smc::roce
