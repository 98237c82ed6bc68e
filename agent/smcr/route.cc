// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/smcr/route.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <cstring>
#include <span>
#include <vector>

#include "os/unique_fd.h"

namespace smc::smcr {

namespace {

void append(std::vector<std::uint8_t>& message, std::uint16_t kind, std::span<const std::uint8_t> value) {
    rtattr attribute{static_cast<std::uint16_t>(RTA_LENGTH(value.size())), kind};
    const std::size_t at = message.size();
    message.resize(at + RTA_SPACE(value.size()));
    std::memcpy(&message[at], &attribute, sizeof attribute);
    std::memcpy(&message[at + RTA_LENGTH(0)], value.data(), value.size());
}

std::vector<std::uint8_t> question(const RoceGid& own, const RoceGid& peer) {
    const bool v4 = own.is_v4();
    const std::size_t skip = v4 ? 12 : 0;
    std::vector<std::uint8_t> message(NLMSG_LENGTH(sizeof(rtmsg)));
    rtmsg route{};
    route.rtm_family = v4 ? AF_INET : AF_INET6;
    route.rtm_dst_len = route.rtm_src_len = v4 ? 32 : 128;
    append(message, RTA_DST, std::span(peer.bytes).subspan(skip));
    append(message, RTA_SRC, std::span(own.bytes).subspan(skip));
    nlmsghdr header{};
    header.nlmsg_len = static_cast<std::uint32_t>(message.size());
    header.nlmsg_type = RTM_GETROUTE;
    header.nlmsg_flags = NLM_F_REQUEST;
    std::memcpy(message.data(), &header, sizeof header);
    std::memcpy(&message[NLMSG_HDRLEN], &route, sizeof route);
    return message;
}

}  // namespace

bool is_direct(const RoceGid& own, const RoceGid& peer) {
    if (own.is_v4() != peer.is_v4()) {
        return false;
    }
    const UniqueFd socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
    const auto message = question(own.normalised(), peer.normalised());
    alignas(nlmsghdr) std::uint8_t answer[4096];
    if (!socket || ::send(socket.get(), message.data(), message.size(), 0) < 0) {
        return false;
    }
    const ssize_t size = ::recv(socket.get(), answer, sizeof answer, 0);
    const auto* header = reinterpret_cast<const nlmsghdr*>(answer);
    if (size < 0 || !NLMSG_OK(header, static_cast<std::uint32_t>(size)) || header->nlmsg_type != RTM_NEWROUTE) {
        return false;
    }
    const auto* route = static_cast<const rtmsg*>(NLMSG_DATA(header));
    auto left = RTM_PAYLOAD(header);
    for (const rtattr* a = RTM_RTA(route); RTA_OK(a, left); a = RTA_NEXT(a, left)) {
        if (a->rta_type == RTA_GATEWAY || a->rta_type == RTA_VIA) {
            return false;
        }
    }
    return true;
}

}  // namespace smc::smcr
