// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "os/rtnetlink.h"

#include <libmnl/libmnl.h>
#include <linux/fib_rules.h>
#include <linux/if.h>
#include <linux/if_addr.h>
#include <linux/if_arp.h>
#include <linux/if_ether.h>
#include <linux/if_link.h>
#include <linux/net_namespace.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <algorithm>
#include <functional>

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif

namespace smc {

namespace {

constexpr std::size_t kBuffer = 32768;  // the most that the kernel puts into one datagram of a dump
constexpr unsigned kSequence = 1;       // one request at a time

using OnMessage = std::function<void(const nlmsghdr*)>;

int on_message(const nlmsghdr* header, void* data) {
    (*static_cast<OnMessage*>(data))(header);
    return MNL_CB_OK;
}

// Whether the kernel flags a dump as inconsistent, because something has changed meanwhile. Clears the flag: libmnl
// would leave the rest unread.
bool take_interruption(char* answer, std::size_t bytes) {
    bool interrupted = false;
    int left = static_cast<int>(bytes);
    auto* header = reinterpret_cast<nlmsghdr*>(answer);
    while (mnl_nlmsg_ok(header, left)) {
        interrupted |= (header->nlmsg_flags & NLM_F_DUMP_INTR) != 0;
        header->nlmsg_flags &= static_cast<std::uint16_t>(~NLM_F_DUMP_INTR);
        header = mnl_nlmsg_next(header, &left);
    }
    return interrupted;
}

// Sends `request` and calls `on` for each message of the answer. Error EINTR: a list that changed while it was read.
Result<void> ask(mnl_socket* socket, nlmsghdr* request, OnMessage on) {
    request->nlmsg_seq = kSequence;
    if (mnl_socket_sendto(socket, request, request->nlmsg_len) < 0) {
        return last_error("sending an rtnetlink request");
    }
    alignas(nlmsghdr) std::array<char, kBuffer> answer;
    const bool dump = (request->nlmsg_flags & NLM_F_DUMP) == NLM_F_DUMP;
    bool interrupted = false;
    for (int more = MNL_CB_OK; more > MNL_CB_STOP;) {
        const ssize_t n = mnl_socket_recvfrom(socket, answer.data(), answer.size());
        if (n < 0) {
            return last_error("receiving an rtnetlink answer");
        }
        interrupted |= take_interruption(answer.data(), static_cast<std::size_t>(n));
        more = mnl_cb_run(answer.data(), static_cast<std::size_t>(n), kSequence, mnl_socket_get_portid(socket),
                          on_message, &on);
        if (more < 0) {
            return last_error("reading the answer to an rtnetlink request");
        }
        if (!dump) {
            break;
        }
    }
    return interrupted ? Result<void>(Error{EINTR, "reading a list that changes"}) : Result<void>();
}

template <class Body>
Body* question(std::array<char, kBuffer>& buffer, std::uint16_t type, std::uint16_t flags, nlmsghdr*& header) {
    header = mnl_nlmsg_put_header(buffer.data());
    header->nlmsg_type = type;
    header->nlmsg_flags = static_cast<std::uint16_t>(NLM_F_REQUEST | flags);
    return static_cast<Body*>(mnl_nlmsg_put_extra_header(header, sizeof(Body)));
}

// Calls visit(type, attribute) for each attribute after the header of type Body.
template <class Body, class Visit>
void for_each_attribute(const nlmsghdr* header, Visit visit) {
    const auto visit_one = [](const nlattr* attribute, void* data) {
        (*static_cast<Visit*>(data))(mnl_attr_get_type(attribute), attribute);
        return MNL_CB_OK;
    };
    mnl_attr_parse(header, sizeof(Body), visit_one, &visit);
}

// Requests a list of all objects of a type. `read` gets the body of each message of the answer and makes a T of it, or
// nothing. `ask_for` fills in the body of the request.
template <class Body, class T, class Read>
Result<std::vector<T>> dump(mnl_socket* socket, std::uint16_t type, Read read,
                            void (*ask_for)(Body&, unsigned) = nullptr, unsigned which = 0) {
    std::array<char, kBuffer> buffer;
    nlmsghdr* header = nullptr;
    Body* body = question<Body>(buffer, type, NLM_F_DUMP, header);
    if (ask_for != nullptr) {
        ask_for(*body, which);
    }
    // A list that has changed each time is returned as it is: whoever watches such objects hears of the changes.
    constexpr int kTries = 10;
    std::vector<T> found;
    for (int tried = 1;; tried++) {
        found.clear();
        const auto asked = ask(socket, header, [&](const nlmsghdr* part) {
            if (std::optional<T> one = read(*static_cast<const Body*>(mnl_nlmsg_get_payload(part)), part)) {
                found.push_back(std::move(*one));
            }
        });
        if (asked || (asked.error().code == EINTR && tried == kTries)) {
            return found;
        }
        if (asked.error().code != EINTR) {
            return asked.error();
        }
    }
}

std::optional<std::uint32_t> header_of(unsigned type) {
    switch (type) {
        case ARPHRD_ETHER:
            return ETH_HLEN;
        case ARPHRD_NONE:
        case ARPHRD_RAWIP:
        case ARPHRD_TUNNEL:
        case ARPHRD_TUNNEL6:
        case ARPHRD_SIT:
        case ARPHRD_IPGRE:
        case ARPHRD_PPP:
            return 0;
        default:
            return std::nullopt;
    }
}

// `xdp`: an attribute IFLA_XDP, in which others are nested.
bool is_native_xdp(const nlattr* xdp) {
    bool native = false;
    const auto visit = [](const nlattr* attribute, void* data) {
        if (mnl_attr_get_type(attribute) == IFLA_XDP_ATTACHED) {
            const std::uint8_t mode = mnl_attr_get_u8(attribute);
            *static_cast<bool*>(data) = mode != XDP_ATTACHED_NONE && mode != XDP_ATTACHED_SKB;
        }
        return MNL_CB_OK;
    };
    mnl_attr_parse_nested(xdp, visit, &native);
    return native;
}

// `info`: an attribute IFLA_LINKINFO, in which others are nested. The kind comes before the data of that kind.
void read_kind(NetDevice& device, const nlattr* info) {
    const auto visit = [](const nlattr* attribute, void* data) {
        auto& read = *static_cast<NetDevice*>(data);
        if (mnl_attr_get_type(attribute) == IFLA_INFO_KIND) {
            read.kind = mnl_attr_get_str(attribute);
        } else if (mnl_attr_get_type(attribute) == IFLA_INFO_DATA && read.kind == "vlan") {
            const auto visit_vlan = [](const nlattr* of_vlan, void* vlan) {
                if (mnl_attr_get_type(of_vlan) == IFLA_VLAN_ID) {
                    *static_cast<std::uint16_t*>(vlan) = mnl_attr_get_u16(of_vlan);
                }
                return MNL_CB_OK;
            };
            mnl_attr_parse_nested(attribute, visit_vlan, &read.vlan);
        }
        return MNL_CB_OK;
    };
    mnl_attr_parse_nested(info, visit, &device);
}

Endpoint address_of(const nlattr* attribute, std::uint8_t family) {
    sockaddr_storage storage{};
    storage.ss_family = family;
    const auto* bytes = static_cast<const std::uint8_t*>(mnl_attr_get_payload(attribute));
    if (family == AF_INET) {
        std::copy_n(bytes, 4, reinterpret_cast<std::uint8_t*>(&reinterpret_cast<sockaddr_in&>(storage).sin_addr));
    } else {
        std::copy_n(bytes, 16, reinterpret_cast<std::uint8_t*>(&reinterpret_cast<sockaddr_in6&>(storage).sin6_addr));
    }
    return Endpoint::from_sockaddr(storage);
}

void put_address(nlmsghdr* header, std::uint16_t type, const Endpoint& address) {
    const std::size_t skip = address.is_v4() ? 12 : 0;
    mnl_attr_put(header, type, address.ip.size() - skip, address.ip.data() + skip);
}

}  // namespace

void Rtnetlink::Close::operator()(mnl_socket* socket) const {
    mnl_socket_close(socket);
}

Result<Rtnetlink> Rtnetlink::open(Events events) {
    const bool watch = events == Events::kChanges;
    std::unique_ptr<mnl_socket, Close> socket(
        mnl_socket_open2(NETLINK_ROUTE, SOCK_CLOEXEC | (watch ? SOCK_NONBLOCK : 0)));
    const unsigned groups = watch ? RTMGRP_LINK | RTMGRP_TC | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR : 0;
    if (!socket || mnl_socket_bind(socket.get(), groups, MNL_SOCKET_AUTOPID) < 0) {
        return last_error("opening an rtnetlink socket");
    }
    return Rtnetlink(std::move(socket));
}

Result<std::vector<NetDevice>> Rtnetlink::devices() const {
    return dump<ifinfomsg, NetDevice>(socket_.get(), RTM_GETLINK, [](const ifinfomsg& info, const nlmsghdr* part) {
        NetDevice device;
        device.index = static_cast<unsigned>(info.ifi_index);
        device.up = (info.ifi_flags & IFF_UP) != 0;
        device.loopback = (info.ifi_flags & IFF_LOOPBACK) != 0;
        device.header = header_of(info.ifi_type);
        for_each_attribute<ifinfomsg>(part, [&](unsigned type, const nlattr* attribute) {
            if (type == IFLA_IFNAME) {
                device.name = mnl_attr_get_str(attribute);
            } else if (type == IFLA_MTU) {
                device.mtu = mnl_attr_get_u32(attribute);
            } else if (type == IFLA_ADDRESS && mnl_attr_get_payload_len(attribute) == device.mac.size()) {
                std::copy_n(static_cast<const std::uint8_t*>(mnl_attr_get_payload(attribute)), device.mac.size(),
                            device.mac.begin());
            } else if (type == IFLA_LINK) {
                device.link = mnl_attr_get_u32(attribute);
            } else if (type == IFLA_LINK_NETNSID) {
                device.link_netns = static_cast<int>(mnl_attr_get_u32(attribute));
            } else if (type == IFLA_MASTER) {
                device.controller = mnl_attr_get_u32(attribute);
            } else if (type == IFLA_LINKINFO) {
                read_kind(device, attribute);
            } else if (type == IFLA_XDP) {
                device.native_xdp = is_native_xdp(attribute);
            }
        });
        return std::optional(std::move(device));
    });
}

namespace {

// Of a qdisc or a filter.
std::string kind_of(const nlmsghdr* part) {
    std::string kind;
    for_each_attribute<tcmsg>(part, [&](unsigned type, const nlattr* attribute) {
        if (type == TCA_KIND) {
            kind = mnl_attr_get_str(attribute);
        }
    });
    return kind;
}

int note_flow_rate(const nlattr* option, void* paces) {
    constexpr std::uint32_t kNoLimit = ~std::uint32_t{0};
    if (mnl_attr_get_type(option) == TCA_FQ_FLOW_MAX_RATE && mnl_attr_validate(option, MNL_TYPE_U32) == 0) {
        *static_cast<bool*>(paces) = mnl_attr_get_u32(option) != kNoLimit;
    }
    return MNL_CB_OK;
}

}  // namespace

Result<std::vector<Qdisc>> Rtnetlink::qdiscs() const {
    return dump<tcmsg, Qdisc>(socket_.get(), RTM_GETQDISC, [](const tcmsg& info, const nlmsghdr* part) {
        Qdisc found{static_cast<unsigned>(info.tcm_ifindex), kind_of(part)};
        for_each_attribute<tcmsg>(part, [&](unsigned type, const nlattr* attribute) {
            if (type == TCA_OPTIONS && found.kind == "fq") {
                mnl_attr_parse_nested(attribute, note_flow_rate, &found.paces);
            }
        });
        return std::optional(found);
    });
}

Result<std::vector<Filter>> Rtnetlink::egress_filters(unsigned device) const {
    return dump<tcmsg, Filter>(
        socket_.get(), RTM_GETTFILTER,
        [](const tcmsg& info, const nlmsghdr* part) {
            return std::optional(Filter{TC_H_MAJ(info.tcm_info) >> 16, kind_of(part)});
        },
        [](tcmsg& which, unsigned index) {
            which.tcm_ifindex = static_cast<int>(index);
            which.tcm_parent = TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_EGRESS);
        },
        device);
}

