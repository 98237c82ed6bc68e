// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Finds SMC in captured frames. Option 254: in SYNs and SYN-ACKs. CLC: in TCP connections whose SYN carries the option,
// both streams put in order. LLC and CDC: in RoCE SENDs to the queue pairs that CLC and LLC have named. Each option and
// each message is passed to a sink as one event and enters the history of its connection and link group.
//
//   frame -> packet -> option 254
//                   -> TcpStream -> CLC -> connections, queue pairs
//                   -> RcRequest -> SendReassembly -> LLC -> links, queue pairs
//                                            -> CDC -> cursors
//
// A capture may begin late, or have one direction only. Then a segment that is a whole CLC message is accepted without
// the SYN, and a SEND that is an LLC or CDC message in every bit is reported without its connection.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "ctl/capture/history.h"
#include "ctl/capture/packet.h"
#include "ctl/capture/roce.h"
#include "ctl/capture/tcp_stream.h"
#include "smc/wire/describe.h"
#include "smc/wire/llc.h"

namespace smc::capture {

struct Frame {
    std::uint64_t number = 0;  // from 1
    std::int64_t time_us = 0;  // since the epoch, not before it
    int link_type = 0;         // DLT_
    Bytes bytes;
};

// One message, in the frame that completed it, or option 254 of a segment.
struct Event {
    std::uint64_t frame = 0;
    std::int64_t time_us = 0;
    std::string from, to;  // "10.0.0.1:80"; for LLC and CDC "10.0.0.1 qp 0x000011", or "10.0.0.1 qp unknown"
    Description message;
};

struct Counters {
    std::uint64_t one_direction = 0;             // connections and links of which only one direction was captured
    std::uint64_t without_syn = 0;               // connections that began before the capture
    std::uint64_t unnamed_qps = 0;               // queue pairs whose CLC is not, or not whole, in the capture
    std::uint64_t connections_not_followed = 0;  // beyond kMaxConnections
    std::uint64_t sends_to_unknown_qps = 0;      // packets to queue pairs without CLC that do not look like SMC
    std::uint64_t retransmissions = 0;           // RoCE packets seen again
    std::uint64_t gaps = 0;                      // RoCE packets before which other packets are missing
    std::uint64_t naks = 0, rnr_naks = 0;        // answers of queue pairs of SMC
    std::uint64_t cut_syns = 0;                  // SYNs whose TCP options the snap length cut
    std::uint64_t cut_packets = 0;               // packets of RoCE SENDs that the snap length cut
    std::uint64_t cdc_without_connection = 0;    // CDC messages whose alert token no captured CLC has named
    std::uint64_t cdc_missing = 0;               // cursors that went on by more than an RMBE
    std::uint64_t links_not_followed = 0;        // beyond LinkGroup::kMaxLinks
    // Frames that were not looked at.
    std::uint64_t not_ip = 0, fragments = 0, tunnels = 0, other_protocols = 0, broken_frames = 0;
};

class Dissector {
 public:
    static constexpr std::size_t kMaxConnections = 200'000;
    static constexpr std::size_t kMaxUnnamedQps = 4096;
    static constexpr std::size_t kMaxWays = 65536;

    // `rdma`: RDMA writes and acknowledgements are events, too.
    explicit Dissector(std::function<void(const Event&)> sink, bool rdma = false)
        : sink_(std::move(sink)), rdma_(rdma) {}

    void add(const Frame& frame);

    [[nodiscard]] const std::vector<Connection>& connections() const { return connections_; }
    [[nodiscard]] const std::vector<LinkGroup>& link_groups() const { return link_groups_; }
    [[nodiscard]] const std::vector<UnnamedQp>& unnamed_qps() const { return unnamed_qps_; }
    [[nodiscard]] Counters counters() const;
    // Whether RoCE packets between these GIDs were captured from `from` to `to` only. Acknowledgements count, too.
    [[nodiscard]] bool only_to(const RoceGid& to, const RoceGid& from) const;
    // How many frames were skipped because their link type is not known here, by DLT_.
    [[nodiscard]] const std::map<int, std::uint64_t>& skipped() const { return skipped_; }

