// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A log whose reader stands still blocks no thread.
#include "agent/log/log_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <memory>
#include <sstream>
#include <string>

#include "os/unique_fd.h"

using namespace smc;

namespace {

std::string about(std::uint64_t dropped) {
    return std::to_string(dropped) + " were dropped\n";
}

struct Pipe {
    UniqueFd out, in;
    Pipe() {
        int ends[2] = {-1, -1};
        REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
        out.reset(ends[0]);
        in.reset(ends[1]);
    }
    // Reads until the write end is closed.
    std::string read_all() {
        in.reset();
        std::string text;
        char piece[65536];
        for (ssize_t n = 0; (n = ::read(out.get(), piece, sizeof piece)) > 0;) {
            text.append(piece, static_cast<std::size_t>(n));
        }
        return text;
    }
};

}  // namespace

TEST_CASE("log_writer__lines_for_which_there_is_no_room_are_dropped_and_counted_and_it_is_said_where") {
    Pipe pipe;
    const std::string line(1023, 'x');
    LogWriter log(pipe.in.get(), about);
    const std::size_t some = 3 * LogWriter::kMostBytes / 1024;
    for (std::size_t i = 0; i < some; i++) {  // there is no reader, but the loop ends
        log.write(line + "\n");
    }
    CHECK(log.dropped() >= some - LogWriter::kMostBytes / 1024 - 65536 / 1024 - 1);
    CHECK(log.dropped() < some);
    std::string text;
    char piece[65536];
    while (!log.drain()) {  // the reader reads again
        const ssize_t n = ::read(pipe.out.get(), piece, sizeof piece);
        REQUIRE(n > 0);
        text.append(piece, static_cast<std::size_t>(n));
    }
    log.write("and on\n");
    REQUIRE(log.drain());
    text += pipe.read_all();
    CHECK(text.ends_with("and on\n"));
    std::size_t lines = 0, dropped = 0;
    std::istringstream all(text);
    for (std::string one; std::getline(all, one);) {
        lines += one == line ? 1 : 0;
        dropped += one.ends_with(" were dropped") ? std::stoul(one) : 0;
    }
    CHECK(dropped == log.dropped());
    CHECK(lines == some - dropped);
}

TEST_CASE("log_writer__its_end_waits_for_a_reader_and_not_for_one_that_stands_still") {
    Pipe read;
    {
        LogWriter log(read.in.get(), about);
        log.write("first\n");
        log.write("last\n");
    }
    CHECK(read.read_all() == "first\nlast\n");
    Pipe unread;
    {
        LogWriter log(unread.in.get(), about);
        log.write(std::string(1 << 17, 'x'));
        CHECK_FALSE(log.drain());
    }
    (void)unread.out.release();  // the thread writes to it until the process ends
    (void)unread.in.release();
}

TEST_CASE("log_writer__a_file_has_each_line_at_once") {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::tmpfile(), std::fclose);
    REQUIRE(file);
    LogWriter log(::fileno(file.get()), about);
    log.write("a line\n");
    char text[16] = "";
    CHECK(::pread(::fileno(file.get()), text, sizeof text, 0) == 7);
    CHECK(std::string(text) == "a line\n");
}
