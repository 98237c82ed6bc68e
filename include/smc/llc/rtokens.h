// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The RMBs of a link group, and how each is reached over each link (RFC 7609 section 3.5.5.2: the RToken set).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "smc/wire/llc.h"

namespace smc::llc {

// How an RMB is reached over one link.
struct RToken {
    RKey rkey{};
    VirtualAddress address{};
    bool operator==(const RToken&) const = default;
};
// The tokens of one RMB, by the link's number.
using RTokenSet = std::map<std::uint8_t, RToken>;

// The number by which the user of this library names an RMB of this side.
enum class RmbId : std::uint32_t {};

// The peer's RMBs as it has told of them: by CLC, by CONFIRM RKEY, and with each link that was added. At most kMaxRmbs.
class PeerRmbs {
 public:
    // Records tokens of an RMB. nullptr: the peer has more RMBs than a group may have.
    const RTokenSet* note_rmb(std::uint8_t link, const RToken& token);
    const RTokenSet* note_rmb(const RTokenSet& tokens);
    // Records the token on the link `added` of the RMB that is known as `pair.reference` on `known`. nullptr: there is
    // none.
    const RTokenSet* pair(std::uint8_t known, std::uint8_t added, const RTokenPair& pair);
    // nullptr: not known.
    [[nodiscard]] const RTokenSet* find(std::uint8_t link, RKey rkey) const;
    // Returns the tokens of the RMB that was removed; nothing: there was none.
    std::optional<RTokenSet> forget(std::uint8_t link, RKey rkey);
    void forget_link(std::uint8_t link);

 private:
    std::vector<RTokenSet> rmbs_;
};

}  // namespace smc::llc
