// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The RoCE transport on a real device: two links of one machine, over soft-RoCE. Runs in a virtual machine (tests/vm).
#include "datapath/roce/rc_link.h"

#include <poll.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <vector>

using namespace smc;
using namespace smc::roce;
using namespace std::chrono_literals;

namespace {

using Raw = std::vector<std::uint8_t>;

const std::vector<Port>& all_ports() {
    static const std::vector<Port> found = *ports();
    return found;
}

std::shared_ptr<ProtectionDomain> domain() {
    return *ProtectionDomain::allocate(*Context::open(all_ports().at(0).device));
}

// A link, and a handler that records its events.
struct Side final : smcr::LinkHandler {
    std::shared_ptr<ProtectionDomain> pd = domain();
    std::unique_ptr<RcLink> link;
    std::vector<Raw> messages;
    std::vector<std::string> broken;

    explicit Side(const PortChoice& choice, const LinkLimits& limits = {})
        : link(*RcLink::create(pd, *choice.port, choice.gid, limits)) {}
    void on_message(wire::Bytes message) override { messages.emplace_back(message.begin(), message.end()); }
    void on_broken(const std::string& why) override { broken.push_back(why); }
};

PortChoice choose(const char* address) {
    return port_for(all_ports(), *RoceGid::parse(address)).value();
}

// Drives both sides until the condition holds. Like the engine, it polls a link only when its descriptor is readable.
template <class Condition>
bool drive(Side& a, Side& b, Condition condition, std::chrono::milliseconds limit = 20s) {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (!condition()) {
        pollfd fds[] = {{a.link->fd(), POLLIN, 0}, {b.link->fd(), POLLIN, 0}};
        ::poll(fds, 2, 100);
        for (int i = 0; i < 2; i++) {
            Side& side = i == 0 ? a : b;
            side.link->want_completions(true);
            for (bool readable = fds[i].revents != 0; side.link->poll(side, readable, true); readable = false) {
            }
        }
        if (std::chrono::steady_clock::now() > end) {
            return false;
        }
    }
    return true;
}

void connect(Side& a, Side& b) {
    REQUIRE(a.link->connect(b.link->end()));
    REQUIRE(b.link->connect(a.link->end()));
}

Raw message(std::size_t size, std::uint8_t first) {
    Raw out(size, first);
    for (std::size_t i = 1; i < size; i++) {
        out[i] = static_cast<std::uint8_t>(first + i);
    }
    return out;
}

// A queue pair that posts requests which no honest peer posts.
struct Attacker {
    std::shared_ptr<ProtectionDomain> pd = domain();
    std::shared_ptr<CompletionQueue> cq = *CompletionQueue::create(*CompletionChannel::create(pd->context()), 64);
    std::unique_ptr<QueuePair> qp = *QueuePair::create(pd, cq, cq, {16, 16, 44});
    RegisteredMemory memory = *RegisteredMemory::allocate(pd, 65536, Memory::Access::kLocal);

