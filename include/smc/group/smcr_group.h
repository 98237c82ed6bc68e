// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// One SMC-R link group, without I/O: its first contact, its links, its memory, its LLC and its end (RFC 7609 sections
// 2.2, 3.5 and 4.2). smcr_groups.h decides which connections join it; group_links.h describes its links.
//
//   kCreating   the queue pair and the first buffers are being created
//   kOffered    CLC can tell the peer of them; the peer's end of the queue pair is not known yet
//   kConnecting the peer's end is known, and the queue pair is being connected
//   kForming    LLC confirms the link
//   kActive     connections may use it
//   kOver       it takes no more members, and is forgotten when its last member has left
//
// Invariant:
//   G3  A group that is over takes no more members; its objects are destroyed after its last member has left.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <utility>

#include "smc/group/buffers.h"
#include "smc/group/group_links.h"
#include "smc/llc/group_llc.h"

namespace smc::group {

// Connections with the same peer share a group if role, version, EID (SMC v2.1), physical network and VLAN are the same
// (RFC 7609 sections 2.2, 3.5.1.2 and 3.5.2). A peer is recognised by its ID; or, because a Proposal of version 2 from
// Linux has none, by its GID, which may be that of any link.
struct SmcrKey {
    bool server = false;
    std::uint8_t version = 2;
    RoceGid peer_gid;  // of the first link
    Eid eid{};
    std::string pnet_id{};   // the physical network of this node's ports
    std::uint16_t vlan = 0;  // of the TCP connections at this end; 0: they have no tag
    bool operator==(const SmcrKey&) const = default;
};

// Limits and times that apply to all link groups.
struct SmcrTerms {
    std::uint32_t rmbe_bytes = 256 * 1024;  // the usual size: of RMBEs and send elements, if a member wants no other
    std::uint8_t rmbes_per_rmb = 8;         // if they have that size; an RMB of larger ones has fewer in as much memory
    std::size_t link_bytes = 0;             // bytes that a link registers for its messages
    std::size_t memory_limit = 0;           // bytes that all groups together may register
    bool eye_catchers = false;              // RMBEs begin with an eye catcher (RFC 7609 section 4.4.1)
    std::chrono::seconds idle{600};         // how long a group without connections is kept
    std::chrono::milliseconds llc_timeout{2000};
    // Time until a group without two links between different ports tries again to add one (C.8).
    std::chrono::milliseconds link_retry{30000};
    std::chrono::milliseconds test_interval{30000};
    // How many queue pairs of first contacts may wait at once for their peer's address.
    unsigned max_connecting = 8;
    // How long the server's other connections of a peer wait for each first contact, before one of them makes another
    // group (RFC 7609 section 3.5.3 allows that). A first contact may hang, or be somebody else's who names this GID.
    std::chrono::milliseconds first_contact{2000};
};

class SmcrGroup {
 public:
    enum class State : std::uint8_t { kCreating, kOffered, kConnecting, kForming, kActive, kOver };

    // Receives the actions of a call; `now` is the time of the call.
    struct Out {
        Actions& actions;
        TimePoint now;
    };

    // `peer`: as far as CLC knows it. `ports`: ports of this node that may be used; `down`: ports that are not active.
    // `registered`: bytes that all groups have registered. The last four references must outlive the group.
    SmcrGroup(GroupId id, const SmcrKey& key, LocalPort port, const clc::SmcrPeer& peer, const SmcrTerms& terms,
              const std::vector<LocalPort>& ports, const std::vector<LocalPort>& down, std::size_t& registered);
    ~SmcrGroup();
    SmcrGroup(const SmcrGroup&) = delete;
    SmcrGroup& operator=(const SmcrGroup&) = delete;

    // --- its beginning -----------------------------------------------------------------------------------------------
    // Requests the queue pair and the first buffers, for a member that wants elements of these sizes; those
    // beyond the usual size become smaller where the memory does not suffice. If it returns a refusal, nothing was
    // requested.
    [[nodiscard]] std::optional<Refusal> create(ElementBytes& bytes, Out out);
    void connect(const clc::SmcrPeer& peer, Out out);

