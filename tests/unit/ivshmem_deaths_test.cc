// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The state that other peers find when a process has died at any instruction.
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <functional>
#include <list>
#include <thread>

#include "ivshmem_shared.h"

using namespace smc;
using namespace smc::ivshmem;

namespace {

using Bytes = std::vector<std::uint8_t>;

// Marks where single-stepping of a Stepped begins, and where it ends.
void stop_here() {
    ::raise(SIGSTOP);
}

// A child that can be single-stepped from its first stop_here() to its second. Code that need not be stepped belongs
// before the first, because a sanitizer makes many thousand steps of it.
class Stepped {
 public:
    explicit Stepped(const std::function<void()>& does) : pid_(::fork()) {
        if (pid_ == 0) {
            ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
            does();
            ::_exit(0);
        }
        REQUIRE(::waitpid(pid_, &status_, 0) == pid_);
    }
    ~Stepped() {
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, &status_, 0);
    }
    Stepped(const Stepped&) = delete;
    Stepped& operator=(const Stepped&) = delete;

    // False: the child has reached its second stop_here().
    bool step() { return go(PTRACE_SINGLESTEP); }
    void finish() {
        while (go(PTRACE_CONT)) {
        }
    }

 private:
    bool go(__ptrace_request how) {
        ::ptrace(how, pid_, nullptr, nullptr);
        ::waitpid(pid_, &status_, 0);
        REQUIRE(WIFSTOPPED(status_));
        return WSTOPSIG(status_) == SIGTRAP;
    }

    pid_t pid_;
    int status_ = 0;
};

void lay_out(const Shared& shared) {
    stop_here();
    (void)shared.open(2)->release();
    stop_here();
}

// The states of the area that others find if does() dies after any of its instructions: one for each change.
std::vector<Bytes> deaths_of(std::span<const std::uint8_t> control, const std::function<void()>& does) {
    Stepped child(does);
    std::vector<Bytes> deaths{{control.begin(), control.end()}};
    while (child.step()) {
        if (!std::equal(control.begin(), control.end(), deaths.back().begin())) {
            deaths.emplace_back(control.begin(), control.end());
        }
    }
    return deaths;
}

}  // namespace

// When a peer is found dead, its slot and blocks are free again, and nothing else has changed.
TEST_CASE("ivshmem_area__dies_at_any_instruction") {
    const Shared shared;
    const Mapping mapping = shared.map();
    const auto control = control_of(mapping);
    auto survivor = shared.open(1);
    REQUIRE((*survivor)->allocate(2));
    auto victim = shared.open(2);
    REQUIRE(victim);
    Area* const dead = victim->release();  // like the dead child, it gives nothing back
    const auto deaths = deaths_of(control, [&] {
        stop_here();
        const auto run = dead->allocate(3);
        dead->release(*run, 2);
        (void)dead->allocate(2);
        dead->ring(0);
        dead->say_alive();
        delete dead;
        stop_here();
    });
    // One change for each block that is taken or released, for the doorbell, the heartbeat and the slot; and for the
    // GID as many as the compiler makes stores of it.
    CHECK(deaths.size() >= 1 + 3 + 2 + 2 + 1 + 1 + 1 + 1);
    for (const Bytes& death : deaths) {
        std::copy(death.begin(), death.end(), control.begin());
        watch(**survivor);
        CHECK((*survivor)->used() == 2);
        CHECK_FALSE((*survivor)->find(gid(2)));
    }
    delete dead;
}

// A peer that finds an area half laid out lays it out itself, and is alone in it in the end.
TEST_CASE("ivshmem_area__dies_at_any_instruction_of_laying_it_out") {
    const Shared shared;
    const Mapping mapping = shared.map();
    const auto deaths = deaths_of(control_of(mapping), [&] { lay_out(shared); });
    CHECK(deaths.size() >= 1 + 8 + 1 + 1);  // the superblock's words, a slot and its GID
    std::vector<std::unique_ptr<Area>> survivors(deaths.size());
    std::list<Shared> left;
    for (const Bytes& death : deaths) {
        std::ranges::copy(death, left.emplace_back().map().bytes().begin());
    }
    std::vector<std::thread> threads;  // each open() has to wait for a timeout
    for (std::size_t i = 0; i < deaths.size(); i++) {
        threads.emplace_back([&, i] {
            if (auto opened = std::next(left.begin(), static_cast<std::ptrdiff_t>(i))->open(1)) {
                survivors[i] = std::move(*opened);
            }
        });
    }
    for (auto& thread : threads) {
        thread.join();
    }
    for (const auto& survivor : survivors) {
        REQUIRE(survivor);
        watch(*survivor);
        CHECK_FALSE(survivor->find(gid(2)));
        CHECK(survivor->allocate(survivor->blocks()));
    }
}

TEST_CASE("ivshmem_area__who_stood_still_while_he_laid_it_out_wipes_nothing") {
    const Shared shared;
    const Mapping mapping = shared.map();
    const auto& state = reinterpret_cast<const Superblock*>(mapping.bytes().data())->state;
    Stepped slow([&] { lay_out(shared); });
    while (state == 0) {
        REQUIRE(slow.step());
    }
    auto other = shared.open(1);  // has no more timeout after a while
    REQUIRE(other);
    const auto run = (*other)->allocate(7);
    REQUIRE(run);
    slow.finish();
    CHECK((*other)->has_slot());
    CHECK((*other)->used() == 7);
    CHECK((*other)->owner_of(*run) == (*other)->slot());
    CHECK((*other)->find(gid(2)));
}

