// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/ism/local_fabric.h"

namespace smc::ism {

LocalFabric::LocalFabric(asio::io_context& io, std::string directory, const Gid& gid, Chid chid,
                         OnPeerLost on_peer_lost)
    : directory_(std::move(directory)),
      gid_(gid),
      chid_(chid),
      on_peer_lost_(std::move(on_peer_lost)),
      attachments_(io, directory_, gid, chid, [this](const Gid& peer) { on_peer_lost_(peer); }),
      server_(io, chid, [this](const Gid& peer) { lose(peer); }) {}

Result<void> LocalFabric::start() {
    auto listener = listen_in(directory_, gid_);
    if (!listener) {
        return listener.error();
    }
    name_.emplace(socket_path(directory_, gid_));
    auto started = server_.start(std::move(*listener));
    if (!started) {
        name_.reset();  // nobody listens there: restore() tries again
    }
    return started;
}

Result<bool> LocalFabric::restore() {
    if (name_ && name_->is_there()) {
        return false;
    }
    if (const auto started = start(); !started) {
        return started.error();
    }
    return true;
}

// A peer that has left our server does not answer our requests either, so drop the connection to it, too.
void LocalFabric::lose(const Gid& peer) {
    attachments_.drop(peer);
    on_peer_lost_(peer);
}

}  // namespace smc::ism
