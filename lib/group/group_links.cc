// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "smc/group/group_links.h"

#include <algorithm>

namespace smc::group {

namespace {

bool same(const RoceGid& a, const RoceGid& b) {
    return a.normalised() == b.normalised();
}

}  // namespace

const char* text(GroupType type) {
    switch (type) {
        case GroupType::kNone:
            return "NONE";
        case GroupType::kSingle:
            return "SINGLE";
        case GroupType::kSymmetric:
            return "SYMMETRIC";
        case GroupType::kAsymmetricPeer:
            return "ASYMMETRIC_PEER";
        case GroupType::kAsymmetricLocal:
            return "ASYMMETRIC_LOCAL";
    }
    return "?";
}

GroupLink& GroupLinks::add(std::uint8_t number, const LocalPort& port) {
    GroupLink& link = links_[number];
    gone_.erase(number);
    link.port = port;
    last_ = std::max(last_, number);
    return link;
}

void GroupLinks::confirmed(GroupLink& link) {
    link.state = GroupLink::State::kUp;
    redundant_ = redundant_ || up().size() > 1;
}

void GroupLinks::erase(std::uint8_t number) {
    if (const GroupLink* link = find(number); link != nullptr && link->state >= GroupLink::State::kUp) {
        gone_[number] = link->peer;
    }
    links_.erase(number);
}

GroupLink* GroupLinks::find(std::uint8_t number) {
    const auto it = links_.find(number);
    return it == links_.end() ? nullptr : &it->second;
}

const GroupLink* GroupLinks::find(std::uint8_t number) const {
    const auto it = links_.find(number);
    return it == links_.end() ? nullptr : &it->second;
}

std::vector<std::uint8_t> GroupLinks::up() const {
    std::vector<std::uint8_t> out;
    for (const auto& [number, link] : links_) {
        if (link.state == GroupLink::State::kUp) {
            out.push_back(number);
        }
    }
    return out;
}

std::optional<std::uint8_t> GroupLinks::with_peer(const QpEnd& peer) const {
    for (const auto& [number, link] : links_) {
        // RFC 7609 identifies a port by its MAC address, too (section 3.5.1.3); SMC v2 does not.
        const bool same_port = link.port.version != clc::kVersion1 || link.peer.mac == peer.mac;
        if (link.state == GroupLink::State::kUp && link.peer.is(peer) && same_port) {
            return number;
        }
    }
    return std::nullopt;
}

std::optional<std::uint8_t> GroupLinks::once_with_peer(const QpEnd& peer) const {
    for (const auto& [number, link] : links_) {
        if (link.state == GroupLink::State::kRetired && link.peer.is(peer)) {
            return number;
        }
    }
    for (const auto& [number, end] : gone_) {
        if (end.is(peer)) {
            return number;
        }
    }
    return std::nullopt;
}

std::uint8_t GroupLinks::next_number() {
    do {
        last_ = last_ == 255 ? std::uint8_t{1} : static_cast<std::uint8_t>(last_ + 1);
    } while (links_.contains(last_));
    return last_;
}

bool GroupLinks::uses(const LocalPort& port) const {
    return std::ranges::any_of(links_, [&](const auto& entry) { return entry.second.port.is(port); });
}

bool GroupLinks::has_peer(const RoceGid& gid) const {
    return std::ranges::any_of(links_, [&](const auto& entry) { return same(entry.second.peer.gid, gid); });
}

GroupType GroupLinks::type() const {
    const auto numbers = up();
    if (numbers.size() <= 1) {
        return numbers.empty() ? GroupType::kNone : GroupType::kSingle;
    }
    bool local = true, peer = true;  // whether all links share one port of this node, and one of the peer
    const GroupLink& first = links_.at(numbers.front());
    for (const std::uint8_t number : numbers) {
        local &= links_.at(number).port.is(first.port);
        peer &= same(links_.at(number).peer.gid, first.peer.gid);
    }
    return local ? GroupType::kAsymmetricLocal : peer ? GroupType::kAsymmetricPeer : GroupType::kSymmetric;
}

// How many ends this link has in common with other links.
unsigned GroupLinks::shares(std::uint8_t number) const {
    const GroupLink& link = links_.at(number);
    unsigned n = 0;
    for (const std::uint8_t other : up()) {
        if (other != number) {
            n += (links_.at(other).port.is(link.port) ? 1U : 0U) +
                 (same(links_.at(other).peer.gid, link.peer.gid) ? 1U : 0U);
        }
    }
    return n;
}

std::optional<std::uint8_t> GroupLinks::surplus() const {
    const auto numbers = up();
    if (numbers.size() <= 2) {
        return std::nullopt;
    }
    return *std::ranges::max_element(numbers, {}, [&](std::uint8_t number) { return shares(number); });
}

std::vector<LocalPort> GroupLinks::candidates(const std::vector<LocalPort>& ports) const {
    std::vector<LocalPort> out;
    if (links_.empty()) {
        return out;
    }
    const GroupLink& first = links_.begin()->second;
    for (const LocalPort& port : ports) {
        const bool fits = port.version == first.port.version && port.pnet_id == first.port.pnet_id &&
                          port.vlan == first.port.vlan && port.gid.is_v4() == first.port.gid.is_v4();
        if (fits && !uses(port)) {
            out.push_back(port);
        }
    }
    // Also the port of an asymmetric link: that link will be deleted, which frees its port.
    for (auto it = std::next(links_.begin()); it != links_.end(); ++it) {
        const bool there = std::ranges::any_of(ports, [&](const LocalPort& port) { return port.is(it->second.port); });
        if (there && !it->second.port.is(first.port)) {
            out.push_back(it->second.port);
        }
    }
    return out;
}

}  // namespace smc::group
