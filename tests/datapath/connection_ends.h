// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Two connections back to back, each in an engine of its own, with real sockets as legs: the pieces of which
// connection_cases.h makes its cases.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <condition_variable>
#include <functional>
#include <future>
#include <mutex>
#include <random>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "datapath/smc_connection.h"
#include "datapath/socket_leg.h"
#include "os/tcp_options.h"
#include "transports.h"

namespace smc::test {

// The agent's default.
constexpr auto kSpin = std::chrono::microseconds(50);

struct SocketPair {
    UniqueFd a, b;
};

inline SocketPair tcp_pair() {
    const UniqueFd listener(::socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    REQUIRE(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length) == 0);
    REQUIRE(::listen(listener.get(), 1) == 0);
    ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length);
    SocketPair pair;
    pair.a.reset(::socket(AF_INET, SOCK_STREAM, 0));
    REQUIRE(::connect(pair.a.get(), reinterpret_cast<sockaddr*>(&address), length) == 0);
    pair.b.reset(::accept(listener.get(), nullptr, nullptr));
    const timeval timeout{10, 0};
    ::setsockopt(pair.a.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    return pair;
}

// A socket with the options that the agent's sockets have.
inline TcpSocket of_agent(UniqueFd fd) {
    os::prepare_tcp(fd.get());
    os::set_option(fd.get(), IPPROTO_TCP, TCP_NODELAY, 1);
    return TcpSocket(std::move(fd));
}

struct Ends {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<ConnectionEnd> ends;

    void add(const ConnectionEnd& end) {
        const std::lock_guard lock(mutex);
        ends.push_back(end);
        changed.notify_all();
    }
    Reason wait() {
        std::unique_lock lock(mutex);
        REQUIRE(changed.wait_for(lock, std::chrono::seconds(10), [&] { return !ends.empty(); }));
        return ends.front().reason;
    }
    bool none() {
        const std::lock_guard lock(mutex);
        return ends.empty();
    }
};

// One side: an application's socket, a connection behind it, and how that ended.
struct ConnectionSide {
    Ends ends;
    UniqueFd app;
    std::unique_ptr<Engine> engine = *Engine::start([this](const ConnectionEnd& end) { ends.add(end); }, kSpin);
    std::unique_ptr<Engine> other = *Engine::start([this](const ConnectionEnd& end) { ends.add(end); }, kSpin);
    std::shared_ptr<SmcConnection> connection;

    ~ConnectionSide() {  // either engine may still pass a kick on to the other
        if (engine) {
            engine->stop();
        }
        other->stop();
    }
    void run(UniqueFd clc, End end, std::chrono::milliseconds close_timeout) {
        SocketPair leg = tcp_pair();
        app = std::move(leg.a);
        if (end.task) {
            engine->add_task(end.task);
        }
        SmcConnection::Parts parts{std::make_unique<SocketLeg>(of_agent(std::move(leg.b))),
                                   std::make_unique<SocketClc>(of_agent(std::move(clc))), std::move(end.transport),
                                   close_timeout};
        connection = std::make_shared<SmcConnection>(1, std::make_shared<ConnectionStats>(), std::move(parts));
        engine->add(connection);
    }
};

template <class Transports>
struct BackToBack {
    Transports transports;
    ConnectionSide client, server;

    BackToBack() {
        SocketPair clc = tcp_pair();
        client.run(std::move(clc.a), std::move(transports.ends[0]), std::chrono::seconds(10));
        server.run(std::move(clc.b), std::move(transports.ends[1]), std::chrono::seconds(10));
    }
};

// A transport that the test uses itself, on an engine's thread.
class ByHand final : public Task {
 public:
    explicit ByHand(std::unique_ptr<Transport> transport) : transport_(std::move(transport)) {}

    bool start(Poller& poller) override { return transport_->start(poller, source_); }
    void on_event(int, std::uint32_t) override {}
    bool run(TimePoint) override {
        std::vector<std::function<void()>> calls;
        {
            const std::lock_guard lock(mutex_);
            calls.swap(calls_);
        }
        for (const auto& call : calls) {
            call();
        }
        return false;
    }
    void abort(Reason) override { transport_->stop(); }
    [[nodiscard]] bool ended() const override { return false; }