 private:
    // A TCP connection under way; its history is connections_[history].
    struct Followed {
        std::size_t history = 0;
        // Sequence numbers of SYN and SYN-ACK.
        std::uint32_t client_first = 0, server_first = 0;
        TcpStream client, server;
        // The beginning of these streams is not known: reading starts at a segment that is a whole message.
        bool join_client = false, join_server = false;
        // Set by the other peer's Decline: one message that was under way is still reported; all other data is the
        // application's.
        bool client_last = false, server_last = false;
    };
    // The packets that are sent to one end of a link.
    struct QueuePair {
        std::size_t group = 0, link = 0;
        bool of_server = false;
        SendReassembly flow;
    };
    using QpKey = std::pair<RoceGid, Qpn>;

    void skip(Skipped why);
    void report_option(const Packet& packet);
    void add_tcp(const Packet& packet);
    void open(const Packet& syn);
    void open_late(const Packet& packet);
    static std::optional<clc::Type> whole_message(Bytes payload);
    Followed* follow(const Endpoint& client, const Endpoint& server);
    void add_to_stream(Followed& followed, bool from_server, const Packet& packet);
    void read_clc(Followed& followed, bool of_server);
    [[nodiscard]] bool decline_may_be_missing(const Followed& followed, bool of_server) const;
    void learn(Followed& followed, bool from_server, const clc::AnyMessage& message);
    void learn_decline(Followed& followed, bool from_server, const clc::Decline& decline);
    void learn_halves(std::size_t history);
    void open_group(Connection& history, const clc::AcceptR& server, const clc::AcceptR& client);
    void add_queue_pair(const QpEnd& end, std::size_t group, std::size_t link, bool of_server,
                        std::optional<Psn> first);
    [[nodiscard]] std::optional<std::size_t> group_of(const QpEnd& server) const;

    void add_roce(const Packet& packet);
    void add_unnamed(const Packet& packet, const RcRequest& request);
    void add_answer(const Packet& packet, const RcAck& answer);
    void tell_write(const Packet& packet, const RcRequest& request, SendReassembly::Seen seen);
    // The names of sender and receiver of a packet to queue pair `to`; nullopt: `to` is no queue pair of SMC.
    [[nodiscard]] std::optional<std::pair<std::string, std::string>> ends(const Packet& packet, Qpn to) const;
    void read_unnamed(UnnamedQp& qp, wire::Bytes message);
    void read_llc(const QueuePair& qp, const llc::AnyMessage& message);
    void read_add_link(const QueuePair& qp, const llc::AddLink& add);
    void read_delete_link(const QueuePair& qp, const llc::DeleteLink& message);
    void read_cdc(const QueuePair& qp, const cdc::Message& message);

    std::function<void(const Event&)> sink_;
    bool rdma_;
    const Frame* frame_ = nullptr;                                // the current frame
    std::map<std::pair<Endpoint, Endpoint>, Followed> followed_;  // by client and server
    std::set<std::pair<Endpoint, Endpoint>> plain_;  // connections whose SYN had no option: what they carry is no CLC
    std::map<QpKey, QueuePair> queue_pairs_;
    std::map<QpKey, std::pair<std::size_t, SendReassembly>> unnamed_;  // -> index in unnamed_qps_
    std::vector<UnnamedQp> unnamed_qps_;
    std::set<std::pair<RoceGid, RoceGid>> ways_;  // senders and receivers of RoCE packets
    std::map<int, std::uint64_t> skipped_;
    std::map<std::tuple<std::size_t, bool, AlertToken>, std::size_t> tokens_;  // group, at the server, token -> history
    std::map<std::size_t, llc::AddLink> adding_;                               // group -> the server's ADD LINK request
    std::vector<Connection> connections_;
    std::vector<LinkGroup> link_groups_;
    Counters counters_;
};

}  // namespace smc::capture