    // --- its links ---------------------------------------------------------------------------------------------------
    // `direct`: no router is on the way to the peer. `own_id`: the link user ID, for display only.
    void link_created(std::uint8_t link, const QpEnd& own, LinkId own_id, bool direct, Out out);
    void link_connected(std::uint8_t link, Out out);
    // The link could not be created or connected.
    void link_refused(std::uint8_t link, Refusal refusal, const std::string& detail, Out out);
    // The link broke, or must not be used any more.
    void link_down(std::uint8_t link, const std::string& why, Out out);
    void device_gone(const std::string& device, Out out);
    // The ports of this node have changed: tries soon to add a link that the group lacks.
    void ports_changed(Out out);
    // Gives up links on ports that are down, unless all links are on such ports.
    void leave_dead_ports(Out out);

    [[nodiscard]] bool is_up(std::uint8_t link) const;

    // --- its members -------------------------------------------------------------------------------------------------
    // Returns nothing if more memory must be registered first, or if take_refusal() says why there will be none.
    // `named`: the link that the server's Accept has named, which must be up. The client's Confirm names the same link:
    // RFC 7609 section 3.5.2.3 allows any link, but a Linux server then writes over the link that it has named itself,
    // with the RKey of the client's link.
    // `bytes`: as for create().
    std::optional<Assignment> take(MemberId member, AlertToken token, std::optional<std::uint8_t> named,
                                   ElementBytes& bytes, Out out);
    // Why there will be no more memory; returned once.
    [[nodiscard]] std::optional<Refusal> take_refusal() { return std::exchange(refused_, std::nullopt); }
    // How a member leaves.
    struct Leaving {
        bool told = false;                // the peer may know of the member's RMBE, and has not declined
        std::optional<clc::Rmbe> peer{};  // the peer's RMBE, if known, and if the peer counts on the connection
        bool ran = false;                 // the data path has the member's elements, and will return them
    };
    void leave(MemberId member, const Assignment& assignment, const Leaving& how, Out out);
    void element_returned(BufferId buffer, std::uint8_t element, Out out);
    // The member's connection runs, and would be lost if the group ended.
    void running(MemberId member) { running_.insert(member); }

    // --- its memory --------------------------------------------------------------------------------------------------
    void buffer_registered(BufferId buffer, std::uint8_t link, RKey rkey, VirtualAddress address, Out out);
    void buffer_refused(BufferId buffer, std::uint8_t link, Refusal refusal, const std::string& detail, Out out);

    // --- LLC ---------------------------------------------------------------------------------------------------------
    void message(std::uint8_t link, wire::Bytes bytes, Out out);
    void heard(std::uint8_t link, std::uint64_t messages, TimePoint now);
    // Notes an RMB of the peer that CLC has told of. False: the peer has more RMBs than a group may have.
    bool note_rmb(std::uint8_t link, const clc::Rmbe& rmbe, Out out);
    // RMBs that the peer has deleted since the last call.
    [[nodiscard]] std::vector<llc::RTokenSet> take_forgotten() { return std::exchange(forgotten_, {}); }
    // The RKey and address of an RMB of the peer on each link; nullptr: it is not known.
    [[nodiscard]] const llc::RTokenSet* peer_rmb(std::uint8_t link, RKey rkey) const {
        return llc_ ? llc_->find_rmb(link, rkey) : nullptr;
    }
    // Ends the group by DELETE LINK, if LLC has begun.
    void end(llc::DeleteLinkReason reason, Out out);
    // All links broke, or the group must end without waiting for the peer.
    void down(const std::string& why, Out out);
    // The peer has declined a connection because it does not know this group (A.2.5, flag S; C.4). The peer may be
    // wrong, or mean only this connection: running connections stay as long as their links work, which TEST LINK checks
    // now, and new connections get another group. Without running connections, the group ends.
    void out_of_sync(Out out);
    void tick(Out out);
    [[nodiscard]] TimePoint next_deadline() const;

