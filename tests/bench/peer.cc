// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// An ordinary TCP program for measurements. It knows nothing of SMC.
//
//   peer serve PORT COUNT                      echoes or swallows on COUNT ports from PORT on
//   peer roundtrip IP PORT BYTES SECONDS       prints microseconds a round trip
//   peer stream IP PORT BYTES SECONDS          prints GB/s, measured until the server has all bytes
//   peer crowded IP PORT BYTES SECONDS         prints microseconds a round trip, the median, beside four streams
//   peer crowded-mean IP PORT BYTES SECONDS    the same, and prints the mean: now and then a round trip waits for long
//   peer crowded-streams IP PORT BYTES SECONDS the same, and prints GB/s of the streams at their sender
//   peer connect IP PORT COUNT SECONDS         prints connections/s; each is used once, ports in turn
//   peer contact IP PORT 1 0                   prints milliseconds from connect() to the answer to 8 bytes
//   peer ten IP PORT BYTES SECONDS             prints microseconds until ten connections at once had a round trip each
//   peer hold IP PORT COUNT 0                  has COUNT connections at rest until its stdin ends; prints "held" first
//   peer --smc ...                             the same over the kernel's own AF_SMC sockets
//   peer --cc NAME ...                         with this congestion control, and not the system's default
//   peer --poll SECONDS ...                    non-blocking sockets, and poll(). roundtrip and stream use a connection
//                                              now and then for so long before they measure
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

[[noreturn]] void fail(const char* what) {
    std::perror(what);
    std::exit(1);
}

constexpr int kAfSmc = 43;
int family = AF_INET;
const char* congestion_control = nullptr;
bool polls = false;
double warm_seconds = 0;

void make_ready(int fd) {
    const int one = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (polls) {
        ::fcntl(fd, F_SETFL, O_NONBLOCK);
    }
}

// After EAGAIN on a non-blocking socket, waits; true: the call may succeed now.
bool wait_for(int fd, short what) {
    pollfd one{fd, what, 0};
    return errno == EAGAIN && polls && ::poll(&one, 1, -1) == 1;
}

ssize_t read_some(int fd, char* to, std::size_t bytes) {
    ssize_t n = 0;
    do {
        n = ::recv(fd, to, bytes, 0);
    } while (n < 0 && wait_for(fd, POLLIN));
    return n;
}

bool read_all(int fd, char* to, std::size_t bytes) {
    for (std::size_t at = 0; at < bytes;) {
        const ssize_t n = read_some(fd, to + at, bytes - at);
        if (n <= 0) {
            return false;
        }
        at += static_cast<std::size_t>(n);
    }
    return true;
}

void write_all(int fd, const char* from, std::size_t bytes) {
    for (std::size_t at = 0; at < bytes;) {
        const ssize_t n = ::send(fd, from + at, bytes - at, MSG_NOSIGNAL);
        if (n < 0 && wait_for(fd, POLLOUT)) {
            continue;
        }
        if (n <= 0) {
            fail("send");
        }
        at += static_cast<std::size_t>(n);
    }
}

sockaddr_in address_of(const char* ip, int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    ::inet_pton(AF_INET, ip, &address.sin_addr);
    return address;
}

int make_socket() {
    const int fd = ::socket(family, SOCK_STREAM, 0);
    if (congestion_control != nullptr && ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, congestion_control,
                                                      static_cast<socklen_t>(std::strlen(congestion_control))) != 0) {
        fail(congestion_control);
    }
    return fd;
}

int connect_to(const char* ip, int port) {
    const int fd = make_socket();
    const auto address = address_of(ip, port);
    if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
        fail("connect");
    }
    make_ready(fd);
    return fd;
}

// The first 8 bytes of a connection: a size to echo (kOnce: one time, then the server closes, so that TIME_WAIT does
// not hold the client's ports), or 0 for a stream that is answered at its end. kWarm: the word is echoed, another
// follows.
constexpr std::uint64_t kOnce = 1ULL << 63;
constexpr std::uint64_t kWarm = 1ULL << 62;

