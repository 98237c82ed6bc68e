// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The DMBs of one SMC-D connection: its own, registered for the peer, and the peer's, attached. Control thread only.
#pragma once

#include <algorithm>
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
    // `pool` and the fabrics outlive this object. `dmb_bytes`: size of the own DMB; `peers_bytes`: size that the peer's
    // is expected to have, if it is larger.
    Exchange(Pool& pool, std::uint32_t dmb_bytes, std::uint32_t peers_bytes)
        : pool_(pool), dmb_bytes_(dmb_bytes), peers_bytes_(std::max(dmb_bytes, peers_bytes)) {}
    ~Exchange() { give_back(); }
    Exchange(const Exchange&) = delete;
    Exchange& operator=(const Exchange&) = delete;

    Result<clc::LocalDmb> register_dmb(const Peer& peer);
    // Attaches the peer's DMB, of `bytes`. Calls `then` once, perhaps before it returns, unless this object goes first.
    void attach(const Peer& peer, DmbToken token, std::uint32_t bytes, std::chrono::milliseconds timeout,
                std::function<void(Result<void>)> then);
    // Ends the use of both DMBs; the transport must be gone. DMBs that have served a connection go to the pool. The
    // destructor calls this, too.
    void give_back();

    // The transport for the data path. To be called once, when both DMBs are there.
    std::unique_ptr<Transport> transport();
    [[nodiscard]] DmbToken own_token() const { return own_ ? own_->registered.token : DmbToken{}; }
    [[nodiscard]] std::uint32_t own_bytes() const { return dmb_bytes_; }

 private:
    Result<OwnDmb> new_dmb();

    Pool& pool_;
    std::uint32_t dmb_bytes_, peers_bytes_;
    Peer whose_;
    DmbToken peers_token_{};
    std::optional<OwnDmb> own_;
    PeersDmb peer_;
    bool served_ = false;                                         // transport() was called
    const std::shared_ptr<int> alive_ = std::make_shared<int>();  // attach() may call back after this object is gone
};

}  // namespace smc::smcd
