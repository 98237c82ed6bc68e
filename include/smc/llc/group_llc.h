// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// LLC of a link group as a state machine without I/O: the state of each link (LinkLlc) and that of the group (RFC 7609
// sections 3.5.1.5 to 3.5.5, 4.5.3, C.7 and C.8; SMC v2.1 "LLC V2 messages"). It is fed messages and time and answers
// with actions. Each flow of section 3.5 has a file of its own; this one decides which flow may send when.
//
//   server                                          client
//   kForming     start  -> CONFIRM LINK             kForming     CONFIRM LINK -> reply
//                reply  -> a second link is wanted,              more links agreed -> ADD LINK is awaited, or kActive
//                          or kActive                            wrong CONFIRM LINK -> kOver, CLC declines (C.7.1)
//                down before the reply -> kOver,                 down   -> kOver, CLC declines (C.2)
//                CLC declines (C.2)
//                the second link was added, or not and its deletion is acknowledged (3.5.1.6.2) -> kActive
//   kActive      everything else                    kActive      the same
//   kEnding      (never: DELETE LINK, then kOver)   kEnding      DELETE LINK sent, the server's is awaited
//   kOver                                           kOver
//
// A link: kConfirming -> kUp -> kRetired (it works, but is being deleted) or kDown (it broke, and is being deleted)
//
// Exchanges that change the group go one after the other (section 3.5.5.3): links before RKeys, and the server's before
// the client's. The server refuses a CONFIRM RKEY of the client for the moment if it lacks the link that is being
// added.
//
// Invariants (M1 in rkeys.h, M4 in link_out.h):
//   M2  Every request has a deadline. If a request is not answered, the link that carried it counts as down (C.7.1);
//       after ADD LINK or DELETE LINK only if it does not answer TEST LINK either.
//   M3  Exactly one Over is ever returned, and nothing after it. It comes when the last link is gone or all are
//       deleted.
//   M5  Each link that was up has exactly one LinkGone, or none if Over comes first.
#pragma once

#include <map>

#include "smc/llc/add_link.h"
#include "smc/llc/confirm_link.h"
#include "smc/llc/delete_link.h"
#include "smc/llc/rkeys.h"
#include "smc/llc/test_link.h"

namespace smc::llc {

// The state of LLC for one link.
struct LinkLlc {
    enum class State : std::uint8_t { kConfirming, kUp, kRetired, kDown };
    LinkTerms terms;
    State state = State::kConfirming;
    ConfirmLinkFlow confirm;
    TestLinkFlow test;
    bool little_endian = false;  // M4
    std::uint64_t messages = 0;  // the count of messages on the link, at the last heard()
};

class GroupLlc {
 public:
    enum class State : std::uint8_t { kForming, kActive, kEnding, kOver };

    explicit GroupLlc(GroupTerms terms) : terms_(terms) {}

    // The first link's queue pair is connected.
    [[nodiscard]] Actions start(const LinkTerms& link, TimePoint now);
    [[nodiscard]] Actions message(std::uint8_t link, Bytes bytes, TimePoint now);
    // `messages`: a count that grows with every message that arrives on the link, including CDC. To be called before
    // tick().
    void heard(std::uint8_t link, std::uint64_t messages, TimePoint now);
    [[nodiscard]] Actions tick(TimePoint now);

    // --- a further link, at the server: its queue pair exists, and all RMBs are registered for it.
    [[nodiscard]] bool may_offer_link() const;
    [[nodiscard]] Actions offer_link(const LinkTerms& own, const RoceGid& target, TimePoint now);
    // A link was wanted, but there is none to offer.
    [[nodiscard]] Actions no_link(TimePoint now);
    // The queue pair of the link that the client has accepted is connected. If it cannot be: link_down().
    [[nodiscard]] Actions link_connected(std::uint8_t number, TimePoint now);
    // --- at the client: the answer to LinkOffered. `own`: this side's end, connected to the one that was offered.
    [[nodiscard]] Actions accept_link(const LinkTerms& own, TimePoint now);
    [[nodiscard]] Actions reject_link(AddLinkReason reason, TimePoint now);
    // Tells the server that there is another port (section 3.5.5.1.2). `gids`: that of the first link, then those of
    // the ports without a link. `mac`: that of the last one.
    [[nodiscard]] bool may_ask_for_link() const;
    [[nodiscard]] Actions ask_for_link(const std::vector<RoceGid>& gids, const Mac& mac, TimePoint now);
    // --- both
    // The link broke, or its queue pair could not be connected.
    [[nodiscard]] Actions link_down(std::uint8_t number, const std::string& why, TimePoint now);
    // Deletes a link that works, but shall not be used any more.
    [[nodiscard]] Actions delete_link(std::uint8_t number, DeleteLinkReason reason, TimePoint now);

