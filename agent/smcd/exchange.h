// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What one connection holds of SMC-D: its own DMB, registered for the peer, and the peer's, attached. Control thread
// only.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>

#include "agent/smcd/pool.h"
#include "datapath/smcd/fabric.h"
#include "datapath/transport.h"
#include "smc/clc/node.h"

namespace smc::smcd {

class Exchange {
 public:
    // `pool` and the fabrics outlive this object. `dmb_bytes`: of the own DMB.
    Exchange(Pool& pool, std::uint32_t dmb_bytes) : pool_(pool), dmb_bytes_(dmb_bytes) {}
    ~Exchange() { give_back(); }
    Exchange(const Exchange&) = delete;
    Exchange& operator=(const Exchange&) = delete;

    Result<clc::LocalDmb> register_dmb(const Peer& peer);
    // The peer's, of `bytes`. Calls back once, unless this object goes before; perhaps at once.
    void attach(const Peer& peer, DmbToken token, std::uint32_t bytes, std::chrono::milliseconds timeout,
                std::function<void(Result<void>)> then);
    // Nothing of it is needed any more, and the transport is gone: what has served goes to the pool. Also by the
    // destructor.
    void give_back();

    // Once both are there, and once only: for the data path.
    std::unique_ptr<Transport> transport();
    [[nodiscard]] DmbToken own_token() const { return own_ ? own_->registered.token : DmbToken{}; }
    [[nodiscard]] std::uint32_t own_bytes() const { return dmb_bytes_; }

 private:
    Result<OwnDmb> new_dmb();

    Pool& pool_;
    std::uint32_t dmb_bytes_;
    Peer whose_;
    DmbToken peers_token_{};
    std::optional<OwnDmb> own_;
    PeersDmb peer_;
    bool served_ = false;                                         // a connection has used both
    const std::shared_ptr<int> alive_ = std::make_shared<int>();  // answers may outlive this object
};

}  // namespace smc::smcd
