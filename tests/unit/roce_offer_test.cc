// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <catch2/catch.hpp>

#include "agent/smcr/offer.h"

using namespace smc;
using smcr::Local;
using smcr::ports_to_offer;

namespace {

RoceGid gid(const char* text) {
    return *RoceGid::parse(text);
}

roce::Port port(const char* device, std::uint8_t mac, std::vector<const char*> v2, std::vector<const char*> v1 = {},
                std::uint16_t vlan = 0) {
    roce::Port made;
    made.device = device;
    made.active = true;
    for (const char* text : v2) {
        made.gids.push_back({gid(text), roce::RoceVersion::kV2, 0, {}, {{mac}}, vlan});
    }
    for (const char* text : v1) {
        made.gids_v1.push_back({gid(text), roce::RoceVersion::kV1, 0, {}, {{mac}}, vlan});
    }
    return made;
}

std::vector<std::string> gids_of(const std::optional<clc::RoceOffer>& offer) {
    std::vector<std::string> texts;
    for (const RoceGid& one : offer.value().gids) {
        texts.push_back(one.text());
    }
    return texts;
}

const Local kLocal{gid("10.0.0.1"), 0};

}  // namespace

// RFC 7609 section 3.5.1.2: version 1 needs no RoCEv2.
TEST_CASE("roce_offer__a_device_with_rocev1_alone_is_offered_for_version_1") {
    const std::vector only{port("mlx4_0", 7, {}, {"10.0.0.1"})};
    const auto offer = ports_to_offer(only, kLocal, true, true, true).value();
    CHECK(offer.v1);
    CHECK_FALSE(offer.v2);
    CHECK(offer.v1_gid == gid("10.0.0.1"));
    CHECK(offer.mac.bytes[0] == 7);
    CHECK_FALSE(ports_to_offer(only, kLocal, false, true, true));
}

TEST_CASE("roce_offer__version_1_uses_rocev1_where_there_is_some") {
    const auto both = ports_to_offer({port("a", 7, {"10.0.0.1"}, {"10.0.0.1", "fe80::1"})}, kLocal, true, true, true);
    CHECK((both.value().v1 && both->v2));
    CHECK(both->v1_gid == gid("10.0.0.1"));
    const auto soft = ports_to_offer({port("rxe0", 7, {"10.0.0.1"})}, kLocal, true, false, true);
    CHECK((soft.value().v1 && !soft->v2));
    CHECK(soft->v1_gid == gid("10.0.0.1"));
    CHECK(soft->gids.empty());
    // A kernel uses RoCEv1 for version 1, and its queue pair would not reach this port.
    CHECK_FALSE(ports_to_offer({port("rxe0", 7, {"10.0.0.1"})}, kLocal, true, false, false));
    const auto kernel = ports_to_offer({port("rxe0", 7, {"10.0.0.1"})}, kLocal, true, true, false);
    CHECK((!kernel.value().v1 && kernel->v2));
}

TEST_CASE("roce_offer__two_ports_are_not_offered_with_the_mac_of_one") {
    const std::vector ports{port("a", 7, {"10.0.0.1"}), port("b", 8, {"10.0.0.3"}, {"10.0.0.1"})};
    const auto both = ports_to_offer(ports, kLocal, true, true, true).value();
    CHECK((both.v2 && !both.v1 && both.mac.bytes[0] == 7));
    CHECK(ports_to_offer(ports, kLocal, true, false, true).value().mac.bytes[0] == 8);
}

// v2.1, Client RoCEv2 GID List, notes 2 and 6b: the server takes the first one that is not in use for the second link.
TEST_CASE("roce_offer__other_ports_are_offered_and_no_second_address_of_one_port") {
    std::vector ports{port("a", 7, {"10.0.0.7", "10.0.0.1", "10.0.0.8"}), port("b", 8, {"fd00::2", "10.0.0.2"}),
                      port("c", 9, {"fd00::3"}), port("d", 10, {"10.0.9.9"}, {}, 100)};
    CHECK(gids_of(ports_to_offer(ports, kLocal, true, true, true)) ==
          std::vector<std::string>{"::ffff:10.0.0.1", "::ffff:10.0.0.2"});
    ports[1].active = false;
    CHECK(gids_of(ports_to_offer(ports, kLocal, true, true, true)) == std::vector<std::string>{"::ffff:10.0.0.1"});
}

TEST_CASE("roce_offer__no_more_gids_than_a_confirm_has_room_for") {
    std::vector<roce::Port> ports;
    for (int i = 1; i < 12; i++) {
        ports.push_back(port("p", 1, {("10.0.0." + std::to_string(i)).c_str()}));
    }
    CHECK(gids_of(ports_to_offer(ports, kLocal, false, true, true)).size() == clc::kMaxGids);
}

TEST_CASE("roce_offer__an_unknown_vlan_has_no_port") {
    CHECK_FALSE(ports_to_offer({port("a", 7, {"10.0.0.1"})}, {gid("10.0.0.1"), std::nullopt}, true, true, true));
}
