// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/roce/verbs.h"

#include <fcntl.h>

#include <cerrno>

namespace smc::roce {

Result<std::shared_ptr<Context>> Context::open(const std::string& device) {
    int count = 0;
    ibv_device** list = ::ibv_get_device_list(&count);
    if (list == nullptr) {
        return last_error("listing RDMA devices");
    }
    ibv_context* context = nullptr;
    errno = ENODEV;
    for (int i = 0; i < count; i++) {
        if (device == ::ibv_get_device_name(list[i])) {
            context = ::ibv_open_device(list[i]);
            break;
        }
    }
    const int error = errno;
    ::ibv_free_device_list(list);
    if (context == nullptr) {
        return Error{error, "opening RDMA device " + device};
    }
    ::fcntl(context->async_fd, F_SETFL, ::fcntl(context->async_fd, F_GETFL) | O_NONBLOCK);
    return std::shared_ptr<Context>(new Context(context, device));
}

bool Context::alive() const {
    ibv_device_attr device{};
    return ::ibv_query_device(context_, &device) == 0;
}

std::vector<std::string> Context::take_events() const {
    std::vector<std::string> names;
    ibv_async_event event{};
    while (::ibv_get_async_event(context_, &event) == 0) {
        names.emplace_back(::ibv_event_type_str(event.event_type));
        ::ibv_ack_async_event(&event);
    }
    return names;
}

Context::~Context() {
    ::ibv_close_device(context_);
}

Result<std::shared_ptr<ProtectionDomain>> ProtectionDomain::allocate(std::shared_ptr<Context> context) {
    ibv_pd* pd = ::ibv_alloc_pd(context->get());
    if (pd == nullptr) {
        return last_error("allocating a protection domain of " + context->name());
    }
    return std::shared_ptr<ProtectionDomain>(new ProtectionDomain(std::move(context), pd));
}

ProtectionDomain::~ProtectionDomain() {
    ::ibv_dealloc_pd(pd_);
}

Result<std::shared_ptr<CompletionChannel>> CompletionChannel::create(std::shared_ptr<Context> context) {
    ibv_comp_channel* channel = ::ibv_create_comp_channel(context->get());
    if (channel == nullptr) {
        return last_error("creating a completion channel of " + context->name());
    }
    ::fcntl(channel->fd, F_SETFL, ::fcntl(channel->fd, F_GETFL) | O_NONBLOCK);
    return std::shared_ptr<CompletionChannel>(new CompletionChannel(std::move(context), channel));
}

CompletionChannel::~CompletionChannel() {
    ::ibv_destroy_comp_channel(channel_);
}

void CompletionChannel::acknowledge() {
    ibv_cq* cq = nullptr;
    void* queue = nullptr;
    while (::ibv_get_cq_event(channel_, &cq, &queue) == 0) {
        static_cast<CompletionQueue*>(queue)->armed_ = false;
        ::ibv_ack_cq_events(cq, 1);
    }
}

Result<std::shared_ptr<CompletionQueue>> CompletionQueue::create(const std::shared_ptr<CompletionChannel>& channel,
                                                                 int entries) {
    const auto& context = channel->context();
    std::shared_ptr<CompletionQueue> queue(new CompletionQueue(channel));
    queue->cq_ = ::ibv_create_cq(context->get(), entries, queue.get(), channel->get(), 0);
    if (queue->cq_ == nullptr) {
        return last_error("creating a completion queue of " + context->name());
    }
    return queue;
}

CompletionQueue::~CompletionQueue() {
    if (cq_ != nullptr) {
        ::ibv_destroy_cq(cq_);
    }
}

Result<std::size_t> CompletionQueue::poll(std::span<ibv_wc> out) {
    const int n = ::ibv_poll_cq(cq_, static_cast<int>(out.size()), out.data());
    if (n < 0) {
        return Error{EIO, "polling a completion queue of " + channel_->context()->name()};
    }
    return static_cast<std::size_t>(n);
}

Result<void> CompletionQueue::arm() {
    if (const int error = ::ibv_req_notify_cq(cq_, 0); error != 0) {
        return Error{error, "arming a completion queue of " + channel_->context()->name()};
    }
    armed_ = true;
    return {};
}

Result<std::unique_ptr<MemoryRegion>> MemoryRegion::create(std::shared_ptr<ProtectionDomain> pd,
                                                           std::span<std::uint8_t> memory, unsigned flags) {
    ibv_mr* mr = ::ibv_reg_mr(pd->get(), memory.data(), memory.size(), flags);
    if (mr == nullptr) {
        // ENOMEM means RLIMIT_MEMLOCK here far more often than a lack of memory.
        return last_error("registering " + std::to_string(memory.size()) + " bytes with " + pd->context()->name() +
                          " (is the limit of locked memory, ulimit -l, too small?)");
    }
    return std::unique_ptr<MemoryRegion>(new MemoryRegion(std::move(pd), mr));
}

MemoryRegion::~MemoryRegion() {
    ::ibv_dereg_mr(mr_);
}

Result<std::unique_ptr<QueuePair>> QueuePair::create(std::shared_ptr<ProtectionDomain> pd,
                                                     std::shared_ptr<CompletionQueue> send_queue,
                                                     std::shared_ptr<CompletionQueue> receive_queue,
                                                     const Limits& limits) {
    std::unique_ptr<QueuePair> pair(new QueuePair(std::move(pd), std::move(send_queue), std::move(receive_queue)));
    ibv_qp_init_attr wanted{};
    wanted.send_cq = pair->send_queue_->get();
    wanted.recv_cq = pair->receive_queue_->get();
    wanted.cap = {limits.sends, limits.receives, 1, 2, limits.inline_bytes};
    wanted.qp_type = IBV_QPT_RC;
    pair->qp_ = ::ibv_create_qp(pair->pd_->get(), &wanted);
    if (pair->qp_ == nullptr) {
        return last_error("creating a queue pair of " + pair->pd_->context()->name());
    }
    pair->inline_bytes_ = wanted.cap.max_inline_data;
    return pair;
}

QueuePair::~QueuePair() {
    if (qp_ != nullptr) {
        ::ibv_destroy_qp(qp_);
    }
}

}  // namespace smc::roce
