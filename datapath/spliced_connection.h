// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The fallback path: two TCP sockets joined by splice(2) through one pipe for each direction. Payload stays in the
// kernel, and a full pipe is real backpressure (docs/notebook.md says why this is not a sockmap).
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "datapath/task.h"
#include "datapath/tcp_socket.h"

namespace smc {

class SplicedConnection final : public ConnectionTask {
 public:
    // `server`: the TCP connection to the peer, on either node. `close_timeout`: how long a side that does not read is
    // waited for when the other side has failed. `watches_for_clc`: the peer has sent nothing yet. If its first bytes
    // are a CLC message, they are not for the application, and both sockets are reset.
    SplicedConnection(std::uint64_t id, std::shared_ptr<ConnectionStats> counters, TcpSocket leg, TcpSocket server,
                      std::chrono::milliseconds close_timeout, bool watches_for_clc = false);

    bool start(Poller& poller) override;
    bool detach() override;
    void on_event(int which, std::uint32_t events) override;
    bool run(TimePoint now) override;
    void abort(Reason reason) override;
    [[nodiscard]] TimePoint deadline() const override { return next_look_; }

 private:
    enum class Step { kMoved, kIdle };

    // One direction. The pipe holds what was taken from `from` and not yet given to `to`.
    struct Direction {
        TcpSocket* from = nullptr;
        TcpSocket* to = nullptr;
        UniqueFd pipe_out, pipe_in;
        std::size_t held = 0;
        bool urgent = false;  // what is held is urgent_byte, and not in the pipe
        char urgent_byte = 0;
        bool readable = true;
        bool writable = true;
        bool ended = false;      // end of file read
        bool failed = false;     // a read has reported a failure: there is nothing more
        bool delivered = false;  // the end was passed on
        bool useless = false;    // `to` accepts no more bytes
    };

    // Moves what can be moved now, both ways.
    bool move();
    // The same again and again. True: there is more to move.
    bool move_all(TimePoint now);
    // Handles a failure of a side that no read reports: its FIN was read before, or bytes from it are still held.
    void look_for_failure();
    // Side 0 (leg) or 1 (server) is gone after its FIN, and nothing is held for it. As with TCP, whose kernel forgets
    // such a socket, the other side gets all that it wrote, however late, and hears of it only when it writes.
    [[nodiscard]] bool is_gone(int side) const {
        const Direction& back = directions_[1 - side];
        return failed_[side] && directions_[side].ended && back.held == 0 && !back.useless &&
               directions_[side].from->failed_by_probe();
    }
    // Side 0 (leg) or 1 (server) has failed, and nothing more can be read from it. The other side gets what was read
    // before, and the end if there was one; then a reset.
    void fail(int side);
    void end_behind_what_was_sent(TimePoint now);
    void close_when_read(TimePoint now);
    Step fill(Direction& direction);
    Step fill_first(Direction& direction);
    Step found_nothing(Direction& direction);
    Step drain(Direction& direction, std::atomic<std::uint64_t>& counter);
    void finish(Reason reason);

    TcpSocket leg_, clc_;
    Direction directions_[2];  // 0: leg -> server, 1: server -> leg
    Poller::Source sources_[2];
    bool failed_[2] = {false, false};      // EPOLLERR seen on leg, server
    bool took_error_[2] = {false, false};  // a write has reported the socket's error, so a read does not any more
    std::optional<int> broken_;            // the side that has failed
    std::chrono::milliseconds close_timeout_;
    bool watches_for_clc_;
    std::string first_;                   // those of the peer's first four bytes that have come, if watches_for_clc_
    std::size_t undelivered_ = SIZE_MAX;  // after a failure: the fewest bytes so far that the other side has not read
    TimePoint until_ = kNever, next_look_ = kNever;
    Poller* poller_ = nullptr;
};

}  // namespace smc
