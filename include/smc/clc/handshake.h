// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The CLC handshake as two state machines without I/O (RFC 7609 section 3.5, SMC v2.1 appendix). They are
// fed messages, results and clock ticks, and answer with actions; the gateway carries the actions out.
//
//   client                                        server
//   kIdle          start      -> send Proposal    kAwaitProposal  Proposal   -> the first type that fits, or Decline
//   kAwaitAccept   Accept     -> the type's own   kPreparing      failed     -> the next type, or Decline
//                  Decline    -> fall back                        prepared + app -> send Accept
//   SMC-D:                                        kAwaitConfirm   Confirm    -> the type's own
//   kAttaching     attached   -> send Confirm                     Decline    -> fall back
//                  failed     -> send Decline     kAttaching      attached   -> SMC-D
//   SMC-R:                                                        (failed: terminate, C.3)
//   kPreparing     RMBE ready -> send Confirm     kLinking        link ready -> SMC-R
//                  failed     -> send Decline                     Decline    -> fall back
//   kLinking       link ready -> SMC-R            kDone
//                  Decline    -> fall back
//   kDone
//
// A server tries SMC-Dv2, SMC-Dv1 (which it never has), SMC-Rv2, SMC-Rv1, in this order (v2.1, "Migration").
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

#include "smc/wire/clc.h"

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
    std::uint8_t max_connections = 255;  // of an SMC-R link group, 16 to 255
};

// SMC-R, as it could be used for this TCP connection.
struct RoceOffer {
    std::vector<RoceGid> gids;  // of this node's ports, the one to use first; 1 to 8
    Mac mac;                    // of the first
    bool v1 = false, v2 = true;
    // For version 1, which stays within a subnet: both ends of the TCP connection, and this end's prefix.
    RoceGid own_address, peer_address;
    std::uint8_t prefix_bits = 0;
};

// One end of a queue pair.
struct RoceAddress {
    RoceGid gid;
    Mac mac;
    Qpn qpn{};
    Psn psn{};
    Mtu mtu = Mtu::k1024;
};
struct Rmbe {
    RKey rkey{};
    VirtualAddress rmb_address{};
    std::uint8_t index = 1;  // in the RMB, from 1
    AlertToken token{};
    BufferSize size{};
};
// An RMBE of this node, the link it is reached over, and the link group's contact.
struct LocalRmbe {
    RoceAddress link;
    Rmbe rmbe;
    bool first_contact = false;  // the server's decision, like the next one
    LinkType link_type = LinkType::kDirect;
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

// The same for SMC-R.
struct RocePeer {
    std::uint8_t version = 2;
    PeerId id{};
    RoceAddress link;  // at the server, before the Confirm: the client's GID only
    Rmbe rmbe;
    Eid eid{};  // version 2
    bool first_contact = false;
    LinkType link_type = LinkType::kDirect;
    std::uint8_t max_connections = 255;
    std::uint8_t max_links = 1;
    std::string host_name;
    Os os = Os::kUnknown;
    std::uint8_t release = kRelease1;
};

struct Outcome {
    enum class Kind {
        kSmcD,       // payload moves over the DMBs
        kSmcR,       // payload moves over the link
        kFallBack,   // the same TCP connection goes on, nothing lost
        kTerminate,  // the TCP connection must end
    };
    Kind kind = Kind::kTerminate;
    Reason reason = Reason::kNone;
    std::string detail;  // for the log: the fault, the peer's diagnosis
    bool peer_out_of_sync = false;
    Peer peer;                           // kSmcD, or what was being agreed on
    RocePeer roce;                       // kSmcR
    Reason peer_reason = Reason::kNone;  // with kPeerDeclined
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
// An RMBE for a connection with this peer; at the client, over the link that the server named. Answer with rmbe_ready()
// or prepare_failed().
struct PrepareRmbe {
    RocePeer peer;
};
// The peer's end is known. On first contact the link is to be connected and confirmed by LLC. Answer with link_ready()
// or link_failed(); meanwhile messages may still come.
struct AwaitLink {
    RocePeer peer;
};
struct Finish {
    Outcome outcome;
};
using Action = std::variant<Send, CreateDmb, AttachDmb, PrepareRmbe, AwaitLink, Finish>;
using Actions = std::vector<Action>;

// What Accept and Confirm say about the sender's side of the connection that was agreed on with `peer`.
AcceptD own_half(Type type, const LocalNode& node, const Peer& peer, const LocalDmb& own);
AcceptR own_half(Type type, const LocalNode& node, const RoceOffer& offer, const RocePeer& peer, const LocalRmbe& own);

class ClientHandshake {
 public:
    enum class State { kIdle, kAwaitAccept, kAttaching, kPreparing, kLinking, kDone };

