// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/roce/rc_link.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "os/random.h"

namespace smc::roce {

namespace {

// Each message buffer has room for the longest message that is known; there is one for each receive and for each send
// under way. Bytes that a later release appends are not looked at: all receives share one buffer for them.
constexpr std::size_t kSlotBytes = llc::kMaxMessage;
constexpr std::size_t kAppendedBytes = llc::kMaxLength - llc::kMaxMessage;
constexpr std::size_t kCompletionsPerPoll = 64;
constexpr std::uint64_t kIsReceive = std::uint64_t{1} << 63;
constexpr std::uint8_t kHopLimit = 64;
// RFC 7609 A.2.3 numbers MTUs as InfiniBand does.
static_assert(static_cast<int>(clc::Mtu::k256) == IBV_MTU_256 && static_cast<int>(clc::Mtu::k4096) == IBV_MTU_4096);

ibv_mtu to_verbs(clc::Mtu mtu) {
    return static_cast<ibv_mtu>(mtu);
}

Result<void> modify(ibv_qp* qp, ibv_qp_attr& attributes, int mask, const char* to) {
    if (const int error = ::ibv_modify_qp(qp, &attributes, mask); error != 0) {
        return Error{error, std::string("bringing a queue pair to ") + to};
    }
    return {};
}

}  // namespace

std::size_t message_bytes(const LinkLimits& limits) {
    return (std::size_t{limits.sends} + limits.receives) * kSlotBytes + kAppendedBytes;
}

Result<std::unique_ptr<RcLink>> RcLink::create(const std::shared_ptr<ProtectionDomain>& pd, const Port& port,
                                               const PortGid& gid, const LinkLimits& limits) {
    std::unique_ptr<RcLink> link(new RcLink(limits));
    if (auto allocated = link->allocate(pd); !allocated) {
        return allocated.error();
    }
    const auto psn = random_number<std::uint32_t>();
    link->end_ = {gid.gid, gid.mac, link->qp_->number(), Psn{psn & kPsnMask}, port.mtu};
    link->gid_index_ = gid.index;
    link->port_ = port.number;
    if (auto initialised = link->initialise(port.number); !initialised) {
        return initialised.error();
    }
    return link;
}

Result<void> RcLink::allocate(const std::shared_ptr<ProtectionDomain>& pd) {
    auto receives =
        RegisteredMemory::allocate(pd, limits_.receives * kSlotBytes + kAppendedBytes, Memory::Access::kLocal);
    if (!receives) {
        return receives.error();
    }
    auto sends = RegisteredMemory::allocate(pd, limits_.sends * kSlotBytes, Memory::Access::kLocal);
    if (!sends) {
        return sends.error();
    }
    auto channel = CompletionChannel::create(pd->context());
    if (!channel) {
        return channel.error();
    }
    auto send_queue = CompletionQueue::create(*channel, static_cast<int>(limits_.sends));
    if (!send_queue) {
        return send_queue.error();
    }
    auto receive_queue = CompletionQueue::create(*channel, static_cast<int>(limits_.receives));
    if (!receive_queue) {
        return receive_queue.error();
    }
    auto qp = QueuePair::create(pd, *send_queue, *receive_queue, {limits_.sends, limits_.receives, llc::kSmallBytes});
    if (!qp) {
        return qp.error();
    }
    channel_ = std::move(*channel);
    send_queue_ = std::move(*send_queue);
    receive_queue_ = std::move(*receive_queue);
    writes_.reserve(limits_.sends);  // requests point into it
    receive_memory_ = std::move(*receives);
    send_memory_ = std::move(*sends);
    qp_ = std::move(*qp);
    return receive_queue_->arm();
}

// Brings the queue pair to INIT and posts all receive buffers: a message may come as soon as the peer is ready.
Result<void> RcLink::initialise(std::uint8_t port) {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_INIT;
    attributes.port_num = port;
    attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    auto done =
        modify(qp_->get(), attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, "INIT");
    for (std::uint64_t slot = 0; done && slot < limits_.receives; slot++) {
        done = post_receive(slot);
    }
    return done;
}

Result<void> RcLink::connect(const QpEnd& peer) {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_RTR;
    attributes.path_mtu = to_verbs(std::min(end_.mtu, peer.mtu));
    attributes.dest_qp_num = static_cast<std::uint32_t>(peer.qpn);
    attributes.rq_psn = static_cast<std::uint32_t>(peer.psn);
    attributes.min_rnr_timer = limits_.rnr_timer;
    attributes.max_dest_rd_atomic = 1;
    attributes.ah_attr.is_global = 1;
    attributes.ah_attr.port_num = port_;
    const RoceGid gid = peer.gid.normalised();
    std::memcpy(attributes.ah_attr.grh.dgid.raw, gid.bytes.data(), gid.bytes.size());
    attributes.ah_attr.grh.sgid_index = gid_index_;
    attributes.ah_attr.grh.hop_limit = kHopLimit;
    auto done = modify(qp_->get(), attributes,
                       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                           IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
                       "RTR");
    if (!done) {
        return done;
    }
    attributes = {};
    attributes.qp_state = IBV_QPS_RTS;
    attributes.sq_psn = static_cast<std::uint32_t>(end_.psn);
    attributes.timeout = limits_.timeout;
    attributes.retry_cnt = limits_.retries;
    attributes.rnr_retry = limits_.rnr_retries;
    attributes.max_rd_atomic = 1;
    done = modify(
        qp_->get(), attributes,
        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
        "RTS");
    connected_ = done.has_value();
    return done;
}

Result<void> RcLink::post_receive(std::uint64_t slot) {
    const auto piece = [&](std::size_t at, std::uint32_t bytes) {
        return ibv_sge{reinterpret_cast<std::uintptr_t>(&receive_memory_.bytes()[at]), bytes, receive_memory_.lkey()};
    };
    ibv_sge pieces[] = {piece(slot * kSlotBytes, kSlotBytes), piece(limits_.receives * kSlotBytes, kAppendedBytes)};
    ibv_recv_wr request{};
    request.wr_id = kIsReceive | slot;
    request.sg_list = pieces;
    request.num_sge = std::size(pieces);
    ibv_recv_wr* bad = nullptr;
    if (const int error = ::ibv_post_recv(qp_->get(), &request, &bad); error != 0) {
        return Error{error, "posting a receive buffer"};
    }
    return {};
}

// Posts the request, after the writes that have waited for it.
RcLink::Posted RcLink::post(ibv_send_wr& request) {
    request.wr_id = posted_++;
    ibv_send_wr* first = &request;
    for (auto it = writes_.rbegin(); it != writes_.rend(); ++it) {
        it->request.next = first;
        first = &it->request;
    }
    ibv_send_wr* bad = nullptr;
    const int error = ::ibv_post_send(qp_->get(), first, &bad);
    writes_.clear();
    if (error != 0) {
        shut(Error{error, "posting a request"}.text());
        return Posted::kBroken;
    }
    return Posted::kYes;
}

void RcLink::flush() {
    if (!writes_.empty()) {
        Write last = writes_.back();
        last.request.sg_list = &last.piece;
        last.request.send_flags = IBV_SEND_SIGNALED;
        writes_.pop_back();
        posted_--;
        post(last.request);
    }
}

RcLink::Posted RcLink::send(wire::Bytes message) {
    if (!connected_ || !failure_.empty() || message.size() > kSlotBytes) {
        return Posted::kBroken;
    }
    if (room() == 0) {
        return Posted::kFull;
    }
    ibv_sge piece{};
    ibv_send_wr request{};
    request.opcode = IBV_WR_SEND;
    request.send_flags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED;
    request.sg_list = &piece;
    request.num_sge = 1;
    piece.length = static_cast<std::uint32_t>(message.size());
    if (message.size() <= qp_->inline_bytes()) {
        piece.addr = reinterpret_cast<std::uintptr_t>(message.data());
        request.send_flags |= IBV_SEND_INLINE;
    } else {
        std::uint8_t* slot = &send_memory_.bytes()[posted_ % limits_.sends * kSlotBytes];
        std::copy(message.begin(), message.end(), slot);
        piece.addr = reinterpret_cast<std::uintptr_t>(slot);
        piece.lkey = send_memory_.lkey();
    }
    return post(request);
}

RcLink::Posted RcLink::write(std::span<const std::uint8_t> from, std::uint32_t lkey, RKey rkey, VirtualAddress to) {
    if (!connected_ || !failure_.empty()) {
        return Posted::kBroken;
    }
    if (room() < 2) {
        return Posted::kFull;  // Q4
    }
    Write& write = writes_.emplace_back();  // Q2: posted in front of the next message
    write.piece = {reinterpret_cast<std::uintptr_t>(from.data()), static_cast<std::uint32_t>(from.size()), lkey};
    write.request.wr_id = posted_++;
    write.request.opcode = IBV_WR_RDMA_WRITE;
    write.request.sg_list = &write.piece;
    write.request.num_sge = 1;
    write.request.wr.rdma.remote_addr = static_cast<std::uint64_t>(to);
    write.request.wr.rdma.rkey = static_cast<std::uint32_t>(rkey);
    return Posted::kYes;
}

void RcLink::shut(std::string why) {
    if (failure_.empty()) {
        failure_ = std::move(why);
        ibv_qp_attr attributes{};
        attributes.qp_state = IBV_QPS_ERR;
        ::ibv_modify_qp(qp_->get(), &attributes, IBV_QP_STATE);
    }
}

// Reports a failure once (Q3). True: the link is broken.
bool RcLink::report(smcr::LinkHandler& handler) {
    if (!failure_.empty() && !broken_) {
        broken_ = true;
        handler.on_broken(failure_);
    }
    return broken_;
}

// Q3: messages that were received before a failure are handed over even after it was noticed.
void RcLink::complete(const ibv_wc& completion, smcr::LinkHandler& handler) {
    if (completion.status != IBV_WC_SUCCESS) {
        shut(::ibv_wc_status_str(completion.status));  // does nothing if the request was flushed by an earlier shut()
        return;
    }
    if ((completion.wr_id & kIsReceive) == 0) {
        retired_ = completion.wr_id + 1;
        return;
    }
    // An RDMA write with immediate data uses up a receive, too, but byte_len is then the length of the write.
    if (completion.opcode != IBV_WC_RECV || completion.byte_len > llc::kMaxLength) {
        shut("the peer sent an RDMA write with immediate data, or a message that is too long");
        return;
    }
    const std::uint64_t slot = completion.wr_id & ~kIsReceive;
    const auto known = receive_memory_.bytes().subspan(slot * kSlotBytes, kSlotBytes);
    if (completion.byte_len <= kSlotBytes) {
        handler.on_message(known.first(completion.byte_len));
    } else {
        std::array<std::uint8_t, llc::kMaxLength> longer{};
        std::copy(known.begin(), known.end(), longer.begin());
        handler.on_message({longer.data(), completion.byte_len});
    }
    if (!failure_.empty()) {
        return;
    }
    if (const auto posted = post_receive(slot); !posted) {
        shut(posted.error().text());
    }
}

std::size_t RcLink::take(CompletionQueue& queue, smcr::LinkHandler& handler) {
    std::array<ibv_wc, kCompletionsPerPoll> completions;
    const auto n = queue.poll(completions);
    if (!n) {
        shut(n.error().text());
        return 0;
    }
    for (std::size_t i = 0; i < *n; i++) {
        complete(completions[i], handler);
    }
    return *n;
}

bool RcLink::poll(smcr::LinkHandler& handler, bool readable, bool asks) {
    if (readable) {
        channel_->acknowledge();
    }
    // Sends first: if the link broke, a send's completion has the cause, while receives were only flushed.
    bool more = take(*send_queue_, handler) == kCompletionsPerPoll;
    more |= take(*receive_queue_, handler) == kCompletionsPerPoll;
    const auto arm = [&](CompletionQueue& queue) {
        if (queue.armed()) {
            return;
        }
        if (const auto armed = queue.arm(); !armed) {
            shut(armed.error().text());
        }
        more |= take(queue, handler) != 0;  // completions from before arm() cause no event
    };
    if (!more && asks) {
        arm(*receive_queue_);
        if (want_completions_) {
            arm(*send_queue_);
        }
    }
    if (more && !failure_.empty()) {
        return true;  // Q3: the failure is reported only after what is still to be handed over
    }
    return !report(handler) && more;
}

}  // namespace smc::roce
