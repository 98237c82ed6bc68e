// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/netns/namespace.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/fsuid.h>
#include <sys/socket.h>

#include <algorithm>
#include <asio/post.hpp>
#include <fstream>

#include <linux/if_packet.h>
#include <net/ethernet.h>

#include "agent/log/log.h"
#include "os/clock.h"
#include "os/in_namespace.h"
#include "os/tcp_options.h"

namespace smc {

namespace {

constexpr int kBacklog = 4096;
constexpr const char* kFlagTaken = "another sockops program has taken the callback flag of the agent's listener";

void close_listener(UniqueFd& listener) {
    if (listener) {
        ::shutdown(listener.get(), SHUT_RDWR);  // takes effect on duplicates of the descriptor, too
        listener.reset();
    }
}

}  // namespace

Result<std::shared_ptr<Namespace>> Namespace::open(const Parts& parts, UniqueFd netns, std::uint64_t inode,
                                                   std::uint32_t slot) {
    std::shared_ptr<Namespace> self(new Namespace(parts, std::move(netns), inode, slot));
    UniqueFd copy = duplicate(self->netns_.get());
    if (!copy) {
        return last_error("opening a network namespace");
    }
    {
        const InNamespace inside(self->netns_.get());
        if (!inside.entered()) {
            return last_error("entering a network namespace");
        }
        auto events = Rtnetlink::open(Rtnetlink::Events::kChanges);
        if (!events) {
            return events.error();
        }
        self->link_events_.emplace(std::move(*events));
        self->cookie_ = self->link_events_->netns_cookie();
        if (self->cookie_ == 0) {
            return last_error("asking for a network namespace's cookie");
        }
    }
    self->open_listeners();
    self->hooks_ = std::make_shared<bpf::Hooks>(parts.programs, slot, std::move(copy), parts.hooks);
    self->work(Work::kSync);
    return self;
}

void Namespace::open_listeners() {
    if (withdrawn_ || std::ranges::all_of(listeners_, [](const UniqueFd& fd) { return bool(fd); })) {
        return;
    }
    const InNamespace inside(netns_.get());
    if (!inside.entered()) {
        return;
    }
    for (const Listener which : {kClc4, kClc6}) {
        if (listeners_[which]) {
            continue;
        }
        if (auto listening = listen(which); !listening) {
            log()->debug("netns {} listener {}: {}", inode_, static_cast<int>(which), listening.error().text());
        } else {
            fresh_.insert(which);
        }
    }
}

Namespace::~Namespace() {
    if (hooks_) {
        close();
    }
}

void Namespace::close_listeners() {
    for (const Listener which : {kClc4, kClc6}) {
        if (listeners_[which]) {
            p_.programs.clc_listeners.erase(slot_ * 2 + (which == kClc6 ? 1 : 0));
        }
        close_listener(listeners_[which]);
        close_listener(replaced_[which]);
    }
    fresh_.clear();
}

void Namespace::withdraw() {
    withdrawn_ = true;
    close_listeners();
    if (hooks_) {
        asio::post(p_.hooking, [hooks = hooks_] { hooks->withdraw(); });
    }
}

void Namespace::close() {
    close_listeners();  // first: SYN-ACKs of the listeners get options only while the namespace has its entry
    p_.programs.netns.erase(cookie_);
    asio::post(p_.hooking, [hooks = std::move(hooks_)] {});  // destroyed on the thread that uses them
}

Result<void> Namespace::listen(Listener which) {
    const bool v6 = which == kClc6;
    const int family = v6 ? AF_INET6 : AF_INET;
    UniqueFd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd) {
        return last_error("creating a listener");
    }
    sockaddr_storage address{};
    const socklen_t length = Endpoint::loopback(v6, 0).to_sockaddr(address, family);
    // Accepted CLC sockets use the server's port. With these options they hinder an application that binds the port
    // again (after a restart) no more than its own sockets do.
    const int one = 1;
    ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEPORT, &one, sizeof one);
    // lo may be down; no packet is ever sent to this address
    ::setsockopt(fd.get(), v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_FREEBIND : IP_FREEBIND, &one, sizeof one);
    os::prepare_tcp(fd.get());  // accepted sockets inherit the options
    // Set the role before listen(), where the sockops program acts on it.
    smc_sock mark{};
    mark.role = SMC_ROLE_AGENT_CLC;
    if (auto marked = p_.programs.mark_socket(fd.get(), mark); !marked) {
        return marked;
    }
    if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 || ::listen(fd.get(), kBacklog) != 0) {
        return last_error("listening on loopback");
    }
    if (auto put = p_.programs.clc_listeners.put(slot_ * 2 + (v6 ? 1 : 0), static_cast<std::uint64_t>(fd.get()));
        !put) {
        return put;
    }
    ports_[which] = local_endpoint(fd.get()).port;
    listeners_[which] = std::move(fd);
    return {};
}