    ClientHandshake(const LocalNode& node, std::optional<RoceOffer> roce) : node_(node), roce_(std::move(roce)) {}

    [[nodiscard]] Actions start(TimePoint now);
    [[nodiscard]] Actions message(Bytes bytes);
    // Own DMB registered and the server's attached. `in_sync`: our idea of first contact is the server's.
    [[nodiscard]] Actions attached(const LocalDmb& own, bool in_sync);
    [[nodiscard]] Actions attach_failed(Reason reason, std::string detail);
    [[nodiscard]] Actions rmbe_ready(const LocalRmbe& own, TimePoint now);
    // kOutOfSync: the server named a link that is not known here.
    [[nodiscard]] Actions prepare_failed(Reason reason, std::string detail);
    [[nodiscard]] Actions link_ready();
    [[nodiscard]] Actions link_failed(Reason reason, std::string detail);
    [[nodiscard]] Actions fault(const Fault& fault);
    [[nodiscard]] Actions peer_closed();
    [[nodiscard]] Actions tick(TimePoint now);

    [[nodiscard]] State state() const { return state_; }
    [[nodiscard]] TimePoint deadline() const { return deadline_; }

 private:
    Actions finish(Outcome outcome);
    Actions decline(Reason reason, std::string detail, bool out_of_sync = false);
    Actions accept(const AcceptD& accept);
    Actions accept(const AcceptR& accept);

    const LocalNode& node_;
    std::optional<RoceOffer> roce_;
    State state_ = State::kIdle;
    TimePoint deadline_{};
    Peer peer_;
    RocePeer roce_peer_;
};

// What may carry a connection, in the order in which a server tries it. SMC-Dv1 needs ISM hardware.
enum class Candidate : std::uint8_t { kNone, kSmcDv2, kSmcRv2, kSmcRv1, kExhausted };

// kNone: it may; the peer's part is filled in. Everything else: why not.
Reason judge(const Proposal& proposal, const LocalNode& node, Peer& peer);
Reason judge_v2(const Proposal& proposal, const LocalNode& node, const std::optional<RoceOffer>& roce, RocePeer& peer);
Reason judge_v1(const Proposal& proposal, const std::optional<RoceOffer>& roce, RocePeer& peer);

class ServerHandshake {
 public:
    enum class State { kAwaitProposal, kPreparing, kAwaitConfirm, kAttaching, kLinking, kDone };

    ServerHandshake(const LocalNode& node, std::optional<RoceOffer> roce, TimePoint now)
        : node_(node), roce_(std::move(roce)), deadline_(now + node.step_timeout) {}

    [[nodiscard]] Actions message(Bytes bytes, TimePoint now);
    [[nodiscard]] Actions dmb_ready(const LocalDmb& own, bool first_contact, std::uint32_t link_id, TimePoint now);
    [[nodiscard]] Actions rmbe_ready(const LocalRmbe& own, TimePoint now);
    // The type that was tried cannot be had; the next one is.
    [[nodiscard]] Actions prepare_failed(Reason reason, std::string detail);
    // The server application took the connection / did not.
    [[nodiscard]] Actions application_ready(TimePoint now);
    [[nodiscard]] Actions application_refused();
    [[nodiscard]] Actions attached();
    [[nodiscard]] Actions attach_failed(Reason reason, std::string detail);
    [[nodiscard]] Actions link_ready();
    [[nodiscard]] Actions link_failed(Reason reason, std::string detail);
    // First contact, and the client does not wait for data yet: CONFIRM LINK was never sent, or never answered. There
    // is still a Decline (C.7; after a time-out the RFC would reset, but Linux's client waits for a Decline and nothing
    // else).
    [[nodiscard]] Actions link_refused(Reason reason, std::string detail);
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
    Actions late_decline(Reason reason, std::string detail, Outcome::Kind kind);
    Actions terminate(Reason reason, std::string detail);
    Actions try_next(std::string detail);
    Actions confirm(const AcceptD& confirm);
    Actions confirm(const AcceptR& confirm, TimePoint now);
    Actions accept_if_prepared(TimePoint now);

    const LocalNode& node_;
    std::optional<RoceOffer> roce_;
    State state_ = State::kAwaitProposal;
    TimePoint deadline_;
    Proposal proposal_;
    Candidate candidate_ = Candidate::kNone;
    Decline reasons_;  // why not, by type
    Peer peer_;
    RocePeer roce_peer_;
    std::optional<LocalDmb> own_dmb_;
    std::optional<LocalRmbe> own_rmbe_;
    std::uint32_t link_id_ = 0;
    bool application_ready_ = false;
};

}  // namespace smc::clc
