// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/ism/local_fabric.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cstddef>
#include <cstring>
#include <deque>
#include <filesystem>

namespace smc::ism {

namespace {

constexpr std::uint32_t kMagic = 0x534d4931;  // "SMI1": version of this rendezvous protocol
constexpr const char* kSuffix = ".ism";

struct Request {
    std::uint32_t magic = kMagic;
    std::uint16_t chid = 0;
    std::uint16_t pad = 0;
    std::uint64_t number = 0;
    std::uint64_t token = 0;
    std::uint8_t gid[16] = {};  // of the one who asks
};

// Carries two descriptors (memory, doorbell) if status is 0.
struct Reply {
    std::uint32_t magic = kMagic;
    std::int32_t status = 0;  // errno value
    std::uint64_t number = 0;
};

Result<sockaddr_un> unix_address(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path) {
        return Error{ENAMETOOLONG, "using " + path + " as a socket"};
    }
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    return address;
}

Result<UniqueFd> connect_to(const std::string& path) {
    auto address = unix_address(path);
    if (!address) {
        return address.error();
    }
    UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd || ::connect(fd.get(), reinterpret_cast<sockaddr*>(&*address), sizeof *address) != 0) {
        return last_error("connecting to " + path);
    }
    return fd;
}

bool same_user(int fd) {
    ucred credentials{};
    socklen_t length = sizeof credentials;
    return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) == 0 && credentials.uid == ::geteuid();
}

bool send_request(int fd, const Request& request) {
    return ::send(fd, &request, sizeof request, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof request;
}

bool send_reply(int fd, const Reply& reply, const Dmb* dmb) {
    iovec part{const_cast<Reply*>(&reply), sizeof reply};
    alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (dmb != nullptr) {
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        cmsghdr* rights = CMSG_FIRSTHDR(&message);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(2 * sizeof(int));
        const int fds[2] = {dmb->memory_fd(), dmb->doorbell_fd()};
        std::memcpy(CMSG_DATA(rights), fds, sizeof fds);
    }
    return ::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof reply;
}

// Takes one reply and its descriptors. False: errno is EAGAIN, or says how the connection ended.
bool receive_reply(int fd, Reply& reply, UniqueFd& memory, UniqueFd& doorbell) {
    iovec part{&reply, sizeof reply};
    alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t n = ::recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n <= 0) {
        errno = n == 0 ? ECONNRESET : errno;
        return false;
    }
    if (const cmsghdr* rights = CMSG_FIRSTHDR(&message);
        rights != nullptr && rights->cmsg_type == SCM_RIGHTS && rights->cmsg_len == CMSG_LEN(2 * sizeof(int))) {
        int fds[2];
        std::memcpy(fds, CMSG_DATA(rights), sizeof fds);
        memory.reset(fds[0]);
        doorbell.reset(fds[1]);
    }
    errno = EPROTO;
    return n == sizeof reply && reply.magic == kMagic && (reply.status != 0 || doorbell);
}

}  // namespace

struct LocalFabric::Link {
    struct Pending {
        std::uint32_t bytes = 0;
        OnAttached on_attached;
        std::unique_ptr<asio::steady_timer> timer;
    };
    Gid peer;
    asio::posix::stream_descriptor socket;
    std::map<std::uint64_t, Pending> pending;
    std::deque<Request> waiting;  // the socket was full; a burst of connections is not the peer's failure
    bool flushing = false;        // a wait for room is under way
    std::uint64_t next_number = 1;

    Link(asio::io_context& io, const Gid& gid, UniqueFd fd) : peer(gid), socket(io, fd.release()) {}

    void settle(std::uint64_t number, Result<Dmb> result) {
        const auto it = pending.find(number);
        if (it == pending.end()) {
            return;  // timed out already
        }
        auto callback = std::move(it->second.on_attached);
        pending.erase(it);
        callback(std::move(result));
    }
};

struct LocalFabric::Visitor {
    asio::posix::stream_descriptor socket;
    std::optional<Gid> peer;              // learnt with its first request
    std::optional<Request> unanswered{};  // the socket was full; nothing is read before it is answered
};

LocalFabric::LocalFabric(asio::io_context& io, std::string directory, Gid gid, Chid chid)
    : io_(io),
      directory_(std::move(directory)),
      gid_(gid),
      chid_(chid),
      listener_(io),
      retry_(io),
      alive_(std::make_shared<bool>(true)) {}

