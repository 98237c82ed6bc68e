// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// An application's SYN that waits in the agent, and the three answers it can get. Whatever is injected
// reaches the application's socket as if its connect() had met the server itself.
#pragma once

#include <cstdint>
#include <vector>

#include "agent/netns/namespace.h"
#include "bpf/abi.h"

namespace smc {

class HeldSyn {
 public:
    explicit HeldSyn(const smc_event& event);

    // False: what the program sent is no SYN we can handle.
    [[nodiscard]] bool valid() const { return tcp_at_ != 0; }
    [[nodiscard]] const Endpoint& source() const { return source_; }

    // Lets the SYN go on to the agent's local listener.
    Result<void> release(Namespace& space) const;
    // ECONNREFUSED at the application: RST.
    Result<void> refuse(Namespace& space) const;
    // Another errno of connect(): the ICMP message that stands for it, as near as ICMP has one.
    Result<void> unreachable(Namespace& space, int error) const;

 private:
    [[nodiscard]] bool v6() const { return packet_[0] >> 4 == 6; }
    [[nodiscard]] std::uint16_t tcp_checksum(const std::vector<std::uint8_t>& packet) const;
    Result<void> inject(Namespace& space, std::vector<std::uint8_t> packet) const;

    std::vector<std::uint8_t> packet_;  // IP header and TCP header
    std::size_t tcp_at_ = 0;
    Endpoint source_;
};

}  // namespace smc
