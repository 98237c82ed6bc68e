// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/tcp_socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <linux/sockios.h>

#include <algorithm>

namespace smc {

TcpSocket::TcpSocket(UniqueFd fd) : fd_(std::move(fd)) {
    const int one = 1;
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_OOBINLINE, &one, sizeof one);
    ::setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    set_linger(true);  // L1
}

void TcpSocket::set_linger(bool reset_on_close) const {
    const linger value{reset_on_close ? 1 : 0, 0};
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_LINGER, &value, sizeof value);
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
    return ::ioctl(fd_.get(), SIOCOUTQ, &bytes) == 0 && bytes > 0 ? static_cast<std::uint32_t>(bytes) : 0;
}

void TcpSocket::keep_alive() const {
    const int on = 1, between_s = 10;
    int idle_s = 60;
    socklen_t length = sizeof idle_s;
    ::getsockopt(fd_.get(), IPPROTO_TCP, TCP_LINGER2, &idle_s, &length);  // tcp_fin_timeout of the namespace
    idle_s = std::clamp(idle_s, 1, 600);
    ::setsockopt(fd_.get(), IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    ::setsockopt(fd_.get(), IPPROTO_TCP, TCP_KEEPINTVL, &between_s, sizeof between_s);
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

void TcpSocket::end_writing() {
    set_linger(false);
    ::shutdown(fd_.get(), SHUT_WR);
}

void TcpSocket::close() {
    set_linger(false);
    fd_.reset();
}

void TcpSocket::reset() {
    if (fd_) {
        set_linger(true);  // L1
        fd_.reset();
    }
}

}  // namespace smc
