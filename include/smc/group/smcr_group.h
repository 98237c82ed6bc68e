// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// One SMC-R link group, without I/O: its first contact, its links, its memory, its LLC and its end (RFC 7609 sections
// 2.2, 3.5 and 4.2). Who joins it is decided in smcr_groups.h, what its links are like in group_links.h.
//
//   kCreating   the queue pair and the first RMB are being made
//   kOffered    they can be told to the peer; its end of the queue pair is not known
//   kConnecting it is, and the queue pair is being connected
//   kForming    LLC confirms the link
//   kActive     connections may use it
//   kOver       nobody joins any more; it is forgotten when its last member has left
//
// Invariant:
//   G3  A group that is over takes no more members; its objects go with the last one.
#pragma once

#include <compare>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "smc/group/buffers.h"
#include "smc/group/group_links.h"
#include "smc/llc/group_llc.h"

namespace smc::group {

// What makes connections share a group (RFC 7609 sections 3.5.1.2 and 3.5.2; SMC v2.1: the EID too), beside the peer:
// its ID, or, because Linux's Proposal of version 2 has none, its GID, which is that of any link. And the physical
// network of this node's ports.
struct SmcrKey {
    bool server = false;
    std::uint8_t version = 2;
    RoceGid peer_gid;  // the first link's
    Eid eid{};
    std::string pnet_id{};
    bool operator==(const SmcrKey&) const = default;
};

// Limits and times of all link groups.
struct SmcrTerms {
    std::uint32_t rmbe_bytes = 256 * 1024;
    std::uint8_t rmbes_per_rmb = 8;
    std::size_t link_bytes = 0;      // what a link registers for its messages
    std::size_t memory_limit = 0;    // bytes registered by all groups
    bool eye_catchers = false;       // RMBEs as in RFC 7609 section 4.4.1
    std::chrono::seconds idle{600};  // how long a group without connections is kept
    std::chrono::milliseconds llc_timeout{2000};
    // When a group that has not two links between different ports tries again (C.8).
    std::chrono::milliseconds link_retry{30000};
    std::chrono::milliseconds test_interval{30000};
    // First contacts whose queue pair may wait for its peer's address at once.
    unsigned max_connecting = 8;
};

class SmcrGroup {
 public:
    enum class State : std::uint8_t { kCreating, kOffered, kConnecting, kForming, kActive, kOver };

    // Where what is to be done goes, and what time it is.
    struct Out {
        Actions& actions;
        TimePoint now;
    };

    // `ports`: of this node; `down`: those that are not active. `registered`: bytes of all groups. All references
    // outlive the group.
    // `peer`: as CLC knows it so far.
    SmcrGroup(GroupId id, const SmcrKey& key, LocalPort port, const clc::SmcrPeer& peer, const SmcrTerms& terms,
              const std::vector<LocalPort>& ports, const std::vector<LocalPort>& down, std::size_t& registered);
    ~SmcrGroup();
    SmcrGroup(const SmcrGroup&) = delete;
    SmcrGroup& operator=(const SmcrGroup&) = delete;

    // --- its beginning -----------------------------------------------------------------------------------------------
    // Asks for the queue pair and the first buffers. A refusal: nothing was asked for.
    [[nodiscard]] std::optional<Refusal> create(Out out);
    void connect(const clc::SmcrPeer& peer, Out out);

    // --- its links ---------------------------------------------------------------------------------------------------
    // `direct`: no router is on the way to the peer. `own_id`: the link's number for people.
    void link_created(std::uint8_t link, const QpEnd& own, LinkId own_id, bool direct, Out out);
    void link_connected(std::uint8_t link, Out out);
    // It could not be created or connected.
    void link_refused(std::uint8_t link, Refusal refusal, const std::string& detail, Out out);
    // It broke, or shall not be used any more.
    void link_down(std::uint8_t link, const std::string& why, Out out);
    void device_gone(const std::string& device, Out out);
    // Other ports than before: perhaps there is one for a second link.
    void ports_changed(Out out);
    // A port that is down takes its links with it where there is another one.
    void leave_dead_ports(Out out);