LocalFabric::~LocalFabric() {
    *alive_ = false;
    if (listener_.is_open()) {
        ::unlink(path(gid_).c_str());
    }
}

std::string LocalFabric::path(const Gid& gid) const {
    return directory_ + "/" + gid.text() + kSuffix;
}

// An agent that was killed left its socket behind: nobody answers there.
void LocalFabric::remove_stale_sockets() const {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(directory_, error)) {
        if (entry.path().extension() != kSuffix) {
            continue;
        }
        const auto probe = connect_to(entry.path());
        if (!probe && probe.error().code == ECONNREFUSED) {
            ::unlink(entry.path().c_str());
        }
    }
}

Result<void> LocalFabric::start(OnPeerLost on_peer_lost) {
    on_peer_lost_ = std::move(on_peer_lost);
    std::error_code failure;
    std::filesystem::create_directories(directory_, failure);
    if (failure || ::chmod(directory_.c_str(), 0700) != 0) {
        return Error{failure ? failure.value() : errno, "creating the ISM directory " + directory_};
    }
    remove_stale_sockets();
    auto address = unix_address(path(gid_));
    if (!address) {
        return address.error();
    }
    UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd || ::bind(fd.get(), reinterpret_cast<sockaddr*>(&*address), sizeof *address) != 0 ||
        ::listen(fd.get(), 128) != 0) {
        return last_error("listening on " + path(gid_));
    }
    listener_.assign(fd.release());
    accept_next();
    return {};
}

Result<LocalFabric::Registered> LocalFabric::register_dmb(const Gid& peer, std::uint32_t bytes) {
    auto created = Dmb::create(bytes);
    if (!created) {
        return created.error();
    }
    auto dmb = std::make_shared<Dmb>(std::move(*created));
    DmbToken token{};
    do {
        random_bytes(&token, sizeof token);
    } while (token == DmbToken{} || dmbs_.contains(token));
    dmbs_.emplace(token, Owned{peer, dmb, false});
    return Registered{token, dmb};
}

void LocalFabric::deregister(DmbToken token) {
    dmbs_.erase(token);
}

Result<void> LocalFabric::reach(const Gid& peer) {
    if (links_.contains(peer)) {
        return {};
    }
    auto fd = connect_to(path(peer));
    if (!fd) {
        return fd.error();
    }
    if (!same_user(fd->get())) {
        return Error{EPERM, "trusting the owner of " + path(peer)};
    }
    auto link = std::make_shared<Link>(io_, peer, std::move(*fd));
    links_.emplace(peer, link);
    listen_for_replies(link);
    return {};
}

void LocalFabric::attach(const Gid& peer, DmbToken token, std::uint32_t bytes, std::chrono::milliseconds timeout,
                         OnAttached on_attached) {
    if (auto reached = reach(peer); !reached) {
        on_attached(reached.error());
        return;
    }
    const auto link = links_.at(peer);
    Request request;
    request.chid = static_cast<std::uint16_t>(chid_);
    request.number = link->next_number++;
    request.token = static_cast<std::uint64_t>(token);
    std::memcpy(request.gid, gid_.bytes.data(), sizeof request.gid);
    if (!link->waiting.empty() || !send_request(link->socket.native_handle(), request)) {
        if (link->waiting.empty() && errno != EAGAIN) {
            on_attached(last_error("asking the owner for a DMB"));
            return;
        }
        link->waiting.push_back(request);
        flush_when_writable(link);
    }
    auto timer = std::make_unique<asio::steady_timer>(io_, timeout);
    timer->async_wait([weak = std::weak_ptr(link), number = request.number](std::error_code error) {
        const auto strong = weak.lock();
        if (!error && strong) {
            strong->settle(number, Error{ETIMEDOUT, "waiting for the owner of a DMB"});
        }
    });
    link->pending.emplace(request.number, Link::Pending{bytes, std::move(on_attached), std::move(timer)});
}

void LocalFabric::flush_when_writable(const std::shared_ptr<Link>& link) {
    if (link->flushing) {
        return;
    }
    link->flushing = true;
    link->socket.async_wait(
        asio::posix::stream_descriptor::wait_write, [this, alive = alive_, link](std::error_code error) {
            link->flushing = false;
            if (!*alive || error) {
                return;
            }
            while (!link->waiting.empty()) {
                const Request& next = link->waiting.front();
                // without those that timed out meanwhile
                if (link->pending.contains(next.number) && !send_request(link->socket.native_handle(), next)) {
                    if (errno == EAGAIN) {
                        flush_when_writable(link);
                    }
                    return;  // otherwise the end of the connection shows when reading
                }
                link->waiting.pop_front();
            }
        });
}

