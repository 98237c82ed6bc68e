// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <fcntl.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <thread>

#include "datapath/ism/local_dmb.h"
#include "datapath/ism/rendezvous.h"
#include "datapath/smcd/dmb_transport.h"
#include "os/clock.h"

using namespace smc;

namespace {

constexpr std::uint32_t kDmb = 16 * 1024;

}  // namespace

TEST_CASE("dmb__only_the_peer_writes_into_it_D1") {
    const auto own = ism::create_dmb(kDmb), peer = ism::create_dmb(kDmb);
    REQUIRE((own && peer));
    auto attached = ism::attach_dmb(peer->memory, UniqueFd(::dup(peer->bell.get())), kDmb);
    REQUIRE(attached);
    smcd::DmbTransport transport(own->dmb, std::make_shared<smcd::Dmb>(std::move(*attached)));
    std::memset(transport.space({}, 7).part[0].iov_base, 'x', 7);
    const cdc::Producer producer{{0, 7}, cdc::kWriterBlocked, cdc::kSendingDone};
    transport.publish(producer, 7);
    transport.consumed({0, 5});
    transport.arm();
    CHECK(transport.peer() == flow::PeerState{});
    CHECK((own->dmb->load_producer() == 0 && own->dmb->load_consumer() == 0));
    CHECK(std::ranges::count(own->dmb->ring(), 0) == kDmb - cdc::kSmcdBytes);
    CHECK(peer->dmb->load_producer() == cdc::pack(producer));
    CHECK(peer->dmb->load_consumer() == cdc::pack(cdc::Cursor{0, 5}));
    CHECK(std::ranges::count(peer->dmb->ring(), 'x') == 7);
}

TEST_CASE("dmb__descriptors_that_cannot_be_received_are_a_refusal_and_not_the_end_of_the_peer") {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    const UniqueFd owner(ends[0]), asker(ends[1]);
    const auto dmb = ism::create_dmb(kDmb);
    REQUIRE(dmb);
    REQUIRE(ism::send_reply(owner.get(), {.number = 7}, dmb->memory.get(), dmb->bell.get()));
    rlimit usual{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &usual) == 0);
    const rlimit none{.rlim_cur = 0, .rlim_max = usual.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
    ism::Reply reply;
    UniqueFd memory, doorbell;
    const bool received = ism::receive_reply(asker.get(), reply, memory, doorbell);
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &usual) == 0);
    CHECK(received);
    CHECK((reply.number == 7 && reply.status == EMFILE));
    CHECK_FALSE((memory || doorbell));
}

TEST_CASE("dmb__unsealed_or_short_memory_is_refused_D2") {
    const UniqueFd plain(::memfd_create("x", MFD_ALLOW_SEALING));
    REQUIRE(::ftruncate(plain.get(), 1 << 20) == 0);
    const auto created = ism::create_dmb(kDmb);
    REQUIRE(created);
    const auto attaches = [&](const UniqueFd& memory, int doorbell, std::uint32_t bytes) {
        return ism::attach_dmb(memory, UniqueFd(::dup(doorbell)), bytes).has_value();
    };
    const int bell = created->bell.get();
    CHECK(attaches(created->memory, bell, kDmb));
    CHECK_FALSE(attaches(plain, bell, kDmb));
    CHECK_FALSE(attaches(created->memory, bell, kDmb * 2));
    const UniqueFd event(::eventfd(0, EFD_NONBLOCK));
    CHECK_FALSE(attaches(created->memory, event.get(), kDmb));  // a peer could make a write to it block
    CHECK_FALSE(attaches(created->memory, plain.get(), kDmb));
    CHECK_FALSE(attaches(created->memory, -1, kDmb));
}

// The memory is never both sealed and long enough. Its owner shortens it at each step of attach_dmb().
TEST_CASE("dmb__memory_that_is_made_shorter_just_then_is_refused_D2") {
    constexpr int kRounds = 20'000, kPauses = 100;
    const auto created = ism::create_dmb(kDmb);
    REQUIRE(created);
    struct stat status {};
    REQUIRE(::fstat(created->memory.get(), &status) == 0);
    std::atomic<int> offered{-1}, taken{-1};  // descriptors of memory; -1: none
    const auto await = [](const std::atomic<int>& what, bool there) {
        while ((what != -1) != there) {
            std::this_thread::yield();
        }
    };
    std::thread peer([&] {
        for (int round = 0; round < kRounds; round++) {
            await(offered, true);
            const int memory = offered.exchange(-1);
            for (int pause = 0; pause < round % kPauses; pause++) {
                taken.load();
            }
            [[maybe_unused]] const int cut = ::ftruncate(memory, 0);
            ::fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
            taken = memory;
        }
    });
    int attached = 0;
    for (int round = 0; round < kRounds; round++) {
        const UniqueFd memory(::memfd_create("x", MFD_ALLOW_SEALING));
        REQUIRE(::ftruncate(memory.get(), status.st_size) == 0);
        UniqueFd bell(::dup(created->bell.get()));
        offered = memory.get();
        await(offered, false);
        attached += ism::attach_dmb(memory, std::move(bell), kDmb).has_value() ? 1 : 0;
        await(taken, true);
        taken = -1;
    }
    peer.join();
    CHECK(attached == 0);
}

