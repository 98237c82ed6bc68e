// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Two TCP connections over loopback, joined: what the application and the server at their far ends see.
#include "datapath/spliced_connection.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <utility>

#include "datapath/engine.h"
#include "os/tcp_options.h"

using namespace smc;

namespace {

UniqueFd tcp() {
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(fd);
    const timeval timeout{10, 0};
    ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
    return fd;
}

std::pair<UniqueFd, UniqueFd> connected() {
    const UniqueFd listener = tcp();
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof at;
    auto* const address = reinterpret_cast<sockaddr*>(&at);
    REQUIRE(::bind(listener.get(), address, length) == 0);
    REQUIRE(::listen(listener.get(), 1) == 0);
    REQUIRE(::getsockname(listener.get(), address, &length) == 0);
    UniqueFd one = tcp();
    REQUIRE(::connect(one.get(), address, length) == 0);
    UniqueFd other(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    REQUIRE(other);
    const timeval timeout{10, 0};
    ::setsockopt(other.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    return {std::move(one), std::move(other)};
}

// With the agent's values.
TcpSocket of_agent(UniqueFd fd) {
    ::fcntl(fd.get(), F_SETFL, O_NONBLOCK);
    os::prepare_tcp(fd.get());
    os::set_option(fd.get(), IPPROTO_TCP, TCP_NODELAY, 1);
    return TcpSocket(std::move(fd));
}

bool send_all(const UniqueFd& fd, const std::string& what, int flags = 0) {
    return ::send(fd.get(), what.data(), what.size(), flags | MSG_NOSIGNAL) == static_cast<ssize_t>(what.size());
}

void say(const UniqueFd& fd, const std::string& what, int flags = 0) {
    REQUIRE(send_all(fd, what, flags));
}

// The next bytes, at most so many; fewer if the stream ends before, followed by "reset" if it is reset.
std::string hear(const UniqueFd& fd, std::size_t bytes) {
    std::string heard;
    while (heard.size() < bytes) {
        char piece[65536];
        const ssize_t n = ::recv(fd.get(), piece, std::min(sizeof piece, bytes - heard.size()), 0);
        if (n <= 0) {
            return n == 0 ? heard : heard + (errno == ECONNRESET ? "reset" : "error");
        }
        heard.append(piece, static_cast<std::size_t>(n));
    }
    return heard;
}

bool happens(const UniqueFd& fd, short event) {
    pollfd wanted{fd.get(), event, 0};
    return ::poll(&wanted, 1, 10000) == 1 && (wanted.revents & event) != 0;
}

void reset(UniqueFd& fd) {
    const linger at_once{1, 0};
    ::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    fd.reset();
}

constexpr std::size_t kAll = std::size_t{1} << 30;

struct Spliced {
    UniqueFd application, server;
    std::promise<ConnectionEnd> ended;
    std::shared_ptr<ConnectionStats> counters = std::make_shared<ConnectionStats>();
    std::unique_ptr<Engine> engine;

    // `fin_timeout_s`: the leg's tcp_fin_timeout, and when the other socket probes its peer; 0: the system's, and
    // never.
    // `before`: is called before the agent takes the connection, with the sockets that it will get.
    explicit Spliced(
        bool watches_for_clc = false, std::chrono::milliseconds close_timeout = std::chrono::seconds(10),
        int fin_timeout_s = 0,
        const std::function<void(Spliced&, int leg, int clc)>& before = [](Spliced&, int, int) {}) {
        std::signal(SIGPIPE, SIG_IGN);  // as the agent does
        auto [a, leg] = connected();
        ::setsockopt(leg.get(), IPPROTO_TCP, TCP_LINGER2, &fin_timeout_s, sizeof fin_timeout_s);
        auto [clc, b] = connected();
        const int probes = fin_timeout_s != 0 ? 1 : 0;
        ::setsockopt(clc.get(), IPPROTO_TCP, TCP_KEEPIDLE, &fin_timeout_s, sizeof fin_timeout_s);
        ::setsockopt(clc.get(), SOL_SOCKET, SO_KEEPALIVE, &probes, sizeof probes);
        application = std::move(a);
        server = std::move(b);
        before(*this, leg.get(), clc.get());
        engine = Engine::start([this](const ConnectionEnd& end) { ended.set_value(end); }).value();
        engine->add(std::make_shared<SplicedConnection>(1, counters, of_agent(std::move(leg)), of_agent(std::move(clc)),
                                                        close_timeout, watches_for_clc));
    }

    Reason reason() {
        auto end = ended.get_future();
        REQUIRE(end.wait_for(std::chrono::seconds(10)) == std::future_status::ready);
        return end.get().reason;
    }
};

}  // namespace

TEST_CASE("What had arrived before a reset is read, even if the way was full") {
    Spliced s;
    const std::string piece(100'000, 'a');
    std::size_t sent = 0;
    do {
        const ssize_t n = ::send(s.server.get(), piece.data(), piece.size(), MSG_DONTWAIT);
        sent += n > 0 ? static_cast<std::size_t>(n) : 0;
        pollfd writable{s.server.get(), POLLOUT, 0};
        if (n < 0 && ::poll(&writable, 1, 500) == 0) {
            break;  // the application reads nothing, so nothing moves any more
        }
    } while (sent < kAll);
    int not_arrived = 0;
    REQUIRE(::ioctl(s.server.get(), SIOCOUTQ, &not_arrived) == 0);
    const std::size_t arrived = sent - static_cast<std::size_t>(not_arrived);
    reset(s.server);
    CHECK((hear(s.application, kAll) == std::string(arrived, 'a') + "reset"));
    CHECK(s.reason() == Reason::kPeerReset);
}

TEST_CASE("Two sides that have both reset, behind bytes that nobody can be given, end the connection") {
    Spliced s(false, std::chrono::seconds(10), 0, [](Spliced& fresh, int, int) {
        for (UniqueFd* end : {&fresh.application, &fresh.server}) {
            say(*end, "x");
            reset(*end);
        }
    });
    CHECK(s.reason() != Reason::kNone);
}

// As if a program in a sockmap refused the bytes. No read of that socket reports it.
TEST_CASE("A write that fails on a socket that lives ends the connection") {
    const bool to_leg = GENERATE(true, false), watches_for_clc = GENERATE(true, false);
    Spliced s(watches_for_clc, std::chrono::seconds(10), 0,
              [&](Spliced&, int leg, int clc) { REQUIRE(::shutdown(to_leg ? leg : clc, SHUT_WR) == 0); });
    say(to_leg ? s.server : s.application, "more than four bytes");
    CHECK(s.reason() == (to_leg ? Reason::kApplicationReset : Reason::kPeerReset));
}

TEST_CASE("A peer that resets the connection before its first four bytes have come ends nothing in order") {
    for (const std::string first : {"", "\xe2\xd4"}) {
        Spliced s(true);
        say(s.application, "x");
        CHECK(hear(s.server, 1) == "x");
        if (!first.empty()) {
            say(s.server, first);
        }
        reset(s.server);
        CHECK(hear(s.application, kAll) == "reset");
    }
}

TEST_CASE("An application that reads slowly gets all that had arrived before a reset") {
    constexpr auto kTimeout = std::chrono::milliseconds(200);
    Spliced s(false, kTimeout);
    const std::string piece(100'000, 'a');
    std::size_t sent = 0;
    for (pollfd writable{s.server.get(), POLLOUT, 0}; ::poll(&writable, 1, 500) == 1;) {
        const ssize_t n = ::send(s.server.get(), piece.data(), piece.size(), MSG_DONTWAIT);
        sent += n > 0 ? static_cast<std::size_t>(n) : 0;
    }
    int not_arrived = 0;
    REQUIRE(::ioctl(s.server.get(), SIOCOUTQ, &not_arrived) == 0);
    const std::size_t arrived = sent - static_cast<std::size_t>(not_arrived);
    reset(s.server);
    std::size_t heard = 0;
    const std::size_t slice = arrived / 16;  // 16 reads, for several times the timeout
    for (int n = 0; n < 15; n++) {
        heard += hear(s.application, slice).size();
        std::this_thread::sleep_for(kTimeout / 4);
    }
    CHECK(heard == 15 * slice);
    CHECK((hear(s.application, kAll) == std::string(arrived - heard, 'a') + "reset"));
}

TEST_CASE("What is sent arrives, both ways, and each half ends by itself") {
    Spliced s;
    say(s.application, "question");
    CHECK(hear(s.server, 8) == "question");
    ::shutdown(s.application.get(), SHUT_WR);
    CHECK(hear(s.server, kAll).empty());
    const std::string answer(3'000'000, 'a');
    auto writer = std::async(std::launch::async, [&] {
        const bool sent = send_all(s.server, answer);
        s.server.reset();
        return sent;
    });
    CHECK((hear(s.application, kAll) == answer));
    CHECK(writer.get());
    CHECK(s.reason() == Reason::kNone);
    CHECK(s.counters->bytes_sent == 8);
    CHECK(s.counters->bytes_received == answer.size());
}

// The packets of the leg need the agent, which must not leave before the application has read.
TEST_CASE("An application that has ended its stream and reads late keeps its leg") {
    Spliced s;
    const int small = 4096;  // but 64 KiB have been offered already
    ::setsockopt(s.application.get(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    ::shutdown(s.application.get(), SHUT_WR);
    CHECK(hear(s.server, 1).empty());
    const std::string all(256 * 1024, 'a');
    say(s.server, all);
    ::shutdown(s.server.get(), SHUT_WR);
    auto end = s.ended.get_future();
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    for (int iterations = 0; s.counters->bytes_received != all.size() || iterations < 3;) {
        REQUIRE(std::chrono::steady_clock::now() < deadline);
        iterations += s.engine->has_iterated() && s.counters->bytes_received == all.size() ? 1 : 0;
        std::this_thread::yield();
    }
    CHECK(end.wait_for(std::chrono::seconds(0)) == std::future_status::timeout);
    CHECK(hear(s.application, kAll) == all);
    REQUIRE(end.wait_for(std::chrono::seconds(10)) == std::future_status::ready);
    CHECK(end.get().reason == Reason::kNone);
}

TEST_CASE("Who sends to one that does not read gets rid of a bounded amount, and all of it arrives") {
    Spliced s;
    const std::string piece(65536, 'x');
    std::size_t sent = 0;
    const timeval short_timeout{0, 300'000};
    ::setsockopt(s.application.get(), SOL_SOCKET, SO_SNDTIMEO, &short_timeout, sizeof short_timeout);
    for (ssize_t n = 0; (n = ::send(s.application.get(), piece.data(), piece.size(), MSG_NOSIGNAL)) > 0;) {
        sent += static_cast<std::size_t>(n);
        REQUIRE(sent < 64'000'000);
    }
    ::shutdown(s.application.get(), SHUT_WR);
    CHECK(hear(s.server, kAll).size() == sent);
}

TEST_CASE("CLC of a peer that had said nothing is not the application's, and all else is") {
    const std::string late = GENERATE("\xe2\xd4\xc3\xd9\x01 a Proposal", "\xe2\xd4\xc3\xc4");
    Spliced clc(true);
    say(clc.application, "banner");
    CHECK(hear(clc.server, 6) == "banner");
    say(clc.server, late.substr(0, 3));
    say(clc.server, late.substr(3));
    CHECK(hear(clc.application, kAll) == "reset");
    CHECK(hear(clc.server, kAll) == "reset");
    CHECK(clc.reason() == Reason::kProtocolError);
    for (const std::string first : {"G", "\xe2 and on", "\xe2\xd4\xc3 and on", ""}) {
        Spliced other(true);
        say(other.server, first);
        CHECK(hear(other.application, first.size()) == first);
        say(other.server, "\xe2\xd4\xc3");
        ::shutdown(other.server.get(), SHUT_WR);
        CHECK(hear(other.application, kAll) == "\xe2\xd4\xc3");
        other.application.reset();
        CHECK(other.reason() == Reason::kNone);
    }
}

TEST_CASE("An urgent byte stays one") {
    Spliced s;
    const int on = 1;
    ::setsockopt(s.server.get(), SOL_SOCKET, SO_OOBINLINE, &on, sizeof on);
    say(s.application, "ab");
    say(s.application, "!", MSG_OOB);
    say(s.application, "cd");
    CHECK(hear(s.server, 2) == "ab");
    pollfd urgent{s.server.get(), POLLPRI, 0};
    REQUIRE(::poll(&urgent, 1, 10000) == 1);
    int at_mark = 0;
    REQUIRE((::ioctl(s.server.get(), SIOCATMARK, &at_mark) == 0 && at_mark == 1));
    CHECK(hear(s.server, 1) == "!");
    CHECK(hear(s.server, 2) == "cd");
}

TEST_CASE("What was said before a reset comes before it") {
    const bool by_server = GENERATE(true, false);
    Spliced s;
    UniqueFd& one = by_server ? s.server : s.application;
    UniqueFd& other = by_server ? s.application : s.server;
    say(one, "last words");
    CHECK(hear(other, 4) == "last");
    reset(one);
    CHECK(hear(other, kAll) == " wordsreset");
    CHECK(s.reason() == (by_server ? Reason::kPeerReset : Reason::kApplicationReset));
}

TEST_CASE("An application that resets after its end is reset after its end") {
    Spliced s;
    say(s.application, "last words");
    ::shutdown(s.application.get(), SHUT_WR);
    REQUIRE(happens(s.server, POLLRDHUP));
    reset(s.application);
    CHECK(s.reason() == Reason::kApplicationReset);
    REQUIRE(happens(s.server, POLLERR));
    CHECK(hear(s.server, kAll) == "last words");  // and the end, before the error
}

// A kernel forgets the socket of such a side after tcp_fin_timeout, here a second, and says nothing. The agent's first
// probe comes later, and finds nothing.
TEST_CASE("Of a side that is gone after its end the other one hears when it writes") {
    const bool by_server = GENERATE(false, true);
    Spliced s(false, std::chrono::seconds(10), 2);
    UniqueFd& gone = by_server ? s.server : s.application;
    UniqueFd& other = by_server ? s.application : s.server;
    const int at_most_s = 1;
    ::setsockopt(gone.get(), IPPROTO_TCP, TCP_LINGER2, &at_most_s, sizeof at_most_s);
    say(gone, "last words");
    gone.reset();
    CHECK(s.reason() == Reason::kNone);
    pollfd quiet{other.get(), 0, 0};
    CHECK(::poll(&quiet, 1, 0) == 0);
    CHECK(hear(other, kAll) == "last words");
    say(other, "too late");
    CHECK(happens(other, POLLERR));
}

TEST_CASE("One whose engine stops is reset at both ends") {
    Spliced s;
    say(s.application, "x");
    CHECK(hear(s.server, 1) == "x");
    s.engine->stop();
    CHECK(hear(s.application, kAll) == "reset");
    CHECK(hear(s.server, kAll) == "reset");
}