void LocalFabric::listen_for_replies(const std::shared_ptr<Link>& link) {
    link->socket.async_wait(
        asio::posix::stream_descriptor::wait_read, [this, alive = alive_, link](std::error_code error) {
            if (!*alive || error) {
                return;
            }
            if (take_reply(*link)) {
                listen_for_replies(link);
            } else if (const auto it = links_.find(link->peer); it != links_.end() && it->second == link) {
                lose(link->peer);  // unless a newer connection took its place
            }
        });
}

bool LocalFabric::take_reply(Link& link) {
    Reply reply;
    UniqueFd memory, doorbell;
    if (!receive_reply(link.socket.native_handle(), reply, memory, doorbell)) {
        return errno == EAGAIN;
    }
    const auto it = link.pending.find(reply.number);
    if (it == link.pending.end()) {
        return true;
    }
    if (reply.status != 0) {
        link.settle(reply.number, Error{reply.status, "attaching a DMB, says its owner"});
    } else {
        link.settle(reply.number, Dmb::attach(std::move(memory), std::move(doorbell), it->second.bytes));
    }
    return true;
}

void LocalFabric::lose(const Gid& peer) {
    if (const auto it = links_.find(peer); it != links_.end()) {
        const auto link = it->second;
        links_.erase(it);
        while (!link->pending.empty()) {
            link->settle(link->pending.begin()->first, Error{ECONNRESET, "asking the owner of a DMB"});
        }
    }
    on_peer_lost_(peer);
}

void LocalFabric::accept_next() {
    listener_.async_wait(asio::posix::stream_descriptor::wait_read, [this, alive = alive_](std::error_code error) {
        if (!*alive || error) {
            return;
        }
        UniqueFd fd(::accept4(listener_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (!fd && errno != EAGAIN && errno != ECONNABORTED) {
            // out of descriptors: the listener stays readable, so do not come back at once
            retry_.expires_after(std::chrono::milliseconds(100));
            retry_.async_wait([this, alive](std::error_code cancelled) {
                if (*alive && !cancelled) {
                    accept_next();
                }
            });
            return;
        }
        if (fd && same_user(fd.get())) {
            const int raw = fd.release();
            serve(std::make_shared<Visitor>(Visitor{asio::posix::stream_descriptor(io_, raw), std::nullopt}));
        }
        accept_next();
    });
}

void LocalFabric::serve(const std::shared_ptr<Visitor>& visitor) {
    visitor->socket.async_wait(
        visitor->unanswered ? asio::posix::stream_descriptor::wait_write : asio::posix::stream_descriptor::wait_read,
        [this, alive = alive_, visitor](std::error_code error) {
            if (!*alive || error) {
                return;
            }
            if (answer(*visitor)) {
                serve(visitor);
            } else if (visitor->peer) {
                lose(*visitor->peer);
            }
        });
}

bool LocalFabric::answer(Visitor& visitor) {
    Request request;
    const int fd = visitor.socket.native_handle();
    if (visitor.unanswered) {
        request = *visitor.unanswered;
        visitor.unanswered.reset();
    } else {
        const ssize_t n = ::recv(fd, &request, sizeof request, MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN) {
            return true;
        }
        if (n != sizeof request || request.magic != kMagic) {
            return false;
        }
    }
    Gid peer;
    std::memcpy(peer.bytes.data(), request.gid, sizeof request.gid);
    if (visitor.peer && *visitor.peer != peer) {
        return false;
    }
    visitor.peer = peer;
    Reply reply;
    reply.number = request.number;
    const auto it = dmbs_.find(DmbToken{request.token});
    if (request.chid != static_cast<std::uint16_t>(chid_)) {
        reply.status = EPROTO;
    } else if (it == dmbs_.end()) {
        reply.status = ENOENT;
    } else if (it->second.peer != peer || it->second.handed_out) {
        reply.status = EACCES;
    }
    const bool granted = reply.status == 0;
    if (!send_reply(fd, reply, granted ? it->second.dmb.get() : nullptr)) {
        if (errno != EAGAIN) {
            return false;
        }
        visitor.unanswered = request;
        return true;
    }
    if (granted) {
        it->second.handed_out = true;
        it->second.dmb->close_memory_fd();
    }
    return true;
}

}  // namespace smc::ism
