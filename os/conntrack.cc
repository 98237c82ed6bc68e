// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "os/conntrack.h"

#include <libmnl/libmnl.h>
#include <linux/netfilter/nf_conntrack_common.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_conntrack.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace smc {

namespace {

constexpr std::size_t kAnswerBytes = 8192;

void put_tuple(nlmsghdr* header, const Endpoint& source, const Endpoint& destination) {
    const bool v4 = source.is_v4();
    const std::size_t skip = v4 ? 12 : 0;
    nlattr* tuple = mnl_attr_nest_start(header, CTA_TUPLE_ORIG);
    nlattr* ip = mnl_attr_nest_start(header, CTA_TUPLE_IP);
    mnl_attr_put(header, v4 ? CTA_IP_V4_SRC : CTA_IP_V6_SRC, 16 - skip, source.ip.data() + skip);
    mnl_attr_put(header, v4 ? CTA_IP_V4_DST : CTA_IP_V6_DST, 16 - skip, destination.ip.data() + skip);
    mnl_attr_nest_end(header, ip);
    nlattr* proto = mnl_attr_nest_start(header, CTA_TUPLE_PROTO);
    mnl_attr_put_u8(header, CTA_PROTO_NUM, IPPROTO_TCP);
    mnl_attr_put_u16(header, CTA_PROTO_SRC_PORT, htons(source.port));
    mnl_attr_put_u16(header, CTA_PROTO_DST_PORT, htons(destination.port));
    mnl_attr_nest_end(header, proto);
    mnl_attr_nest_end(header, tuple);
}

}  // namespace

void Conntrack::Close::operator()(mnl_socket* socket) const {
    mnl_socket_close(socket);
}

Result<Conntrack> Conntrack::open() {
    // Without this check, asking would make the kernel load its connection tracking.
    if (::access("/proc/sys/net/netfilter/nf_conntrack_max", F_OK) != 0) {
        return Error{EOPNOTSUPP, "nf_conntrack is not loaded"};
    }
    std::unique_ptr<mnl_socket, Close> socket(mnl_socket_open2(NETLINK_NETFILTER, SOCK_CLOEXEC));
    if (!socket || mnl_socket_bind(socket.get(), 0, MNL_SOCKET_AUTOPID) < 0) {
        return last_error("opening a socket of netfilter");
    }
    return Conntrack(std::move(socket));
}

std::optional<bool> Conntrack::has(const Endpoint& source, const Endpoint& destination) {
    alignas(nlmsghdr) std::array<char, kAnswerBytes> buffer{};
    nlmsghdr* header = mnl_nlmsg_put_header(buffer.data());
    header->nlmsg_type = NFNL_SUBSYS_CTNETLINK << 8 | IPCTNL_MSG_CT_GET;
    header->nlmsg_flags = NLM_F_REQUEST;
    header->nlmsg_seq = ++asked_;
    auto* family = static_cast<nfgenmsg*>(mnl_nlmsg_put_extra_header(header, sizeof(nfgenmsg)));
    family->nfgen_family = source.is_v4() ? AF_INET : AF_INET6;
    family->version = NFNETLINK_V0;
    put_tuple(header, source, destination);
    if (mnl_socket_sendto(socket_.get(), header, header->nlmsg_len) < 0) {
        return std::nullopt;
    }
    const ssize_t n = mnl_socket_recvfrom(socket_.get(), buffer.data(), buffer.size());
    if (n <= 0) {
        return std::nullopt;
    }
    if (mnl_cb_run(buffer.data(), static_cast<std::size_t>(n), asked_, mnl_socket_get_portid(socket_.get()), nullptr,
                   nullptr) >= 0) {
        return true;
    }
    return errno == ENOENT ? std::optional(false) : std::nullopt;
}

}  // namespace smc
