// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The VLAN by which a device's packets leave the node.
#include "agent/steer/vlans.h"

#include <catch2/catch.hpp>

using namespace smc;

namespace {

constexpr int kNode = 7;  // the ID of the agent's namespace in the examined one

NetDevice device(unsigned index, const char* kind, unsigned link = 0) {
    NetDevice made;
    made.index = index;
    made.kind = kind;
    made.link = link;
    return made;
}

NetDevice vlan(unsigned index, std::uint16_t id, unsigned link) {
    NetDevice made = device(index, "vlan", link);
    made.vlan = id;
    return made;
}

NetDevice port_of(unsigned controller, NetDevice made) {
    made.controller = controller;
    return made;
}

// The device's `link` is one of the agent's namespace.
NetDevice of_node(NetDevice made, int netns = kNode) {
    made.link_netns = netns;
    return made;
}

std::uint16_t in(const Vlans& vlans, unsigned index) {
    return vlans.of(index);
}

}  // namespace

TEST_CASE("vlans__a_device_has_its_own_or_that_of_the_device_below_it") {
    const Vlans vlans({device(2, ""), vlan(3, 100, 2), device(4, "macvlan", 3), device(5, "ipvlan", 2),
                       device(6, "bridge"), port_of(6, vlan(7, 200, 2)), port_of(6, device(8, "veth", 9)),
                       device(9, "veth", 8), vlan(10, 5, 3), device(11, "macvlan", 6)},
                      {}, std::nullopt);
    CHECK(vlans.any());
    CHECK(in(vlans, 2) == 0);
    CHECK(in(vlans, 3) == 100);
    CHECK(in(vlans, 4) == 100);
    CHECK(in(vlans, 5) == 0);
    CHECK(in(vlans, 6) == 200);
    CHECK(in(vlans, 8) == 0);
    CHECK(in(vlans, 9) == 0);  // as for net/smc, the other end of a veth pair is not below it
    CHECK(in(vlans, 10) == 5);
    CHECK(in(vlans, 11) == 200);
    CHECK(in(vlans, 99) == 0);
}

TEST_CASE("vlans__a_pod_has_that_of_the_nodes_device_that_it_sends_by") {
    const std::vector<NetDevice> node{device(2, ""),
                                      vlan(3, 100, 2),
                                      device(4, "bridge"),
                                      port_of(4, vlan(5, 200, 2)),
                                      port_of(4, device(6, "veth", 2)),
                                      device(7, "bridge"),
                                      device(9, "veth", 2),
                                      port_of(7, device(8, "veth", 2))};
    CHECK(in(Vlans({of_node(device(2, "macvlan", 3))}, node, kNode), 2) == 100);
    CHECK(in(Vlans({of_node(device(2, "ipvlan", 2))}, node, kNode), 2) == 0);
    CHECK(in(Vlans({of_node(device(2, "veth", 6))}, node, kNode), 2) == 200);  // by the bridge and its port
    CHECK(in(Vlans({of_node(device(2, "veth", 8))}, node, kNode), 2) == 0);
    CHECK_FALSE(Vlans({of_node(device(2, "veth", 9))}, node, kNode).any());  // the node routes what it sends
    CHECK(in(Vlans({of_node(device(2, "macvlan", 3), kNode + 1)}, node, kNode), 2) == 0);  // another namespace's
    CHECK(in(Vlans({of_node(device(2, "macvlan", 3))}, node, std::nullopt), 2) == 0);
}

TEST_CASE("vlans__devices_that_seem_to_be_below_each_other_end") {
    CHECK_FALSE(Vlans({device(2, "macvlan", 3), device(3, "macvlan", 2)}, {}, std::nullopt).any());
    CHECK(Vlans({device(2, "macvlan", 3), port_of(2, vlan(4, 7, 3)), device(3, "bridge")}, {}, std::nullopt).of(4) ==
          7);
}
