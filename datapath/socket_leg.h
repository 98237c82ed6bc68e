// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Legs and CLC sockets that are TCP sockets.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <utility>

#include "datapath/leg.h"
#include "datapath/tcp_socket.h"

namespace smc {

class SocketLeg final : public Leg {
 public:
    using Urgent = std::shared_ptr<const std::atomic<std::uint32_t>>;
    // `urgent`: a word that is set to another value than 0 before the leg receives the first urgent byte. nullptr: no
    // such word is known.
    explicit SocketLeg(TcpSocket socket, Urgent urgent = nullptr)
        : socket_(std::move(socket)), urgent_(std::move(urgent)) {}

    bool start(Poller& poller, Poller::Source& source) override;
    void detach() override { socket_.unwatch(); }
    void heard(bool data, bool urgent) override { next_is_plain_ = data && !urgent; }
    Read read(Pieces to) override;
    Written write(Pieces from, bool urgent) override;
    [[nodiscard]] std::uint32_t unsent() const override { return socket_.unsent(); }
    void look_for_its_end() override { socket_.probe_if_closed(); }
    [[nodiscard]] bool has_more() const override { return socket_.readable() != 0; }
    [[nodiscard]] bool was_reset() const override { return !socket_.failed_by_probe(); }
    void end_writing() override { socket_.end_writing(); }
    void close() override { socket_.close(); }
    void reset() override { socket_.reset(); }

 private:
    Read read_carefully(Pieces to);
    [[nodiscard]] bool at_mark() const;

    TcpSocket socket_;
    Urgent urgent_;
    bool next_is_plain_ = false;
};

class SocketClc final : public ClcSocket {
 public:
    // `keepalive`: the idle time before the first probe; 0: none is sent.
    explicit SocketClc(TcpSocket socket, std::chrono::seconds keepalive = {})
        : socket_(std::move(socket)), keepalive_(keepalive) {}

    bool start(Poller& poller, Poller::Source& source) override;
    void detach() override { socket_.unwatch(); }
    [[nodiscard]] State look() const override;
    void keep_alive() override { socket_.keep_alive(std::exchange(keepalive_, {})); }
    void use_keepalive(const KeepaliveTerms& terms, bool waits) override {
        socket_.use_keepalive_of_another(terms, waits);
    }
    void close() override { socket_.close(); }
    void reset() override { socket_.reset(); }

 private:
    TcpSocket socket_;
    std::chrono::seconds keepalive_;  // 0: nothing to set
};

}  // namespace smc