std::optional<int> Rtnetlink::netns_id(int netns_fd) const {
    std::array<char, kBuffer> buffer;
    nlmsghdr* header = nullptr;
    question<rtgenmsg>(buffer, RTM_GETNSID, 0, header)->rtgen_family = AF_UNSPEC;
    mnl_attr_put_u32(header, NETNSA_FD, static_cast<std::uint32_t>(netns_fd));
    int id = -1;
    const auto asked = ask(socket_.get(), header, [&](const nlmsghdr* part) {
        for_each_attribute<rtgenmsg>(part, [&](unsigned type, const nlattr* attribute) {
            if (type == NETNSA_NSID) {
                id = static_cast<int>(mnl_attr_get_u32(attribute));
            }
        });
    });
    return asked && id >= 0 ? std::optional(id) : std::nullopt;
}

Result<std::vector<NetAddress>> Rtnetlink::addresses() const {
    return dump<ifaddrmsg, NetAddress>(
        socket_.get(), RTM_GETADDR, [](const ifaddrmsg& info, const nlmsghdr* part) -> std::optional<NetAddress> {
            if (info.ifa_family != AF_INET && info.ifa_family != AF_INET6) {
                return std::nullopt;
            }
            NetAddress entry;
            entry.prefix_bits = info.ifa_prefixlen;
            entry.device = info.ifa_index;
            bool local = false;
            for_each_attribute<ifaddrmsg>(part, [&](unsigned type, const nlattr* attribute) {
                // If both are there, IFA_ADDRESS is the address of the other end.
                if (type == IFA_LOCAL || (type == IFA_ADDRESS && !local)) {
                    entry.address = address_of(attribute, info.ifa_family);
                    local |= type == IFA_LOCAL;
                }
            });
            return entry;
        });
}

