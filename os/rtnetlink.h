// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the kernel knows about the network of one namespace: its devices, addresses and routes, asked over rtnetlink.
// The socket belongs to the namespace in which it was opened, wherever the asking thread is.
#pragma once

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
    // Bytes before the IP header of its packets: 14 for Ethernet, 0 for a device without; nothing if that is not known.
    std::optional<std::uint32_t> header;
    std::array<std::uint8_t, 6> mac{};  // zeros where it has none of that length
    bool native_xdp = false;            // a program that its driver or the hardware runs
    // Of a pair (veth) whose other end is in another namespace: its index there, and how this namespace knows that one.
    unsigned opposite = 0;
    std::optional<int> opposite_netns;
};

struct Qdisc {
    unsigned device = 0;  // index
    std::string kind;     // "tbf"
};

struct NetAddress {
    Endpoint address;              // port 0
    std::uint8_t prefix_bits = 0;  // in its own family
    unsigned device = 0;           // index
};

class Rtnetlink {
 public:
    // kChanges: of devices, their qdiscs and filters, and addresses.
    enum class Events : bool { kNone, kChanges };

    // In the calling thread's network namespace. With events, fd() tells of changes; questions should then be asked
    // over another one.
    static Result<Rtnetlink> open(Events events = Events::kNone);
    ~Rtnetlink() = default;
    Rtnetlink(Rtnetlink&&) noexcept = default;
    Rtnetlink& operator=(Rtnetlink&&) noexcept = default;
    Rtnetlink(const Rtnetlink&) = delete;
    Rtnetlink& operator=(const Rtnetlink&) = delete;

    [[nodiscard]] Result<std::vector<NetDevice>> devices() const;
    [[nodiscard]] Result<std::vector<NetAddress>> addresses() const;
    // Of all devices; without those that nobody has chosen and that only pass packets on ("noqueue").
    [[nodiscard]] Result<std::vector<Qdisc>> qdiscs() const;
    // Priorities of the filters at the egress of a device's clsact qdisc.
    [[nodiscard]] Result<std::vector<unsigned>> egress_filters(unsigned device) const;
    // How this namespace knows another one; nothing: it does not.
    [[nodiscard]] std::optional<int> netns_id(int netns_fd) const;
    // Whether the way from one address to the other has no router, as the routing table sees it. False also when there
    // is no way. Both of one family; ports do not matter.
    [[nodiscard]] bool is_direct(const Endpoint& from, const Endpoint& to) const;
    // The cookie of the network namespace; 0 if the kernel has none.
    [[nodiscard]] std::uint64_t netns_cookie() const;

    // With events: readable when something changed; drain() forgets it.
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
