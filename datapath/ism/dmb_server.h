// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The server side of the `local` fabric: the DMBs that are registered here, and the sockets on which peers ask for
// them. A DMB is handed out once, and only to the GID that it was registered for (one DMB, one user).
#pragma once

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/steady_timer.hpp>
#include <functional>
#include <map>
#include <memory>

#include "datapath/ism/rendezvous.h"
#include "datapath/smcd/fabric.h"

namespace smc::ism {

class DmbServer {
 public:
    // `lost` is called for a peer whose socket has ended.
    DmbServer(asio::io_context& io, Chid chid, std::function<void(const Gid&)> lost)
        : io_(io), chid_(chid), lost_(std::move(lost)), listener_(io), retry_(io) {}
    ~DmbServer() = default;
    DmbServer(const DmbServer&) = delete;
    DmbServer& operator=(const DmbServer&) = delete;

    // Serves the peers that connect to `listener`, in place of the previous one.
    [[nodiscard]] Result<void> start(UniqueFd listener);
    Result<smcd::Fabric::Registered> register_dmb(const Gid& peer, std::uint32_t bytes);
    void deregister(DmbToken token) { dmbs_.erase(token); }
    [[nodiscard]] std::size_t registered() const { return dmbs_.size(); }

 private:
    struct Visitor;  // a peer's connection to this server
    struct Owned {
        Gid peer;
        std::shared_ptr<smcd::Dmb> dmb;
        UniqueFd memory, bell;  // empty once they were handed out
    };
    void accept_next();
    void serve_accepted();
    void accept_later();
    void serve(const std::shared_ptr<Visitor>& visitor);
    bool answer(Visitor& visitor);
    [[nodiscard]] int refusal(const Request& request, const Gid& peer) const;

    asio::io_context& io_;
    Chid chid_;
    std::function<void(const Gid&)> lost_;
    asio::posix::stream_descriptor listener_;
    std::shared_ptr<int> listening_;  // one for each listener: its handlers may outlive it
    UniqueFd accepted_;               // a connection that is not watched yet
    asio::steady_timer retry_;
    std::map<DmbToken, Owned> dmbs_;
    const std::shared_ptr<int> alive_ = std::make_shared<int>();  // handlers may outlive this object
};

}  // namespace smc::ism
