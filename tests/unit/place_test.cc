// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Agents of one control socket that are there at the same time.
#include "agent/upgrade/place.h"

#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include "os/unix_socket.h"

using namespace smc;
using smc::upgrade::Place;

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
    char path_[32] = "/tmp/smc-place-XXXXXX";
};

}  // namespace

TEST_CASE("upgrade_place__each_has_a_number_of_its_own_and_gives_it_back") {
    const Directory directory;
    std::vector<Place> places;
    for (unsigned number = 0; number < Place::kMost; number++) {
        auto place = Place::take(directory.socket());
        REQUIRE(place);
        CHECK(place->number() == number);
        places.push_back(std::move(*place));
    }
    CHECK(places[3].deserted() == std::vector<unsigned>{3});
    const auto refused = Place::take(directory.socket());
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == EBUSY);
    places.erase(places.begin());  // moves the others, each with its lock
    CHECK(places.back().deserted() == std::vector<unsigned>{7, 0});
    const auto again = Place::take(directory.socket());
    REQUIRE(again);
    CHECK(again->number() == 0);
    places.clear();
    CHECK_FALSE(directory.empty());  // the last one's
}

TEST_CASE("upgrade_place__who_leaves_is_who_answers") {
    const Directory directory;
    const auto serving = Place::take(directory.socket());
    REQUIRE(serving);
    CHECK(Place::leaving(directory.socket()).empty());
    {
        const auto leaves = listen_unix(Place::socket_of(directory.socket(), 1), SOCK_STREAM, 0600, 1);
        REQUIRE(leaves);
        CHECK(Place::leaving(directory.socket()) == std::vector{Place::socket_of(directory.socket(), 1)});
    }
    CHECK(Place::leaving(directory.socket()).empty());  // it was killed, and left its socket behind
    CHECK(std::filesystem::exists(Place::socket_of(directory.socket(), 1)));
    CHECK(serving->deserted().size() == Place::kMost);
    CHECK_FALSE(std::filesystem::exists(Place::socket_of(directory.socket(), 1)));
}