    // --- queries -----------------------------------------------------------------------------------------------------
    [[nodiscard]] GroupId id() const { return id_; }
    [[nodiscard]] const SmcrKey& key() const { return key_; }
    [[nodiscard]] const GroupLinks& links() const { return links_; }
    // True if a connection with this key and peer may share the group, as far as a Proposal identifies the peer.
    [[nodiscard]] bool is_with(const SmcrKey& key, const PeerId& peer) const;
    [[nodiscard]] State state() const { return state_; }
    [[nodiscard]] TimePoint began() const { return began_; }
    // The first contact has succeeded or failed.
    [[nodiscard]] bool settled() const { return state_ == State::kActive || state_ == State::kOver; }
    [[nodiscard]] bool active() const {
        return state_ == State::kActive && llc_->state() == llc::GroupLlc::State::kActive;
    }
    // Whether the first queue pair was connected.
    [[nodiscard]] bool llc_began() const { return llc_.has_value(); }
    [[nodiscard]] const llc::Over& why_over() const { return why_; }
    [[nodiscard]] bool has_room() const;
    // The queue pair and the first buffers exist, so CLC can tell the peer of them.
    [[nodiscard]] bool can_be_told() const;
    [[nodiscard]] const clc::SmcrPeer& peer() const { return peer_; }
    // The RMBE as CLC tells the peer of it. The assignment's link must exist.
    [[nodiscard]] clc::Rmbe rmbe(const Assignment& assignment) const;
    [[nodiscard]] std::uint32_t rmbe_bytes(const Assignment& assignment) const {
        return buffers_.at(assignment.rmb).element_bytes;
    }
    [[nodiscard]] bool eye_catchers() const { return eye_catchers_; }
    [[nodiscard]] unsigned connections() const { return static_cast<unsigned>(members_.size()); }
    [[nodiscard]] unsigned max_connections() const { return max_connections_; }
    [[nodiscard]] std::size_t rmbs() const { return buffers_.count(BufferKind::kRmb, Buffer::State::kUsable); }
    // The group is over, and its last member has left.
    [[nodiscard]] bool can_be_forgotten() const { return state_ == State::kOver && members_.empty(); }

 private:
    // How long an RMB without connections is kept.
    static constexpr auto kSurplusTime = std::chrono::seconds(10);

    static constexpr ElementBytes kAnySize{UINT32_MAX, UINT32_MAX};

    // How many RMBEs may be taken that the peer was told of and never confirmed.
    static constexpr unsigned kMaxUnconfirmed = 16;

    [[nodiscard]] std::size_t buffer_bytes(std::uint32_t element_bytes) const {
        return element_bytes * elements_of(element_bytes, terms_.rmbe_bytes, terms_.rmbes_per_rmb);
    }
    [[nodiscard]] bool fits(std::size_t bytes) const { return registered_ + bytes <= terms_.memory_limit; }
    [[nodiscard]] bool growing() const;
    [[nodiscard]] TimePoint idle_deadline() const;
    [[nodiscard]] llc::GroupTerms llc_terms() const;
    void add_buffer(BufferKind kind, std::uint32_t element_bytes, Out out);
    void drop_buffer(BufferId buffer, Out out);
    void grow(ElementBytes& bytes, Out out);
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
    [[nodiscard]] std::uint8_t least_used_link(TimePoint now) const;
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
    bool negotiable_;  // CLC agrees on the maxima (release 1 on)
    const SmcrTerms& terms_;
    const std::vector<LocalPort>& ports_;
    const std::vector<LocalPort>& down_;
    std::size_t& registered_;
    std::size_t own_registered_ = 0;  // this group's part of registered_

    State state_ = State::kCreating;
    TimePoint began_ = kNever;  // when create() was called
    GroupLinks links_;
    std::optional<std::uint8_t> adding_;  // the link that is being added
    std::optional<QpEnd> offered_;        // client: the server's end of that link
    unsigned refusals_ = 0;               // attempts in a row that failed for lack of another path, at either end
    TimePoint retry_at_ = kNever;
    TimePoint tried_at_ = TimePoint::min();  // when the last attempt was over
    clc::SmcrPeer peer_;
    bool eye_catchers_ = false;
    bool closed_ = false;  // the group takes no new members
    std::optional<llc::GroupLlc> llc_;

    Buffers buffers_;
    ElementBytes largest_ = kAnySize;        // the device has refused larger elements, until one is given back
    bool only_usual_rmbes_ = false;          // the peer has refused an RMB of another size; likewise
    std::vector<llc::RTokenSet> forgotten_;  // RMBs that the peer has deleted, until take_forgotten()
    std::optional<Refusal> refused_;         // why the group could not be created or grow, until take_refusal()
    TimePoint surplus_since_ = kNever;
    std::map<MemberId, std::uint8_t> members_;  // with the link that each was assigned
    std::set<MemberId> running_;
    TimePoint idle_since_ = kNever;
    llc::Over why_;
};

}  // namespace smc::group
