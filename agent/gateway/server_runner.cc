// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/gateway/server_runner.h"

#include <sys/socket.h>

#include <cerrno>
#include <system_error>

namespace smc {

ServerRunner::ServerRunner(const SessionParts& parts, Connections::Handle connection, std::shared_ptr<Namespace> space,
                           UniqueFd clc, OnEnd on_end)
    : Runner(parts, std::move(connection),
             session::Server(parts.node, parts.smcd_groups, roce_offer(parts.roce_devices, clc.get()), loop::now()),
             std::move(on_end)),
      space_(std::move(space)) {
    local_ = smcr::gid_of(local_endpoint(clc.get()));
    use_clc_socket(std::move(clc));
}

// From the application's own host, but named after the client (map smc_peernames).
Result<UniqueFd> ServerRunner::connect() const {
    const Endpoint& server = connection_->server;
    auto fd = space_->tcp_socket(server.family(), SMC_ROLE_AGENT_LEG, connection_->client, {});
    if (!fd) {
        return fd.error();
    }
    sockaddr_storage address{};
    const socklen_t length = server.to_sockaddr(address, server.family());
    if (::connect(fd->get(), reinterpret_cast<sockaddr*>(&address), length) != 0 && errno != EINPROGRESS) {
        return last_error("connecting to the application");
    }
    return fd;
}

void ServerRunner::on(const session::ConnectApplication&) {
    auto fd = connect();
    if (!fd) {
        return refused(fd.error().code);
    }
    application_.emplace(parts_.io, std::move(*fd));
    application_->when_writable([this] { connected(); });
}

void ServerRunner::connected() {
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(application_->fd(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) {
        return refused(error);
    }
    feed(session_.application_connected(loop::now()));
}

void ServerRunner::refused(int error) {
    feed(session_.application_refused(std::generic_category().message(error), loop::now()));
}

void ServerRunner::on(const session::Run& action) {
    end({SessionEnd::Kind::kSmc, action.outcome, application_->release(), clc_->release()});
}

void ServerRunner::on(const session::RunOnTcp& action) {
    end({SessionEnd::Kind::kTcp, action.outcome, application_->release(), clc_->release()});
}

void ServerRunner::on(const session::Refuse& action) {
    if (application_) {
        TcpSocket(application_->release()).reset();
    }
    end({SessionEnd::Kind::kRefused, {.reason = action.reason, .detail = action.detail}});
}

}  // namespace smc
