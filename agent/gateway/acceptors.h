// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Accepts CLC sockets on the agent's listeners in the served namespaces. Control thread only.
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "agent/netns/namespace.h"

namespace smc {

class Acceptors {
 public:
    // A connection whose SYN carried option 254 was accepted. `from`: the peer's address; the peer may have reset the
    // connection already.
    using OnAccepted =
        std::function<void(UniqueFd fd, const Endpoint& from, const std::shared_ptr<Namespace>&, Namespace::Listener)>;

    // `on_exhausted`: accept4() failed for lack of descriptors or memory.
    Acceptors(asio::io_context& io, OnAccepted on_accepted, std::function<void()> on_exhausted);
    ~Acceptors();
    Acceptors(const Acceptors&) = delete;
    Acceptors& operator=(const Acceptors&) = delete;

    // Accepts on the namespace's fresh listeners until the namespace closes. A listener that cannot be watched now
    // stays fresh.
    void serve(const std::shared_ptr<Namespace>& netns);

 private:
    class Acceptor;

    asio::io_context& io_;
    OnAccepted on_accepted_;
    std::function<void()> on_exhausted_;
    std::map<const Acceptor*, std::unique_ptr<Acceptor>> all_;
};

}  // namespace smc
