// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Applications' keepalive and TCP_USER_TIMEOUT, brought to the connections that run: their CLC sockets stand for them
// on the wire. Control thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <utility>

#include "bpf/abi.h"
#include "os/keepalive_terms.h"

namespace smc {

class Keepalives {
 public:
    // What the BPF programs have seen last of the application's socket of a connection.
    using Seen = std::function<KeepaliveTerms(const smc_tuple& app)>;
    // The application of a connection wants something else now.
    using Tell = std::function<void(std::uint64_t id, const KeepaliveTerms& terms)>;

    Keepalives(Seen seen, Tell tell) : seen_(std::move(seen)), tell_(std::move(tell)) {}

    // A connection runs. `app`: the tuple of its application's socket.
    void add(std::uint64_t id, const smc_tuple& app);
    void remove(std::uint64_t id);
    // An application has changed its mind. Its connection need not run yet.
    void changed(const smc_tuple& app, const KeepaliveTerms& terms) const;

 private:
    Seen seen_;
    Tell tell_;
    std::unordered_map<std::uint64_t, std::string> running_;  // connection -> bytes of its application's tuple
    std::unordered_map<std::string, std::uint64_t> ids_;      // the other way round
};

}  // namespace smc
