// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// All SMC-R link groups of this node, and which of them a connection joins, without I/O. The server decides (RFC 7609
// section 3.5.2): a group with the same peer that takes another connection, or a new one. While a first contact with a
// peer is under way, its other connections wait for it (SmcrTerms::first_contact), so that a burst of connections makes
// one group.
//
//   a member     kChoosing      waits for another first contact with its peer
//                kAwaitingRmbe  waits for its RMBE
//                kConnecting    client, first contact: waits until the queue pair is connected
//                kJoined        it was told Joined
//                kAwaitingLink  first contact: waits until LLC has confirmed the link
//                kReady         it was told LinkReady or LinkFailed
//                kRunning       the data path has its elements
//
// Invariants (G2 is in buffers.h, G3 in smcr_group.h):
//   G1  A connection has an assignment before CLC names its RMBE to the peer, and keeps it until it has ended.
//   G4  Each join is answered exactly once by Joined or JoinRefused, and each await_link() exactly once by LinkReady or
//       LinkFailed, unless the member leaves before.
//   G5  An RMBE of the peer belongs to one member at a time: when the peer gives it to another connection, the member
//       that had it ends (RFC 7609 sections 3.5.2.2, 3.5.2.3 and 4.4.2).
#pragma once

#include <map>
#include <memory>
#include <set>

#include "smc/group/smcr_group.h"

namespace smc::group {

class SmcrGroups {
 public:
    explicit SmcrGroups(const SmcrTerms& terms) : terms_(terms) {}

    // --- members -----------------------------------------------------------------------------------------------------
    struct Join {
        MemberId member{};
        clc::SmcrPeer peer;      // at the server, from the client's Proposal; at the client, from the server's Accept
        LocalPort port;          // the RoCE port for this end's address of the TCP connection
        std::uint16_t vlan = 0;  // the VLAN ID of the TCP connection's packets at this end; 0: they have no tag
        TimePoint deadline = kNever;
        AlertToken random{};   // the search for a free alert token begins here, so that tokens cannot be guessed
        ElementBytes bytes{};  // 0: the usual size
    };
    [[nodiscard]] Actions join_as_server(Join join, TimePoint now);
    [[nodiscard]] Actions join_as_client(Join join, TimePoint now);
    // The Confirm was sent, or has come: the peer's RMBE and its end of the queue pair are known.
    [[nodiscard]] Actions await_link(MemberId member, const clc::SmcrPeer& peer, TimePoint now);
    // The data path has the member's elements from now on, and returns them by element_returned().
    void running(MemberId member);
    // The connection is over, or does not use SMC-R after all. `declined`: by a CLC Decline, so the peer will not use
    // the RMBE. `out_of_sync`: the peer does not know the link group (A.2.5, flag S), which then takes no new members.
    struct Leaving {
        bool declined = false;
        bool out_of_sync = false;
    };
    [[nodiscard]] Actions leave(MemberId member, const Leaving& how, TimePoint now);

    // --- results -----------------------------------------------------------------------------------------------------
    // The caller must answer ConnectLink of a group's first link by link_connected() or link_refused(), even if the
    // group has gone meanwhile.
    [[nodiscard]] Actions link_created(GroupId group, std::uint8_t link, const QpEnd& own, LinkId own_id, bool direct,
                                       TimePoint now);
    [[nodiscard]] Actions link_connected(GroupId group, std::uint8_t link, TimePoint now);
    [[nodiscard]] Actions link_refused(GroupId group, std::uint8_t link, Refusal refusal, const std::string& detail,
                                       TimePoint now);
    [[nodiscard]] Actions buffer_registered(GroupId group, BufferId buffer, std::uint8_t link, RKey rkey,
                                            VirtualAddress address, TimePoint now);
    [[nodiscard]] Actions buffer_refused(GroupId group, BufferId buffer, std::uint8_t link, Refusal refusal,
                                         const std::string& detail, TimePoint now);
    [[nodiscard]] Actions element_returned(GroupId group, BufferId buffer, std::uint8_t element, TimePoint now);

    // --- events ------------------------------------------------------------------------------------------------------
    [[nodiscard]] Actions message(GroupId group, std::uint8_t link, wire::Bytes bytes, TimePoint now);
    // `messages`: a count that grows with every message that arrives on the link, including CDC. To be called before
    // the other events, and before tick().
    void heard(GroupId group, std::uint8_t link, std::uint64_t messages, TimePoint now);
    [[nodiscard]] Actions link_down(GroupId group, std::uint8_t link, const std::string& why, TimePoint now);
    [[nodiscard]] Actions device_gone(const std::string& device, TimePoint now);
    // `ports`: ports of this node that may be used, the preferred ones first. `down`: ports that are not active, of
    // which only device and number are set.
    [[nodiscard]] Actions set_ports(std::vector<LocalPort> ports, std::vector<LocalPort> down, TimePoint now);
    // The agent stops.
    [[nodiscard]] Actions end_all(TimePoint now);
    [[nodiscard]] Actions tick(TimePoint now);
    [[nodiscard]] TimePoint next_deadline() const;

