// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The descriptor that another process like this one has for a file.
#include "os/exclusive_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>

using namespace smc;

namespace {

// A directory that is removed at the end.
struct Place {
    std::string directory = std::filesystem::temp_directory_path() / "smc-exclusive-XXXXXX";
    std::string file;
    Place() {
        REQUIRE(::mkdtemp(directory.data()) != nullptr);
        file = directory + "/file";
        std::ofstream(file) << "held";
    }
    ~Place() { std::filesystem::remove_all(directory); }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
};

// Another process, with the name of this one, that has the file open until it is destroyed.
struct Holder {
    int pid = 0, until[2] = {-1, -1};
    explicit Holder(const std::string& file) {
        int ready[2] = {-1, -1};
        REQUIRE(::pipe(ready) == 0);
        REQUIRE(::pipe(until) == 0);
        pid = ::fork();
        char byte = 0;
        if (pid == 0) {
            ::close(until[1]);
            const int held = ::open(file.c_str(), O_RDWR | O_CLOEXEC);
            const bool told = ::write(ready[1], &byte, 1) == 1;
            ::_exit(held < 0 || !told || ::read(until[0], &byte, 1) != 0 ? 1 : 0);
        }
        REQUIRE(pid > 0);
        ::close(ready[1]);
        REQUIRE(::read(ready[0], &byte, 1) == 1);
        ::close(ready[0]);
    }
    ~Holder() {
        ::close(until[1]);
        ::close(until[0]);
        ::waitpid(pid, nullptr, 0);
    }
    Holder(const Holder&) = delete;
    Holder& operator=(const Holder&) = delete;
};

}  // namespace

TEST_CASE("share_open_file__finds_the_descriptor_of_a_process_like_this_one") {
    const Place place;
    CHECK_FALSE(share_open_file(place.file));
    const Holder holder(place.file);
    const UniqueFd shared = share_open_file(place.file);
    REQUIRE(shared);
    char text[5] = {};
    CHECK(::pread(shared.get(), text, 4, 0) == 4);
    CHECK(std::string(text) == "held");
    CHECK_FALSE(share_open_file(place.directory + "/nothing"));
}

// A process may have another file behind the same path, as in a container. Here it has one that was deleted: /proc then
// shows its path with " (deleted)", which is the path of another file.
TEST_CASE("share_open_file__takes_no_other_file_with_the_same_path") {
    const Place place;
    const Holder holder(place.file);
    const std::string other = place.file + " (deleted)";
    std::filesystem::remove(place.file);
    std::ofstream(other) << "another one";
    CHECK_FALSE(share_open_file(other));
}
