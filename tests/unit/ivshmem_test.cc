// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Memory that several machines share: who has a place, who has a block, and what becomes of both when somebody dies.
#include "datapath/ivshmem/area.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <asio/io_context.hpp>
#include <catch2/catch.hpp>
#include <csignal>
#include <cstring>
#include <random>
#include <set>
#include <thread>

#include "datapath/ivshmem/ivshmem_fabric.h"
#include "os/unique_fd.h"

using namespace smc;
using namespace smc::ivshmem;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t kBytes = 4U << 20;

Gid gid(std::uint8_t n) {
    Gid out;
    out.bytes.fill(n);
    return out;
}

// A file that all of a test's peers map, as machines map a BAR.
class Shared {
 public:
    explicit Shared(std::size_t bytes = kBytes) : fd_(::memfd_create("area", MFD_CLOEXEC)) {
        REQUIRE(::ftruncate(fd_.get(), static_cast<off_t>(bytes)) == 0);
        bytes_ = bytes;
    }
    [[nodiscard]] Mapping map() const { return std::move(*Mapping::shared(fd_.get(), bytes_)); }
    [[nodiscard]] Result<std::unique_ptr<Area>> open(std::uint8_t n) const { return Area::open(map(), gid(n)); }
    [[nodiscard]] std::string path() const { return "/proc/self/fd/" + std::to_string(fd_.get()); }

 private:
    UniqueFd fd_;
    std::size_t bytes_;
};

// For so long, with its eyes open: until everybody else who is silent is dead, and his blocks are given back.
void watch(Area& area, std::chrono::milliseconds time = 3 * Area::kDead + 4 * Area::kBeat) {
    static TimePoint now{};
    for (auto passed = 0ms; passed <= time; passed += Area::kBeat) {
        area.say_alive();
        REQUIRE(area.look(now += Area::kBeat));
    }
}

}  // namespace

TEST_CASE("ivshmem_area__is_laid_out_once_and_found_again") {
    const Shared shared;
    auto a = shared.open(1);
    REQUIRE(a);
    CHECK((*a)->blocks() == 63);
    const auto run = (*a)->allocate(3);
    REQUIRE(run);
    auto b = shared.open(2);
    REQUIRE(b);
    CHECK((*b)->used() == 3);
    CHECK((*b)->owner_of(*run) == (*a)->slot());
    CHECK((*b)->find(gid(1)) == (*a)->slot());
    CHECK((*a)->find(gid(2)) == (*b)->slot());
    CHECK_FALSE((*a)->find(gid(3)));
    a->reset();
    CHECK_FALSE((*b)->find(gid(1)));
    CHECK((*b)->used() == 3);  // somebody may still write them
    watch(**b, Area::kDead + 2 * Area::kBeat);
    CHECK((*b)->used() == 0);
}

TEST_CASE("ivshmem_area__many_come_at_once") {
    const Shared shared;
    std::vector<std::unique_ptr<Area>> areas(8);
    std::vector<std::thread> threads;
    for (std::uint8_t i = 0; i < areas.size(); i++) {
        threads.emplace_back([&, i] { areas[i] = std::move(*shared.open(i)); });
    }
    for (auto& thread : threads) {
        thread.join();
    }
    std::set<std::uint32_t> slots;
    for (const auto& area : areas) {
        slots.insert(area->slot());
    }
    CHECK(slots.size() == areas.size());
}

TEST_CASE("ivshmem_area__what_does_not_fit_is_refused") {
    CHECK_FALSE(Shared(64 * 1024).open(1));
    const Shared shared;
    { REQUIRE(shared.open(1)); }
    Mapping mapping = shared.map();
    auto& super = *reinterpret_cast<Superblock*>(mapping.bytes().data());
    super.version = 2;
    const auto other_version = shared.open(1);
    REQUIRE_FALSE(other_version);
    CHECK(other_version.error().text().find("version 2, this is version 1") != std::string::npos);
    super.version = kVersion;
    super.blocks = 7;
    CHECK_FALSE(shared.open(1));
    super.blocks = 63;
    super.magic = 5;
    CHECK_FALSE(shared.open(1));

    // Somebody else's memory stays as it is.
    const Shared others;
    Mapping theirs = others.map();
    std::memset(theirs.bytes().data(), 0xab, kBytes);
    CHECK_FALSE(others.open(1));
    CHECK(std::ranges::all_of(theirs.bytes(), [](std::uint8_t byte) { return byte == 0xab; }));
}