std::optional<Rtnetlink::Route> Rtnetlink::route(const std::optional<Endpoint>& from, const Endpoint& to,
                                                 const RoutedSocket& socket) const {
    if (from && from->is_v4() != to.is_v4()) {
        return std::nullopt;
    }
    std::array<char, kBuffer> buffer;
    nlmsghdr* header = nullptr;
    auto* wanted = question<rtmsg>(buffer, RTM_GETROUTE, 0, header);
    wanted->rtm_family = static_cast<std::uint8_t>(to.family());
    wanted->rtm_dst_len = to.is_v4() ? 32 : 128;
    put_address(header, RTA_DST, to);
    if (from) {
        wanted->rtm_src_len = wanted->rtm_dst_len;
        put_address(header, RTA_SRC, *from);
    }
    mnl_attr_put_u8(header, RTA_IP_PROTO, static_cast<std::uint8_t>(socket.protocol));
    if (socket.mark != 0) {
        mnl_attr_put_u32(header, RTA_MARK, socket.mark);
    }
    if (socket.uid) {
        mnl_attr_put_u32(header, RTA_UID, *socket.uid);
    }
    std::optional<Route> found;
    const auto asked = ask(socket_.get(), header, [&](const nlmsghdr* part) {
        if (part->nlmsg_type != RTM_NEWROUTE) {
            return;
        }
        found.emplace();
        for_each_attribute<rtmsg>(part, [&](unsigned type, const nlattr* attribute) {
            if (type == RTA_OIF) {
                found->device = mnl_attr_get_u32(attribute);
            }
            found->gateway |= type == RTA_GATEWAY || type == RTA_VIA;
        });
    });
    return asked ? found : std::nullopt;
}