    // --- this side's RMBs. CLC tells the peer of the first one; confirm_rkey() tells of a further RMB, delete_rkey()
    // of its end.
    void rmb_registered(RmbId rmb, std::uint8_t link, const RToken& token) { own_rmbs_.put(rmb, link, token); }
    // Answered by RkeyConfirmed or RkeyDeleted, or by Over.
    [[nodiscard]] Actions confirm_rkey(RmbId rmb, TimePoint now);
    [[nodiscard]] Actions delete_rkey(RmbId rmb, TimePoint now);

    // Ends the group: at once at the server, with the server's consent at the client.
    [[nodiscard]] Actions end(DeleteLinkReason reason, TimePoint now);
    // All links broke.
    [[nodiscard]] Actions down(std::string why);
    // Sends TEST LINK over the links that are up, to find out now whether they work.
    [[nodiscard]] Actions test(TimePoint now);

    // An RMB of the peer, as CLC told of it. nullptr: the peer has more RMBs than a group may have.
    const RTokenSet* note_rmb(std::uint8_t link, const RToken& token) { return peer_rmbs_.note_rmb(link, token); }
    [[nodiscard]] const RTokenSet* find_rmb(std::uint8_t link, RKey rkey) const { return peer_rmbs_.find(link, rkey); }

    [[nodiscard]] State state() const { return state_; }
    [[nodiscard]] const GroupTerms& terms() const { return terms_; }
    // Links that may carry connections.
    [[nodiscard]] std::vector<std::uint8_t> up() const;
    // When to call tick().
    [[nodiscard]] TimePoint next_deadline() const;

 private:
    [[nodiscard]] LinkOut out(Actions& actions, const LinkLlc& link) const;
    [[nodiscard]] const LinkLlc* carrier() const;
    [[nodiscard]] bool awaits_confirm_link() const;
    [[nodiscard]] bool changing() const { return add_link_.under_way() || delete_link_.deleting(); }
    [[nodiscard]] TimePoint reply_by(TimePoint now) const;
    // Client, first contact: when the server must have confirmed the second link. A little longer than an agent waits
    // there.
    [[nodiscard]] TimePoint confirmed_by(TimePoint now) const { return now + terms_.second_link * 3 / 2; }

    void finish(Actions& actions, Over how);
    void violated(Actions& actions, std::uint8_t link, std::string how);
    void confirmed(Actions& actions, LinkLlc& link, TimePoint now);
    void activate(Actions& actions);
    void proceed(Actions& actions, TimePoint now);
    void lose(Actions& actions, std::uint8_t number, const std::string& why);
    void doubt(Actions& actions, std::uint8_t number, const std::string& why, TimePoint now);
    void forget(Actions& actions, std::uint8_t number, const std::string& why);
    void restart_elsewhere(Actions& actions, std::uint8_t number);
    void learn(Actions& actions);
    void adding_failed(Actions& actions, const std::string& why, bool unlikely);
    void retire(Actions& actions, LinkLlc& link);
    void added(Actions& actions);
    void connect_or_go_on(Actions& actions, TimePoint now);
    void choose_too_late(Actions& actions);
    [[nodiscard]] bool would_be_parallel(const LinkTerms& terms) const;

    void on(Actions& actions, LinkLlc& link, const ConfirmLink& m, TimePoint now);
    void on(Actions& actions, LinkLlc& link, const AddLink& m, TimePoint now);
    void on(Actions& actions, LinkLlc& link, const AddLinkContinuation& m, TimePoint now);
    void on(Actions& actions, LinkLlc& link, const RequestAddLink& m, TimePoint now);
    void on(Actions& actions, LinkLlc& link, const DeleteLink& m, TimePoint now);
    void on(Actions& actions, LinkLlc& link, const ConfirmRkey& m, TimePoint now);
    void on(Actions& actions, LinkLlc& link, const ConfirmRkeyContinuation& m, TimePoint now);
    void on(Actions& actions, LinkLlc& link, const DeleteRkey& m, TimePoint now);
    void on(Actions& actions, LinkLlc& link, const TestLink& m, TimePoint now);
    void on_add_link_reply(Actions& actions, const LinkLlc& link, const AddLink& m, TimePoint now);
    void on_delete_request(Actions& actions, LinkLlc& link, const DeleteLink& m);
    bool tick_flows(Actions& actions, TimePoint now);
    void delete_link_unanswered(Actions& actions, TimePoint now);
    [[nodiscard]] bool lacks_added_link(const ConfirmRkey& m) const;

    GroupTerms terms_;
    State state_ = State::kForming;
    std::map<std::uint8_t, LinkLlc> links_;  // by number
    AddLinkFlow add_link_;
    DeleteLinkFlow delete_link_;
    PeerRmbs peer_rmbs_;
    OwnRmbs own_rmbs_;
    TimePoint asked_ = kNever;  // until when an answer to REQUEST ADD LINK is waited for
};

}  // namespace smc::llc
