// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/ism/rendezvous.h"

#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "os/unix_socket.h"

namespace smc::ism {

namespace {

constexpr const char* kSuffix = ".ism";
constexpr int kBacklog = 128;

// Removes the sockets that killed agents have left behind: a connect() to them is refused.
void remove_stale_sockets(const std::string& directory) {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
        if (entry.path().extension() != kSuffix || !entry.is_socket(error)) {
            continue;
        }
        const auto probe = connect_to(entry.path());
        if (!probe && probe.error().code == ECONNREFUSED) {
            ::unlink(entry.path().c_str());
        }
    }
}

bool only_we_write_to(const std::string& directory) {
    struct stat status {};
    return ::stat(directory.c_str(), &status) == 0 && status.st_uid == ::geteuid() &&
           (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

}  // namespace

std::string socket_path(const std::string& directory, const Gid& gid) {
    return directory + "/" + gid.text() + kSuffix;
}

Result<UniqueFd> connect_to(const std::string& path) {
    return connect_unix(path, SOCK_SEQPACKET | SOCK_NONBLOCK);
}

Result<UniqueFd> listen_in(const std::string& directory, const Gid& gid) {
    std::error_code failure;
    if (std::filesystem::create_directories(directory, failure) && ::chmod(directory.c_str(), 0700) != 0) {
        failure.assign(errno, std::generic_category());
    }
    if (failure) {
        return Error{failure.value(), "creating the ISM directory " + directory};
    }
    if (!only_we_write_to(directory)) {
        return Error{EPERM, "the ISM directory " + directory + " belongs to another user, or others may write to it"};
    }
    remove_stale_sockets(directory);
    return listen_unix(socket_path(directory, gid), SOCK_SEQPACKET | SOCK_NONBLOCK, 0600, kBacklog);
}

bool same_user(int fd) {
    ucred credentials{};
    socklen_t length = sizeof credentials;
    return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) == 0 && credentials.uid == ::geteuid();
}

bool send_request(int fd, const Request& request) {
    return ::send(fd, &request, sizeof request, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof request;
}

bool receive_request(int fd, Request& request) {
    const ssize_t n = ::recv(fd, &request, sizeof request, MSG_DONTWAIT | MSG_TRUNC);  // returns the true length
    if (n < 0) {
        return false;
    }
    errno = n == 0 ? ECONNRESET : EPROTO;
    return n == sizeof request && request.magic == kMagic;
}

bool send_reply(int fd, const Reply& reply, int memory, int doorbell) {
    iovec part{const_cast<Reply*>(&reply), sizeof reply};
    alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (memory >= 0) {
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        cmsghdr* rights = CMSG_FIRSTHDR(&message);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(2 * sizeof(int));
        const int fds[2] = {memory, doorbell};
        std::memcpy(CMSG_DATA(rights), fds, sizeof fds);
    }
    return ::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof reply;
}

bool receive_reply(int fd, Reply& reply, UniqueFd& memory, UniqueFd& doorbell) {
    iovec part{&reply, sizeof reply};
    alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t n = ::recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC | MSG_TRUNC);
    if (n < 0) {
        return false;
    }
    // Takes all descriptors that came, even with an empty message, so that they are closed. The kernel has closed any
    // beyond two.
    if (const cmsghdr* rights = CMSG_FIRSTHDR(&message); rights != nullptr && rights->cmsg_type == SCM_RIGHTS) {
        int fds[2] = {-1, -1};
        std::memcpy(fds, CMSG_DATA(rights), std::min(sizeof fds, rights->cmsg_len - CMSG_LEN(0)));
        memory.reset(fds[0]);
        doorbell.reset(fds[1]);
    }
    errno = n == 0 ? ECONNRESET : EPROTO;
    if (n != sizeof reply || reply.magic != kMagic) {
        return false;
    }
    if (reply.status == 0 && (message.msg_flags & MSG_CTRUNC) != 0 && !doorbell) {
        reply.status = EMFILE;  // this process has no free descriptor: that is no fault of the peer's
        memory.reset();
        doorbell.reset();
    }
    return (reply.status == 0) == static_cast<bool>(doorbell);
}

}  // namespace smc::ism
