// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/tcp_socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <linux/sockios.h>

#include <algorithm>
#include <utility>

#include "os/tcp_options.h"

namespace smc {

void TcpSocket::set_reset_on_close(bool on) {
    if (std::exchange(resets_on_close_, on) != on) {
        os::set_reset_on_close(fd_.get(), on);
    }
}

bool TcpSocket::at_mark() const {
    int mark = 0;
    return ::ioctl(fd_.get(), SIOCATMARK, &mark) == 0 && mark != 0;
}

std::uint32_t TcpSocket::readable() const {
    int bytes = 0;
    return ::ioctl(fd_.get(), SIOCINQ, &bytes) == 0 && bytes > 0 ? static_cast<std::uint32_t>(bytes) : 0;
}

std::uint32_t TcpSocket::unsent() const {
    int bytes = 0;
    if (::ioctl(fd_.get(), SIOCOUTQ, &bytes) != 0 || bytes <= 0) {
        return 0;
    }
    // After a reset SIOCOUTQ still counts bytes that were never acknowledged.
    tcp_info info{};
    socklen_t length = sizeof info;
    const bool over =
        ::getsockopt(fd_.get(), IPPROTO_TCP, TCP_INFO, &info, &length) != 0 || info.tcpi_state == TCP_CLOSE;
    return over ? 0 : static_cast<std::uint32_t>(bytes);
}

void TcpSocket::keep_alive(std::chrono::seconds idle) {
    if (idle.count() > 0) {
        unsigned usual = 0;
        socklen_t length = sizeof usual;
        if (::getsockopt(fd_.get(), IPPROTO_TCP, TCP_KEEPIDLE, &usual, &length) == 0) {
            usual_idle_s_ = usual;
        }
        os::set_option(fd_.get(), IPPROTO_TCP, TCP_KEEPIDLE, static_cast<int>(idle.count()));
        os::set_option(fd_.get(), SOL_SOCKET, SO_KEEPALIVE, 1);
    }
}

void TcpSocket::probe_if_closed() const {
    // Every ten seconds for 20 minutes: a closed socket answers the first probe, and no outage that TCP survives ends
    // the leg.
    constexpr int kBetween = 10, kProbes = 127;
    int idle_s = 60;
    socklen_t length = sizeof idle_s;
    ::getsockopt(fd_.get(), IPPROTO_TCP, TCP_LINGER2, &idle_s, &length);  // tcp_fin_timeout of the namespace
    idle_s = std::clamp(idle_s, 1, 600);
    os::set_option(fd_.get(), IPPROTO_TCP, TCP_KEEPIDLE, idle_s);
    os::set_option(fd_.get(), IPPROTO_TCP, TCP_KEEPINTVL, kBetween);
    os::set_option(fd_.get(), IPPROTO_TCP, TCP_KEEPCNT, kProbes);
    os::set_option(fd_.get(), SOL_SOCKET, SO_KEEPALIVE, 1);
}

// The kernel counts probes until one is acknowledged, and a reset is no acknowledgement. It also counts probes of a
// closed window, behind which there are bytes.
bool TcpSocket::failed_by_probe() const {
    tcp_info info{};
    socklen_t length = sizeof info;
    int unacknowledged = 0;
    return ::getsockopt(fd_.get(), IPPROTO_TCP, TCP_INFO, &info, &length) == 0 && info.tcpi_probes != 0 &&
           ::ioctl(fd_.get(), SIOCOUTQ, &unacknowledged) == 0 && unacknowledged == 0;
}

KeepaliveTerms TcpSocket::keepalive_terms() const {
    const auto value = [&](int level, int option) {
        int number = 0;
        socklen_t length = sizeof number;
        return ::getsockopt(fd_.get(), level, option, &number, &length) == 0 ? static_cast<unsigned>(number) : 0;
    };
    return {value(SOL_SOCKET, SO_KEEPALIVE) != 0, value(IPPROTO_TCP, TCP_KEEPIDLE), value(IPPROTO_TCP, TCP_KEEPINTVL),
            value(IPPROTO_TCP, TCP_KEEPCNT), value(IPPROTO_TCP, TCP_USER_TIMEOUT)};
}

KeepaliveTerms TcpSocket::at_least_as_strict(const KeepaliveTerms& terms) {
    own_keepalive_ = own_keepalive_.value_or(keepalive_terms());
    KeepaliveTerms now = *own_keepalive_;
    if (terms.keepalive) {
        const unsigned idle = terms.idle_s != 0 ? terms.idle_s : usual_idle_s_.value_or(now.idle_s);
        now.idle_s = now.keepalive ? std::min(now.idle_s, idle) : idle;
        now.interval_s = terms.interval_s != 0 ? terms.interval_s : now.interval_s;
        now.probes = terms.probes != 0 ? terms.probes : now.probes;
        now.keepalive = true;
    }
    return now;
}

void TcpSocket::use_keepalive(const KeepaliveTerms& terms) {
    KeepaliveTerms now = at_least_as_strict(terms);
    now.user_timeout_ms = terms.user_timeout_ms;
    set_keepalive(now);
}

void TcpSocket::use_keepalive_of_another(const KeepaliveTerms& terms, bool waits) {
    KeepaliveTerms now = at_least_as_strict(terms);
    if (terms.user_timeout_ms != 0 && (waits || terms.keepalive)) {
        now.user_timeout_ms = terms.user_timeout_ms;
        const unsigned often_s = std::max(1U, terms.user_timeout_ms / 4000);
        now.idle_s = std::min(now.idle_s, waits ? often_s : now.idle_s);
        now.interval_s = std::min(now.interval_s, waits ? often_s : now.interval_s);
        now.keepalive = true;
    }
    set_keepalive(now);
}

void TcpSocket::set_keepalive(const KeepaliveTerms& terms) const {
    const auto set = [&](int level, int option, unsigned number) {
        os::set_option(fd_.get(), level, option, static_cast<int>(number));
    };
    set(IPPROTO_TCP, TCP_KEEPIDLE, terms.idle_s);
    set(IPPROTO_TCP, TCP_KEEPINTVL, terms.interval_s);
    set(IPPROTO_TCP, TCP_KEEPCNT, terms.probes);
    set(IPPROTO_TCP, TCP_USER_TIMEOUT, terms.user_timeout_ms);
    set(SOL_SOCKET, SO_KEEPALIVE, terms.keepalive ? 1 : 0);
}

void TcpSocket::end_writing() {
    set_reset_on_close(false);
    ::shutdown(fd_.get(), SHUT_WR);
}

bool TcpSocket::watch(Poller& poller, std::uint32_t events, Poller::Source& source) {
    if (!poller.watch(fd_.get(), events, source)) {
        return false;
    }
    poller_ = &poller;
    return true;
}

void TcpSocket::unwatch() {
    if (poller_ != nullptr && fd_) {
        poller_->unwatch(fd_.get());
    }
    poller_ = nullptr;
}

void TcpSocket::close() {
    set_reset_on_close(false);
    fd_.reset();
}

void TcpSocket::reset() {
    if (fd_) {
        set_reset_on_close(true);  // L1
        fd_.reset();
    }
}

}  // namespace smc
