// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Passes the applications' keepalive options and TCP_USER_TIMEOUT to their running connections, whose CLC sockets then
// probe the peer instead. Control thread only.
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
    // Returns the options of an application's socket as the BPF programs saw them last.
    using Seen = std::function<KeepaliveTerms(const smc_tuple& app)>;
    // The application of connection `id` has changed its options.
    using Tell = std::function<void(std::uint64_t id, const KeepaliveTerms& terms)>;

    Keepalives(Seen seen, Tell tell) : seen_(std::move(seen)), tell_(std::move(tell)) {}

    // Connection `id` runs now. `app`: the tuple of its application's socket. `was_swept`: a sweep has run since the
    // connection began, so changed options may have been reported already.
    void add(std::uint64_t id, const smc_tuple& app, bool was_swept);
    void remove(std::uint64_t id);
    // An application has changed its options. Its connection need not run yet.
    void changed(const smc_tuple& app, const KeepaliveTerms& terms) const;

 private:
    Seen seen_;
    Tell tell_;
    std::unordered_map<std::uint64_t, std::string> running_;  // connection id -> bytes of its application's tuple
    std::unordered_map<std::string, std::uint64_t> ids_;      // bytes of the tuple -> connection id
};

}  // namespace smc
