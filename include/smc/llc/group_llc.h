// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// LLC of a link group as a state machine without I/O: what belongs to one link (LinkLlc) and what belongs to the group
// (RFC 7609 sections 3.5.1.5 to 3.5.5, 4.5.3 and C.7; SMC v2.1 "LLC V2 messages"). It is fed messages and time and
// answers with actions. Each flow of section 3.5 has a file of its own.
//
//   server                                          client
//   kForming     start  -> CONFIRM LINK             kForming     CONFIRM LINK -> reply
//                reply  -> ADD LINK, or kActive                   more links agreed -> ADD LINK is awaited, or kActive
//                ADD LINK's reply -> kActive; a positive one      ADD LINK or time-out -> rejected, kActive
//                behind the end of DELETE LINK (3.5.1.6.2)        wrong CONFIRM LINK -> kOver, CLC declines (C.7.1)
//                its time-out     -> kOver (C.7.1)                down   -> kOver, CLC declines (C.2)
//                down before the reply -> kOver, CLC declines
//                (C.2)
//   kActive      CONFIRM/DELETE RKEY, TEST LINK     kActive      the same
//   kEnding      (never: it tells, and is over)     kEnding      DELETE LINK sent, the server's is awaited
//   kOver                                           kOver
//
// Invariants (M1 in rkeys.h, M4 in link_out.h):
//   M2  Every request has a deadline; one that is not answered means that the link is down (C.7.1).
//   M3  Exactly one Over is ever returned, and nothing after it.
#pragma once

#include <map>

#include "smc/llc/add_link.h"
#include "smc/llc/confirm_link.h"
#include "smc/llc/delete_link.h"
#include "smc/llc/rkeys.h"
#include "smc/llc/test_link.h"

namespace smc::llc {

// What LLC knows about one link.
struct LinkLlc {
    LinkTerms terms;
    ConfirmLinkFlow confirm;
    TestLinkFlow test;
    bool little_endian = false;  // M4
    std::uint64_t messages = 0;  // that came over it, when it was looked at last
};

class GroupLlc {
 public:
    enum class State : std::uint8_t { kForming, kActive, kEnding, kOver };

    explicit GroupLlc(GroupTerms terms) : terms_(terms) {}

    // The first link's queue pair is connected.
    [[nodiscard]] Actions start(const LinkTerms& link, TimePoint now);
    [[nodiscard]] Actions message(std::uint8_t link, Bytes bytes, TimePoint now);
    // `messages`: anything that grows with every message that arrives on the link, of CDC too. To be told before
    // tick().
    void heard(std::uint8_t link, std::uint64_t messages, TimePoint now);
    [[nodiscard]] Actions tick(TimePoint now);
    // An RMB has come, or is to go. Answered by RkeyConfirmed or RkeyDeleted, or by Over.
    [[nodiscard]] Actions confirm_rkey(RKey rkey, VirtualAddress address, TimePoint now);
    [[nodiscard]] Actions delete_rkey(RKey rkey, TimePoint now);
    // Ends the group: at once at the server, with the server's consent at the client.
    [[nodiscard]] Actions end(DeleteLinkReason reason, TimePoint now);
    // The last link broke.
    [[nodiscard]] Actions down(std::string why);

    // RMBs of the peer, also those that CLC tells of. False: it has more than a group may have.
    bool know(RKey rkey) { return peer_rkeys_.know(rkey); }
    [[nodiscard]] bool knows(RKey rkey) const { return peer_rkeys_.knows(rkey); }

    [[nodiscard]] State state() const { return state_; }
    [[nodiscard]] const GroupTerms& terms() const { return terms_; }
    // When to call tick().
    [[nodiscard]] TimePoint next_deadline() const;

 private:
    [[nodiscard]] LinkOut out(Actions& actions, const LinkLlc& link) const;
    [[nodiscard]] LinkLlc& first_link() { return links_.at(kFirstLink); }
    void over(Actions& actions, Over over);
    void violated(Actions& actions, std::string how);
    [[nodiscard]] bool awaits_confirm_link() const;
    void activate(Actions& actions, TimePoint now);
    void proceed(Actions& actions, TimePoint now);

    void on(Actions& actions, LinkLlc& link, const ConfirmLink& m, TimePoint now);
    void on(Actions& actions, LinkLlc& link, const AddLink& m, TimePoint now);
    void on(Actions& actions, LinkLlc& link, const RequestAddLink& m, TimePoint now);
    // For a link that was never agreed on.
    void on(Actions&, LinkLlc&, const AddLinkContinuation&, TimePoint) {}
    void on(Actions& actions, LinkLlc& link, const DeleteLink& m, TimePoint now);
    void on(Actions& actions, LinkLlc& link, const ConfirmRkey& m, TimePoint now);
    void on(Actions& actions, LinkLlc& link, const ConfirmRkeyContinuation& m, TimePoint now);
    void on(Actions& actions, LinkLlc& link, const DeleteRkey& m, TimePoint now);
    void on(Actions& actions, LinkLlc& link, const TestLink& m, TimePoint now);

    GroupTerms terms_;
    State state_ = State::kForming;
    std::map<std::uint8_t, LinkLlc> links_;  // by number
    AddLinkFlow add_link_;
    DeleteLinkFlow delete_link_;
    PeerRkeys peer_rkeys_;
    RkeyRequests rkey_requests_;
};

}  // namespace smc::llc
