// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The `local` Emulated-ISM provider: agents of one host meet in a directory.
//
// Every agent listens on DIRECTORY/<GID>.ism (SOCK_SEQPACKET; a path crosses network namespaces). To attach a DMB, an
// agent sends a request to the DMB's owner, which hands out the memfd and the doorbell with SCM_RIGHTS. The connection
// stays open for the next request; its end tells that the peer is gone.
#pragma once

#include <asio/io_context.hpp>
#include <functional>
#include <optional>
#include <string>

#include "datapath/ism/attachments.h"
#include "datapath/ism/dmb_server.h"
#include "datapath/smcd/fabric.h"
#include "os/unix_socket.h"

namespace smc::ism {

class LocalFabric final : public smcd::Fabric {
 public:
    using OnPeerLost = std::function<void(const Gid&)>;

    LocalFabric(asio::io_context& io, std::string directory, const Gid& gid, Chid chid, OnPeerLost on_peer_lost);
    ~LocalFabric() override = default;
    LocalFabric(const LocalFabric&) = delete;
    LocalFabric& operator=(const LocalFabric&) = delete;

    // Creates the directory if need be, removes stale sockets, and listens.
    Result<void> start();

    [[nodiscard]] const char* provider() const override { return "local"; }
    [[nodiscard]] const Gid& gid() const override { return gid_; }
    [[nodiscard]] Chid chid() const override { return chid_; }
    Result<Registered> register_dmb(const Gid& peer, std::uint32_t bytes) override {
        return server_.register_dmb(peer, bytes);
    }
    void deregister(DmbToken token) override { server_.deregister(token); }
    [[nodiscard]] std::size_t registered() const override { return server_.registered(); }
    Result<bool> restore() override;
    [[nodiscard]] Result<void> reach(const Gid& peer) override { return attachments_.reach(peer); }
    void attach(const Gid& peer, DmbToken token, std::uint32_t bytes, std::chrono::milliseconds timeout,
                OnAttached on_attached) override {
        attachments_.attach(peer, token, bytes, timeout, std::move(on_attached));
    }

 private:
    void lose(const Gid& peer);

    std::string directory_;
    Gid gid_;
    Chid chid_;
    OnPeerLost on_peer_lost_;
    Attachments attachments_;
    DmbServer server_;
    std::optional<SocketName> name_;
};

}  // namespace smc::ism