TEST_CASE("ivshmem_area__who_dies_while_he_lays_it_out_is_followed_by_another") {
    const Shared shared;
    Mapping mapping = shared.map();
    reinterpret_cast<Superblock*>(mapping.bytes().data())->state = 77;
    CHECK(shared.open(1));  // after some patience
}

TEST_CASE("ivshmem_area__every_block_can_be_had_and_is_had_by_one") {
    const Shared shared;
    auto a = shared.open(1), b = shared.open(2);
    std::atomic<bool> go{false};
    std::vector<std::uint32_t> of_a, of_b;
    const auto take = [&](Area& area, std::vector<std::uint32_t>& to) {
        while (!go) {
        }
        while (const auto block = area.allocate(1)) {
            to.push_back(*block);
        }
    };
    std::thread one([&] { take(**a, of_a); }), other([&] { take(**b, of_b); });
    go = true;
    one.join();
    other.join();
    std::set<std::uint32_t> all(of_a.begin(), of_a.end());
    all.insert(of_b.begin(), of_b.end());
    CHECK(of_a.size() + of_b.size() == (*a)->blocks());
    CHECK(all.size() == (*a)->blocks());
    for (const std::uint32_t block : of_a) {
        (*b)->release(block, 1);  // not its own
    }
    CHECK((*a)->used() == (*a)->blocks());
    (*a)->release(0, (*a)->blocks());
    CHECK((*a)->used() == of_b.size());
    CHECK_FALSE((*a)->allocate((*a)->blocks() + 1));
    CHECK_FALSE((*a)->allocate(0));
}

TEST_CASE("ivshmem_area__a_run_is_found_between_others") {
    const Shared shared;
    auto a = shared.open(1);
    const auto all = (*a)->allocate((*a)->blocks());
    REQUIRE(all);
    (*a)->release(10, 3);
    (*a)->release(20, 5);
    CHECK((*a)->allocate(4) == 20);
    CHECK((*a)->allocate(3) == 10);
    CHECK_FALSE((*a)->allocate(2));
    CHECK((*a)->allocate(1) == 24);
}

TEST_CASE("ivshmem_area__who_is_away_too_long_has_lost_his_place") {
    const Shared shared;
    auto a = shared.open(1), b = shared.open(2);
    REQUIRE((*a)->allocate(5));
    watch(**b, Area::kDead + Area::kBeat);
    CHECK_FALSE((*b)->find(gid(1)));
    CHECK((*b)->used() == 5);  // others are to hear of it, too
    watch(**b);
    CHECK((*b)->used() == 0);
    CHECK_FALSE((*a)->look(TimePoint{}));
    auto c = shared.open(3);  // in the place of the first
    REQUIRE(c);
    const auto block = (*c)->allocate(1);
    REQUIRE((*a)->allocate(4));  // who does not know yet
    a->reset();
    CHECK((*c)->owner_of(*block) == (*c)->slot());
    CHECK((*b)->find(gid(3)));
    for (int i = 0; i < 100; i++) {
        (*c)->say_alive();
        watch(**b, 0ms);
    }
    CHECK((*b)->used() == 1);
}

TEST_CASE("ivshmem_area__while_it_beats_it_lives") {
    const Shared shared;
    auto a = shared.open(1), b = shared.open(2);
    for (int i = 0; i < 100; i++) {
        (*a)->say_alive();
        watch(**b, 0ms);
    }
    CHECK((*b)->find(gid(1)));
}

TEST_CASE("ivshmem_area__who_stood_still_himself_takes_nobody_for_dead") {
    const Shared shared;
    auto a = shared.open(1), b = shared.open(2);
    REQUIRE((*b)->look(TimePoint{}));
    REQUIRE((*b)->look(TimePoint{} + 100 * Area::kDead));
    CHECK((*b)->find(gid(1)));
}

TEST_CASE("ivshmem_area__what_is_written_from_here_is_not_given_back") {
    const Shared shared;
    auto a = shared.open(1), b = shared.open(2);
    const auto run = (*a)->allocate(3);
    (*b)->hold(*run, 3);
    a->reset();
    watch(**b);
    CHECK((*b)->used() == 3);
    (*b)->drop(*run);
    watch(**b, Area::kBeat);
    CHECK((*b)->used() == 0);
}

