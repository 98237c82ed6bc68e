// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Agents that run at the same time with the same control socket.
#include "agent/upgrade/instance.h"

#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
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
    [[nodiscard]] std::string path() const { return path_; }
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
    CHECK(instances[3].clear_deserted() == std::vector<unsigned>{3});
    const auto refused = Instance::take(directory.socket());
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == EBUSY);
    instances.erase(instances.begin());  // moves the others, each with its lock
    CHECK(instances.back().clear_deserted() == std::vector<unsigned>{7, 0});
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
    CHECK(serving->clear_deserted().size() == Instance::kMost);
    CHECK_FALSE(std::filesystem::exists(Instance::socket_of(directory.socket(), 1)));
}

TEST_CASE("upgrade_instance__a_number_whose_file_was_deleted_is_taken_again") {
    const Directory directory;
    auto first = Instance::take(directory.socket());
    REQUIRE(first);
    CHECK(first->restore().value() == false);  // nothing to do
    std::filesystem::remove_all(directory.path());
    CHECK(first->restore().value() == true);  // and makes the directory again
    const auto second = Instance::take(directory.socket());
    REQUIRE(second);
    CHECK(second->number() == 1);
}

TEST_CASE("upgrade_instance__a_number_that_another_agent_took_stays_with_it") {
    const Directory directory;
    std::optional<Instance> second;
    {
        auto first = Instance::take(directory.socket());
        REQUIRE(first);
        std::filesystem::remove_all(directory.path());
        auto taken = Instance::take(directory.socket());
        REQUIRE(taken);
        CHECK(taken->number() == 0);
        second.emplace(std::move(*taken));
        const auto refused = first->restore();
        REQUIRE_FALSE(refused);
        CHECK(refused.error().code == EBUSY);
    }
    CHECK(second->restore().value() == false);  // the first one has not removed the second one's file
}
