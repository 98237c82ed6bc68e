// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Lists of the kernel's that change while they are read. Needs root.
#include "os/rtnetlink.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstdio>
#include <string>
#include <thread>

using namespace smc;

namespace {

// Runs lines of ip-batch(8).
bool ip(const std::string& lines) {
    FILE* batch = ::popen("ip -batch -", "w");
    if (batch == nullptr) {
        return false;
    }
    const bool written = std::fwrite(lines.data(), 1, lines.size(), batch) == lines.size();
    return ::pclose(batch) == 0 && written;
}

}  // namespace

TEST_CASE("rtnetlink__a_list_that_changes_is_read_again") {
    REQUIRE(::unshare(CLONE_NEWNET) == 0);
    constexpr int kDevices = 100;
    std::string make, change;
    for (int n = 0; n < kDevices; n++) {
        make += "link add d" + std::to_string(n) + " type veth peer name e" + std::to_string(n) + "\n";
    }
    for (int n = 0; n < 50; n++) {
        change += "link add x type veth peer name y\nlink del x\n";
    }
    REQUIRE(ip(make));
    std::atomic<bool> over = false;
    bool changed = true;
    std::thread changes([&] {
        while (!over && changed) {
            changed = ip(change);
        }
    });
    const auto rtnetlink = Rtnetlink::open();
    int whole = 0, tried = 0;
    for (; rtnetlink && tried < 500; tried++) {
        const auto devices = rtnetlink->devices();
        whole += devices && std::ranges::count_if(
                                *devices, [](const NetDevice& one) { return one.name.starts_with("d"); }) == kDevices;
    }
    over = true;
    changes.join();
    REQUIRE(rtnetlink);
    CHECK(changed);
    CHECK(whole == tried);
}