    // Calls `call` with the transport, on the engine's thread, and waits until it has returned.
    template <class Call>
    auto on(Engine& engine, const std::shared_ptr<ByHand>& self, Call call) {
        using Value = decltype(call(*transport_));
        auto promise = std::make_shared<std::promise<Value>>();
        auto result = promise->get_future();
        {
            const std::lock_guard lock(mutex_);
            calls_.push_back([this, promise, call] {
                if constexpr (std::is_void_v<Value>) {
                    call(*transport_);
                    promise->set_value();
                } else {
                    promise->set_value(call(*transport_));
                }
            });
        }
        engine.kick(self);
        REQUIRE(result.wait_for(std::chrono::seconds(10)) == std::future_status::ready);
        return result.get();
    }

 private:
    std::unique_ptr<Transport> transport_;
    Poller::Source source_{this, 0};
    std::mutex mutex_;
    std::vector<std::function<void()>> calls_;
};

// A connection whose peer is the test, which can publish whatever a hostile agent could publish.
template <class Transports>
struct Hostile {
    Transports transports;
    ConnectionSide victim;
    std::unique_ptr<Engine> engine = *Engine::start([](const ConnectionEnd&) {}, kSpin);
    std::shared_ptr<ByHand> hand;
    UniqueFd clc;

    explicit Hostile(std::chrono::milliseconds close_timeout = std::chrono::seconds(10)) {
        SocketPair pair = tcp_pair();
        clc = std::move(pair.a);
        hand = std::make_shared<ByHand>(std::move(transports.ends[0].transport));
        if (transports.ends[0].task) {
            engine->add_task(transports.ends[0].task);
        }
        engine->add_task(hand);
        victim.run(std::move(pair.b), std::move(transports.ends[1]), close_timeout);
    }
    // Publishes a cursor, and writes none of the bytes that the cursor covers.
    void publish(const cdc::Producer& producer) {
        hand->on(*engine, hand, [&](Transport& t) { t.publish(producer, 0); });
    }
    // Publishes the consumer cursor: the message of publish() carries it.
    void consume(const cdc::Cursor& cursor) {
        hand->on(*engine, hand, [&](Transport& t) {
            t.consumed(cursor);
            t.publish({}, 0);
        });
    }
    flow::PeerState published() {
        return hand->on(*engine, hand, [](Transport& t) { return t.peer(); });
    }
    template <class Condition>
    void await(Condition condition) {
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
        while (!condition(published().producer)) {
            REQUIRE(std::chrono::steady_clock::now() < end);
            std::this_thread::yield();
        }
    }
    void await_consumer(const cdc::Cursor& cursor) {
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
        while (published().consumer != cursor) {
            REQUIRE(std::chrono::steady_clock::now() < end);
            std::this_thread::yield();
        }
    }
    // Publishes more bytes than the application's kernel takes, so that the leg keeps some, and then the state. Returns
    // how many.
    std::size_t fill(std::uint8_t state) {
        const std::uint32_t size = receive_size();
        const int small = 4096;  // but 64 KiB have been offered already
        ::setsockopt(victim.app.get(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
        std::size_t bytes = 0;
        cdc::Cursor last{};
        while (bytes < std::size_t{256} * 1024) {
            bytes += size;
            last = cdc::advance(last, size, size);
            publish({last, 0, 0});
            await_consumer(last);
        }
        publish({last, 0, state});
        return bytes;
    }
    std::uint32_t receive_size() {
        return hand->on(*engine, hand, [](Transport& t) { return t.send_size(); });
    }
    std::uint32_t victims_window() {
        return hand->on(*engine, hand, [](Transport& t) { return t.window(); });
    }
};

// send_all() and receive_all() run in threads of their own, where Catch2's macros cannot be used. A failure shows in
// the data that arrives.
inline void send_all(int fd, const std::vector<std::uint8_t>& data, std::mt19937& random) {
    for (std::size_t at = 0; at < data.size();) {
        const auto step = std::min<std::size_t>(data.size() - at, random() % 50'000 + 1);
        const ssize_t n = ::send(fd, &data[at], step, MSG_NOSIGNAL);
        if (n <= 0) {
            break;
        }
        at += static_cast<std::size_t>(n);
    }
    ::shutdown(fd, SHUT_WR);
}

inline std::vector<std::uint8_t> receive_all(int fd, std::mt19937& random) {
    std::vector<std::uint8_t> data, chunk(60'000);
    for (;;) {
        const ssize_t n = ::recv(fd, chunk.data(), random() % chunk.size() + 1, 0);
        if (n <= 0) {
            return data;
        }
        data.insert(data.end(), chunk.begin(), chunk.begin() + n);
    }
}

inline int receive_error(int fd) {
    char byte = 0;
    return ::recv(fd, &byte, 1, 0) < 0 ? errno : 0;
}

}  // namespace smc::test