namespace {

using Bytes = std::vector<std::uint8_t>;

// What others find in the area if a child that takes and gives blocks dies behind any of its instructions: it is
// stepped through them, and each change is kept.
std::vector<Bytes> deaths_of(Area& victim, std::span<const std::uint8_t> control) {
    const pid_t child = ::fork();
    if (child == 0) {
        ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
        ::raise(SIGSTOP);
        const auto run = victim.allocate(3);
        victim.release(*run, 2);
        (void)victim.allocate(2);
        victim.ring(0);
        victim.say_alive();
        ::raise(SIGSTOP);
        ::_exit(0);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    std::vector<Bytes> deaths{{control.begin(), control.end()}};
    do {
        ::ptrace(PTRACE_SINGLESTEP, child, nullptr, nullptr);
        ::waitpid(child, &status, 0);
        if (!std::equal(control.begin(), control.end(), deaths.back().begin())) {
            deaths.emplace_back(control.begin(), control.end());
        }
    } while (WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP);
    CHECK((WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP));
    ::kill(child, SIGKILL);
    ::waitpid(child, &status, 0);
    return deaths;
}

}  // namespace

// What it had is nobody's when it is found to be dead, and nothing else has changed.
TEST_CASE("ivshmem_area__dies_at_any_instruction") {
    const Shared shared;
    const Mapping mapping = shared.map();
    const Geometry geometry = geometry_of(kBytes);  // what is behind the words is not compared: that takes its time
    const auto control = mapping.bytes().first(geometry.words_offset + geometry.blocks * sizeof(std::uint64_t));
    auto survivor = shared.open(1);
    REQUIRE((*survivor)->allocate(2));
    auto victim = shared.open(2);
    REQUIRE(victim);
    const auto deaths = deaths_of(**victim, control);
    CHECK(deaths.size() == 1 + 3 + 2 + 2 + 1 + 1);  // each block taken or given, a bell, a beat
    Area* const dead = victim->release();           // as dead as the child: nothing is given back by it
    for (const Bytes& death : deaths) {
        std::copy(death.begin(), death.end(), control.begin());
        watch(**survivor);
        CHECK((*survivor)->used() == 2);
        CHECK_FALSE((*survivor)->find(gid(2)));
    }
    delete dead;
}

TEST_CASE("ivshmem_area__random_words_crash_nobody") {
    const Shared shared;
    auto a = shared.open(1);
    Mapping mapping = shared.map();
    std::mt19937_64 random(7);
    auto* const words = reinterpret_cast<std::uint64_t*>(mapping.bytes().data());
    const std::size_t count = geometry_of(kBytes).data_offset / sizeof *words + 64;
    TimePoint now{};
    for (int i = 0; i < 20000; i++) {
        std::atomic_ref(words[random() % count]).store(random() % 4 == 0 ? random() % 70 : random());
        if (i % 100 == 0) {
            (*a)->say_alive();
            (void)(*a)->look(now += 1s);
        }
        if (const auto run = (*a)->allocate(1 + static_cast<std::uint32_t>(random() % 4))) {
            (*a)->release(*run, 4);
        }
        (void)(*a)->find(gid(static_cast<std::uint8_t>(random())));
        (void)(*a)->owner_of(static_cast<std::uint32_t>(random()));
        (void)(*a)->run(static_cast<std::uint32_t>(random()), static_cast<std::uint32_t>(random()));
    }
    SUCCEED();
}

namespace {

struct Node {
    asio::io_context io;
    std::vector<Gid> lost;
    std::unique_ptr<IvshmemFabric> fabric;