#ifndef SMC_SANITIZED  // a sanitizer would make millions of steps
// A peer that opens an empty area while another one lays it out must not take it for an area of other peers.
TEST_CASE("ivshmem_area__is_laid_out_by_another_in_the_meantime") {
    const auto come = [](Mapping mapping) {
        stop_here();
        (void)Area::open(std::move(mapping), gid(2))->release();
        stop_here();
    };
    const auto state_of = [](const Mapping& mapping) -> const auto& {
        return reinterpret_cast<const Superblock*>(mapping.bytes().data())->state;
    };
    REQUIRE(Shared().open(1));  // the dynamic loader resolves symbols now, so the steps below do not
    // Between two reads of the state, open() draws a random number and reads a clock: 16 steps at once skip no read.
    // The number of steps varies, because reading the clock is repeated while the kernel updates it.
    constexpr long kStride = 16;
    long times = 0;
    for (bool came_first = false; !came_first; times++) {
        const Shared shared;
        const Mapping mapping = shared.map();
        Stepped late([&] { come(shared.map()); });
        for (long i = 0; i < times * kStride && state_of(mapping) == 0; i++) {
            REQUIRE(late.step());
        }
        came_first = state_of(mapping) != 0;  // all moments before its first store were tried
        auto other = shared.open(1);
        REQUIRE(other);
        late.finish();
        REQUIRE((*other)->find(gid(2)));
    }
    CHECK(times > 2);
}
#endif

namespace {

// The area up to and including the page with the header of the first DMB.
std::span<std::uint8_t> with_first_dmb_of(const Mapping& mapping) {
    return mapping.bytes().first(geometry_of(kBytes).data_offset + kPage);
}

DmbHeader& first_header_of(const Mapping& mapping) {
    return *reinterpret_cast<DmbHeader*>(mapping.bytes().data() + geometry_of(kBytes).data_offset);
}

constexpr std::uint64_t kOldToken = 0x7777'7777'0000;

// Writes into the first block of an area what an earlier DMB has left there.
void use_once(const Shared& shared) {
    REQUIRE(shared.open(7));
    const Mapping mapping = shared.map();
    DmbHeader& header = first_header_of(mapping);
    header.token = kOldToken;
    header.bytes = 16 * 1024;
    header.attached = kAttached;
    std::memset(header.peer_gid, 5, sizeof(header.peer_gid));
}

}  // namespace

// A DMB can be attached as soon as its token is set, and not before, whatever its blocks held before; and it is free
// when its owner is dead. The owner, which has threads, runs in a process of its own from the start.
TEST_CASE("ivshmem_fabric__the_owner_of_a_dmb_dies_at_any_instruction") {
    const Shared shared;
    use_once(shared);
    const Mapping mapping = shared.map();
    const auto deaths = deaths_of(with_first_dmb_of(mapping), [&] {
        const Node owner(shared, 2);
        stop_here();
        const auto own = owner.fabric->register_dmb(gid(1), 16 * 1024);
        owner.fabric->deregister(own->token);
        stop_here();  // its orderly end is not stepped here
    });
    std::size_t attached = 0;
    for (const Bytes& death : deaths) {
        const Shared left;
        const Mapping found = left.map();
        std::ranges::copy(death, found.bytes().begin());
        const DmbHeader header = first_header_of(found);
        // The token of the earlier DMB may be half cleared.
        const bool there = header.token != 0 && header.peer_gid[0] == 1 && header.peer_gid[15] == 1;
        {
            const Node peer(left, 1);
            const bool got = static_cast<bool>(peer.attach(2, DmbToken{header.token}, 16 * 1024));
            CHECK(got == there);
            attached += got ? 1 : 0;
        }
        auto survivor = left.open(3);
        REQUIRE(survivor);
        watch(**survivor);
        CHECK((*survivor)->used() == 0);
    }
    CHECK(attached >= 1);
}

// The owner finds no peer, a peer that may write until it is dead, or a peer that has let go of the DMB.
TEST_CASE("ivshmem_fabric__who_attaches_a_dmb_dies_at_any_instruction") {
    const Shared shared;
    use_once(shared);
    const Mapping mapping = shared.map();
    DmbHeader& header = first_header_of(mapping);
    const auto page = with_first_dmb_of(mapping).last(kPage);
    const Stepped lives([&] {
        const Node owner(shared, 1);
        const auto own = owner.fabric->register_dmb(gid(2), 16 * 1024);
        stop_here();
    });
    const auto token = header.token;
    REQUIRE(token != 0);
    const auto deaths = deaths_of(page, [&] {
        const Node peer(shared, 2);
        stop_here();
        (void)peer.attach(1, DmbToken{token}, 16 * 1024);
        stop_here();
    });
    REQUIRE(deaths.size() == 3);
    for (const std::uint32_t found : {kNobody, kAttached, kLetGo}) {
        std::ranges::copy(deaths[found], page.begin());
        CHECK(std::exchange(header.attached, kNobody) == found);
        CHECK(std::ranges::equal(page, deaths.front()));  // nothing else has changed
    }
}

// A DMB that was attached in an earlier life of its owner is not taken for the DMB that has its blocks now.
