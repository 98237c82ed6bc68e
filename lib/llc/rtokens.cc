// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "smc/llc/rtokens.h"

#include <algorithm>

namespace smc::llc {

namespace {

auto has(std::uint8_t link, RKey rkey) {
    return [link, rkey](const RTokenSet& set) {
        const auto it = set.find(link);
        return it != set.end() && it->second.rkey == rkey;
    };
}

}  // namespace

const RTokenSet* PeerRmbs::find(std::uint8_t link, RKey rkey) const {
    const auto it = std::ranges::find_if(rmbs_, has(link, rkey));
    return it == rmbs_.end() ? nullptr : &*it;
}

const RTokenSet* PeerRmbs::note_rmb(std::uint8_t link, const RToken& token) {
    return note_rmb(RTokenSet{{link, token}});
}

const RTokenSet* PeerRmbs::note_rmb(const RTokenSet& tokens) {
    for (const auto& [link, token] : tokens) {
        if (const auto it = std::ranges::find_if(rmbs_, has(link, token.rkey)); it != rmbs_.end()) {
            for (const auto& [number, one] : tokens) {
                it->insert_or_assign(number, one);
            }
            return &*it;
        }
    }
    if (rmbs_.size() >= kMaxRmbs) {
        return nullptr;
    }
    return &rmbs_.emplace_back(tokens);
}

const RTokenSet* PeerRmbs::pair(std::uint8_t known, std::uint8_t added, const RTokenPair& pair) {
    const auto it = std::ranges::find_if(rmbs_, has(known, pair.reference));
    if (it == rmbs_.end()) {
        return nullptr;
    }
    it->insert_or_assign(added, RToken{pair.rkey, pair.address});
    return &*it;
}

std::optional<RTokenSet> PeerRmbs::forget(std::uint8_t link, RKey rkey) {
    const auto it = std::ranges::find_if(rmbs_, has(link, rkey));
    if (it == rmbs_.end()) {
        return std::nullopt;
    }
    RTokenSet was = std::move(*it);
    rmbs_.erase(it);
    return was;
}

void PeerRmbs::forget_link(std::uint8_t link) {
    for (RTokenSet& set : rmbs_) {
        set.erase(link);
    }
    std::erase_if(rmbs_, [](const RTokenSet& set) { return set.empty(); });
}

}  // namespace smc::llc
