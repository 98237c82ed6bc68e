// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The links of an SMC-R link group as a table, what kind of group they make (RFC 7609 section 2.2.1), and which ports a
// further one would use.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "smc/group/actions.h"
#include "smc/wire/qp_end.h"

namespace smc::group {

struct GroupLink {
    // kCreating -> kReady (queue pair and memory are there) -> kConnecting -> kConfirming (LLC has it) -> kUp ->
    // kRetired (nobody uses it any more, and it works)
    enum class State : std::uint8_t { kCreating, kReady, kConnecting, kConfirming, kUp, kRetired };
    LocalPort port;
    State state = State::kCreating;
    bool exists = false;  // the queue pair
    QpEnd own, peer;
    LinkId own_id{}, peer_id{};
    bool direct = false;
};

// Names as Linux has them.
enum class GroupType : std::uint8_t {
    kNone,
    kSingle,
    kSymmetric,
    kAsymmetricPeer,   // the peer has one port, this node two
    kAsymmetricLocal,  // this node has one port, the peer two
};
const char* text(GroupType type);

class GroupLinks {
 public:
    GroupLink& add(std::uint8_t number, const LocalPort& port);
    void erase(std::uint8_t number);
    // nullptr: there is none.
    [[nodiscard]] GroupLink* find(std::uint8_t number);
    [[nodiscard]] const GroupLink* find(std::uint8_t number) const;
    [[nodiscard]] const std::map<std::uint8_t, GroupLink>& all() const { return links_; }
    [[nodiscard]] std::vector<std::uint8_t> up() const;
    // A link whose peer's end is this; nothing: there is none that is up.
    [[nodiscard]] std::optional<std::uint8_t> with_peer(const QpEnd& peer) const;
    // The same of one that was up: the peer named it before it knew better. Its number has not been used again.
    [[nodiscard]] std::optional<std::uint8_t> once_with_peer(const QpEnd& peer) const;
    // A number that was not used for as long as possible (section 2.2.4).
    [[nodiscard]] std::uint8_t next_number();

    // LLC has agreed on it.
    void confirmed(GroupLink& link);
    // It has had a second link, and has none now.
    [[nodiscard]] bool degraded() const { return redundant_ && up().size() < 2; }

    [[nodiscard]] GroupType type() const;
    // The link that a symmetric group would do without: it shares its ports with others. Nothing: there is none.
    [[nodiscard]] std::optional<std::uint8_t> surplus() const;
    // Ports of `ports` that a further link may use, the best one first: one that no link uses, then the one that only
    // an asymmetric link uses. Of the family and version of the first link.
    [[nodiscard]] std::vector<LocalPort> candidates(const std::vector<LocalPort>& ports) const;
    [[nodiscard]] bool uses(const LocalPort& port) const;
    [[nodiscard]] bool has_peer(const RoceGid& gid) const;

 private:
    [[nodiscard]] unsigned shares(std::uint8_t number) const;
    std::map<std::uint8_t, GroupLink> links_;
    std::map<std::uint8_t, QpEnd> gone_;  // peers' ends
    std::uint8_t last_ = 0;
    bool redundant_ = false;
};

}  // namespace smc::group
