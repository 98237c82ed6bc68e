// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Memory of SMC-R link groups: the sizes of its elements, and when it grows and shrinks (RFC 7609 sections 4.1, 4.2).
#include "smcr_groups.h"

using namespace smc;
using namespace smc::group;
using namespace smc::test::groups;
using namespace std::chrono_literals;

TEST_CASE("smcr_groups__memory_for_half_an_assignment_is_not_taken") {
    Pair p{.server = {.server = true, .memory = kLink + 3 * kBuffer}};
    p.connect(1);
    p.connect(2);
    p.server.join(3, p.proposal());
    CHECK(p.server.groups.registered() == kLink + 2 * kBuffer);
}

// RFC 7609 section 4.1: a peer may have RMBs of several sizes, each divided into elements of one size.
TEST_CASE("smcr_groups__each_member_has_elements_of_the_size_that_it_wants") {
    Pair p;
    p.connect(1);
    p.server.bytes = {64 * 1024, 1024 * 1024};
    const Joined accept = p.connect(2);
    CHECK(bytes_of(accept.local.rmbe.size) == 64 * 1024);
    CHECK(bytes_of(told<Joined>(p.client.log, 2).value().local.rmbe.size) == 256 * 1024);
    std::map<BufferKind, std::pair<std::uint32_t, std::size_t>> made;
    for (const Action& action : p.server.log) {
        if (const auto* buffer = std::get_if<RegisterBuffer>(&action)) {
            made[buffer->kind] = {buffer->element_bytes, buffer->elements};
        }
    }
    CHECK(made[BufferKind::kRmb] == std::pair(std::uint32_t{64 * 1024}, std::size_t{2}));     // no more than usual
    CHECK(made[BufferKind::kSend] == std::pair(std::uint32_t{1024 * 1024}, std::size_t{1}));  // fewer: they are large
    CHECK(p.server.groups.registered() == kLink + 2 * kBuffer + 2 * 64 * 1024 + 1024 * 1024);
    p.connect(3);  // in the same RMB as the second
    CHECK(p.server.group(1).rmbs() == 2);
    for (const std::uint64_t member : {2, 3}) {
        p.server.leave(member);
        p.client.leave(member);
    }
    p.server.bytes = {};
    p.connect(4);
    CHECK(p.server.groups.assignment_of(MemberId{4})->rmb == p.server.groups.assignment_of(MemberId{1})->rmb);
}

TEST_CASE("smcr_groups__elements_are_smaller_where_memory_is_short") {
    Pair p{.server = {.server = true, .memory = kLink + 3 * kBuffer}};
    p.connect(1);
    p.server.bytes = {4096 * 1024, 4096 * 1024};
    const Joined accept = p.connect(2);
    CHECK(bytes_of(accept.local.rmbe.size) == 512 * 1024);
    CHECK(accept.assignment.send == p.server.groups.assignment_of(MemberId{1})->send);  // of the usual size
    CHECK(p.server.groups.registered() == kLink + 3 * kBuffer);
    p.server.bytes = {};
    p.server.join(3, p.proposal());  // no element to send from is left
    CHECK(told<JoinRefused>(p.server.log, 3).value().refusal == Refusal::kOutOfMemory);
}

TEST_CASE("smcr_groups__if_the_device_refuses_large_elements_usual_ones_do") {
    const bool first_contact = GENERATE(true, false);
    Pair p;
    if (!first_contact) {
        p.connect(1);
    }
    p.server.largest_buffer = kBuffer;
    p.server.bytes = {4096 * 1024, 4096 * 1024};
    const Joined accept = p.connect(2);
    CHECK(bytes_of(accept.local.rmbe.size) == 256 * 1024);
    CHECK(count<JoinRefused>(p.server.log) == 0);
}

TEST_CASE("smcr_groups__if_the_peer_refuses_an_rmb_of_another_size_usual_elements_do") {
    Pair p;
    p.connect(1);
    p.server.bytes = {GENERATE(64U, 4096U) * 1024, 256 * 1024};
    p.server.join(2, p.proposal());
    REQUIRE(p.server.sent.size() == 1);
    auto reply = std::get<llc::ConfirmRkey>(std::get<llc::AnyMessage>(llc::decode(p.server.sent[0].bytes)));
    p.server.sent.clear();
    reply.reply = reply.negative = true;
    p.server.on(p.server.groups.message(p.server.group(1).id(), 1, llc::encode(reply).view(), p.server.now));
    p.talk();
    CHECK(bytes_of(told<Joined>(p.server.log, 2).value().local.rmbe.size) == 256 * 1024);
    CHECK(p.server.group(1).rmbs() == 1);
}

TEST_CASE("smcr_groups__if_there_may_be_no_more_rmbs_usual_elements_do") {
    Pair p{.server = {.server = true, .memory = 1000 * kBuffer}, .client = {.server = false, .memory = 1000 * kBuffer}};
    p.connect(1);
    for (std::uint64_t member = 2; p.server.group(1).rmbs() < llc::kMaxRmbs; member++) {
        p.server.bytes = {512U * 1024 << member % 2, 256 * 1024};  // 512 KiB and 1 MiB in turn: one element an RMB
        p.connect(member);
    }
    for (Node* node : {&p.server, &p.client}) {  // room for one more connection, but its RMB stays for a while
        const GroupId id = node->group(2).id();
        const Assignment had = *node->groups.assignment_of(MemberId{2});
        node->leave(2);
        for (const auto& [buffer, element] : {std::pair(had.rmb, had.rmbe), std::pair(had.send, had.send_element)}) {
            node->on(node->groups.element_returned(id, buffer, element, node->now));
        }
    }
    p.server.bytes = {4096 * 1024, 256 * 1024};
    p.connect(1000);
    CHECK(p.server.group(1000).id() == p.server.group(1).id());
    CHECK(bytes_of(told<Joined>(p.server.log, 1000).value().local.rmbe.size) == 256 * 1024);
}

TEST_CASE("smcr_groups__a_group_with_more_memory_than_usual_is_kept_for_less_long") {
    Pair usual, large;
    usual.connect(1);
    large.server.bytes = {4096 * 1024, 4096 * 1024};
    large.connect(1);
    for (Pair* p : {&usual, &large}) {
        const GroupId id = p->server.group(1).id();
        const Assignment had = *p->server.groups.assignment_of(MemberId{1});
        p->server.leave(1);
        p->client.leave(1);
        for (const auto& [buffer, element] : {std::pair(had.rmb, had.rmbe), std::pair(had.send, had.send_element)}) {
            p->server.on(p->server.groups.element_returned(id, buffer, element, p->server.now));
        }
        p->server.sent.clear();
        p->server.tick(kStart + 200s);
    }
    CHECK(usual.server.sent.empty());
    REQUIRE(large.server.sent.size() == 1);
    const auto ends = llc::decode(large.server.sent[0].bytes);
    CHECK(std::get<llc::DeleteLink>(std::get<llc::AnyMessage>(ends)).reason == llc::DeleteLinkReason::kInactivity);
}
