// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Ports: the two streams of a connection that are not SMC. The leg is the application's; the CLC socket is the TCP
// connection that CLC was spoken on and that stays idle from then on (RFC 7609 section 4.8). Both tell their events as
// EPOLL bits to the task's source. In the agent both are TCP sockets (socket_leg.h); in tests they may be something
// else.
#pragma once

#include <cstdint>

#include "datapath/task.h"
#include "datapath/transport.h"
#include "os/keepalive_terms.h"

namespace smc {

class Leg {
 public:
    virtual ~Leg() = default;
    virtual bool start(Poller& poller, Poller::Source& source) = 0;

    enum class Outcome : std::uint8_t {
        kBytes,
        kNothing,      // nothing to read, or no room to write
        kEnd,          // reading: the application's stream has ended
        kError,        // the socket failed
        kInterrupted,  // by a signal: once more
    };
    struct Read {
        Outcome outcome = Outcome::kNothing;
        std::uint32_t bytes = 0;
        bool urgent = false;   // exactly the urgent byte
        bool drained = false;  // nothing more is known to be there now
    };
    // Its events came, before anything else is done about them: there is data (and not only an end), and an urgent
    // byte lies ahead.
    virtual void heard(bool data, bool urgent) = 0;
    // Reads at most what `to` takes, never across an urgent mark.
    virtual Read read(Pieces to) = 0;
    struct Written {
        Outcome outcome = Outcome::kNothing;
        std::uint32_t bytes = 0;
    };
    // `urgent`: the one byte is to be urgent at the application.
    virtual Written write(Pieces from, bool urgent) = 0;
    // The application's kernel has everything that was written.
    [[nodiscard]] virtual bool delivered() const = 0;
    // The application's stream has ended. Whether it only ends its half or has gone altogether does not show: from now
    // on ask its kernel from time to time, and fail when nobody is there.
    virtual void look_for_its_end() = 0;
    // The stream ends behind what was written.
    virtual void end_writing() = 0;
    // In order, or with an error at the application.
    virtual void close() = 0;
    virtual void reset() = 0;
};

class ClcSocket {
 public:
    virtual ~ClcSocket() = default;
    virtual bool start(Poller& poller, Poller::Source& source) = 0;

    enum class State : std::uint8_t { kQuiet, kData, kEnded, kReset };
    [[nodiscard]] virtual State look() const = 0;
    // It stands for the application's connection on the wire: it waits no longer for the peer than that would. `waits`:
    // something that was sent has not been consumed.
    virtual void use_keepalive(const KeepaliveTerms& terms, bool waits) = 0;
    virtual void close() = 0;
    virtual void reset() = 0;
};

}  // namespace smc
