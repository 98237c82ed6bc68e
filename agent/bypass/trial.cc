// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/bypass/trial.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>
#include <cstring>

#include "os/read_to_end.h"

namespace smc::bypass {

namespace {

std::uint64_t cookie_of(int fd) {
    std::uint64_t cookie = 0;
    socklen_t size = sizeof cookie;
    ::getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &size);
    return cookie;
}

// For a socket that has sent nothing yet. TCP tells it in repair mode; TCP_REPAIR_OFF_NO_WP (-1) sends no window probe.
std::uint32_t next_sequence_number(int fd) {
    const int on = 1, off = -1, send_queue = 2;
    std::uint32_t number = 0;
    socklen_t size = sizeof number;
    ::setsockopt(fd, IPPROTO_TCP, TCP_REPAIR, &on, sizeof on);
    ::setsockopt(fd, IPPROTO_TCP, TCP_REPAIR_QUEUE, &send_queue, sizeof send_queue);
    ::getsockopt(fd, IPPROTO_TCP, TCP_QUEUE_SEQ, &number, &size);
    ::setsockopt(fd, IPPROTO_TCP, TCP_REPAIR, &off, sizeof off);
    return number;
}

void set_blocking(int fd, bool blocking) {
    ::fcntl(fd, F_SETFL, blocking ? 0 : O_NONBLOCK);
}

}  // namespace

Trial::Trial(Bypass& bypass, std::chrono::milliseconds moment) : bypass_(bypass), moment_(moment) {
    const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* where = reinterpret_cast<sockaddr*>(&address);
    sender_.fd = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::bind(listener.get(), where, size) != 0 || ::listen(listener.get(), 1) != 0 ||
        ::getsockname(listener.get(), where, &size) != 0 || ::connect(sender_.fd.get(), where, size) != 0) {
        return;
    }
    receiver_.fd = UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    for (End* end : {&sender_, &receiver_}) {
        const int one = 1;
        ::setsockopt(end->fd.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        set_blocking(end->fd.get(), false);
        end->cookie = cookie_of(end->fd.get());
    }
    watch(sender_, receiver_);
    watch(receiver_, sender_);
}

Trial::~Trial() {
    bypass_.forget(sender_.cookie);
    bypass_.forget(receiver_.cookie);
}

void Trial::watch(const End& own, const End& peer) const {
    smc_member member{};
    member.state = SMC_MEMBER_PROVEN;
    member.peer = peer.cookie;
    member.first_seq = next_sequence_number(own.fd.get());
    bypass_.set_entry(own.cookie, member);
}

bool Trial::enrol() {
    os::read_to_end(bypass_.iterator().get());  // only this thread has sockets in this namespace
    for (const std::uint64_t cookie : {sender_.cookie, receiver_.cookie}) {
        smc_member member = bypass_.entry(cookie);
        if (member.state != SMC_MEMBER_ENROLLED) {
            return false;
        }
        member.state = SMC_MEMBER_MEMBER;
        bypass_.set_entry(cookie, member);
    }
    return true;
}

bool Trial::send(const std::string& bytes, int flags) const {
    return ::send(sender(), bytes.data(), bytes.size(), flags | MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
}

void Trial::wait_for_bytes() const {
    pollfd one{receiver(), POLLIN | POLLPRI, 0};
    ::poll(&one, 1, static_cast<int>(moment_.count()));
}

std::string Trial::receive(int flags, std::size_t most) const {
    wait_for_bytes();
    std::string bytes(most, '\0');
    const ssize_t got = ::recv(receiver(), bytes.data(), most, flags | MSG_DONTWAIT);
    bytes.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return bytes;
}

std::string Trial::what_receive_says() const {
    wait_for_bytes();
    char byte = 0;
    const ssize_t got = ::recv(receiver(), &byte, 1, MSG_DONTWAIT);
    return got == 0 ? "end" : got < 0 ? ::strerrorname_np(errno) : "a byte";
}

std::string Trial::what_send_says() const {
    return ::send(sender(), "x", 1, MSG_NOSIGNAL) == 1 ? "sent" : ::strerrorname_np(errno);
}

void Trial::set_receiver_blocking(bool blocking) const {
    const timeval longest{.tv_sec = 1, .tv_usec = 0};  // a kernel may have lost the bytes: do not wait forever
    ::setsockopt(receiver(), SOL_SOCKET, SO_RCVTIMEO, &longest, sizeof longest);
    set_blocking(receiver(), blocking);
}

}  // namespace smc::bypass
