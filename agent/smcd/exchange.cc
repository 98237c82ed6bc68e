// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/smcd/exchange.h"

#include "datapath/smcd/dmb_transport.h"
#include "os/clock.h"

namespace smc::smcd {

Result<OwnDmb> Exchange::new_dmb() {
    Memory::Share share = pool_.share(dmb_bytes_);
    if (!share) {
        return Error{ENOMEM, "registering a DMB beyond ism.memory_mib"};
    }
    auto registered = whose_.fabric->register_dmb(whose_.gid, dmb_bytes_);
    if (!registered) {
        return registered.error();
    }
    return OwnDmb{whose_.fabric, std::move(*registered), std::move(share)};
}

Result<clc::LocalDmb> Exchange::register_dmb(const Peer& peer) {
    whose_ = peer;
    own_ = pool_.take(peer, dmb_bytes_);
    if (!own_) {
        auto fresh = new_dmb();
        if (!fresh) {
            give_back();
            return fresh.error();
        }
        own_ = std::move(*fresh);
    }
    // Takes memory for the peer's DMB as well: after Confirm it is too late to decline (RFC 7609 C.3). Its size comes
    // with the Confirm. An agent whose application has chosen no buffers announces the usual size.
    if (!peer_.share) {
        peer_.share = pool_.share(peers_bytes_);
    }
    if (!peer_.share) {
        give_back();
        return Error{ENOMEM, "reserving memory for the peer's DMB beyond ism.memory_mib"};
    }
    return clc::LocalDmb{own_->registered.token, compress_size(dmb_bytes_)};
}

void Exchange::attach(const Peer& peer, DmbToken token, std::uint32_t bytes, std::chrono::milliseconds timeout,
                      std::function<void(Result<void>)> then) {
    whose_ = peer;
    peers_token_ = token;
    peer_.dmb.reset();
    if (auto kept = pool_.find(peer, token, bytes)) {
        peer_ = std::move(*kept);
        return then({});
    }
    if (peer_.share.bytes() < bytes) {
        peer_.share = {};  // what it held is available to the next line
        peer_.share = pool_.share(bytes);
    }
    peer_.share.shrink(bytes);
    if (!peer_.share) {
        return then(Error{ENOMEM, "attaching a DMB beyond ism.memory_mib"});
    }
    peer.fabric->attach(peer.gid, token, bytes, timeout,
                        [this, alive = std::weak_ptr(alive_), then = std::move(then)](Result<Dmb> attached) {
                            if (alive.expired()) {
                                return;
                            }
                            if (!attached) {
                                return then(attached.error());
                            }
                            peer_.dmb = std::make_shared<Dmb>(std::move(*attached));
                            then({});
                        });
}

void Exchange::give_back() {
    const TimePoint now = os::now();
    const bool kept = served_ && peer_.dmb.use_count() == 1;  // no transport that could read or write is left
    if (kept) {
        pool_.park(whose_, peers_token_, std::move(peer_), now);
        pool_.keep(whose_, std::move(*own_), now);
    } else if (own_) {
        own_->registered.dmb->lease().end();  // the peer may still hold it for this connection
        own_->fabric->deregister(own_->registered.token);
    }
    own_.reset();
    peer_ = {};
    served_ = false;
}

std::unique_ptr<Transport> Exchange::transport() {
    served_ = true;
    return std::make_unique<DmbTransport>(own_->registered.dmb, peer_.dmb);
}

}  // namespace smc::smcd
