// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A TCP socket that the data path owns.
//
// Invariant:
//   L1  Until the end of the stream was passed on, the socket has SO_LINGER 0: if the agent ends for any reason, even
//       by a kill, the application sees a reset and never a clean end of the stream.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "datapath/task.h"
#include "os/keepalive_terms.h"
#include "os/unique_fd.h"

namespace smc {

class TcpSocket {
 public:
    TcpSocket() = default;
    // `fd` has the options of os::prepare_tcp().
    explicit TcpSocket(UniqueFd fd) : fd_(std::move(fd)) {}

    [[nodiscard]] int fd() const { return fd_.get(); }
    explicit operator bool() const { return static_cast<bool>(fd_); }

    // Watches the socket until it is closed.
    bool watch(Poller& poller, std::uint32_t events, Poller::Source& source);
    void unwatch();
    // Whether the next byte to read is the urgent byte.
    [[nodiscard]] bool at_mark() const;
    // Bytes that can be read now.
    [[nodiscard]] std::uint32_t readable() const;
    // Bytes that were written and that the other end's kernel has not acknowledged yet.
    [[nodiscard]] std::uint32_t unsent() const;
    // Probes an idle connection after `idle`; 0: changes nothing. Called at most once, and before the functions below.
    void keep_alive(std::chrono::seconds idle);
    // Probes an idle connection after tcp_fin_timeout. That is how long the other end's kernel keeps a socket that was
    // closed there and not here (FIN-WAIT-2); afterwards it answers a probe with a reset.
    void probe_if_closed() const;
    // Whether the answer to such a probe has made the socket fail, when everything that was written had arrived.
    [[nodiscard]] bool failed_by_probe() const;
    // Probes an idle connection no less often than `terms` says. For keepalive options that `terms` does not set, uses
    // the values that the socket had before the first call of this or of the next function.
    void use_keepalive(const KeepaliveTerms& terms);
    // The same for a socket that stays idle and stands on the wire for another connection, whose options `terms` are.
    // `waits`: that connection waits for its peer; its user timeout then runs from the peer's last answer to a probe.
    void use_keepalive_of_another(const KeepaliveTerms& terms, bool waits);
    // Sends FIN after what was written; from now on a close delivers what is still queued.
    void end_writing();
    // Closes in order.
    void close();
    // Closes with RST.
    void reset();

 private:
    // The socket's options as they are now.
    [[nodiscard]] KeepaliveTerms keepalive_terms() const;
    void set_keepalive(const KeepaliveTerms& terms) const;
    [[nodiscard]] KeepaliveTerms at_least_as_strict(const KeepaliveTerms& terms);
    void set_reset_on_close(bool on);
    UniqueFd fd_;
    bool resets_on_close_ = true;
    Poller* poller_ = nullptr;              // the poller that watches the socket
    std::optional<unsigned> usual_idle_s_;  // the namespace's idle time (tcp_keepalive_time), before keep_alive()
    std::optional<KeepaliveTerms> own_keepalive_;  // the socket's options before any `terms` were applied
};

}  // namespace smc