void warm_up(int fd) {
    const auto start = Clock::now();
    std::uint64_t word = kWarm;
    while (since(start) < warm_seconds) {
        write_all(fd, reinterpret_cast<const char*>(&word), sizeof word);
        if (!read_all(fd, reinterpret_cast<char*>(&word), sizeof word)) {
            fail("recv");
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
}

void serve_one(int fd) {
    make_ready(fd);
    std::uint64_t size = 0;
    bool there = read_all(fd, reinterpret_cast<char*>(&size), sizeof size);
    while (there && size == kWarm) {
        write_all(fd, reinterpret_cast<const char*>(&size), sizeof size);
        there = read_all(fd, reinterpret_cast<char*>(&size), sizeof size);
    }
    if (there) {
        const bool once = (size & kOnce) != 0;
        size &= ~kOnce;
        std::vector<char> buffer(size != 0 ? size : 1 << 18);
        if (once) {
            if (read_all(fd, buffer.data(), size)) {
                write_all(fd, buffer.data(), size);
            }
        } else if (size != 0) {
            while (read_all(fd, buffer.data(), size)) {
                write_all(fd, buffer.data(), size);
            }
        } else {
            while (read_some(fd, buffer.data(), buffer.size()) > 0) {
            }
            ::send(fd, "!", 1, MSG_NOSIGNAL);
        }
    }
    ::close(fd);
}

void serve(int port) {
    const int listener = make_socket();
    const int one = 1;
    ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    const auto address = address_of("0.0.0.0", port);
    if (::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        ::listen(listener, 1024) != 0) {
        fail("listen");
    }
    for (;;) {
        const int fd = ::accept(listener, nullptr, nullptr);
        if (fd >= 0) {
            std::thread(serve_one, fd).detach();
        }
    }
}

void roundtrip(const char* ip, int port, std::uint64_t bytes, double seconds) {
    const int fd = connect_to(ip, port);
    std::vector<char> buffer(bytes, 'x');
    warm_up(fd);
    write_all(fd, reinterpret_cast<char*>(&bytes), sizeof bytes);
    long count = 0;
    const auto start = Clock::now();
    while (since(start) < seconds) {
        write_all(fd, buffer.data(), bytes);
        if (!read_all(fd, buffer.data(), bytes)) {
            fail("recv");
        }
        count++;
    }
    std::printf("%.3f\n", since(start) / static_cast<double>(count) * 1e6);
}

void stream(const char* ip, int port, std::uint64_t bytes, double seconds) {
    const int fd = connect_to(ip, port);
    const std::uint64_t zero = 0;
    const std::vector<char> buffer(bytes, 'x');
    warm_up(fd);
    write_all(fd, reinterpret_cast<const char*>(&zero), sizeof zero);
    double total = 0;
    const auto start = Clock::now();
    while (since(start) < seconds) {
        write_all(fd, buffer.data(), bytes);
        total += static_cast<double>(bytes);
    }
    ::shutdown(fd, SHUT_WR);
    char done = 0;
    if (!read_all(fd, &done, 1)) {
        fail("recv");
    }
    std::printf("%.4f\n", total / since(start) / 1e9);
}

void crowded(const std::string& what, const char* ip, int port, std::uint64_t bytes, double seconds) {
    std::atomic<bool> done{false};
    std::atomic<std::uint64_t> streamed{0};
    std::vector<std::thread> streams;
    for (int i = 0; i < 4; i++) {
        streams.emplace_back([&, fd = connect_to(ip, port)] {
            const std::vector<char> buffer(64 * 1024, 'x');
            const std::uint64_t zero = 0;
            write_all(fd, reinterpret_cast<const char*>(&zero), sizeof zero);
            while (!done) {
                write_all(fd, buffer.data(), buffer.size());
                streamed += buffer.size();
            }
            ::close(fd);
        });
    }
    const int fd = connect_to(ip, port);
    std::vector<char> buffer(bytes, 'x');
    std::vector<double> took;
    write_all(fd, reinterpret_cast<char*>(&bytes), sizeof bytes);
    const auto start = Clock::now();
    const std::uint64_t streamed_before = streamed;
    while (since(start) < seconds) {
        const auto began = Clock::now();
        write_all(fd, buffer.data(), bytes);
        if (!read_all(fd, buffer.data(), bytes)) {
            fail("recv");
        }
        took.push_back(since(began) * 1e6);
    }
    const double took_all = since(start);
    const auto streamed_meanwhile = static_cast<double>(streamed - streamed_before);
    done = true;
    for (auto& thread : streams) {
        thread.join();
    }
    if (what == "crowded-mean") {
        std::printf("%.3f\n", took_all * 1e6 / static_cast<double>(took.size()));
        return;
    }
    if (what == "crowded-streams") {
        std::printf("%.4f\n", streamed_meanwhile / took_all / 1e9);
        return;
    }
    const auto middle = took.begin() + static_cast<std::ptrdiff_t>(took.size() / 2);
    std::nth_element(took.begin(), middle, took.end());
    std::printf("%.3f\n", *middle);
}

void connect_many(const char* ip, int port, int ports, double seconds) {
    const std::uint64_t size = 8 | kOnce;
    char buffer[16] = {};
    std::memcpy(buffer, &size, sizeof size);
    int count = 0;
    const auto start = Clock::now();
    for (; since(start) < seconds && (ports == 1 || count < ports); count++) {
        const int fd = connect_to(ip, port + count % ports);
        write_all(fd, buffer, sizeof buffer);
        char more = 0;
        if (!read_all(fd, buffer + 8, 8) || read_some(fd, &more, 1) != 0) {
            fail("recv");
        }
        ::close(fd);
    }
    std::printf("%.1f\n", count / since(start));
}

void contact(const char* ip, int port) {
    const std::uint64_t size = 8 | kOnce;
    char buffer[16] = {};
    std::memcpy(buffer, &size, sizeof size);
    const auto start = Clock::now();
    const int fd = connect_to(ip, port);
    write_all(fd, buffer, sizeof buffer);
    if (!read_all(fd, buffer, 8)) {
        fail("recv");
    }
    std::printf("%.3f\n", since(start) * 1e3);
    ::close(fd);
}

void ten(const char* ip, int port, std::uint64_t bytes, double seconds) {
    constexpr std::size_t kConnections = 10;
    std::vector<int> fds;
    std::vector<char> buffer(bytes, 'x');
    for (std::size_t i = 0; i < kConnections; i++) {
        fds.push_back(connect_to(ip, port));
        write_all(fds.back(), reinterpret_cast<char*>(&bytes), sizeof bytes);
    }
    long count = 0;
    const auto start = Clock::now();
    while (since(start) < seconds) {
        for (const int fd : fds) {
            write_all(fd, buffer.data(), bytes);
        }
        for (const int fd : fds) {
            if (!read_all(fd, buffer.data(), bytes)) {
                fail("recv");
            }
        }
        count++;
    }
    std::printf("%.3f\n", since(start) / static_cast<double>(count) * 1e6);
}

// Each connection has had one round trip, so that both ends have all that they need for it.
void hold(const char* ip, int port, int count) {
    std::uint64_t size = 8;
    for (int i = 0; i < count; i++) {
        const int fd = connect_to(ip, port);
        write_all(fd, reinterpret_cast<const char*>(&size), sizeof size);
        write_all(fd, reinterpret_cast<const char*>(&size), sizeof size);
        if (!read_all(fd, reinterpret_cast<char*>(&size), sizeof size)) {
            fail("recv");
        }
    }
    std::printf("held\n");
    std::fflush(stdout);
    while (std::getchar() != EOF) {
    }
}

}  // namespace

int main(int argc, char** argv) {
    if (argc > 1 && std::strcmp(argv[1], "--smc") == 0) {
        family = kAfSmc;
        argc--;
        argv++;
    }
    if (argc > 2 && std::strcmp(argv[1], "--cc") == 0) {
        congestion_control = argv[2];
        argc -= 2;
        argv += 2;
    }
    if (argc > 2 && std::strcmp(argv[1], "--poll") == 0) {
        polls = true;
        warm_seconds = std::atof(argv[2]);
        argc -= 2;
        argv += 2;
    }
    const std::string what = argc > 1 ? argv[1] : "";
    if (what == "serve" && argc == 4) {
        for (int i = 1; i < std::atoi(argv[3]); i++) {
            std::thread(serve, std::atoi(argv[2]) + i).detach();
        }
        serve(std::atoi(argv[2]));
    }
    if (argc != 6) {
        std::fprintf(stderr, "peer: see the head of peer.cc\n");
        return 2;
    }
    const int port = std::atoi(argv[3]);
    const double seconds = std::atof(argv[5]);
    if (what == "roundtrip") {
        roundtrip(argv[2], port, std::strtoull(argv[4], nullptr, 10), seconds);
    } else if (what == "stream") {
        stream(argv[2], port, std::strtoull(argv[4], nullptr, 10), seconds);
    } else if (what.starts_with("crowded")) {
        crowded(what, argv[2], port, std::strtoull(argv[4], nullptr, 10), seconds);
    } else if (what == "connect") {
        connect_many(argv[2], port, std::atoi(argv[4]), seconds);
    } else if (what == "contact") {
        contact(argv[2], port);
    } else if (what == "ten") {
        ten(argv[2], port, std::strtoull(argv[4], nullptr, 10), seconds);
    } else if (what == "hold") {
        hold(argv[2], port, std::atoi(argv[4]));
    }
    return 0;
}