bool Rtnetlink::routes_by_ports(int family) const {
    const auto rules = dump<fib_rule_hdr, bool>(
        socket_.get(), RTM_GETRULE,
        [](const fib_rule_hdr&, const nlmsghdr* part) -> std::optional<bool> {
            bool by_ports = false, of_tcp = true;
            for_each_attribute<fib_rule_hdr>(part, [&](unsigned type, const nlattr* attribute) {
                by_ports |= type == FRA_IP_PROTO || type == FRA_SPORT_RANGE || type == FRA_DPORT_RANGE;
                of_tcp &= type != FRA_IP_PROTO || mnl_attr_get_u8(attribute) == IPPROTO_TCP;
            });
            return by_ports && of_tcp;
        },
        [](fib_rule_hdr& which, unsigned wanted) { which.family = static_cast<std::uint8_t>(wanted); },
        static_cast<unsigned>(family));
    return !rules || std::ranges::find(*rules, true) != rules->end();
}

std::uint64_t Rtnetlink::netns_cookie() const {
    std::uint64_t cookie = 0;
    socklen_t length = sizeof cookie;
    return ::getsockopt(fd(), SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &length) == 0 ? cookie : 0;
}

int Rtnetlink::fd() const {
    return mnl_socket_get_fd(socket_.get());
}

void Rtnetlink::drain() const {
    std::array<char, kBuffer> dropped;
    while (::recv(fd(), dropped.data(), dropped.size(), MSG_DONTWAIT) > 0) {
    }
}

}  // namespace smc
