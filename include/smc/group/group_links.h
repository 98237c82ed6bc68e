// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The links of an SMC-R link group as a table, the type of group that they form (RFC 7609 section 2.2.1), and the ports
// that a further link may use.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "smc/group/actions.h"
#include "smc/time.h"
#include "smc/wire/qp_end.h"

namespace smc::group {

struct GroupLink {
    // kCreating -> kReady (the queue pair exists, memory is registered) -> kConnecting -> kConfirming (by LLC) -> kUp
    // -> kRetired (it still works, but no connection may use it)
    enum class State : std::uint8_t { kCreating, kReady, kConnecting, kConfirming, kUp, kRetired };
    LocalPort port;
    State state = State::kCreating;
    bool exists = false;  // the queue pair was created
    QpEnd own, peer;
    LinkId own_id{}, peer_id{};
    bool direct = false;
    TimePoint usable_from{};  // before that, new connections get another link if there is one
};

// text() returns the names that Linux uses.
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
    // The link that is up and whose other end is `peer`; nothing: there is none.
    [[nodiscard]] std::optional<std::uint8_t> with_peer(const QpEnd& peer) const;
    // The link that was up and whose other end was `peer`, unless its number was used again: the peer may have named it
    // before it learned that the link is gone.
    [[nodiscard]] std::optional<std::uint8_t> once_with_peer(const QpEnd& peer) const;
    // The free link number whose last use is the longest ago (section 2.2.4).
    [[nodiscard]] std::uint8_t next_number();

    // LLC has confirmed the link: it is up.
    void confirmed(GroupLink& link);
    // The group has had two links up at once, and has fewer now.
    [[nodiscard]] bool degraded() const { return redundant_ && up().size() < 2; }

    [[nodiscard]] GroupType type() const;
    // If more than two links are up: the one to delete, which shares most ends with the others.
    [[nodiscard]] std::optional<std::uint8_t> surplus() const;
    // The entries of `ports` that a further link may use, the best one first: unused ports with the SMC-R version,
    // physical network, VLAN and address family of the first link; then ports that only an asymmetric link uses.
    [[nodiscard]] std::vector<LocalPort> candidates(const std::vector<LocalPort>& ports) const;
    [[nodiscard]] bool uses(const LocalPort& port) const;
    [[nodiscard]] bool has_peer(const RoceGid& gid) const;

 private:
    [[nodiscard]] unsigned shares(std::uint8_t number) const;
    std::map<std::uint8_t, GroupLink> links_;
    std::map<std::uint8_t, QpEnd> gone_;  // the peer's ends of links that were up
    std::uint8_t last_ = 0;
    bool redundant_ = false;
};

}  // namespace smc::group