    // --- queries -----------------------------------------------------------------------------------------------------
    // The groups that are not over, by ID.
    [[nodiscard]] std::vector<const SmcrGroup*> all() const;
    // nullptr: it was forgotten.
    [[nodiscard]] const SmcrGroup* find(GroupId group) const;
    // The group and the assignment of a member; nullptr: it has no assignment.
    [[nodiscard]] const SmcrGroup* group_of(MemberId member) const;
    [[nodiscard]] const Assignment* assignment_of(MemberId member) const;
    // The link that the peer named together with its RMBE.
    [[nodiscard]] std::uint8_t peer_link_of(MemberId member) const;
    // Whether the link still works that the server's Accept has named to this member. True for first contacts and at
    // the server.
    [[nodiscard]] bool named_link_is_up(MemberId member) const;
    // Bytes registered for all groups, and for ended links whose queue pairs are not destroyed yet.
    [[nodiscard]] std::size_t registered() const { return registered_; }
    // `bytes`: what is registered with the devices now. That may be more than the groups have: the memory of an ended
    // link stays registered, and counts towards the limit, until its queue pair is destroyed, which may take a device
    // seconds.
    void set_in_use(std::size_t bytes);
    // Memory that is registered beyond a new, lower limit stays.
    void set_memory_limit(std::size_t bytes) { terms_.memory_limit = bytes; }

 private:
    struct Member {
        enum class State : std::uint8_t {
            kChoosing,
            kAwaitingRmbe,
            kConnecting,
            kJoined,
            kAwaitingLink,
            kReady,
            kRunning
        };
        Join join;
        bool server = false;
        State state = State::kChoosing;
        bool first_contact = false;
        SmcrGroup* group = nullptr;
        std::optional<Assignment> assignment{};
        std::optional<clc::Rmbe> peer_rmbe{};
        std::uint8_t peer_link = llc::kFirstLink;  // the link that the peer named with it
        TimePoint chooses_at = kNever;             // kChoosing: until when it waits for a first contact
    };
    using Out = SmcrGroup::Out;

    Actions follow_up(const SmcrGroup* group, Actions actions, TimePoint now);
    void settle(Out out);
    bool advance(Member& member, Out out);
    bool choose(Member& member, Out out);
    bool find_named(Member& member, Out out);
    bool assign(Member& member, Out out);
    bool connect(Member& member, Out out);
    bool await(Member& member, Out out);
    void joined(Member& member, Out out);
    void refuse(Member& member, Refusal refusal, std::string detail, Out out);
    void link_failed(Member& member, Reason reason, std::string detail, bool may_decline, Out out);
    void take_over(const Member& member, const clc::Rmbe& rmbe, Out out);
    void end_those_in(SmcrGroup& group, const llc::RTokenSet& rmb, Out out);
    void expire(Out out);
    void forget_groups(Out out);
    void abandon(const Member& member, llc::DeleteLinkReason reason, Out out);
    std::optional<Refusal> make_group(Member& member, Out out);
    void choose_bytes(Join& join) const;
    [[nodiscard]] SmcrGroup* lookup(GroupId id);
    [[nodiscard]] SmcrGroup* find_for(const SmcrKey& key, const PeerId& peer) const;
    // Until when the first contact of such a group is waited for; nothing: there is none, or it takes too long.
    [[nodiscard]] std::optional<TimePoint> forming_until(const SmcrKey& key, const PeerId& peer, TimePoint now) const;
    // Connects the queue pair of a first contact; false: too many already wait for their peer's address.
    bool connect(SmcrGroup& group, const clc::SmcrPeer& peer, Out out);

    SmcrTerms terms_;
    std::vector<LocalPort> ports_, down_;
    std::size_t registered_ = 0, ending_ = 0;
    std::uint32_t next_id_ = 1;
    std::map<GroupId, std::unique_ptr<SmcrGroup>> groups_;
    std::set<GroupId> connecting_;  // groups, even if gone, whose first ConnectLink is not answered yet
    std::map<MemberId, Member> members_;
    std::set<MemberId> waiting_;  // members that wait for anything but a CLC message of the peer
};

}  // namespace smc::group
