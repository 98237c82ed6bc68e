// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Memory that several machines share: which peer has which slot and which block.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <thread>

#include "datapath/ivshmem/device.h"

#include "ivshmem_shared.h"

using namespace smc;
using namespace smc::ivshmem;

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
    CHECK((*b)->used() == 3);                       // the peer may still write into them
    watch(**b, Area::kReclaimAfter - Area::kBeat);  // a peer that is silent for so long keeps its slot
    CHECK((*b)->used() == 3);
    watch(**b, 4 * Area::kBeat);
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

    // Memory with other contents is left as it is.
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
    CHECK(shared.open(1));  // after a timeout
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
        (*b)->release(block, 1);  // a block that is not its own
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
    CHECK((*b)->used() == 5);  // the other peers must notice it, too
    watch(**b);
    CHECK((*b)->used() == 0);
    CHECK_FALSE((*a)->has_slot());
    auto c = shared.open(3);  // it gets the slot of the first peer
    REQUIRE(c);
    const auto block = (*c)->allocate(1);
    REQUIRE((*a)->allocate(4));  // this peer does not know it yet
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
    (void)(*b)->look(TimePoint{});
    CHECK((*b)->look(TimePoint{} + 100 * Area::kDead) <= 2 * Area::kBeat);
    CHECK((*b)->find(gid(1)));
}

TEST_CASE("ivshmem_area__what_is_written_from_here_is_not_given_back") {
    const Shared shared;
    auto a = shared.open(1), b = shared.open(2);
    const auto run = (*a)->allocate(3);
    const auto held = (*b)->hold(*run, 3);
    const auto again = (*b)->hold(*run, 1);
    a->reset();
    watch(**b);
    CHECK((*b)->used() == 3);
    (*b)->drop(again);
    watch(**b, Area::kBeat);
    CHECK((*b)->used() == 3);  // until both peers have let go
    (*b)->drop(held);
    watch(**b, Area::kBeat);
    CHECK((*b)->used() == 0);
}

TEST_CASE("ivshmem_area__places_that_somebody_filled_are_free_in_time") {
    const Shared shared;
    { REQUIRE(shared.open(1)); }
    const Mapping mapping = shared.map();
    for (PeerSlot& slot : slots_of(mapping)) {
        slot.owner = 0xbad;
    }
    auto a = shared.open(1);
    REQUIRE(a);
    CHECK_FALSE((*a)->has_slot());
    CHECK_FALSE((*a)->allocate(1));
    CHECK_FALSE((*a)->take_slot());
    (*a)->say_alive();
    TimePoint now{};
    for (auto passed = 0ms; passed <= 2 * Area::kDead + 2 * Area::kBeat; passed += Area::kBeat) {
        (void)(*a)->look(now += Area::kBeat);
    }
    REQUIRE((*a)->take_slot());
    CHECK((*a)->has_slot());
    CHECK((*a)->allocate(1));
}

// As a peer would wipe it that frees the slot of the previous peer too late.
TEST_CASE("ivshmem_area__a_gid_that_was_wiped_is_there_again") {
    const Shared shared;
    auto a = shared.open(1), b = shared.open(2);
    const Mapping mapping = shared.map();
    std::ranges::fill(slots_of(mapping)[(*a)->slot()].gid, std::uint8_t{0});
    CHECK_FALSE((*b)->find(gid(1)));
    (*a)->say_alive();
    CHECK((*b)->find(gid(1)));
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
            if (!(*a)->has_slot()) {
                (void)(*a)->take_slot();
            }
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

// A stand-in for /sys/bus/pci/devices, with the files that are read.
class Devices {
 public:
    Devices() : path_(std::filesystem::temp_directory_path() / ("smc-pci-" + std::to_string(::getpid()))) {}
    ~Devices() { std::filesystem::remove_all(path_); }
    Devices(const Devices&) = delete;
    Devices& operator=(const Devices&) = delete;

    void add(const std::string& address, const char* vendor, const char* device) const {
        std::filesystem::create_directories(path_ / address);
        std::ofstream(path_ / address / "vendor") << vendor << "\n";
        std::ofstream(path_ / address / "device") << device << "\n";
        std::ofstream(path_ / address / "enable") << "0\n";
        std::ofstream(path_ / address / "resource2") << "";
    }
    [[nodiscard]] std::string path() const { return path_.string(); }
    [[nodiscard]] std::string enabled(const std::string& address) const {
        std::string word;
        std::ifstream(path_ / address / "enable") >> word;
        return word;
    }

 private:
    std::filesystem::path path_;
};

}  // namespace

TEST_CASE("ivshmem_device__the_first_of_several_is_found_and_a_bar_is_enabled") {
    const Devices devices;
    CHECK_FALSE(find_device(devices.path()));
    devices.add("0000:00:03.0", "0x1af4", "0x1000");
    CHECK_FALSE(find_device(devices.path()));
    devices.add("0000:00:05.0", "0x1af4", "0x1110");
    devices.add("0000:00:04.0", "0x1af4", "0x1110");
    const auto bar = find_device(devices.path());
    REQUIRE(bar);
    CHECK(*bar == devices.path() + "/0000:00:04.0/resource2");
    CHECK(device_of(*bar) == "0000:00:04.0");
    CHECK(devices.enabled("0000:00:04.0") == "0");
    CHECK(enable(*bar));
    CHECK((devices.enabled("0000:00:04.0") == "1" && devices.enabled("0000:00:05.0") == "0"));
    CHECK(device_of("/dev/shm/area") == "/dev/shm/area");
    CHECK(enable("/dev/shm/area"));  // no PCI device: there is nothing to enable
}
