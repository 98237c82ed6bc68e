// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A simulated TCP connection: what is written at one end comes out at the other, in order, later. Urgent marks are
// kept, one a byte. After a reset what had come before can still be read, as on Linux.
#pragma once

#include <deque>
#include <memory>
#include <utility>

#include "datapath/leg.h"
#include "world.h"

namespace smc::sim {

struct Byte {
    std::uint8_t value = 0;
    bool urgent = false;
};

class Socket : public std::enable_shared_from_this<Socket> {
 public:
    using Pair = std::pair<std::shared_ptr<Socket>, std::shared_ptr<Socket>>;
    // Connected to each other. `capacity`: bytes that one direction holds. `remote`: not on one host.
    static Pair pair(World& world, std::size_t capacity, bool remote);
    Socket(World& world, std::size_t capacity, bool remote);
    // What nobody closed is reset.
    ~Socket();
    Socket(const Socket&) = delete;
    Socket& operator=(const Socket&) = delete;

    // How many were taken; 0: there is no room, or it is broken.
    std::size_t write(const std::vector<Byte>& bytes);
    // At most `most`, and never across an urgent byte, which comes alone.
    std::vector<Byte> read(std::size_t most);
    // The stream ends behind what was written.
    void end_writing();
    // A close(): with something unread it is a reset.
    void close();
    void reset();
    // The network loses everything; both ends give up after a while, as TCP does.
    void lose();
    // Segments that are sent from now on take so much longer.
    void delay(Delay more) { extra_ = more; }

    [[nodiscard]] std::size_t room() const { return broken_ || ended_ ? 0 : capacity_ - used_; }
    [[nodiscard]] std::size_t readable() const { return inbox_.size(); }
    // Everything before the peer's end has been read.
    [[nodiscard]] bool at_end() const { return peer_ended_ && inbox_.empty() && !broken_; }
    [[nodiscard]] bool broken() const { return broken_; }
    [[nodiscard]] Descriptor& descriptor() { return descriptor_; }

 private:
    [[nodiscard]] std::uint32_t level() const;
    // Something arrives at the peer, behind everything that was sent before.
    void send(std::function<void(Socket& peer)> arrives);
    void read_by_peer(std::size_t bytes);

    World& world_;
    std::size_t capacity_;
    bool remote_;
    std::weak_ptr<Socket> peer_;
    std::deque<Byte> inbox_;
    std::size_t urgent_ = 0;  // in it
    std::size_t used_ = 0;    // sent, and not yet read by the peer
    bool ended_ = false, peer_ended_ = false, broken_ = false, closed_ = false;
    TimePoint last_arrival_{};
    Delay extra_{};
    Descriptor descriptor_;
};

// The application's stream, and the CLC socket, as the data path sees them.
class SimLeg final : public Leg {
 public:
    explicit SimLeg(std::shared_ptr<Socket> socket) : socket_(std::move(socket)) {}
    bool start(Poller& poller, Poller::Source& source) override;
    void heard(bool, bool) override {}
    Read read(Pieces to) override;
    Written write(Pieces from, bool urgent) override;
    [[nodiscard]] bool delivered() const override { return true; }
    void look_for_its_end() override {}
    void end_writing() override { socket_->end_writing(); }
    void close() override { socket_->close(); }
    void reset() override { socket_->reset(); }

 private:
    std::shared_ptr<Socket> socket_;
};

class SimClc final : public ClcSocket {
 public:
    explicit SimClc(std::shared_ptr<Socket> socket) : socket_(std::move(socket)) {}
    bool start(Poller& poller, Poller::Source& source) override;
    [[nodiscard]] State look() const override;
    void use_keepalive(const KeepaliveTerms&, bool) override {}
    void close() override { socket_->close(); }
    void reset() override { socket_->reset(); }

 private:
    std::shared_ptr<Socket> socket_;
};

}  // namespace smc::sim
