// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Rules of a device (queueing, filters) that packets of a leg would bypass.
#include "agent/steer/device_limits.h"

#include <catch2/catch.hpp>

using namespace smc::bpf;

TEST_CASE("device_limits__queueing_disciplines_that_only_queue_limit_nothing") {
    CHECK(limit_of({}, std::nullopt).empty());
    CHECK(limit_of({.qdiscs = {"mq", "fq_codel", "clsact"}, .opposite = {"noqueue"}}, std::nullopt).empty());
    for (const char* kind : {"tbf", "htb", "hfsc", "netem", "cake", "prio", "somebody's"}) {
        CHECK(limit_of({.qdiscs = {"mq", kind}}, std::nullopt) == "its queueing discipline is " + std::string(kind));
        CHECK(limit_of({.opposite = {kind}}, 7) == "the queueing discipline of its other end is " + std::string(kind));
    }
}

TEST_CASE("device_limits__filters_count_that_come_behind_ours") {
    const std::string says = "it has filters at its egress (clsact)";
    const smc::Filter first{1, "bpf"}, ours{100, "bpf"}, last{101, "bpf"};
    CHECK(limit_of({.filters = {first}}, std::nullopt) == says);  // the agent's program is tcx, which runs before them
    CHECK(limit_of({.filters = {first, ours}}, 100).empty());
    CHECK(limit_of({.filters = {first, ours, last}}, 100) == says);
}

TEST_CASE("device_limits__filters_in_front_of_ours_that_match_some_packets_only") {
    for (const char* kind : {"flower", "u32", "matchall", "fw", "basic"}) {
        CHECK(limit_of({.filters = {{1, kind}, {100, "bpf"}}}, 100) == "it has filters at its egress (clsact)");
    }
}

TEST_CASE("device_limits__tcx_and_xdp_of_a_driver") {
    CHECK(limit_of({.tcx_behind = true}, std::nullopt) == "it has programs at its egress behind the agent's (tcx)");
    CHECK(limit_of({.native_xdp = true}, std::nullopt) == "it has a native XDP program");
}

TEST_CASE("device_limits__devices_that_encrypt_or_stand_on_one_that_does") {
    const auto device = [](unsigned index, const char* kind, std::uint32_t header, unsigned link = 0) {
        smc::NetDevice made;
        made.index = index;
        made.kind = kind;
        made.header = header;
        made.link = link;
        return made;
    };
    const std::vector<smc::NetDevice> devices{
        device(2, "", 14),           device(3, "wireguard", 0),  device(4, "tun", 0),       device(5, "tun", 14),
        device(6, "macsec", 14, 2),  device(7, "vlan", 14, 6),   device(8, "vlan", 14, 2),  device(9, "gre", 0, 2),
        device(10, "netkit", 0, 10), device(11, "veth", 14, 12), device(12, "veth", 14, 11)};
    std::vector<unsigned> found;
    for (const smc::NetDevice& one : devices) {
        if (encrypts(one, devices)) {
            found.push_back(one.index);
        }
    }
    CHECK(found == std::vector<unsigned>{3, 4, 6, 7});

    std::vector<smc::NetDevice> bridged = devices;
    bridged.push_back(device(20, "bridge", 14));
    bridged.push_back(device(21, "bridge", 14));
    bridged[5].controller = 20;  // the VLAN on MACsec
    bridged[6].controller = 21;  // the other VLAN
    CHECK(encrypts(device(20, "bridge", 14), bridged));
    CHECK_FALSE(encrypts(device(21, "bridge", 14), bridged));

    smc::NetDevice pod = device(2, "veth", 14, 3);  // its other end is device 3 of another namespace
    pod.link_netns = 0;
    CHECK_FALSE(encrypts(pod, devices));
}
