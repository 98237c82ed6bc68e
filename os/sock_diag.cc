// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "os/sock_diag.h"

#include <libmnl/libmnl.h>
#include <linux/inet_diag.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>

#include <array>
#include <cstring>

namespace smc {

namespace {

constexpr std::size_t kMessageBytes = 8192;

void put_address(__be32* to, const Endpoint& from) {
    if (from.is_v4()) {
        std::memcpy(to, from.ip.data() + 12, 4);
    } else {
        std::memcpy(to, from.ip.data(), 16);
    }
}

}  // namespace

void SockDiag::Close::operator()(mnl_socket* socket) const {
    mnl_socket_close(socket);
}

Result<SockDiag> SockDiag::open() {
    std::unique_ptr<mnl_socket, Close> socket(mnl_socket_open2(NETLINK_SOCK_DIAG, SOCK_CLOEXEC));
    if (!socket || mnl_socket_bind(socket.get(), 0, MNL_SOCKET_AUTOPID) < 0) {
        return last_error("opening a sock_diag socket");
    }
    return SockDiag(std::move(socket));
}

namespace {

nlmsghdr* put_request(char* buffer, std::uint16_t type, std::uint16_t flags, const SockDiag::Socket& which) {
    nlmsghdr* header = mnl_nlmsg_put_header(buffer);
    header->nlmsg_type = type;
    header->nlmsg_flags = static_cast<std::uint16_t>(NLM_F_REQUEST | flags);
    header->nlmsg_seq = 1;
    auto* request = static_cast<inet_diag_req_v2*>(mnl_nlmsg_put_extra_header(header, sizeof(inet_diag_req_v2)));
    request->sdiag_family = which.local.is_v4() ? AF_INET : AF_INET6;
    request->sdiag_protocol = IPPROTO_TCP;
    request->idiag_states = ~0U;
    put_address(request->id.idiag_src, which.local);
    put_address(request->id.idiag_dst, which.remote);
    request->id.idiag_sport = htons(which.local.port);
    request->id.idiag_dport = htons(which.remote.port);
    request->id.idiag_if = which.bound_device;
    request->id.idiag_cookie[0] = static_cast<std::uint32_t>(which.cookie);
    request->id.idiag_cookie[1] = static_cast<std::uint32_t>(which.cookie >> 32);
    return header;
}

int note_state(const nlmsghdr* header, void* state) {
    if (header->nlmsg_len >= MNL_NLMSG_HDRLEN + sizeof(inet_diag_msg)) {
        *static_cast<int*>(state) = static_cast<const inet_diag_msg*>(mnl_nlmsg_get_payload(header))->idiag_state;
    }
    return MNL_CB_OK;
}

}  // namespace

Result<void> SockDiag::abort(const Socket& which) const {
    alignas(nlmsghdr) std::array<char, kMessageBytes> buffer{};
    const nlmsghdr* header = put_request(buffer.data(), SOCK_DESTROY, NLM_F_ACK, which);
    if (mnl_socket_sendto(socket_.get(), header, header->nlmsg_len) < 0) {
        return last_error("sending SOCK_DESTROY");
    }
    const ssize_t n = mnl_socket_recvfrom(socket_.get(), buffer.data(), buffer.size());
    if (n < 0 || mnl_cb_run(buffer.data(), static_cast<std::size_t>(n), 1, mnl_socket_get_portid(socket_.get()),
                            nullptr, nullptr) < 0) {
        return last_error("ending a socket");
    }
    return {};
}

std::optional<int> SockDiag::state_of(const Socket& which) const {
    alignas(nlmsghdr) std::array<char, kMessageBytes> buffer{};
    const nlmsghdr* header = put_request(buffer.data(), SOCK_DIAG_BY_FAMILY, 0, which);
    int state = 0;
    if (mnl_socket_sendto(socket_.get(), header, header->nlmsg_len) < 0) {
        return std::nullopt;
    }
    const ssize_t n = mnl_socket_recvfrom(socket_.get(), buffer.data(), buffer.size());
    const bool answered = n > 0 && mnl_cb_run(buffer.data(), static_cast<std::size_t>(n), 1,
                                              mnl_socket_get_portid(socket_.get()), note_state, &state) >= 0;
    return answered && state != 0 ? std::optional(state) : std::nullopt;
}

}  // namespace smc
