// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The fabrics of SMC-D that this node is on, in order of preference: one ISM device each. Control thread only.
#pragma once

#include <asio/io_context.hpp>
#include <functional>
#include <memory>
#include <vector>

#include "agent/config/config.h"
#include "datapath/smcd/fabric.h"
#include "smc/clc/node.h"

namespace smc::smcd {

class Fabrics {
 public:
    using OnPeerLost = std::function<void(const Peer&)>;

    // Opens the fabrics of `config`, each with a GID of its own. A fabric that fails is logged and left out, so that a
    // machine that spoils a shared area harms that fabric only. An Error: no fabric is left, and at least one failed
    // for another reason than what is in its shared area.
    static Result<std::unique_ptr<Fabrics>> open(asio::io_context& io, const Config& config, OnPeerLost on_peer_lost);
    ~Fabrics() = default;
    Fabrics(const Fabrics&) = delete;
    Fabrics& operator=(const Fabrics&) = delete;

    // For CLC.
    [[nodiscard]] std::vector<clc::IsmDevice> devices() const;
    // nullptr: this node is not on that fabric.
    [[nodiscard]] Fabric* on(Chid chid) const;
    [[nodiscard]] const std::vector<std::unique_ptr<Fabric>>& all() const { return all_; }
    // Objects that the engines have to poll.
    [[nodiscard]] std::vector<std::shared_ptr<BusyPoll>> busy_polls() const;
    // Makes deleted names of this node again, on each fabric. True: it did so. An Error: the last of them.
    Result<bool> restore();
    // DMBs that are registered on all fabrics.
    [[nodiscard]] std::size_t registered() const;

 private:
    explicit Fabrics(OnPeerLost on_peer_lost) : on_peer_lost_(std::move(on_peer_lost)) {}
    Result<void> add(asio::io_context& io, const IsmFabric& wanted);

    OnPeerLost on_peer_lost_;
    std::vector<std::unique_ptr<Fabric>> all_;
};

}  // namespace smc::smcd