void Namespace::callback_taken(Listener which) {
    if (flag_taken_[which] || !listeners_[which]) {
        return;
    }
    flag_taken_[which] = true;
    // The other program may take the flag of each new listener, too: a warning comes only after kQuiet calls of
    // renew_listeners() without that.
    if (std::exchange(since_taken_, 0) >= kQuiet) {
        log()->limited(LogLevel::kWarn, "netns {}: {} connections are plain TCP until the agent listens anew: {}",
                       inode_, which == kClc6 ? "IPv6" : "IPv4", kFlagTaken);
    }
    publish();
}

void Namespace::renew_listeners() {
    since_taken_++;
    for (const Listener which : {kClc4, kClc6}) {
        close_listener(replaced_[which]);
        if (!flag_taken_[which] || !listeners_[which]) {
            continue;
        }
        const InNamespace inside(netns_.get());
        if (!inside.entered()) {
            continue;
        }
        UniqueFd old = std::move(listeners_[which]);
        if (auto listening = listen(which); !listening) {
            log()->limited(LogLevel::kWarn, "netns {}: the agent cannot listen anew: {}", inode_,
                           listening.error().text());
            listeners_[which] = std::move(old);
            continue;
        }
        log()->debug("netns {}: the agent listens anew for {}", inode_, which == kClc6 ? "IPv6" : "IPv4");
        replaced_[which] = std::move(old);
        flag_taken_[which] = false;
        fresh_.insert(which);
    }
    publish();
}

std::string Namespace::obstacle(bpf::Hooks::Family family) const {
    const Listener which = family == bpf::Hooks::kIpv6 ? kClc6 : kClc4;
    if (!hooks_ || !listeners_[which]) {
        return "the agent cannot listen there";
    }
    if (flag_taken_[which]) {
        return kFlagTaken;
    }
    if (abandoned_) {
        return "no process that a rule selects is left there; existing connections go on";
    }
    return hooking_failed_.empty() ? hooked_.obstacles[family] : hooking_failed_;
}

void Namespace::publish() {
    const smc_netns now{slot_,
                        obstacle(bpf::Hooks::kIpv4).empty() ? __u8{1} : __u8{0},
                        obstacle(bpf::Hooks::kIpv6).empty() ? __u8{1} : __u8{0},
                        full_ ? __u8{1} : __u8{0},
                        hooked_.limits.empty() ? __u8{0} : __u8{1},
                        inode_};
    if (!hooks_ || (published_.inode != 0 && now.serves4 == published_.serves4 && now.serves6 == published_.serves6 &&
                    now.full == published_.full && now.limited == published_.limited)) {
        return;
    }
    if (auto put = p_.programs.netns.put(cookie_, now); !put) {
        log()->limited(LogLevel::kWarn, "netns {}: the BPF programs do not know whether it is served: {}", inode_,
                       put.error().text());
        return;
    }
    published_ = now;
}

Result<std::vector<UniqueFd>> Namespace::tcp_sockets(int family, Owner owner, unsigned most) const {
    const InNamespace inside(netns_.get());
    // A socket belongs to the file system user of the thread that creates it.
    static const Owner own{::geteuid(), ::getegid()};
    const bool another = owner.uid != own.uid || owner.gid != own.gid;
    if (another) {
        ::setfsgid(owner.gid);
        ::setfsuid(owner.uid);
    }
    std::vector<UniqueFd> made;
    int error = errno;  // of entering the namespace
    while (inside.entered() && made.size() < most) {
        UniqueFd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        if (!fd) {
            error = errno;
            break;
        }
        os::prepare_tcp(fd.get());
        made.push_back(std::move(fd));
    }
    if (another) {
        ::setfsuid(own.uid);
        ::setfsgid(own.gid);
    }
    if (made.empty()) {
        return Error{error, "creating a socket in a network namespace"};
    }
    return made;
}

Result<void> Namespace::send_packet(const std::vector<std::uint8_t>& packet, bool v6, unsigned device) const {
    sockaddr_ll to{};
    to.sll_family = AF_PACKET;
    to.sll_protocol = htons(v6 ? ETH_P_IPV6 : ETH_P_IP);
    to.sll_ifindex = static_cast<int>(device);
    const int socket = hooks_ ? hooks_->packet_socket() : -1;
    return ::sendto(socket, packet.data(), packet.size(), 0, reinterpret_cast<sockaddr*>(&to), sizeof to) < 0
               ? Result<void>(last_error("sending a packet"))
               : Result<void>();
}