    explicit Attacker(Side& victim) {
        const PortChoice p = choose("10.99.0.1");
        ibv_qp_attr attributes{};
        attributes.qp_state = IBV_QPS_INIT;
        attributes.port_num = p.port->number;
        REQUIRE(::ibv_modify_qp(qp->get(), &attributes,
                                IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
        const QpEnd& peer = victim.link->end();
        attributes.qp_state = IBV_QPS_RTR;
        attributes.path_mtu = IBV_MTU_1024;
        attributes.dest_qp_num = static_cast<std::uint32_t>(peer.qpn);
        attributes.rq_psn = static_cast<std::uint32_t>(peer.psn);
        attributes.max_dest_rd_atomic = 1;
        attributes.ah_attr.is_global = 1;
        attributes.ah_attr.port_num = p.port->number;
        std::copy(peer.gid.bytes.begin(), peer.gid.bytes.end(), attributes.ah_attr.grh.dgid.raw);
        attributes.ah_attr.grh.sgid_index = p.gid.index;
        REQUIRE(::ibv_modify_qp(qp->get(), &attributes,
                                IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
        attributes.qp_state = IBV_QPS_RTS;
        attributes.timeout = 15;
        attributes.retry_cnt = attributes.rnr_retry = 7;
        attributes.max_rd_atomic = 1;
        REQUIRE(::ibv_modify_qp(qp->get(), &attributes,
                                IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                    IBV_QP_MAX_QP_RD_ATOMIC) == 0);
        REQUIRE(victim.link->connect({p.gid.gid, p.gid.mac, qp->number(), Psn{0}, clc::Mtu::k1024}));
    }
    void post(ibv_wr_opcode opcode, const RegisteredMemory& to, std::uint32_t bytes) {
        ibv_sge piece{reinterpret_cast<std::uintptr_t>(memory.bytes().data()), bytes, memory.lkey()};
        ibv_send_wr request{}, *bad = nullptr;
        request.opcode = opcode;
        request.send_flags = IBV_SEND_SIGNALED;
        request.sg_list = &piece;
        request.num_sge = 1;
        const auto address = static_cast<std::uint64_t>(to.address());
        const auto rkey = static_cast<std::uint32_t>(to.rkey());
        if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
            request.wr.atomic = {address, 1, 0, rkey};
        } else {
            request.wr.rdma = {address, rkey};
        }
        REQUIRE(::ibv_post_send(qp->get(), &request, &bad) == 0);
    }
    // The status of the only request.
    ibv_wc_status status() {
        const auto end = std::chrono::steady_clock::now() + 20s;
        ibv_wc completion[1];
        while (std::chrono::steady_clock::now() < end) {
            if (*cq->poll(completion) == 1) {
                return completion[0].status;
            }
        }
        FAIL("the request does not complete");
        return IBV_WC_SUCCESS;
    }
};

}  // namespace

TEST_CASE("ports__the_device_its_ethernet_and_its_addresses") {
    REQUIRE(all_ports().size() == 1);
    const Port& port = all_ports()[0];
    CHECK(port.device == "rxe0");
    CHECK(port.active);
    CHECK(choose("10.99.0.1").gid.net_device == "eth0");
    CHECK(choose("10.99.0.1").gid.mac.text() == "52:54:00:00:99:01");
    CHECK(clc::is_valid(port.mtu));
    CHECK(choose("10.99.0.1").gid.gid.text() == "::ffff:10.99.0.1");
    CHECK(choose("fd99::1").gid.gid.text() == "fd99::1");
    // for an address that is no GID: a GID of its family, but never a link-local one
    CHECK(choose("192.0.2.1").gid.gid.text() == "::ffff:10.99.0.1");
    CHECK(choose("2001:db8::1").gid.gid.text() == "fd99::1");
}

TEST_CASE("ports__rocev1_is_chosen_among_its_own_gids") {
    CHECK(all_ports()[0].gids_v1.empty());  // soft-RoCE is RoCEv2
    Port port;
    port.active = true;
    const auto add = [](std::vector<PortGid>& to, const char* gid, RoceVersion version, std::uint8_t index) {
        to.push_back({*RoceGid::parse(gid), version, index, {}, {}});
    };
    add(port.gids, "10.0.0.1", RoceVersion::kV2, 3);
    add(port.gids, "fd00::1", RoceVersion::kV2, 5);
    add(port.gids_v1, "fe80::1", RoceVersion::kV1, 0);
    add(port.gids_v1, "10.0.0.1", RoceVersion::kV1, 2);
    const auto index = [&](const char* local, RoceVersion version) {
        const auto choice = port_for({port}, *RoceGid::parse(local), 0, version);
        return choice ? int{choice->gid.index} : -1;
    };
    CHECK(index("10.0.0.1", RoceVersion::kV1) == 2);
    CHECK(index("10.0.0.1", RoceVersion::kV2) == 3);
    CHECK(index("10.0.0.9", RoceVersion::kV1) == 2);
    CHECK(index("fd00::1", RoceVersion::kV1) == -1);
    CHECK(index("fd00::1", RoceVersion::kV2) == 5);
}

TEST_CASE("ports__a_gid_of_the_connections_vlan_is_chosen") {
    Port port;
    port.active = true;
    const auto add = [&](const char* gid, std::uint8_t index, std::uint16_t vlan) {
        port.gids.push_back({*RoceGid::parse(gid), RoceVersion::kV2, index, {}, {}, vlan});
    };
    const auto index = [&](const char* local, std::uint16_t vlan) {
        const auto choice = port_for({port}, *RoceGid::parse(local), vlan);
        return choice ? int{choice->gid.index} : -1;
    };
    add("10.0.1.1", 1, 100);
    CHECK(index("10.0.0.1", 0) == 1);  // all that this port has
    CHECK(index("10.0.0.1", 200) == -1);
    add("fe80::1", 2, 0);
    add("10.0.0.1", 3, 0);
    add("10.0.1.2", 4, 100);
    add("fd00::1", 5, 200);
    CHECK(index("10.0.0.1", 0) == 3);
    CHECK(index("10.0.0.9", 0) == 3);
    CHECK(index("10.0.1.2", 100) == 4);
    CHECK(index("10.0.1.9", 100) == 1);
    CHECK(index("10.0.0.1", 100) == 1);
    CHECK(index("10.0.0.1", 200) == -1);
    CHECK(index("fd00::9", 200) == 5);
}

TEST_CASE("memory__counts_until_it_is_given_back") {
    const std::size_t before = Memory::in_use();
    {
        const Side side(choose("10.99.0.1"));
        const std::size_t with_link = Memory::in_use();
        CHECK(with_link >= before + message_bytes({}));
        const auto more = Memory::allocate(8192);
        CHECK(Memory::in_use() == with_link + 8192);
    }
    CHECK(Memory::in_use() == before);
}

TEST_CASE("link__messages_of_every_size_arrive_whole_and_in_order") {
    for (const char* address : {"10.99.0.1", "fd99::1"}) {
        Side a(choose(address)), b(choose(address));
        connect(a, b);
        const std::size_t sizes[] = {44, 60, 1024, 1025, llc::kMaxMessage, 44};
        for (const std::size_t size : sizes) {
            REQUIRE(a.link->send(message(size, 1)) == smcr::Link::Posted::kYes);
        }
        REQUIRE(drive(a, b, [&] { return b.messages.size() == std::size(sizes); }));
        for (std::size_t i = 0; i < std::size(sizes); i++) {
            CHECK(b.messages[i] == message(sizes[i], 1));
        }
        REQUIRE(b.link->send(message(44, 9)) == smcr::Link::Posted::kYes);  // and back
        REQUIRE(drive(a, b, [&] { return !a.messages.empty() && a.link->retired() == std::size(sizes); }));
        CHECK(a.broken.empty());
    }
}

TEST_CASE("link__what_a_later_release_appends_to_a_message_does_not_break_it") {
    Side victim(choose("10.99.0.1"));
    Attacker later(victim);
    Side spare(choose("10.99.0.1"));
    const Raw known = message(llc::kMaxMessage, 1);
    std::copy(known.begin(), known.end(), later.memory.bytes().begin());
    std::fill(later.memory.bytes().begin() + llc::kMaxMessage, later.memory.bytes().end(), 0xee);
    later.post(IBV_WR_SEND, later.memory, llc::kMaxLength);
    later.post(IBV_WR_SEND, later.memory, llc::kSmallBytes);
    REQUIRE(drive(victim, spare, [&] { return victim.messages.size() == 2; }));
    REQUIRE(victim.messages[0].size() == llc::kMaxLength);
    CHECK(std::equal(known.begin(), known.end(), victim.messages[0].begin()));
    CHECK(victim.messages[1] == Raw(known.begin(), known.begin() + llc::kSmallBytes));
    CHECK(victim.broken.empty());
    later.post(IBV_WR_SEND, later.memory, llc::kMaxLength + 1);
    REQUIRE(drive(victim, spare, [&] { return !victim.broken.empty(); }));
}

TEST_CASE("link__a_write_is_there_when_the_message_that_tells_of_it_arrives_Q2") {
    Side a(choose("10.99.0.1")), b(choose("10.99.0.1"));
    connect(a, b);
    const auto from = *RegisteredMemory::allocate(a.pd, 65536, Memory::Access::kLocal);
    const auto to = *RegisteredMemory::allocate(b.pd, 65536, Memory::Access::kRemoteWrite);
    for (std::uint8_t round = 1; round <= 20; round++) {
        std::fill(from.bytes().begin(), from.bytes().end(), round);
        REQUIRE(a.link->write(from.bytes(), from.lkey(), to.rkey(), to.address()) == smcr::Link::Posted::kYes);
        const std::uint64_t told = a.link->next_sequence();
        REQUIRE(a.link->send(message(44, round)) == smcr::Link::Posted::kYes);
        REQUIRE(drive(a, b, [&] { return b.messages.size() == round; }));
        CHECK(std::all_of(to.bytes().begin(), to.bytes().end(), [&](std::uint8_t byte) { return byte == round; }));
        REQUIRE(drive(a, b, [&] { return a.link->retired() == told + 1; }));  // one completion retires both (Q1)
    }
}

TEST_CASE("link__a_full_queue_is_told_and_room_comes_back") {
    LinkLimits limits;
    limits.sends = 8;
    Side a(choose("10.99.0.1"), limits), b(choose("10.99.0.1"));
    connect(a, b);
    std::size_t sent = 0;
    while (a.link->send(message(44, 1)) == smcr::Link::Posted::kYes) {
        sent++;
        REQUIRE(sent <= 8);
    }
    CHECK(sent == 8);
    CHECK(a.link->room() == 0);
    REQUIRE(drive(a, b, [&] { return a.link->room() == 8; }));
    CHECK(b.messages.size() == 8);
}

TEST_CASE("link__writes_leave_a_place_for_the_message_that_tells_of_them_Q4") {
    LinkLimits limits;
    limits.sends = 4;
    Side a(choose("10.99.0.1"), limits), b(choose("10.99.0.1"));
    connect(a, b);
    const auto from = *RegisteredMemory::allocate(a.pd, 4096, Memory::Access::kLocal);
    const auto to = *RegisteredMemory::allocate(b.pd, 4096, Memory::Access::kRemoteWrite);
    while (a.link->write(from.bytes(), from.lkey(), to.rkey(), to.address()) == smcr::Link::Posted::kYes) {
    }
    CHECK(a.link->room() == 1);
    REQUIRE(a.link->send(message(44, 1)) == smcr::Link::Posted::kYes);
    REQUIRE(drive(a, b, [&] { return a.link->room() == 4 && b.messages.size() == 1; }));
}

TEST_CASE("link__nothing_is_sent_before_it_is_connected") {
    Side a(choose("10.99.0.1")), b(choose("10.99.0.1"));
    CHECK(a.link->send(message(44, 1)) == smcr::Link::Posted::kBroken);
    connect(a, b);
    REQUIRE(a.link->send(message(44, 2)) == smcr::Link::Posted::kYes);
    REQUIRE(drive(a, b, [&] { return !b.messages.empty(); }));
    CHECK(b.messages[0] == message(44, 2));
}

TEST_CASE("link__a_write_with_immediate_data_is_no_message") {
    Side victim(choose("10.99.0.1"));
    const auto to = *RegisteredMemory::allocate(victim.pd, 65536, Memory::Access::kRemoteWrite);
    Attacker attacker(victim);
    attacker.post(IBV_WR_RDMA_WRITE_WITH_IMM, to, 65536);
    Side idle(choose("10.99.0.1"));
    REQUIRE(drive(victim, idle, [&] { return victim.link->broken(); }));
    CHECK(victim.messages.empty());
    CHECK(victim.broken ==
          std::vector<std::string>{"the peer sent an RDMA write with immediate data, or a message that is too long"});
}

TEST_CASE("link__an_rmb_is_written_and_neither_read_nor_counted_in") {
    for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD}) {
        Side victim(choose("10.99.0.1"));
        const auto rmb = *RegisteredMemory::allocate(victim.pd, 4096, Memory::Access::kRemoteWrite);
        std::ranges::fill(rmb.bytes(), std::uint8_t{0x5e});
        Attacker attacker(victim);
        attacker.post(opcode, rmb, 8);
        const ibv_wc_status status = attacker.status();
        CAPTURE(opcode, ::ibv_wc_status_str(status));
        CHECK((status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_REM_INV_REQ_ERR));
        CHECK(std::ranges::count(attacker.memory.bytes(), std::uint8_t{0}) == 65536);
        CHECK(std::ranges::count(rmb.bytes(), std::uint8_t{0x5e}) == 4096);
    }
}

TEST_CASE("link__more_messages_than_receive_buffers_are_not_lost") {
    LinkLimits few;
    few.receives = 4;
    Side a(choose("10.99.0.1")), b(choose("10.99.0.1"), few);
    connect(a, b);
    for (int i = 0; i < 100; i++) {
        REQUIRE(a.link->send(message(44, static_cast<std::uint8_t>(i))) == smcr::Link::Posted::kYes);
    }
    REQUIRE(drive(a, b, [&] { return b.messages.size() == 100; }));
    for (int i = 0; i < 100; i++) {
        CHECK(b.messages[static_cast<std::size_t>(i)][0] == i);
    }
    CHECK(a.broken.empty());
}

TEST_CASE("link__memory_that_is_not_the_peers_breaks_it_once_Q3") {
    Side a(choose("10.99.0.1")), b(choose("10.99.0.1"));
    connect(a, b);
    const auto from = *RegisteredMemory::allocate(a.pd, 4096, Memory::Access::kLocal);
    const auto to = *RegisteredMemory::allocate(b.pd, 4096, Memory::Access::kLocal);  // no remote access
    REQUIRE(a.link->write(from.bytes(), from.lkey(), to.rkey(), to.address()) == smcr::Link::Posted::kYes);
    REQUIRE(a.link->send(message(44, 1)) == smcr::Link::Posted::kYes);
    REQUIRE(drive(a, b, [&] { return a.link->broken(); }));
    CHECK(a.broken.size() == 1);
    CHECK(b.messages.empty());
    CHECK(to.bytes()[0] == 0);
    CHECK(a.link->send(message(44, 1)) == smcr::Link::Posted::kBroken);
}

TEST_CASE("link__a_peer_that_is_gone_breaks_it_after_the_retries") {
    LinkLimits impatient;
    impatient.retries = 2;
    impatient.timeout = 12;  // 17 ms
    Side a(choose("10.99.0.1"), impatient);
    {
        Side b(choose("10.99.0.1"));
        connect(a, b);
    }
    Side other(choose("10.99.0.1"));
    REQUIRE(a.link->send(message(44, 1)) == smcr::Link::Posted::kYes);
    REQUIRE(drive(a, other, [&] { return a.link->broken(); }));
    CHECK(a.broken.size() == 1);
}
