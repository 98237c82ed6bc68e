// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The fallback path: two TCP sockets joined by splice(2) through a pipe each way. Payload stays in the
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
    // `minds_clc`: the peer has said nothing yet. If what it says first is CLC, it is not for the application, and both
    // are reset.
    SplicedConnection(std::uint64_t id, std::shared_ptr<ConnectionStats> counters, TcpSocket leg, TcpSocket server,
                      bool minds_clc = false);

    bool start(Poller& poller) override;
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
        bool urgent = false;  // what is held is not in the pipe: it is the one byte below
        char urgent_byte = 0;
        bool readable = true;
        bool writable = true;
        bool ended = false;      // end of file read
        bool delivered = false;  // and passed on
        bool useless = false;    // `to` takes nothing any more
    };

    // What can be moved now, both ways.
    bool move();
    // Where reading would not tell of a failure: behind a FIN, or while nothing can be read.
    void look_for_failure();
    // A side has failed, and nothing more can be read from it. The other one gets what it sent before, then a reset.
    void fail(int side);
    void end_behind_what_was_sent(TimePoint now);
    Step fill(Direction& direction);
    Step fill_first(Direction& direction);
    Step drain(Direction& direction, std::atomic<std::uint64_t>& counter);
    void finish(Reason reason);

    TcpSocket leg_, server_;
    Direction directions_[2];  // 0: leg -> server, 1: server -> leg
    Poller::Source sources_[2];
    bool failed_[2] = {false, false};  // EPOLLERR seen on leg, server
    std::optional<int> broken_;        // the side that has failed
    bool minds_clc_;
    std::string first_;  // what has come of the first four bytes, if they are minded
    TimePoint until_ = kNever, next_look_ = kNever;
};

}  // namespace smc
