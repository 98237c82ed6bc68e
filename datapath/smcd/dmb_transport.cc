// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/smcd/dmb_transport.h"

#include <sys/epoll.h>
#include <sys/mman.h>

// D1: only loads are called on `own_`, and only stores on `peer_`.
namespace smc::smcd {

void Dmb::give_pages_back() const {
    constexpr std::size_t kPage = 4096;
    const auto bytes = ring();
    const std::size_t before = (kPage - reinterpret_cast<std::uintptr_t>(bytes.data()) % kPage) % kPage;
    if (before < bytes.size()) {
        // Fails for other memory than tmpfs, which then keeps its pages.
        ::madvise(bytes.data() + before, (bytes.size() - before) / kPage * kPage, MADV_REMOVE);
    }
}

void Dmb::begin_again() const {
    store_producer(0);
    store_consumer(0);
    doorbell_->heard();
    doorbell_->forget();
}

bool DmbTransport::start(Poller& poller, Poller::Source& source) {
    poller_ = &poller;
    return poller.watch(own_->doorbell().fd(), EPOLLIN, source);
}

void DmbTransport::stop() {
    if (poller_ != nullptr) {
        poller_->unwatch(own_->doorbell().fd());
    }
}

flow::PeerState DmbTransport::peer() const {
    flow::PeerState state{cdc::unpack_producer(own_->load_producer()), cdc::unpack_cursor(own_->load_consumer()), {}};
    if ((state.producer.flags & cdc::kUrgentPresent) != 0) {
        state.urgent = state.producer.cursor;
    }
    return state;
}

void DmbTransport::publish(const cdc::Producer& producer, std::uint32_t) {
    if (!peer_->lease().is_valid()) {
        return;  // D5
    }
    peer_->store_producer(cdc::pack(producer));
    peer_->doorbell().ring();
}

void DmbTransport::consumed(cdc::Cursor cursor) {
    if (!peer_->lease().is_valid()) {
        return;  // D5
    }
    peer_->store_consumer(cdc::pack(cursor));
    // The store costs nothing and is always done; the peer is woken only if it waits for the cursor (RFC 7609 section
    // 4.5.1). The flags are read after the store: a writer that blocks sets B first, then looks at our cursor.
    const auto flags = cdc::unpack_producer(own_->load_producer()).flags;
    if ((flags & (cdc::kWriterBlocked | cdc::kUrgentPresent | cdc::kCursorRequested)) != 0) {
        peer_->doorbell().ring();
    }
}

}  // namespace smc::smcd
