// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The CLC handshake as two state machines without I/O (RFC 7609 section 3.5, SMC v2.1 appendix). They are
// fed messages, results and clock ticks, and answer with actions; the gateway carries the actions out.
//
//   client                                        server
//   kIdle          start      -> send Proposal    kAwaitProposal  Proposal   -> create DMB, or Decline
//   kAwaitAccept   Accept     -> attach DMB       kPreparing      DMB + app  -> send Accept
//                  Decline    -> fall back        kAwaitConfirm   Confirm    -> attach DMB
//   kAttaching     attached   -> send Confirm                     Decline    -> fall back
//                  failed     -> send Decline     kAttaching      attached   -> SMC-D
//   kDone                                         kDone           (failed: terminate, C.3)
//
// Invariants:
//   H1  A Decline is only ever sent in lieu of an expected message (appendix C.1, "no chase").
//   H2  Anything that does not parse terminates; only reserved enumeration values decline (C.6).
//   H3  Every waiting state has a deadline (C.5); a late message changes nothing.
//   H4  Exactly one Finish action is ever returned.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "smc/clc.h"

namespace smc::clc {

using TimePoint = std::chrono::steady_clock::time_point;

// What this node is on the wire; the same for every handshake of an agent.
struct LocalNode {
    PeerId peer_id{};
    Gid gid;
    Chid chid{};
    std::vector<Eid> ueids;  // at most 8, in order of preference
    std::optional<Eid> seid;
    std::string host_name;
    std::chrono::milliseconds step_timeout{6000};
};

struct LocalDmb {
    DmbToken token{};
    BufferSize size{};
};

// What was agreed about the peer.
struct Peer {
    Gid gid;
    Chid chid{};
    Eid eid{};
    DmbToken token{};
    BufferSize dmb_size{};
    bool first_contact = false;
    std::string host_name;  // from the FCE, empty on subsequent contact
    std::uint8_t release = 0;
};

struct Outcome {
    enum class Kind {
        kSmcD,       // payload moves over the DMBs
        kFallBack,   // the same TCP connection goes on, nothing lost
        kTerminate,  // the TCP connection must end
    };
    Kind kind = Kind::kTerminate;
    Reason reason = Reason::kNone;
    std::string detail;  // for the log: the fault, the peer's diagnosis
    bool peer_out_of_sync = false;
    Peer peer;
};

struct Send {
    Message message;
};
struct CreateDmb {  // answer with dmb_ready() or dmb_failed()
    Gid peer;
};
struct AttachDmb {  // answer with attached() or attach_failed()
    Peer peer;
};
struct Finish {
    Outcome outcome;
};
using Action = std::variant<Send, CreateDmb, AttachDmb, Finish>;
using Actions = std::vector<Action>;

// What Accept and Confirm say about the sender's side of the connection that was agreed on with `peer`.
AcceptD own_half(Type type, const LocalNode& node, const Peer& peer, const LocalDmb& own);

class ClientHandshake {
 public:
    enum class State { kIdle, kAwaitAccept, kAttaching, kDone };

    explicit ClientHandshake(const LocalNode& node) : node_(node) {}

    [[nodiscard]] Actions start(TimePoint now);
    [[nodiscard]] Actions message(Bytes bytes);
    // Own DMB registered and the server's attached. `in_sync`: our idea of first contact is the server's.
    [[nodiscard]] Actions attached(const LocalDmb& own, bool in_sync);
    [[nodiscard]] Actions attach_failed(Reason reason, std::string detail);
    [[nodiscard]] Actions fault(const Fault& fault);
    [[nodiscard]] Actions peer_closed();
    [[nodiscard]] Actions tick(TimePoint now);

    [[nodiscard]] State state() const { return state_; }
    [[nodiscard]] TimePoint deadline() const { return deadline_; }

 private:
    Actions finish(Outcome outcome);
    Actions decline(Reason reason, std::string detail, bool out_of_sync = false);
    Actions accept(const AcceptD& accept);

    const LocalNode& node_;
    State state_ = State::kIdle;
    TimePoint deadline_{};
    Peer peer_;
};

class ServerHandshake {
 public:
    enum class State { kAwaitProposal, kPreparing, kAwaitConfirm, kAttaching, kDone };

    ServerHandshake(const LocalNode& node, TimePoint now)
        : node_(node), deadline_(now + node.step_timeout) {}

    [[nodiscard]] Actions message(Bytes bytes, TimePoint now);
    [[nodiscard]] Actions dmb_ready(const LocalDmb& own,
                                    bool first_contact,
                                    std::uint32_t link_id,
                                    TimePoint now);
    [[nodiscard]] Actions dmb_failed(Reason reason, std::string detail);
    // The server application took the connection / did not.
    [[nodiscard]] Actions application_ready(TimePoint now);
    [[nodiscard]] Actions application_refused();
    [[nodiscard]] Actions attached();
    [[nodiscard]] Actions attach_failed(Reason reason, std::string detail);
    [[nodiscard]] Actions fault(const Fault& fault);
    [[nodiscard]] Actions peer_closed();
    [[nodiscard]] Actions tick(TimePoint now);

    [[nodiscard]] State state() const { return state_; }
    [[nodiscard]] TimePoint deadline() const { return deadline_; }
    // What is known so far; complete once Finish says kSmcD.
    [[nodiscard]] const Peer& peer() const { return peer_; }

 private:
    Actions finish(Outcome outcome);
    Actions decline(Reason reason, std::string detail);
    Actions propose(const Proposal& proposal);
    Actions confirm(const AcceptD& confirm);
    Actions accept_if_prepared(TimePoint now);

    const LocalNode& node_;
    State state_ = State::kAwaitProposal;
    TimePoint deadline_;
    Proposal proposal_;
    Peer peer_;
    std::optional<LocalDmb> own_;
    std::uint32_t link_id_ = 0;
    bool application_ready_ = false;
};

}  // namespace smc::clc
