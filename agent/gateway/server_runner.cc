// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/gateway/server_runner.h"

#include <system_error>

#include "agent/steer/addresses.h"

namespace smc {

ServerRunner::ServerRunner(const SessionParts& parts, Connections::Handle connection, std::shared_ptr<Namespace> space,
                           const smc_inbound& inbound, UniqueFd clc, OnEnd on_end)
    : Runner(parts, std::move(connection),
             session::Server(parts.node, parts.smcd_groups, roce_offer(parts.roce_devices, clc.get()),
                             inbound.peer_agent != 0, loop::now()),
             std::move(on_end)),
      space_(std::move(space)),
      inbound_(inbound) {
    local_ = smcr::gid_of(local_endpoint(clc.get()));
    use_clc_socket(std::move(clc));
}

// From the server's own address to the client: the hairpin makes it the client that connects to the server.
void ServerRunner::on(const session::ConnectApplication&) {
    smc_sock mark{};
    mark.role = SMC_ROLE_LEG_SERVER;
    mark.front = tuple_of(connection_->server, connection_->client, space_->slot());
    auto fd = connect_like(*space_, mark,
                           {.from = connection_->server,
                            .to = connection_->client,
                            .owner = {},
                            .device = inbound_.bound_device,
                            .ttl = inbound_.ttl});
    if (!fd) {
        return refused(fd.error().code);
    }
    application_.emplace(parts_.io, std::move(*fd));
    application_->when_writable([this] { connected(); });
}

void ServerRunner::connected() {
    const int error = connect_error(application_->fd());
    if (error != 0) {
        return refused(error);
    }
    feed(session_.application_connected(loop::now()));
}

void ServerRunner::refused(int error) {
    feed(session_.application_refused(std::generic_category().message(error), loop::now()));
}

UniqueFd ServerRunner::take_application() {
    release_last_packet(application_->fd());
    return application_->release();
}

void ServerRunner::on(const session::Run& action) {
    end({SessionEnd::Kind::kSmc, action.outcome, take_application(), clc_->release()});
}

void ServerRunner::on(const session::RunOnTcp& action) {
    end({SessionEnd::Kind::kTcp, action.outcome, take_application(), clc_->release()});
}

// It has not heard of us.
void ServerRunner::reset_application() {
    if (application_) {
        TcpSocket(application_->release()).reset();
    }
}

void ServerRunner::on(const session::LeaveToTcp& action) {
    reset_application();
    end({SessionEnd::Kind::kPlain, action.outcome});
}

void ServerRunner::on(const session::Refuse& action) {
    reset_application();
    end({SessionEnd::Kind::kRefused, {.reason = action.reason, .detail = action.detail}});
}

}  // namespace smc