Result<SockDiag> Namespace::sock_diag() const {
    const InNamespace inside(netns_.get());
    return inside.entered() ? SockDiag::open() : Result<SockDiag>(last_error("entering a network namespace"));
}

Result<void> Namespace::end_socket(const SockDiag::Socket& which, loop::LockHelper::Done done) const {
    const auto diag = sock_diag();
    if (!diag) {
        return diag.error();
    }
    return p_.locks.end_socket(*diag, which, std::move(done))
               ? Result<void>()
               : Error{EAGAIN, "ending a socket (too many wait for that, or no descriptor is free)"};
}

std::optional<int> Namespace::state_of(const SockDiag::Socket& which) const {
    const auto diag = sock_diag();
    return diag ? diag->state_of(which) : std::nullopt;
}

bool Namespace::has_connection(const Endpoint& local, const Endpoint& remote) const {
    const auto state = state_of({local, remote, SockDiag::kAnyCookie, 0});
    // A listener is what the kernel finds if there is nothing else.
    return state && *state != TCP_LISTEN && *state != TCP_TIME_WAIT;
}

void Namespace::sync_devices() {
    link_events_->drain();
    open_listeners();
    publish();
    work(Work::kSync);
}

void Namespace::probe() {
    const bool all_well = hooking_failed_.empty() && std::ranges::all_of(hooked_.obstacles, &std::string::empty);
    work(all_well ? Work::kProbe : Work::kSync);  // retry what has failed
}

void Namespace::work(Work what) {
    if (working_ || !hooks_) {
        wanted_ = std::max(wanted_, what);
        return;
    }
    working_ = true;
    asio::post(p_.hooking, [hooks = hooks_, what, &io = p_.io, &hurry = p_.hurry, weak = weak_from_this()] {
        if (weak.expired()) {
            return;
        }
        if (hurry) {
            asio::post(io, [weak, what] {
                if (const auto self = weak.lock()) {
                    self->work_next(what);
                }
            });
            return;
        }
        auto state = what == Work::kSync ? hooks->sync_devices() : hooks->probe();
        asio::post(io, [weak, state = std::move(state)] {
            if (const auto self = weak.lock()) {
                self->worked(state);
            }
        });
    });
}

void Namespace::work_next(Work next) {
    working_ = false;
    next = std::max(next, std::exchange(wanted_, Work::kNothing));
    if (next != Work::kNothing) {
        work(next);
    }
}

void Namespace::worked(const Result<bpf::Hooks::State>& state) {
    const std::string failed = state ? "" : state.error().text();
    if (failed != hooking_failed_ && !failed.empty()) {
        log()->limited(LogLevel::kWarn, "netns {}: not served: {}", inode_, failed);
    }
    hooking_failed_ = failed;
    if (state) {
        if (hooked_.unfinished && !state->unfinished) {
            log()->limited(LogLevel::kInfo, "netns {} is prepared, devices {}", inode_, state->devices.size());
        }
        hooked_ = *state;
    }
    publish();
    work_next(state && state->unfinished ? Work::kSync : Work::kNothing);
}

std::optional<std::uint16_t> Namespace::vlan_of(const Routes::Flow& flow) const {
    if (!hooked_.vlans.any()) {
        return 0;
    }
    const auto route = route_of(flow);
    return route ? std::optional(hooked_.vlans.of(route->device)) : std::nullopt;
}

const Namespace::LocalPorts& Namespace::local_ports() const {
    const TimePoint now = os::now();
    if (now < local_ports_until_) {
        return local_ports_;
    }
    local_ports_ = {};
    if (const InNamespace inside(netns_.get()); inside.entered()) {
        std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> local_ports_.range.first >> local_ports_.range.last;
        std::ifstream reserved("/proc/sys/net/ipv4/ip_local_reserved_ports");  // as in "8080,9000-9010"
        for (Ports ports; reserved >> ports.first; reserved.ignore()) {
            ports.last = ports.first;
            if (reserved.peek() == '-') {
                reserved.ignore();
                reserved >> ports.last;
            }
            local_ports_.reserved.push_back(ports);
        }
    }
    local_ports_until_ = now + std::chrono::seconds(1);
    return local_ports_;
}

void Namespace::set_full(bool full) {
    full_ = full;
    publish();
}

void Namespace::set_abandoned(bool abandoned) {
    abandoned_ = abandoned;
    publish();
}

}  // namespace smc