    // --- its members -------------------------------------------------------------------------------------------------
    // An assignment, or nothing: then more memory is on its way, or take_refusal() says why not. `named`: the link that
    // the server's Accept has named. The client confirms with that one while it is up. RFC 7609 section 3.5.2.3 lets it
    // take any, but Linux then writes by the link that it has named itself, with an RKey of the other.
    std::optional<Assignment> take(MemberId member, AlertToken token, std::optional<std::uint8_t> named, Out out);
    // Why there will be no more memory, told once.
    [[nodiscard]] std::optional<Refusal> take_refusal() { return std::exchange(refused_, std::nullopt); }
    // How a member leaves.
    struct Leaving {
        bool told = false;                // the peer may know of its RMBE, and has not declined
        std::optional<clc::Rmbe> peer{};  // the peer's, once that is known, if it counts on the connection
        bool ran = false;                 // the data path has its elements, and gives them back
    };
    void leave(MemberId member, const Assignment& assignment, const Leaving& how, Out out);
    void element_returned(BufferId buffer, std::uint8_t element, Out out);
    // The member's connection runs: it would be lost with the group.
    void running(MemberId member) { running_.insert(member); }

    // --- its memory --------------------------------------------------------------------------------------------------
    void buffer_registered(BufferId buffer, std::uint8_t link, RKey rkey, VirtualAddress address, Out out);
    void buffer_refused(BufferId buffer, std::uint8_t link, Refusal refusal, const std::string& detail, Out out);

    // --- LLC ---------------------------------------------------------------------------------------------------------
    void message(std::uint8_t link, wire::Bytes bytes, Out out);
    void heard(std::uint8_t link, std::uint64_t messages, TimePoint now);
    // RMBs of the peer that CLC told of. False: it has more than a group may have.
    bool know(std::uint8_t link, const clc::Rmbe& rmbe, Out out);
    // RMBs that the peer has taken back since this was asked last.
    [[nodiscard]] std::vector<llc::RTokenSet> take_forgotten() { return std::exchange(forgotten_, {}); }
    // How an RMB of the peer is reached; nullptr: it is not known.
    [[nodiscard]] const llc::RTokenSet* peer_rmb(std::uint8_t link, RKey rkey) const {
        return llc_ ? llc_->find_rmb(link, rkey) : nullptr;
    }
    // Ends it in the protocol's way, if it got that far.
    void end(llc::DeleteLinkReason reason, Out out);
    // All links are gone, or shall be.
    void down(const std::string& why, Out out);
    // The peer has declined a connection because it does not know this group (A.2.5, flag S; C.4). It may be wrong, or
    // mean this one connection: those that run stay as long as their links do, which is looked at now, and others have
    // another group.
    void out_of_sync(Out out);
    void tick(Out out);
    [[nodiscard]] TimePoint next_deadline() const;

    // --- what there is to know ---------------------------------------------------------------------------------------
    [[nodiscard]] GroupId id() const { return id_; }
    [[nodiscard]] const SmcrKey& key() const { return key_; }
    [[nodiscard]] const GroupLinks& links() const { return links_; }
    // Of this peer, as far as a Proposal tells.
    [[nodiscard]] bool is_with(const SmcrKey& key, const PeerId& peer) const;
    [[nodiscard]] State state() const { return state_; }
    // First contact is over, either way.
    [[nodiscard]] bool settled() const { return state_ == State::kActive || state_ == State::kOver; }
    [[nodiscard]] bool active() const {
        return state_ == State::kActive && llc_->state() == llc::GroupLlc::State::kActive;
    }
    // The queue pair was connected.
    [[nodiscard]] bool llc_began() const { return llc_.has_value(); }
    [[nodiscard]] const llc::Over& why_over() const { return why_; }
    [[nodiscard]] bool has_room() const;
    // The queue pair and the first RMB are there.
    [[nodiscard]] bool can_be_told() const;
    [[nodiscard]] const clc::SmcrPeer& peer() const { return peer_; }
    [[nodiscard]] clc::Rmbe rmbe(const Assignment& assignment) const;
    [[nodiscard]] bool eye_catchers() const { return eye_catchers_; }
    [[nodiscard]] unsigned connections() const { return static_cast<unsigned>(members_.size()); }
    [[nodiscard]] unsigned max_connections() const { return max_connections_; }
    [[nodiscard]] std::size_t rmbs() const { return buffers_.count(BufferKind::kRmb, Buffer::State::kUsable); }
    // Nothing refers to it any more.
    [[nodiscard]] bool can_be_forgotten() const { return state_ == State::kOver && members_.empty(); }

