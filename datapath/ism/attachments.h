// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The client side of the `local` fabric: a socket to each peer whose DMBs are attached here, and pending requests.
#pragma once

#include <asio/io_context.hpp>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "datapath/smcd/fabric.h"

namespace smc::ism {

class Attachments {
 public:
    using OnAttached = smcd::Fabric::OnAttached;
    // `lost` is called for a peer whose socket has ended.
    Attachments(asio::io_context& io, std::string directory, const Gid& own, Chid chid,
                std::function<void(const Gid&)> lost)
        : io_(io), directory_(std::move(directory)), own_(own), chid_(chid), lost_(std::move(lost)) {}
    ~Attachments();
    Attachments(const Attachments&) = delete;
    Attachments& operator=(const Attachments&) = delete;

    // Connects to the peer, unless it is connected already.
    Result<void> reach(const Gid& peer);
    void attach(const Gid& peer, DmbToken token, std::uint32_t bytes, std::chrono::milliseconds timeout,
                OnAttached on_attached);
    // The peer is gone: requests that wait for its reply fail.
    void drop(const Gid& peer);

 private:
    struct Peer;
    void listen(const std::shared_ptr<Peer>& peer);
    void send_when_writable(const std::shared_ptr<Peer>& peer);
    void send_waiting(const std::shared_ptr<Peer>& peer);

    asio::io_context& io_;
    std::string directory_;
    Gid own_;
    Chid chid_;
    std::function<void(const Gid&)> lost_;
    std::map<Gid, std::shared_ptr<Peer>> peers_;
};

}  // namespace smc::ism
