// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A connection's place in a link group, from before the CLC message that names its RMBE until its flow has ended (G1).
#pragma once

#include <memory>
#include <optional>

#include "datapath/roce/rmbe_transport.h"
#include "smc/clc/handshake.h"

namespace smc::smcr {

class LinkGroup;

// An alert token, an RMBE, memory to send from.
class Seat {
 public:
    Seat(std::shared_ptr<LinkGroup> group, AlertToken token, roce::Element own, roce::Element send);
    ~Seat();
    Seat(const Seat&) = delete;
    Seat& operator=(const Seat&) = delete;

    [[nodiscard]] LinkGroup& group() const { return *group_; }
    [[nodiscard]] AlertToken token() const { return token_; }
    // What CLC tells the peer.
    [[nodiscard]] const clc::Rmbe& rmbe() const { return rmbe_; }
    // The peer may write into the RMBE from now on. If there is never a flow, it is told so and the RMBE lingers.
    void told() { told_ = true; }
    void agreed(const clc::Rmbe& peer) { peer_ = peer; }
    // The peer will not use it: it declined.
    void withdraw() { told_ = false; }
    // Once, when agreed: for the flow.
    std::unique_ptr<Transport> transport();

 private:
    [[nodiscard]] roce::RemoteRmbe remote() const;

    std::shared_ptr<LinkGroup> group_;
    AlertToken token_;
    clc::Rmbe rmbe_;
    std::optional<clc::Rmbe> peer_;
    bool told_ = false;
    std::optional<roce::Element> own_, send_;  // until there is a flow
};

}  // namespace smc::smcr
