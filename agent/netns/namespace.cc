// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/netns/namespace.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/fsuid.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "agent/log/log.h"

#ifndef IPV6_HDRINCL
#define IPV6_HDRINCL 36
#endif

namespace smc {

namespace {

int home_netns() {
    static const UniqueFd home(::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
    return home.get();
}

constexpr int kBacklog = 4096;

// Of the namespace that the thread is in.
Result<std::vector<NetDevice>> devices_here() {
    const auto rtnetlink = Rtnetlink::open();
    return rtnetlink ? rtnetlink->devices() : Result<std::vector<NetDevice>>(rtnetlink.error());
}

}  // namespace

InNamespace::InNamespace(int netns_fd) {
    home_netns();
    entered_ = ::setns(netns_fd, CLONE_NEWNET) == 0;
}

InNamespace::~InNamespace() {
    if (entered_ && ::setns(home_netns(), CLONE_NEWNET) != 0) {
        log()->error("cannot return to the agent's own network namespace");
        std::abort();  // every socket made from here on would be in the wrong namespace
    }
}

Result<std::unique_ptr<Namespace>> Namespace::open(bpf::Programs& programs, UniqueFd netns, std::uint64_t inode,
                                                   std::uint32_t slot, const std::string& tc) {
    std::unique_ptr<Namespace> self(new Namespace(programs, std::move(netns), inode, slot));
    const InNamespace inside(self->netns_.get());
    if (!inside.entered()) {
        return last_error("entering a network namespace");
    }
    auto events = Rtnetlink::open(Rtnetlink::Events::kLinksAndAddresses);
    const auto devices = devices_here();
    if (!events || !devices) {
        return events ? devices.error() : events.error();
    }
    self->link_events_.emplace(std::move(*events));
    self->cookie_ = self->link_events_->netns_cookie();
    if (self->cookie_ == 0) {
        return last_error("asking for a network namespace's cookie");
    }
    self->look_at_devices(*devices);
    self->open_listeners();
    auto inbound = bpf::Inbound::load(programs, slot, self->netns_.get(), tc, *devices);
    if (!inbound) {
        return inbound.error();
    }
    self->inbound_ = std::move(*inbound);
    if (auto published = self->publish(); !published) {
        return published.error();
    }
    return self;
}

void Namespace::open_listeners() {
    for (const Listener which : {kLeg4, kLeg6, kClc4, kClc6}) {
        if (listeners_[which]) {
            continue;
        }
        if (auto listening = listen(which); !listening) {
            log()->debug("netns {} listener {}: {}", inode_, static_cast<int>(which), listening.error().text());
        } else {
            fresh_.push_back(which);
        }
    }
}

Namespace::~Namespace() {
    if (inbound_) {
        close();
    }
}

void Namespace::close() {
    programs_.netns.erase(cookie_);
    for (UniqueFd& listener : listeners_) {
        if (listener) {
            ::shutdown(listener.get(), SHUT_RDWR);  // also for duplicates
            listener.reset();
        }
    }
    const InNamespace inside(netns_.get());
    inbound_.reset();
}

void Namespace::look_at_devices(const std::vector<NetDevice>& devices) {
    loopback_up_ = false;
    unsigned smallest = 0;
    for (const NetDevice& device : devices) {
        if (device.loopback) {
            loopback_up_ |= device.up;
        } else {
            smallest = smallest == 0 ? device.mtu : std::min(smallest, device.mtu);
        }
    }
    mtu_ = smallest != 0 ? static_cast<int>(smallest) : mtu_;
}

void Namespace::limit_segments(int fd, int family) const {
    constexpr int kHeaders4 = 40, kHeaders6 = 60, kLargest = 32767;
    const int segment = std::min(mtu_ - (family == AF_INET ? kHeaders4 : kHeaders6), kLargest);
    ::setsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &segment, sizeof segment);
}

Result<void> Namespace::listen(Listener which) {
    const bool v6 = which == kLeg6 || which == kClc6;
    const bool clc = which == kClc4 || which == kClc6;
    const int family = v6 ? AF_INET6 : AF_INET;
    UniqueFd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd) {
        return last_error("creating a listener");
    }
    sockaddr_storage address{};
    const socklen_t length = Endpoint::loopback(v6, 0).to_sockaddr(address, family);
    // Accepted CLC sockets sit on the server's port: an application that binds it again (as on a restart)
    // must find them no more in its way than its own.
    const int one = 1;
    ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEPORT, &one, sizeof one);
    // The role must be there before listen(): the sockops program acts on it then.
    if (auto marked = programs_.mark_socket(fd.get(), clc ? SMC_ROLE_AGENT_CLC : SMC_ROLE_AGENT_LEG); !marked) {
        return marked;
    }
    if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 || ::listen(fd.get(), kBacklog) != 0) {
        return last_error("listening on loopback");
    }
    if (!clc) {
        limit_segments(fd.get(), family);
    }
    if (clc) {
        if (auto put = programs_.clc_listeners.put(slot_ * 2 + (v6 ? 1 : 0), static_cast<std::uint64_t>(fd.get()));
            !put) {
            return put;
        }
    }
    ports_[which] = local_endpoint(fd.get()).port;
    listeners_[which] = std::move(fd);
    return {};
}

Result<void> Namespace::publish() {
    const auto leg = [&](Listener which) { return serves(which) ? ports_[which] : std::uint16_t{0}; };
    return programs_.netns.put(cookie_, {slot_, leg(kLeg4), leg(kLeg6), inode_});
}

Result<UniqueFd> Namespace::tcp_socket(int family, smc_role role, const Endpoint& remote, Owner owner) const {
    const InNamespace inside(netns_.get());
    // A socket belongs to the file system user of the thread that makes it.
    ::setfsgid(owner.gid);
    ::setfsuid(owner.uid);
    UniqueFd fd(inside.entered() ? ::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0) : -1);
    ::setfsuid(::geteuid());
    ::setfsgid(::getegid());
    if (!fd) {
        return last_error("creating a socket in a network namespace");
    }
    if (role == SMC_ROLE_AGENT_LEG) {
        limit_segments(fd.get(), family);
    }
    if (auto marked = programs_.mark_socket(fd.get(), role, remote); !marked) {
        return marked.error();
    }
    return fd;
}

Result<int> Namespace::raw_socket(int family, int protocol) {
    UniqueFd& fd = raw_[{family, protocol}];
    if (!fd) {
        const InNamespace inside(netns_.get());
        fd.reset(inside.entered() ? ::socket(family, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, protocol) : -1);
        if (!fd) {
            return last_error("creating a raw socket");
        }
        const int one = 1;
        if (family == AF_INET6 && protocol == IPPROTO_RAW &&
            ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_HDRINCL, &one, sizeof one) != 0) {
            return last_error("preparing a raw socket");
        }
    }
    return fd.get();
}

void Namespace::sync_devices() {
    link_events_->drain();
    const InNamespace inside(netns_.get());
    if (!inside.entered() || !inbound_) {
        return;
    }
    const auto devices = devices_here();
    if (!devices) {
        log()->warn("netns {}: {}", inode_, devices.error().text());
        return;
    }
    look_at_devices(*devices);
    inbound_->sync_devices(*devices);
    open_listeners();
    if (auto published = publish(); !published) {
        log()->warn("netns {}: {}", inode_, published.error().text());
    }
}

}  // namespace smc
