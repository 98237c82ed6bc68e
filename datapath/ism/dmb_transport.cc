// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/ism/dmb_transport.h"

#include <sys/epoll.h>

namespace smc::ism {

bool DmbTransport::start(Poller& poller, Poller::Source& source) {
    poller_ = &poller;
    return poller.watch(own_->doorbell_fd(), EPOLLIN, source);
}

void DmbTransport::stop() {
    if (poller_ != nullptr) {
        poller_->unwatch(own_->doorbell_fd());
    }
}

PeerState DmbTransport::load() {
    seen_producer_ = own_->load_producer();
    seen_consumer_ = own_->load_consumer();
    PeerState state{cdc::unpack_producer(seen_producer_), cdc::unpack_cursor(seen_consumer_), std::nullopt};
    if ((state.producer.flags & cdc::kUrgentPresent) != 0) {
        state.urgent = state.producer.cursor;
    }
    return state;
}

bool DmbTransport::arm() {
    own_->arm();
    return own_->load_producer() != seen_producer_ || own_->load_consumer() != seen_consumer_;
}

void DmbTransport::publish(const cdc::Producer& producer, std::uint32_t) {
    peer_.store_producer(cdc::pack(producer));
    peer_.ring_doorbell();
}

void DmbTransport::consumed(cdc::Cursor cursor) {
    peer_.store_consumer(cdc::pack(cursor));
    // The store is free and always done; it wakes the peer only if the peer waits for it (RFC 7609 section
    // 4.5.1). The flags are read after the store: a writer that blocks sets B first, then looks at our
    // cursor.
    const auto flags = cdc::unpack_producer(own_->load_producer()).flags;
    if ((flags & (cdc::kWriterBlocked | cdc::kUrgentPresent | cdc::kCursorRequested)) != 0) {
        peer_.ring_doorbell();
    }
}

}  // namespace smc::ism