    Node(const Shared& shared, std::uint8_t n)
        : fabric(std::move(*IvshmemFabric::open(io, shared.path(), gid(n), Chid{0xff10},
                                                [this](const Gid& peer) { lost.push_back(peer); }))) {}
    Result<smcd::Dmb> attach(std::uint8_t peer, DmbToken token, std::uint32_t bytes) const {
        std::optional<Result<smcd::Dmb>> got;
        fabric->attach(gid(peer), token, bytes, 1s, [&](Result<smcd::Dmb> dmb) { got.emplace(std::move(dmb)); });
        REQUIRE(got);
        return std::move(*got);
    }
};

bool readable(int fd) {
    pollfd one{fd, POLLIN, 0};
    return ::poll(&one, 1, 2000) == 1;
}

}  // namespace

TEST_CASE("ivshmem_fabric__a_dmb_is_for_one_peer_and_once") {
    const Shared shared;
    const Node a(shared, 1), b(shared, 2), c(shared, 3);
    CHECK(a.fabric->reach(gid(2)));
    CHECK_FALSE(a.fabric->reach(gid(9)));
    auto own = a.fabric->register_dmb(gid(2), 256 * 1024);
    REQUIRE(own);
    CHECK_FALSE(c.attach(1, own->token, 256 * 1024));
    CHECK_FALSE(b.attach(3, own->token, 256 * 1024));
    CHECK_FALSE(b.attach(1, own->token, 128 * 1024));
    CHECK_FALSE(b.attach(1, own->token, 512 * 1024));
    CHECK_FALSE(b.attach(1, DmbToken{static_cast<std::uint64_t>(own->token) ^ 1ULL << 40}, 256 * 1024));
    CHECK_FALSE(b.attach(1, DmbToken{0xffffffffffffffff}, 256 * 1024));
    auto theirs = b.attach(1, own->token, 256 * 1024);
    REQUIRE(theirs);
    CHECK_FALSE(b.attach(1, own->token, 256 * 1024));
    std::memset(theirs->ring().data(), 0x5a, theirs->ring().size());
    theirs->store_producer(42);
    CHECK(own->dmb->load_producer() == 42);
    CHECK(std::ranges::all_of(own->dmb->ring(), [](std::uint8_t byte) { return byte == 0x5a; }));
}

TEST_CASE("ivshmem_fabric__a_doorbell_is_heard_once_it_is_armed") {
    const Shared shared;
    const Node a(shared, 1), b(shared, 2);
    auto own = a.fabric->register_dmb(gid(2), 16 * 1024);
    auto theirs = b.attach(1, own->token, 16 * 1024);
    REQUIRE((own && theirs));
    for (int i = 0; i < 50; i++) {
        own->dmb->doorbell().arm();
        theirs->doorbell().ring();
        REQUIRE(readable(own->dmb->doorbell().fd()));
        own->dmb->doorbell().heard();
    }
}

TEST_CASE("ivshmem_fabric__blocks_come_back_when_nobody_writes_them") {
    const Shared shared;
    Node a(shared, 1);
    auto b = std::make_unique<Node>(shared, 2);
    auto watcher = shared.open(7);
    auto own = a.fabric->register_dmb(gid(2), 16 * 1024);
    auto theirs = b->attach(1, own->token, 16 * 1024);
    REQUIRE(theirs);
    a.fabric->deregister(own->token);
    own->dmb.reset();
    a.io.run_for(600ms);
    CHECK((*watcher)->used() == 1);  // the peer may still write
    theirs = Error{EPIPE, "gone"};
    a.io.restart();
    a.io.run_for(600ms);
    CHECK((*watcher)->used() == 0);

    // One that leaves without a word.
    auto other = a.fabric->register_dmb(gid(2), 16 * 1024);
    auto kept = b->attach(1, other->token, 16 * 1024);
    REQUIRE((kept && a.fabric->reach(gid(2))));
    a.fabric->deregister(other->token);
    other->dmb.reset();
    b->fabric.reset();  // what it has attached is still there, and nobody beats
    const auto until = std::chrono::steady_clock::now() + 20s;
    while (a.lost.empty() && std::chrono::steady_clock::now() < until) {
        a.io.restart();
        a.io.run_for(250ms);
    }
    a.io.restart();
    a.io.run_for(250ms);
    CHECK((*watcher)->used() == 0);
    CHECK(std::ranges::count(a.lost, gid(2)) == 1);
}

// What was attached of a life that is over is not taken for what has its blocks now.
TEST_CASE("ivshmem_fabric__a_dmb_taken_back_cannot_be_attached") {
    const Shared shared;
    const Node a(shared, 1), b(shared, 2);
    auto own = a.fabric->register_dmb(gid(2), 16 * 1024);
    a.fabric->deregister(own->token);
    CHECK_FALSE(b.attach(1, own->token, 16 * 1024));
}
