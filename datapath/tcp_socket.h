// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A TCP socket that the data path owns.
//
// Invariant:
//   L1  Until the end of the stream was passed on, the socket has SO_LINGER 0: whatever ends the agent, even a kill, is
//       a reset at the application, never a clean end.
#pragma once

#include <cstdint>
#include <optional>

#include "datapath/task.h"
#include "os/keepalive_terms.h"
#include "os/unique_fd.h"

namespace smc {

class TcpSocket {
 public:
    TcpSocket() = default;
    // Sets SO_LINGER 0 (L1), TCP_NODELAY, and SO_OOBINLINE, so that reading never skips an urgent byte.
    explicit TcpSocket(UniqueFd fd);

    [[nodiscard]] int fd() const { return fd_.get(); }
    explicit operator bool() const { return static_cast<bool>(fd_); }

    // Until it is closed. Closing alone does not end that for sure: a process that is being started has a copy of every
    // descriptor until its exec().
    bool watch(Poller& poller, std::uint32_t events, Poller::Source& source);
    // The next byte to read is the urgent one.
    [[nodiscard]] bool at_mark() const;
    // Bytes that can be read now.
    [[nodiscard]] std::uint32_t readable() const;
    // Bytes that were written and that the other end's kernel does not have yet.
    [[nodiscard]] std::uint32_t unsent() const;
    // Probes an idle connection after as long as TCP keeps a closed socket whose peer has not closed (FIN-WAIT-2,
    // tcp_fin_timeout): then it has forgotten it, and answers with a reset.
    void keep_alive() const;
    // Probes an idle connection no less often than `terms` says. What it does not say stays as it was when this or the
    // next was called first.
    void use_keepalive(const KeepaliveTerms& terms);
    // Of one that stays idle, and stands for another that does not. `waits`: that other one waits for its peer, so this
    // one's answers are what its user timeout counts from.
    void use_keepalive_of_another(const KeepaliveTerms& terms, bool waits);
    // FIN behind what was written; from now on a close delivers what is still queued.
    void end_writing();
    // Closes in order.
    void close();
    // Closes with RST.
    void reset();

 private:
    // Those of the socket.
    [[nodiscard]] KeepaliveTerms keepalive_terms() const;
    void set_keepalive(const KeepaliveTerms& terms) const;
    [[nodiscard]] KeepaliveTerms no_less_than(const KeepaliveTerms& terms);
    void set_linger(bool reset_on_close) const;
    void let_go();
    UniqueFd fd_;
    Poller* poller_ = nullptr;                     // that watches it
    std::optional<KeepaliveTerms> own_keepalive_;  // before the application's
};

}  // namespace smc
