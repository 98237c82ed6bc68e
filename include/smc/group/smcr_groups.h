// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// All SMC-R link groups of this node, and which of them a connection joins, without I/O. The server decides (RFC 7609
// section 3.5.2): a group with the same peer that has room, or a new one. First contacts with one peer go one after the
// other, so that a burst of connections makes one group.
//
//   a member     kChoosing      waits for another first contact with its peer (server)
//                kAwaitingRmbe       waits for its RMBE
//                kConnecting    first contact at the client: waits for the queue pair
//                kJoined        Joined was told
//                kAwaitingLink  first contact: waits for LLC
//                kReady         LinkReady was told
//                kRunning       the data path has its elements
//
// Invariants:
//   G1  A connection has an assignment from before the CLC message that names its RMBE until it has ended.
//   G4  Each join is answered by Joined or JoinRefused once, each await_link() by LinkReady or LinkFailed once, unless
//       the member leaves before.
//   G5  An RMBE of the peer is one member's at a time: who had it before ends (RFC 7609 sections 3.5.2.2, 3.5.2.3 and
//       4.4.2).
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
        clc::SmcrPeer peer;  // at the server, whose Proposal this is; at the client, what the server chose
        LocalPort port;      // for the TCP connection's own address
        TimePoint deadline = kNever;
        AlertToken random{};  // where the search for a free token begins; nobody else can guess it
    };
    [[nodiscard]] Actions join_as_server(Join join, TimePoint now);
    [[nodiscard]] Actions join_as_client(Join join, TimePoint now);
    // The Confirm was sent, or has come: the peer's RMBE and, on first contact, its end of the queue pair are known.
    [[nodiscard]] Actions await_link(MemberId member, const clc::SmcrPeer& peer, TimePoint now);
    // Its elements are the data path's from now on, and come back by element_returned().
    void running(MemberId member);
    // It is over, or will not be one of SMC-R. `declined`: by a CLC Decline, so that the peer will not use the RMBE.
    // `out_of_sync`: the peer does not know the link group (A.2.5, S bit), which has no new members from here on.
    struct Leaving {
        bool declined = false;
        bool out_of_sync = false;
    };
    [[nodiscard]] Actions leave(MemberId member, const Leaving& how, TimePoint now);

    // --- results -----------------------------------------------------------------------------------------------------
    // A ConnectLink of a group's first link is answered by link_connected() or link_refused() in any case, also when
    // the group has gone meanwhile.
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

    // --- what happens on the links -----------------------------------------------------------------------------------
    [[nodiscard]] Actions message(GroupId group, std::uint8_t link, wire::Bytes bytes, TimePoint now);
    // How many messages have come over the link, of CDC too. To be told before anything of this, and before tick().
    void heard(GroupId group, std::uint8_t link, std::uint64_t messages, TimePoint now);
    [[nodiscard]] Actions link_down(GroupId group, std::uint8_t link, const std::string& why, TimePoint now);
    [[nodiscard]] Actions device_gone(const std::string& device, TimePoint now);
    // Which ports of this node may be used, the preferred ones first, and which are not active (their devices and
    // numbers).
    [[nodiscard]] Actions set_ports(std::vector<LocalPort> ports, std::vector<LocalPort> down, TimePoint now);
    // The agent stops.
    [[nodiscard]] Actions end_all(TimePoint now);
    [[nodiscard]] Actions tick(TimePoint now);
    [[nodiscard]] TimePoint next_deadline() const;

    // --- what there is to know ---------------------------------------------------------------------------------------
    // Those that are not over, by ID.
    [[nodiscard]] std::vector<const SmcrGroup*> all() const;
    // nullptr: it was forgotten.
    [[nodiscard]] const SmcrGroup* find(GroupId group) const;
    // Of a member that has joined; nullptr otherwise.
    [[nodiscard]] const SmcrGroup* group_of(MemberId member) const;
    [[nodiscard]] const Assignment* assignment_of(MemberId member) const;
    // The link that the peer named when it told of its RMBE.
    [[nodiscard]] std::uint8_t peer_link_of(MemberId member) const;
    // Bytes registered for all groups, and for what ends and has not given them back yet.
    [[nodiscard]] std::size_t registered() const { return registered_; }
    // `bytes` are registered. That may be more than the groups have: what a link had is registered until its queue pair
    // has ended, which a device may take seconds for. It counts for the limit as long.
    void set_in_use(std::size_t bytes);
    // What is registered beyond it stays.
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
        std::uint8_t peer_link = llc::kFirstLink;  // that names it
    };
    using Out = SmcrGroup::Out;

    Actions after(const SmcrGroup* group, Actions actions, TimePoint now);
    void settle(Out out);
    bool advance(Member& member, Out out);
    bool choose(Member& member, Out out);
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
    [[nodiscard]] SmcrGroup* lookup(GroupId id);
    [[nodiscard]] SmcrGroup* find_for(const SmcrKey& key, const PeerId& peer) const;
    [[nodiscard]] bool is_forming(const SmcrKey& key, const PeerId& peer) const;
    // A first contact's queue pair; false: too many wait for their peer's address already.
    bool connect(SmcrGroup& group, const clc::SmcrPeer& peer, Out out);

    SmcrTerms terms_;
    std::vector<LocalPort> ports_, down_;
    std::size_t registered_ = 0, ending_ = 0;
    std::uint32_t next_id_ = 1;
    std::map<GroupId, std::unique_ptr<SmcrGroup>> groups_;
    std::set<GroupId> connecting_;  // whose first ConnectLink has no answer yet, of groups that are gone, too
    std::map<MemberId, Member> members_;
    std::set<MemberId> waiting_;  // for something that is not the peer's CLC message
};

}  // namespace smc::group
