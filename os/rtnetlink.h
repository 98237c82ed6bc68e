// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Asks the kernel about the devices, addresses and routes of one network namespace, over rtnetlink. The socket belongs
// to the namespace in which it was opened, wherever the calling thread is.
#pragma once

#include <netinet/in.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "os/endpoint.h"
#include "os/result.h"

struct mnl_socket;

namespace smc {

struct NetDevice {
    unsigned index = 0;
    std::string name;
    unsigned mtu = 0;
    bool up = false;
    bool loopback = false;
    // Bytes before the IP header of its packets: 14 for Ethernet, 0 if there is no link header; nothing: not known.
    std::optional<std::uint32_t> header;
    std::array<std::uint8_t, 6> mac{};  // zeros: it has no address of this length
    bool native_xdp = false;            // it has an XDP program that its driver or the hardware runs
    std::string kind;                   // "vlan", "veth", "macvlan"; empty: the kernel calls it by no kind
    std::uint16_t vlan = 0;             // kind "vlan": its VLAN ID; 0: none
    unsigned controller = 0;            // index of the bridge, bond, team or VRF that it is a port of; 0: none
    // The device below, or the other end of a veth pair (IFLA_LINK): its index, and, if it is in another namespace, the
    // ID of that namespace as seen from this one (IFLA_LINK_NETNSID).
    unsigned link = 0;
    std::optional<int> link_netns;
};

struct Qdisc {
    unsigned device = 0;  // index
    std::string kind;     // "tbf"
    bool paces = false;   // kind "fq": it limits the rate of each flow (maxrate)
};

struct Filter {
    unsigned priority = 0;
    std::string kind;  // "bpf", "flower"
};

struct NetAddress {
    Endpoint address;              // port 0
    std::uint8_t prefix_bits = 0;  // in its own family
    unsigned device = 0;           // index
};

// The socket whose packets are routed. Without a user it is the caller's.
struct RoutedSocket {
    int protocol = IPPROTO_UDP;  // that of RoCEv2
    std::uint32_t mark = 0;
    std::optional<std::uint32_t> uid{};
};

class Rtnetlink {
 public:
    // kChanges: changes of devices, their qdiscs and filters, and addresses.
    enum class Events : bool { kNone, kChanges };

    // Opens a socket in the calling thread's network namespace. With events, fd() reports changes; queries then need
    // another Rtnetlink.
    static Result<Rtnetlink> open(Events events = Events::kNone);
    ~Rtnetlink() = default;
    Rtnetlink(Rtnetlink&&) noexcept = default;
    Rtnetlink& operator=(Rtnetlink&&) noexcept = default;
    Rtnetlink(const Rtnetlink&) = delete;
    Rtnetlink& operator=(const Rtnetlink&) = delete;

    [[nodiscard]] Result<std::vector<NetDevice>> devices() const;
    [[nodiscard]] Result<std::vector<NetAddress>> addresses() const;
    // The qdiscs of all devices, except those that the kernel does not list unless asked to (TCA_DUMP_INVISIBLE).
    [[nodiscard]] Result<std::vector<Qdisc>> qdiscs() const;
    // The filters at the egress of a device's clsact qdisc.
    [[nodiscard]] Result<std::vector<Filter>> egress_filters(unsigned device) const;
    // The ID that this namespace has for another one; nothing: it has none.
    [[nodiscard]] std::optional<int> netns_id(int netns_fd) const;
    struct Route {
        unsigned device = 0;  // index of the device by which packets leave
        bool gateway = false;
    };
    // The route to an address; ports do not matter. `from`: the source address, which must be one of the namespace.
    // Nothing: there is no route, or the addresses are of different families.
    [[nodiscard]] std::optional<Route> route(const std::optional<Endpoint>& from, const Endpoint& to,
                                             const RoutedSocket& socket = {}) const;
    // Whether rules route TCP connections of a family by their ports or their protocol, so that route() does not tell
    // everything. Also true if the rules cannot be read.
    [[nodiscard]] bool routes_by_ports(int family) const;
    // The cookie of the network namespace; 0 if the kernel has none.
    [[nodiscard]] std::uint64_t netns_cookie() const;

    // With events: readable from a change until drain().
    [[nodiscard]] int fd() const;
    void drain() const;

 private:
    struct Close {
        void operator()(mnl_socket* socket) const;
    };
    explicit Rtnetlink(std::unique_ptr<mnl_socket, Close> socket) : socket_(std::move(socket)) {}

    std::unique_ptr<mnl_socket, Close> socket_;
};

}  // namespace smc
