// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/smcd/exchange.h"

#include "datapath/smcd/dmb_transport.h"

namespace smc::smcd {

Result<clc::LocalDmb> Exchange::register_dmb(const Gid& peer) {
    // The peer's as well, which is likely as large: behind Confirm it is too late to find out (RFC 7609 C.3).
    share_ = memory_.take(dmb_bytes_);
    if (!peer_) {
        peers_share_ = memory_.take(dmb_bytes_);
    }
    if (!share_ || !peers_share_) {
        give_back();
        return Error{ENOMEM, "registering a DMB beyond ism.memory_mib"};
    }
    auto registered = fabric_.register_dmb(peer, dmb_bytes_);
    if (!registered) {
        return registered.error();
    }
    own_ = std::move(*registered);
    return clc::LocalDmb{own_->token, compress_size(dmb_bytes_)};
}

void Exchange::attach(const clc::SmcdPeer& peer, std::chrono::milliseconds timeout,
                      std::function<void(Result<void>)> then) {
    peers_share_ = {};
    peers_share_ = memory_.take(bytes_of(peer.dmb_size));
    if (!peers_share_) {
        return then(Error{ENOMEM, "attaching a DMB beyond ism.memory_mib"});
    }
    fabric_.attach(peer.gid, peer.token, bytes_of(peer.dmb_size), timeout,
                   [this, alive = std::weak_ptr(alive_), then = std::move(then)](Result<Dmb> attached) {
                       if (alive.expired()) {
                           return;
                       }
                       if (!attached) {
                           return then(attached.error());
                       }
                       peer_.emplace(std::move(*attached));
                       then({});
                   });
}

void Exchange::give_back() {
    if (own_) {
        fabric_.deregister(own_->token);
        own_.reset();
    }
    peer_.reset();
    share_ = {};
    peers_share_ = {};
}

std::unique_ptr<Transport> Exchange::transport() {
    auto transport = std::make_unique<DmbTransport>(own_->dmb, std::move(*peer_));
    peer_.reset();
    return transport;
}

}  // namespace smc::smcd
