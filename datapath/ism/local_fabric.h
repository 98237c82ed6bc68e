// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The `local` Emulated-ISM provider: agents of one host meet in a directory.
//
// Every agent listens on DIRECTORY/<GID>.ism (SOCK_SEQPACKET; a path crosses network namespaces). To attach
// a DMB one asks its owner, who hands out the memfd and the doorbell with SCM_RIGHTS - once, and only to
// the GID the DMB was registered for (one DMB, one user). The connection stays open for the next request;
// its end tells that the peer is gone. Used by the control thread only.
#pragma once

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/steady_timer.hpp>

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "datapath/ism/dmb.h"
#include "os/random.h"
#include "smc/wire/ids.h"

namespace smc::ism {

class LocalFabric {
 public:
    using OnAttached = std::function<void(Result<Dmb>)>;
    using OnPeerLost = std::function<void(const Gid&)>;

    struct Registered {
        DmbToken token{};
        std::shared_ptr<Dmb> dmb;
    };

    LocalFabric(asio::io_context& io, std::string directory, Gid gid, Chid chid);
    ~LocalFabric();
    LocalFabric(const LocalFabric&) = delete;
    LocalFabric& operator=(const LocalFabric&) = delete;

    // Creates the directory if need be, removes sockets nobody listens on any more, listens.
    Result<void> start(OnPeerLost on_peer_lost);

    // A new DMB that only `peer` can attach, once.
    Result<Registered> register_dmb(const Gid& peer, std::uint32_t bytes);
    // The owner forgets it; memory goes when both sides have dropped theirs.
    void deregister(DmbToken token);
    [[nodiscard]] std::size_t registered() const { return dmbs_.size(); }

    // Calls back exactly once, within `timeout`. `bytes` is what the peer announced in CLC.
    void attach(const Gid& peer, DmbToken token, std::uint32_t bytes, std::chrono::milliseconds timeout,
                OnAttached on_attached);
    // Whether the peer's socket can be connected to now (and stays connected).
    [[nodiscard]] Result<void> reach(const Gid& peer);

    [[nodiscard]] const Gid& gid() const { return gid_; }
    [[nodiscard]] Chid chid() const { return chid_; }

 private:
    struct Link;     // our connection to a peer, for our requests
    struct Visitor;  // a peer's connection to us, for its requests
    struct Owned {
        Gid peer;
        std::shared_ptr<Dmb> dmb;
        bool handed_out = false;
    };

    [[nodiscard]] std::string path(const Gid& gid) const;
    void remove_stale_sockets() const;
    void accept_next();
    void serve(const std::shared_ptr<Visitor>& visitor);
    bool answer(Visitor& visitor);
    void listen_for_replies(const std::shared_ptr<Link>& link);
    void flush_when_writable(const std::shared_ptr<Link>& link);
    bool take_reply(Link& link);
    void lose(const Gid& peer);

    asio::io_context& io_;
    std::string directory_;
    Gid gid_;
    Chid chid_;
    OnPeerLost on_peer_lost_;
    asio::posix::stream_descriptor listener_;
    asio::steady_timer retry_;
    std::map<Gid, std::shared_ptr<Link>> links_;
    std::map<DmbToken, Owned> dmbs_;
    std::shared_ptr<bool> alive_;  // false once destroyed: handlers may still be queued
};

}  // namespace smc::ism