 private:
    // RMBEs that a peer was told of and never confirmed.
    static constexpr unsigned kMaxUnconfirmed = 16;

    [[nodiscard]] std::size_t buffer_bytes() const { return std::size_t{terms_.rmbe_bytes} * terms_.rmbes_per_rmb; }
    [[nodiscard]] bool growing() const;
    [[nodiscard]] TimePoint idle_deadline() const;
    [[nodiscard]] llc::GroupTerms llc_terms() const;
    void add_buffer(BufferKind kind, Out out);
    void drop_buffer(BufferId buffer, Out out);
    void grow(Out out);
    void shrink(Out out);
    void created_if_complete();
    void add_link_if_wanted(Out out);
    void ask_for_link(Out out);
    void begin_link(std::uint8_t link, const LocalPort& port, Out out);
    void prepared(std::uint8_t link, Out out);
    void give_up(std::uint8_t link, Out out);
    void drop_link(std::uint8_t link, const std::string& why, Out out);
    void offered(const llc::LinkOffered& offer, Out out);
    void added(const llc::AddLinkOver& how, Out out);
    void try_again(TimePoint at);
    void link_up(const llc::LinkUp& up, Out out);
    [[nodiscard]] bool could_be_better() const;
    [[nodiscard]] bool is_on_a_dead_port(std::uint8_t link) const;
    [[nodiscard]] RoceGid target() const;
    [[nodiscard]] bool is_up(std::uint8_t link) const;
    [[nodiscard]] std::uint8_t least_used_link() const;
    void registered_everywhere(BufferId id, Buffer& buffer, Out out);
    void carry_out(const llc::Actions& actions, Out out);
    void on(const llc::Send& send, Out out);
    void on(const llc::Confirmed& done, Out out);
    void on(const llc::WantLink& wanted, Out out);
    void on(const llc::LinkOffered& offer, Out out) { offered(offer, out); }
    void on(const llc::LinkAccepted& accepted, Out out);
    void on(const llc::LinkUp& up, Out out) { link_up(up, out); }
    void on(const llc::LinkRetired& retired, Out out);
    void on(const llc::LinkGone& gone, Out out) { drop_link(gone.number, gone.why, out); }
    void on(const llc::AddLinkOver& how, Out out) { added(how, out); }
    void on(const llc::LinkWanted& wanted, Out out);
    void on(const llc::PeerRmb& rmb, Out out) { out.actions.push_back(KnowRmb{id_, rmb.tokens}); }
    void on(const llc::PeerRmbGone& rmb, Out out);
    void on(const llc::RkeyConfirmed& done, Out out) { rkey_confirmed(done, out); }
    void on(const llc::RkeyDeleted& done, Out out) { rkey_deleted(done, out); }
    void on(const llc::Over& over, Out out) { finish(over, out); }
    void rkey_confirmed(const llc::RkeyConfirmed& done, Out out);
    void rkey_deleted(const llc::RkeyDeleted& done, Out out);
    void finish(const llc::Over& over, Out out);

    GroupId id_;
    SmcrKey key_;
    LocalPort first_port_;
    unsigned max_connections_;
    bool negotiable_;  // CLC agrees on the maxima: release 1 on
    const SmcrTerms& terms_;
    const std::vector<LocalPort>& ports_;
    const std::vector<LocalPort>& down_;
    std::size_t& registered_;
    std::size_t own_registered_ = 0;  // of it

    State state_ = State::kCreating;
    GroupLinks links_;
    std::optional<std::uint8_t> adding_;  // the link that is being made
    std::optional<QpEnd> offered_;        // client: the server's end of it
    unsigned refusals_ = 0;               // in a row, by a peer that has no other path
    TimePoint retry_at_ = kNever;
    TimePoint tried_at_ = TimePoint::min();  // when the last attempt was over
    clc::SmcrPeer peer_;
    bool eye_catchers_ = false;
    bool closed_ = false;  // to new members
    std::optional<llc::GroupLlc> llc_;

    Buffers buffers_;
    std::vector<llc::RTokenSet> forgotten_;  // RMBs of the peer
    std::optional<Refusal> refused_;         // the last growth, until somebody asks
    TimePoint surplus_since_ = kNever;
    std::map<MemberId, std::uint8_t> members_;  // and the link that each began on
    std::set<MemberId> running_;
    TimePoint idle_since_ = kNever;
    llc::Over why_;
};

}  // namespace smc::group
