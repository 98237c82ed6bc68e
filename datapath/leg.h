// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Ports: the two byte streams beside an SMC connection's rings. The leg is the agent's connection to the application;
// the CLC socket is the TCP connection that carried the CLC handshake and is idle afterwards (RFC 7609 section 4.8).
// Both report their events as EPOLL bits to the task's source. In the agent both are TCP sockets (socket_leg.h); tests
// may use something else.
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
    // Ends these events until start() is called again.
    virtual void detach() = 0;

    enum class Outcome : std::uint8_t {
        kBytes,
        kNothing,      // nothing to read, or the send buffer is full
        kEnd,          // reading: the application's stream has ended
        kError,        // the socket failed
        kInterrupted,  // by a signal: try again
    };
    struct Read {
        Outcome outcome = Outcome::kNothing;
        std::uint32_t bytes = 0;
        bool urgent = false;   // `bytes` is 1: the urgent byte
        bool drained = false;  // as far as is known, there is nothing more to read now
    };
    // Called at each event, before it is acted on. `data`: the leg is readable; `urgent`: an urgent byte lies ahead.
    virtual void heard(bool data, bool urgent) = 0;
    // Reads at most what `to` takes, never across an urgent mark.
    virtual Read read(Pieces to) = 0;
    struct Written {
        Outcome outcome = Outcome::kNothing;
        std::uint32_t bytes = 0;
        bool took_error = false;  // kError: the socket's error was taken, so reads return an end in its place
    };
    // `urgent`: `from` is one byte, which the application is to receive as urgent.
    virtual Written write(Pieces from, bool urgent) = 0;
    // How many of the bytes that were written the application's kernel has not acknowledged yet.
    [[nodiscard]] virtual std::uint32_t unsent() const = 0;
    // Called when the application's stream has ended. As a FIN does not show whether the application has closed its
    // socket or one direction only, from now on the leg probes the application's kernel, and fails if it has closed.
    virtual void look_for_its_end() = 0;
    // Whether bytes of the application wait to be read, as far as is known.
    [[nodiscard]] virtual bool has_more() const = 0;
    // After a failure: if it followed the end of the application's stream, whether the application has reset the
    // connection, because it was closed with unread bytes, or bytes came for it after that. False: a probe of
    // look_for_its_end() found that the application's kernel has forgotten the connection.
    [[nodiscard]] virtual bool was_reset() const = 0;
    // Ends the stream after what was written.
    virtual void end_writing() = 0;
    // Ends the connection in order.
    virtual void close() = 0;
    // Ends the connection with an error at the application.
    virtual void reset() = 0;
};

class ClcSocket {
 public:
    virtual ~ClcSocket() = default;
    virtual bool start(Poller& poller, Poller::Source& source) = 0;
    // Ends these events until start() is called again.
    virtual void detach() = 0;

    enum class State : std::uint8_t { kQuiet, kData, kEnded, kReset };
    [[nodiscard]] virtual State look() const = 0;
    // From now on probes the peer when the socket is idle, as configured. Has no effect after the first call.
    virtual void keep_alive() = 0;
    // After keep_alive(). Applies the keepalive options of the application, whose connection this socket stands for on
    // the wire: it must not wait longer for the peer than that connection would. `waits`: the peer has not consumed all
    // that was sent.
    virtual void use_keepalive(const KeepaliveTerms& terms, bool waits) = 0;
    virtual void close() = 0;
    virtual void reset() = 0;
};

}  // namespace smc
