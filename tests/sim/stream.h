// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A simulated TCP connection: bytes that are written at one end arrive at the other, in order, after a delay. Each byte
// keeps its urgent mark. After a reset, bytes that had arrived before can still be read, as on Linux.
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
    // Two connected sockets. `capacity`: bytes that one direction holds. `remote`: they are on different hosts.
    static Pair pair(World& world, std::size_t capacity, bool remote);
    Socket(World& world, std::size_t capacity, bool remote);
    // Resets the connection if this end was not closed.
    ~Socket();
    Socket(const Socket&) = delete;
    Socket& operator=(const Socket&) = delete;

    // Returns how many bytes were taken; 0: there is no room, or the connection is broken.
    std::size_t write(const std::vector<Byte>& bytes);
    // Reads at most `most` bytes, and never across an urgent byte, which is read alone.
    std::vector<Byte> read(std::size_t most);
    // Ends the stream after the bytes that were written.
    void end_writing();
    // As close(): a reset if unread bytes are left.
    void close();
    void reset();
    // The network loses everything; both ends give up after a while, as TCP does.
    void lose();
    // Segments that are sent from now on take `more` longer.
    void delay(Delay more) { extra_ = more; }

    [[nodiscard]] std::size_t room() const { return broken_ || ended_ ? 0 : capacity_ - used_; }
    [[nodiscard]] std::size_t readable() const { return inbox_.size(); }
    // Whether everything before the end of the peer's stream has been read.
    [[nodiscard]] bool at_end() const { return peer_ended_ && inbox_.empty(); }
    [[nodiscard]] bool peer_ended() const { return peer_ended_; }
    [[nodiscard]] bool broken() const { return broken_; }
    [[nodiscard]] Descriptor& descriptor() { return descriptor_; }

 private:
    [[nodiscard]] std::uint32_t level() const;
    // Calls `arrives` at the peer, after everything that was sent before.
    // `data`: if no socket is there any more when it arrives, this one is reset.
    void send(std::function<void(Socket& peer)> arrives, bool data = false);
    void read_by_peer(std::size_t bytes);

    World& world_;
    std::size_t capacity_;
    bool remote_;
    std::weak_ptr<Socket> peer_;
    std::deque<Byte> inbox_;
    std::size_t urgent_ = 0;  // urgent bytes in inbox_
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
    void detach() override {}
    void heard(bool, bool) override {}
    Read read(Pieces to) override;
    Written write(Pieces from, bool urgent) override;
    [[nodiscard]] std::uint32_t unsent() const override { return 0; }
    [[nodiscard]] bool has_more() const override { return socket_->readable() > 0; }
    [[nodiscard]] bool was_reset() const override { return true; }
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
    void detach() override {}
    [[nodiscard]] State look() const override;
    void keep_alive() override {}
    void use_keepalive(const KeepaliveTerms&, bool) override {}
    void close() override { socket_->close(); }
    void reset() override { socket_->reset(); }

 private:
    std::shared_ptr<Socket> socket_;
};

}  // namespace smc::sim
