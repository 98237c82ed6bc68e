// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "os/sock_diag.h"

#include <libmnl/libmnl.h>
#include <linux/inet_diag.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>

#include <algorithm>
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

Result<SockDiag> SockDiag::of(UniqueFd fd) {
    std::unique_ptr<mnl_socket, Close> socket(mnl_socket_fdopen(fd.get()));
    if (!socket) {
        return last_error("using a sock_diag socket");
    }
    (void)fd.release();
    return SockDiag(std::move(socket));
}

int SockDiag::fd() const {
    return mnl_socket_get_fd(socket_.get());
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

namespace {

Endpoint endpoint_of(int family, const __be32* address, __be16 port) {
    Endpoint out;
    if (family == AF_INET) {
        out.ip[10] = out.ip[11] = 0xff;
        std::memcpy(out.ip.data() + 12, address, 4);
    } else {
        std::memcpy(out.ip.data(), address, 16);
    }
    out.port = ntohs(port);
    return out;
}

int note_cgroup(const nlattr* attribute, void* of) {
    if (mnl_attr_get_type(attribute) == INET_DIAG_CGROUP_ID) {
        static_cast<SockDiag::Listed*>(of)->cgroup = mnl_attr_get_u64(attribute);
    }
    return MNL_CB_OK;
}

int add_listed(const nlmsghdr* header, void* to) {
    if (header->nlmsg_len < MNL_NLMSG_HDRLEN + sizeof(inet_diag_msg)) {
        return MNL_CB_OK;
    }
    const auto* socket = static_cast<const inet_diag_msg*>(mnl_nlmsg_get_payload(header));
    const auto end = [&](const __be32* address, __be16 port) {
        return endpoint_of(socket->idiag_family, address, port);
    };
    SockDiag::Listed one{end(socket->id.idiag_src, socket->id.idiag_sport),
                         end(socket->id.idiag_dst, socket->id.idiag_dport), socket->idiag_state};
    mnl_attr_parse(header, sizeof(inet_diag_msg), note_cgroup, &one);
    static_cast<std::vector<SockDiag::Listed>*>(to)->push_back(one);
    return MNL_CB_OK;
}

}  // namespace

Result<std::vector<SockDiag::Listed>> SockDiag::list(int family, std::uint32_t states, std::size_t most) const {
    constexpr std::size_t kDatagram = 32768;  // the most that the kernel puts into one datagram of a dump
    alignas(nlmsghdr) std::array<char, kDatagram> buffer{};
    nlmsghdr* header = mnl_nlmsg_put_header(buffer.data());
    header->nlmsg_type = SOCK_DIAG_BY_FAMILY;
    header->nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
    header->nlmsg_seq = 1;
    auto* request = static_cast<inet_diag_req_v2*>(mnl_nlmsg_put_extra_header(header, sizeof(inet_diag_req_v2)));
    request->sdiag_family = static_cast<__u8>(family);
    request->sdiag_protocol = IPPROTO_TCP;
    request->idiag_states = states;
    if (mnl_socket_sendto(socket_.get(), header, header->nlmsg_len) < 0) {
        return last_error("asking for sockets");
    }
    std::vector<Listed> found;
    for (int more = MNL_CB_OK; more > MNL_CB_STOP && found.size() < most;) {
        const ssize_t n = mnl_socket_recvfrom(socket_.get(), buffer.data(), buffer.size());
        more = n < 0 ? MNL_CB_ERROR
                     : mnl_cb_run(buffer.data(), static_cast<std::size_t>(n), 1, mnl_socket_get_portid(socket_.get()),
                                  add_listed, &found);
        if (more < 0) {
            return last_error("listing sockets");
        }
    }
    found.resize(std::min(found.size(), most));
    return found;
}

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
