// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/netns/namespaces.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <future>
#include <optional>
#include <set>
#include <utility>

#include "agent/log/log.h"
#include "agent/loop/deadline.h"
#include "os/clock.h"

namespace smc {

namespace {

constexpr auto kSoon = std::chrono::milliseconds(20);
constexpr int kRest = 9;  // a pause is nine times the last look; in rescan_soon() at most kLongestRest
constexpr std::chrono::steady_clock::duration kLongestLook = std::chrono::seconds(1);  // more: the thread was preempted
constexpr auto kLongestRest = std::chrono::seconds(1);  // where a program waits for its namespace
constexpr unsigned kAttempts = 3;
// How long a namespace without processes stays open after its last connection: that connection's hairpins serve its
// last packets, and the sweep that deletes them comes within a second.
constexpr auto kAfterUse = std::chrono::nanoseconds(SMC_HAIRPIN_NS) + std::chrono::seconds(2);
constexpr unsigned kOpenedAtOnce = 4;    // connections of other namespaces wait meanwhile
constexpr unsigned kTicksPerRetry = 60;  // namespaces that could not be opened are tried again after so many ticks

std::string netns_path(int pid) {
    return "/proc/" + std::to_string(pid) + "/ns/net";
}

}  // namespace

// An idle agent spends most of its time on reading /proc, but hardly any process ever changes its namespace. So
// processes that were seen lately are not looked at again. A socket in an unknown namespace asks for a thorough look
// (SMC_EVENT_NETNS_UNKNOWN).
std::optional<Sightings::Present> Sightings::look(const std::vector<std::string>& cgroups, bool thorough) {
    Present present;
    std::unordered_map<int, Seen> seen;
    looks_++;
    for (const std::string& cgroup : cgroups) {
        errno = 0;
        std::ifstream procs(cgroup + "/cgroup.procs");
        if (!procs.is_open() && is_exhausted(errno)) {
            return std::nullopt;  // otherwise the cgroup is gone
        }
        for (int pid = 0; procs >> pid;) {
            const auto before = seen_.find(pid);
            if (!thorough && before != seen_.end() && looks_ - before->second.look < kGoodFor) {
                present.emplace(before->second.inode, Process{pid, cgroup});
                seen.insert(*before);
                continue;
            }
            struct stat status {};
            if (::stat(netns_path(pid).c_str(), &status) == 0) {
                present.emplace(status.st_ino, Process{pid, cgroup});
                // Spreads the next look at each process, so that not all of them fall into the same one.
                seen.insert({pid, {status.st_ino, looks_ - static_cast<unsigned>(pid) % (kGoodFor / 2)}});
            }
        }
    }
    seen_ = std::move(seen);
    return present;
}

Namespaces::Namespaces(asio::io_context& io, const Times& times, bpf::Programs& programs, const Cgroups& cgroups,
                       unsigned cgroup_share, const bpf::Hooks::Options& hooks, OnFresh on_fresh, InUse in_use)
    : io_(io),
      times_(times),
      locks_(io),
      parts_{programs, io, hooking_, hooks, hurry_, locks_},
      cgroups_(cgroups),
      cgroup_most_(std::max<std::size_t>(1, std::size_t{SMC_MAX_NETNS} * cgroup_share / 100)),
      on_fresh_(std::move(on_fresh)),
      in_use_(std::move(in_use)),
      soon_(io),
      tick_(io),
      probes_(times.probe),
      look_(std::in_place, io) {
    schedule_tick();
}

void Namespaces::schedule_tick() {
    tick_.expires_after(times_.look);
    tick_.async_wait([this](std::error_code error) {
        if (!error) {
            if (os::now() - looked_at_ >= kRest * last_look_) {
                rescan();
            }
            const bool probes = probes_.due(os::now());
            if (++ticks_ % kTicksPerRetry == 0) {
                failed_.clear();
            }
            for (const auto& [inode, served] : open_) {
                if (probes) {
                    served.netns->renew_listeners();
                }
                on_fresh_(served.netns);
                if (probes || served.netns->doubtful()) {
                    served.netns->probe();
                }
            }
            schedule_tick();
        }
    });
}

void Namespaces::settle() {
    const TimePoint until = os::now() + times_.prepare;
    while (std::ranges::any_of(open_, [](const auto& entry) { return entry.second.netns->busy(); }) &&
           os::now() < until && !io_.stopped()) {
        io_.run_one_until(until);
    }
}

void Namespaces::rescan_soon() {
    const TimePoint rested =
        looked_at_ + std::min<std::chrono::steady_clock::duration>(kRest * last_look_, kLongestRest);
    rescan_in(std::max<std::chrono::steady_clock::duration>(kSoon, rested - os::now()));
}

void Namespaces::rescan_in(std::chrono::steady_clock::duration time) {
    thorough_ = true;
    const TimePoint when = os::now() + time;
    if (soon_pending_ && soon_.expiry() <= when) {
        return;
    }
    soon_pending_ = true;
    soon_.expires_at(when);  // cancels a later one
    soon_.async_wait([this](std::error_code error) {
        if (!error) {
            soon_pending_ = false;
            rescan();
        }
    });
}

void Namespaces::start() {
    if (const auto present = sightings_.look(cgroups_.enrolled(), true)) {
        take(*present, SMC_MAX_NETNS);  // nothing is served yet, so no connection waits meanwhile
    }
}

// If a look is under way, another one follows it, because the first may have missed something.
void Namespaces::rescan() {
    if (!look_ || looking_) {
        again_ = true;
        return;
    }
    looking_ = true;
    look_->run(
        [&sightings = sightings_, cgroups = cgroups_.enrolled(), thorough = std::exchange(thorough_, false)] {
            const TimePoint began = os::now();
            auto present = sightings.look(cgroups, thorough);
            return std::pair(std::move(present), os::now() - began);
        },
        [this](const auto& looked) {
            looking_ = false;
            looked_at_ = os::now();
            last_look_ = std::min(looked.second, kLongestLook);
            if (looked.first) {
                take(*looked.first, kOpenedAtOnce);  // otherwise descriptors ran out: no namespace is known to be gone
            }
            if (std::exchange(again_, false)) {
                rescan_soon();
            }
        });
}

// A process may end before its connection has delivered what it wrote, and a pod may lose the label by which a rule
// selects it. Such connections go on, and their packets, also those that follow their end, need the programs on the
// devices.
void Namespaces::close_those_without(const Sightings::Present& present) {
    const TimePoint now = os::now();
    for (auto it = open_.begin(); it != open_.end();) {
        auto& [inode, served] = *it;
        served.unseen = present.contains(inode) ? 0 : served.unseen + 1;
        served.netns->set_abandoned(served.unseen >= 2);
        if (served.unseen != 0 && in_use_(inode)) {
            served.used_at = now;
        }
        if (served.unseen < 2 || now - served.used_at < kAfterUse) {
            it++;
            continue;
        }
        tell("closed", inode, "no process of an enrolled cgroup and no connection is left there");
        served.netns->close();
        it = open_.erase(it);
    }
}

// Opens at most `most` namespaces now, and the others soon.
void Namespaces::take(const Sightings::Present& present, unsigned most) {
    close_those_without(present);
    std::erase_if(failed_, [&](const auto& entry) { return !present.contains(entry.first); });
    if (withdrawn_) {
        return;
    }
    Served served;
    for (const auto& [inode, one] : open_) {
        served[one.cgroup]++;
    }
    std::erase_if(crowded_, [&](const std::string& cgroup) { return served[cgroup] < cgroup_most_; });
    unsigned opened = 0;
    for (const auto& [inode, process] : present) {
        if (open_.contains(inode) || failed_[inode] >= kAttempts || has_used_share(process.cgroup, served)) {
            continue;
        }
        const std::uint32_t slot = free_slot();
        const bool was_full = std::exchange(full_, slot >= SMC_MAX_NETNS);
        if (full_) {
            if (!was_full) {
                log()->limited(LogLevel::kWarn, "netns: no further network namespaces are served: the limit is {}",
                               SMC_MAX_NETNS);
            }
            break;
        }
        if (opened++ == most) {
            rescan_in(kSoon);
            break;
        }
        served[process.cgroup] += open(inode, process, slot) ? 1 : 0;
    }
}

bool Namespaces::has_used_share(const std::string& cgroup, const Served& served) {
    const auto it = served.find(cgroup);
    if (it == served.end() || it->second < cgroup_most_) {
        return false;
    }
    if (crowded_.insert(cgroup).second) {
        log()->limited(LogLevel::kWarn,
                       "netns: no further network namespaces of {} are served: it has {} (limits.cgroup_percent)",
                       cgroup, it->second);
    }
    return true;
}

void Namespaces::tell(const char* what, std::uint64_t inode, const std::string& more) {
    std::uint64_t held_back = 0;
    if (limiter_.admit(what, held_back)) {
        log()->info("netns {}: {}: {}{}", inode, what, more,
                    held_back == 0 ? "" : " (" + std::to_string(held_back) + " more lines like this one left out)");
    }
}

std::uint32_t Namespaces::free_slot() const {
    std::set<std::uint32_t> used;
    for (const auto& [inode, served] : open_) {
        used.insert(served.netns->slot());
    }
    std::uint32_t slot = 0;
    while (used.contains(slot)) {
        slot++;
    }
    return slot;
}

bool Namespaces::open(std::uint64_t inode, const Sightings::Process& process, std::uint32_t slot) {
    UniqueFd fd(::open(netns_path(process.pid).c_str(), O_RDONLY | O_CLOEXEC));
    struct stat status {};
    if (!fd || ::fstat(fd.get(), &status) != 0 || status.st_ino != inode) {
        return false;  // the process has ended, or has entered another namespace
    }
    auto opened = Namespace::open(parts_, std::move(fd), inode, slot);
    UniqueFd copy = opened ? duplicate((*opened)->link_events_fd()) : UniqueFd();
    auto events = std::make_unique<loop::FdWatch>(io_, std::move(copy));
    if (!opened || !events->watch()) {
        failed_[inode]++;
        log()->limited(LogLevel::kWarn, "netns {}: not served: {}", inode,
                       opened ? "its rtnetlink socket cannot be watched: no descriptors, or fs.epoll.max_user_watches"
                              : opened.error().text());
        return false;
    }
    failed_.erase(inode);
    open_[inode] = {*opened, std::move(events), process.cgroup};
    watch_links(inode);
    tell("opened", inode, "slot " + std::to_string(slot));
    on_fresh_(*opened);
    return true;
}

void Namespaces::watch_links(std::uint64_t inode) {
    open_.at(inode).link_events->when_readable([this, inode] {
        const auto netns = open_.at(inode).netns;
        netns->sync_devices();
        on_fresh_(netns);
        watch_links(inode);
    });
}

void Namespaces::callback_taken(std::uint32_t slot, bool v6) {
    const auto it = std::ranges::find_if(open_, [&](const auto& entry) { return entry.second.netns->slot() == slot; });
    if (it != open_.end()) {
        it->second.netns->callback_taken(v6 ? Namespace::kClc6 : Namespace::kClc4);
    }
}

std::shared_ptr<Namespace> Namespaces::by_cookie(std::uint64_t cookie) const {
    const auto it = std::find_if(open_.begin(), open_.end(),
                                 [&](const auto& entry) { return entry.second.netns->cookie() == cookie; });
    return it == open_.end() ? nullptr : it->second.netns;
}

std::shared_ptr<Namespace> Namespaces::by_inode(std::uint64_t inode) const {
    const auto it = open_.find(inode);
    return it == open_.end() ? nullptr : it->second.netns;
}

std::vector<std::shared_ptr<Namespace>> Namespaces::all() const {
    std::vector<std::shared_ptr<Namespace>> all;
    for (const auto& [inode, served] : open_) {
        all.push_back(served.netns);
    }
    return all;
}

void Namespaces::withdraw() {
    withdrawn_ = hurry_ = true;
    for (const auto& [inode, served] : open_) {
        served.netns->withdraw();
    }
    std::promise<void> rest;
    asio::post(hooking_, [&rest] { rest.set_value(); });  // the only thread: runs after all work begun before
    rest.get_future().wait();
    hurry_ = false;
}

void Namespaces::close_all() {
    tick_.cancel();
    soon_.cancel();
    look_.reset();
    for (const auto& [inode, served] : open_) {
        served.netns->close();
    }
    open_.clear();
    hooking_.join();
}

}  // namespace smc
