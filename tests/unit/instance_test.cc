// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Agents that run at the same time with the same control socket.
#include "agent/upgrade/instance.h"

#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include "os/unix_socket.h"

using namespace smc;
using smc::upgrade::Instance;

namespace {

class Directory {
 public:
    Directory() { REQUIRE(::mkdtemp(path_) != nullptr); }
    ~Directory() { std::filesystem::remove_all(path_); }
    Directory(const Directory&) = delete;
    Directory& operator=(const Directory&) = delete;
    [[nodiscard]] std::string socket() const { return std::string(path_) + "/control.sock"; }
    [[nodiscard]] bool empty() const { return std::filesystem::is_empty(path_); }

 private:
    char path_[32] = "/tmp/smc-instance-XXXXXX";
};

}  // namespace

TEST_CASE("upgrade_instance__each_has_a_number_of_its_own_and_gives_it_back") {
    const Directory directory;
    std::vector<Instance> instances;
    for (unsigned number = 0; number < Instance::kMost; number++) {
        auto instance = Instance::take(directory.socket());
        REQUIRE(instance);
        CHECK(instance->number() == number);
        instances.push_back(std::move(*instance));
    }
    CHECK(instances[3].deserted() == std::vector<unsigned>{3});
    const auto refused = Instance::take(directory.socket());
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == EBUSY);
    instances.erase(instances.begin());  // moves the others, each with its lock
    CHECK(instances.back().deserted() == std::vector<unsigned>{7, 0});
    const auto again = Instance::take(directory.socket());
    REQUIRE(again);
    CHECK(again->number() == 0);
    instances.clear();
    CHECK_FALSE(directory.empty());  // the last agent's entry is left
}

TEST_CASE("upgrade_instance__who_leaves_is_who_answers") {
    const Directory directory;
    const auto serving = Instance::take(directory.socket());
    REQUIRE(serving);
    CHECK(Instance::leaving(directory.socket()).empty());
    {
        const auto leaves = listen_unix(Instance::socket_of(directory.socket(), 1), SOCK_STREAM, 0600, 1);
        REQUIRE(leaves);
        CHECK(Instance::leaving(directory.socket()) == std::vector{Instance::socket_of(directory.socket(), 1)});
    }
    CHECK(Instance::leaving(directory.socket()).empty());  // it was killed, and left its socket behind
    CHECK(std::filesystem::exists(Instance::socket_of(directory.socket(), 1)));
    CHECK(serving->deserted().size() == Instance::kMost);
    CHECK_FALSE(std::filesystem::exists(Instance::socket_of(directory.socket(), 1)));
}
