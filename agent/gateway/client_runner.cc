// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/gateway/client_runner.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>

#include "agent/log/log.h"
#include "agent/steer/addresses.h"

#ifndef IP_BIND_ADDRESS_NO_PORT
#define IP_BIND_ADDRESS_NO_PORT 24
#endif

namespace smc {

namespace {

// The application bound an address (without a port, or it would not have been steered).
bool is_bound(const Endpoint& source) {
    Endpoint address = source;
    address.port = 0;
    return address != Endpoint::loopback(false, 0) && address != Endpoint::loopback(true, 0);
}

session::PeerOption option_of(smc_option_seen seen) {
    return seen == SMC_OPTION_PRESENT  ? session::PeerOption::kPresent
           : seen == SMC_OPTION_ECHOED ? session::PeerOption::kEchoed
                                       : session::PeerOption::kAbsent;
}

int error_of(int fd) {
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    return error;
}

}  // namespace

// The socket is connecting; an Error has connect()'s errno.
Result<UniqueFd> ClientRunner::connect(bool offer) const {
    const Endpoint remote = from_abi(wanted_.event.remote);
    const int family = remote.family();
    auto fd = wanted_.space->tcp_socket(family, offer ? SMC_ROLE_AGENT_CLC : SMC_ROLE_AGENT_PLAIN, remote,
                                        {wanted_.event.uid, wanted_.event.gid});
    if (!fd) {
        log()->warn("connecting in the application's stead: {}", fd.error().text());
        return fd.error();
    }
    sockaddr_storage address{};
    if (wanted_.event.mark != 0) {
        ::setsockopt(fd->get(), SOL_SOCKET, SO_MARK, &wanted_.event.mark, sizeof wanted_.event.mark);
    }
    if (is_bound(source())) {
        const int one = 1;
        Endpoint from = source();
        from.port = 0;
        ::setsockopt(fd->get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
        const socklen_t length = from.to_sockaddr(address, family);
        if (::bind(fd->get(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
            return last_error("binding to " + from.ip_text());
        }
    }
    const socklen_t length = remote.to_sockaddr(address, family);
    if (::connect(fd->get(), reinterpret_cast<sockaddr*>(&address), length) != 0 && errno != EINPROGRESS) {
        return last_error("connecting to " + remote.text());
    }
    return fd;
}

void ClientRunner::on(const session::Connect& action) {
    auto fd = connect(action.offer);
    if (!fd) {
        return feed(session_.connect_failed(fd.error().code));
    }
    use_clc_socket(std::move(*fd));
    clc_->watch().when_writable([this] { connected(); });
}

void ClientRunner::connected() {
    if (const int error = error_of(clc_->fd()); error != 0) {
        return feed(session_.connect_failed(error));
    }
    const auto seen = option_of(programs_.option_seen(clc_->fd()));
    local_ = smcr::gid_of(local_endpoint(clc_->fd()));
    feed(session_.connected(seen, roce_offer(parts_.roce_devices, clc_->fd()), loop::now()));
}

void ClientRunner::on(const session::FinishConnect&) {
    connection_->client = local_endpoint(clc_->fd());
    programs_.release_flow(cookie(), connection_->client);
    if (const auto released = wanted_.syn.release(*wanted_.space); !released) {
        feed(session_.leg_refused(released.error().text()));
    }
}

void ClientRunner::leg_arrived(UniqueFd leg) {
    leg_ = std::move(leg);
    feed(session_.leg_arrived());
}

void ClientRunner::on(const session::FailConnect& action) {
    if (action.error == ETIMEDOUT) {
        return;  // the application's own TCP gives up at its own time; until then its SYNs are held
    }
    const auto answered = action.error == ECONNREFUSED || action.error == ECONNRESET
                              ? wanted_.syn.refuse(*wanted_.space)
                              : wanted_.syn.unreachable(*wanted_.space, action.error);
    if (!answered) {
        log()->warn("connection {}: {}", connection_->id, answered.error().text());
    }
}

void ClientRunner::on(const session::RememberIncapable& action) {
    programs_.remember_incapable(wanted_.event.netns, connection_->server, action.reason, parts_.config.cache_time);
}

void ClientRunner::on(const session::Run& action) {
    end({SessionEnd::Kind::kSmc, action.outcome, std::move(leg_), clc_->release()});
}

void ClientRunner::on(const session::RunOnTcp& action) {
    end({SessionEnd::Kind::kTcp, action.outcome, std::move(leg_), clc_->release()});
}

void ClientRunner::on(const session::Refuse& action) {
    end({SessionEnd::Kind::kRefused, {.reason = action.reason, .detail = action.detail}});
}

}  // namespace smc
