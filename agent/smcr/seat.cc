// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/smcr/seat.h"

#include "agent/smcr/link_group.h"

namespace smc::smcr {

Seat::Seat(std::shared_ptr<LinkGroup> group, AlertToken token, roce::Element own, roce::Element send)
    : group_(std::move(group)), token_(token), own_(std::move(own)), send_(std::move(send)) {
    rmbe_ = {own_->rmb().rkey(), own_->rmb().address(), own_->index(), token,
             compress_size(own_->rmb().element_bytes())};
    group_->seats_++;
}

Seat::~Seat() {
    if (own_ && told_) {
        if (peer_ && !group_->over_) {
            cdc::Message gone;
            gone.sequence = 1;
            gone.token = peer_->token;
            gone.producer.count = gone.consumer.count = group_->eye_catchers_ ? roce::kEyeCatcherBytes : 0;
            gone.state = cdc::kAbnormalClose;
            group_->send(cdc::encode(gone).view());
        }
        group_->orphans_ += peer_ ? 0 : 1;
        group_->channel_->linger(token_, std::move(*own_));
    } else if (own_) {
        group_->channel_->forget(token_);
    }
    group_->left();
}

roce::RemoteRmbe Seat::remote() const {
    const std::uint32_t bytes = bytes_of(peer_->size);
    const auto address = static_cast<std::uint64_t>(peer_->rmb_address) + std::uint64_t{bytes} * (peer_->index - 1U);
    return {peer_->rkey, VirtualAddress{address}, peer_->token, bytes};
}

std::unique_ptr<Transport> Seat::transport() {
    roce::RmbeTransport::Parts parts{group_->channel_,  token_,   std::move(*own_),
                                     std::move(*send_), remote(), group_->eye_catchers_};
    own_.reset();
    send_.reset();
    return std::make_unique<roce::RmbeTransport>(std::move(parts));
}

}  // namespace smc::smcr
