// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "os/kernel_smc.h"

#include <libmnl/libmnl.h>
#include <linux/genetlink.h>
#include <linux/smc.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <functional>
#include <memory>

namespace smc {

namespace {

constexpr std::size_t kGenericBytes = 16384;

struct Close {
    void operator()(mnl_socket* socket) const { mnl_socket_close(socket); }
};
using Socket = std::unique_ptr<mnl_socket, Close>;
using Buffer = std::array<char, kGenericBytes>;
using OnAttribute = std::function<void(const nlattr&)>;

nlmsghdr* put_header(Buffer& buffer, std::uint16_t family, std::uint8_t command, std::uint16_t flags) {
    nlmsghdr* header = mnl_nlmsg_put_header(buffer.data());
    header->nlmsg_type = family;
    header->nlmsg_flags = static_cast<std::uint16_t>(NLM_F_REQUEST | flags);
    auto* generic = static_cast<genlmsghdr*>(mnl_nlmsg_put_extra_header(header, sizeof(genlmsghdr)));
    generic->cmd = command;
    generic->version = 1;
    return header;
}

int hear_attribute(const nlattr* attribute, void* data) {
    (*static_cast<const OnAttribute*>(data))(*attribute);
    return MNL_CB_OK;
}

int hear_message(const nlmsghdr* header, void* data) {
    return mnl_attr_parse(header, sizeof(genlmsghdr), hear_attribute, data);
}

// Sends a request and calls `on_attribute` for each attribute of the answer. False: there was no answer, or an error.
bool ask(mnl_socket& socket, const nlmsghdr& question, const OnAttribute& on_attribute) {
    if (mnl_socket_sendto(&socket, &question, question.nlmsg_len) < 0) {
        return false;
    }
    alignas(nlmsghdr) Buffer answer{};
    for (;;) {
        const ssize_t n = mnl_socket_recvfrom(&socket, answer.data(), answer.size());
        if (n <= 0) {
            return false;
        }
        const int more = mnl_cb_run(answer.data(), static_cast<std::size_t>(n), 0, mnl_socket_get_portid(&socket),
                                    hear_message, const_cast<OnAttribute*>(&on_attribute));
        if (more <= MNL_CB_STOP || (question.nlmsg_flags & NLM_F_DUMP) == 0) {
            return more >= MNL_CB_STOP;
        }
    }
}

// The number of the generic netlink family; 0: there is none.
std::uint16_t family_of_smc(mnl_socket& socket) {
    alignas(nlmsghdr) Buffer buffer{};
    nlmsghdr* question = put_header(buffer, GENL_ID_CTRL, CTRL_CMD_GETFAMILY, 0);
    mnl_attr_put_strz(question, CTRL_ATTR_FAMILY_NAME, SMC_GENL_FAMILY_NAME);
    std::uint16_t family = 0;
    const OnAttribute find = [&](const nlattr& attribute) {
        if (mnl_attr_get_type(&attribute) == CTRL_ATTR_FAMILY_ID) {
            family = mnl_attr_get_u16(&attribute);
        }
    };
    return ask(socket, *question, find) ? family : std::uint16_t{0};
}

void each(const nlattr& nest, const OnAttribute& on_attribute) {
    mnl_attr_parse_nested(&nest, hear_attribute, const_cast<OnAttribute*>(&on_attribute));
}

KernelSmc::Mode mode_of(const nlattr& nest) {
    KernelSmc::Mode mode;
    each(nest, [&](const nlattr& attribute) {
        switch (mnl_attr_get_type(&attribute)) {
            case SMC_NLA_STATS_T_CLNT_V1_SUCC:
                mode.client[0] = mnl_attr_get_u64(&attribute);
                break;
            case SMC_NLA_STATS_T_CLNT_V2_SUCC:
                mode.client[1] = mnl_attr_get_u64(&attribute);
                break;
            case SMC_NLA_STATS_T_SRV_V1_SUCC:
                mode.server[0] = mnl_attr_get_u64(&attribute);
                break;
            case SMC_NLA_STATS_T_SRV_V2_SUCC:
                mode.server[1] = mnl_attr_get_u64(&attribute);
                break;
            case SMC_NLA_STATS_T_RX_BYTES:
                mode.received = mnl_attr_get_u64(&attribute);
                break;
            case SMC_NLA_STATS_T_TX_BYTES:
                mode.sent = mnl_attr_get_u64(&attribute);
                break;
            default:
                break;
        }
    });
    return mode;
}

KernelSmc stats_of(const nlattr& nest) {
    KernelSmc stats;
    each(nest, [&](const nlattr& attribute) {
        switch (mnl_attr_get_type(&attribute)) {
            case SMC_NLA_STATS_SMCD_TECH:
                stats.smcd = mode_of(attribute);
                break;
            case SMC_NLA_STATS_SMCR_TECH:
                stats.smcr = mode_of(attribute);
                break;
            case SMC_NLA_STATS_CLNT_HS_ERR_CNT:
                stats.client_errors = mnl_attr_get_u64(&attribute);
                break;
            case SMC_NLA_STATS_SRV_HS_ERR_CNT:
                stats.server_errors = mnl_attr_get_u64(&attribute);
                break;
            default:
                break;
        }
    });
    return stats;
}

}  // namespace

std::optional<KernelSmc> kernel_smc() {
    // Without this check, asking would make the kernel load the module smc.
    if (::access("/proc/sys/net/smc", F_OK) != 0 && ::access("/sys/module/smc", F_OK) != 0) {
        return std::nullopt;
    }
    const Socket socket(mnl_socket_open2(NETLINK_GENERIC, SOCK_CLOEXEC));
    if (!socket || mnl_socket_bind(socket.get(), 0, MNL_SOCKET_AUTOPID) < 0) {
        return std::nullopt;
    }
    const std::uint16_t family = family_of_smc(*socket);
    if (family == 0) {
        return std::nullopt;
    }
    alignas(nlmsghdr) Buffer buffer{};
    std::optional<KernelSmc> found;
    const nlmsghdr* question = put_header(buffer, family, SMC_NETLINK_GET_STATS, NLM_F_DUMP);
    const bool answered = ask(*socket, *question, [&](const nlattr& attribute) {
        if (mnl_attr_get_type(&attribute) == SMC_GEN_STATS) {
            found = stats_of(attribute);
        }
    });
    return answered ? found : std::nullopt;
}

}  // namespace smc