TEST_CASE("dmb__a_ring_is_noted_and_wakes_only_an_owner_who_is_armed") {
    const auto own = ism::create_dmb(kDmb), peer = ism::create_dmb(kDmb);
    REQUIRE((own && peer));
    const auto attach = [](const ism::CreatedDmb& which) {
        auto attached = ism::attach_dmb(which.memory, UniqueFd(::dup(which.bell.get())), kDmb);
        REQUIRE(attached);
        return std::make_shared<smcd::Dmb>(std::move(*attached));
    };
    smcd::DmbTransport here(own->dmb, attach(*peer)), there(peer->dmb, attach(*own));
    const auto rang = [&] {
        pollfd ready{own->dmb->doorbell().fd(), POLLIN, 0};
        return ::poll(&ready, 1, 0) == 1;
    };
    CHECK((!here.can_look() && here.news_since() == kNever));  // a peer of an earlier version would note no time

    here.arm();
    here.disarm();
    const TimePoint before = os::now();
    there.publish({{0, 7}, {}, {}}, 7);
    const TimePoint first = here.news_since();
    CHECK((first >= before && first <= os::now()));
    there.publish({{0, 9}, {}, {}}, 2);
    CHECK(here.news_since() == first);
    CHECK_FALSE(rang());

    here.taking_news();
    const flow::PeerState seen = here.peer();
    CHECK((seen.producer.cursor == cdc::Cursor{0, 9} && here.can_look() && here.news_since() == kNever));
    here.arm();
    there.publish({{0, 10}, {}, {}}, 1);
    CHECK((rang() && here.news_since() >= first));

    // A cursor that the owner waits for is news, too.
    here.taking_news();
    there.consumed({0, 5});
    CHECK(here.news_since() == kNever);
    here.publish({{0, 8}, cdc::kWriterBlocked, {}}, 8);
    there.consumed({0, 6});
    CHECK(here.news_since() != kNever);
}

TEST_CASE("dmb__a_doorbell_never_blocks_whatever_its_owner_does") {
    const auto created = ism::create_dmb(kDmb);
    REQUIRE(created);
    auto attached = ism::attach_dmb(created->memory, UniqueFd(::dup(created->bell.get())), kDmb);
    REQUIRE(attached);
    const int own = created->dmb->doorbell().fd();
    for (const int fd : {own, created->bell.get()}) {
        REQUIRE(::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK) == 0);
    }
    // An owner of an earlier version does not arm by itself before it has read.
    for (int i = 0; i < 10'000; i++) {  // far beyond what the socket holds
        CHECK((::send(created->bell.get(), "", 1, MSG_DONTWAIT) == 1 || errno == EAGAIN));
    }
    created->dmb->doorbell().arm();
    attached->doorbell().ring();  // returns
    pollfd ready{own, POLLIN, 0};
    CHECK(::poll(&ready, 1, 0) == 1);
}

TEST_CASE("dmb__each_ring_is_an_event_although_rings_are_read_seldom") {
    const auto created = ism::create_dmb(kDmb);
    REQUIRE(created);
    auto attached = ism::attach_dmb(created->memory, UniqueFd(::dup(created->bell.get())), kDmb);
    REQUIRE(attached);
    smcd::Doorbell& own = created->dmb->doorbell();
    const UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
    epoll_event event{.events = EPOLLIN | EPOLLET, .data = {}};
    REQUIRE(::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, own.fd(), &event) == 0);
    int events = 0, most = 0;
    for (int i = 0; i < 10'000; i++) {
        own.arm();
        if (i % 3 == 0) {
            own.disarm();  // an owner that was busy-polled for a while
            own.arm();
        }
        attached->doorbell().ring();
        attached->doorbell().ring();  // the owner is not armed any more
        events += ::epoll_wait(epoll.get(), &event, 1, 0);
        own.heard();
        int unread = 0;
        REQUIRE(::ioctl(own.fd(), SIOCINQ, &unread) == 0);
        most = std::max(most, unread);
    }
    CHECK(events == 10'000);
    CHECK(most <= 4);
}
