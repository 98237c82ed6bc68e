// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/netns/cgroups.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>
#include <utility>

#include "agent/log/log.h"
#include "agent/loop/deadline.h"
#include "os/clock.h"
#include "os/unique_fd.h"
#include "os/watched_fd.h"

namespace smc {

namespace {

bool join(const std::string& cgroup) {
    std::ofstream procs(cgroup + "/cgroup.procs");
    procs << ::getpid() << std::flush;
    return procs.good();
}

// The process's path in the cgroup v2 tree.
std::string own_path() {
    std::ifstream file("/proc/self/cgroup");
    for (std::string line; std::getline(file, line);) {
        if (line.starts_with("0::")) {
            return line.substr(3);
        }
    }
    return "/";
}

}  // namespace

Result<std::string> find_cgroup_mount() {
    // Fields, as in proc(5): ID, parent, device, mounted part of the file system, mount point, options, more fields up
    // to "-", type. A container may have two mounts: a part of the tree, and the node's whole tree.
    std::ifstream mounts("/proc/self/mountinfo");
    std::string some;
    for (std::string line; std::getline(mounts, line);) {
        std::istringstream words(line);
        std::string id, parent, device, part, place, word;
        words >> id >> parent >> device >> part >> place;
        while (words >> word && word != "-") {
        }
        words >> word;
        if (word == "cgroup2" && part == "/") {
            return place;
        }
        if (word == "cgroup2" && some.empty()) {
            some = place;
        }
    }
    return some.empty() ? Result<std::string>(Error{ENOENT, "finding the cgroup v2 mount"}) : some;
}

Result<void> check_cgroup(const std::string& path) {
    constexpr long kCgroup2Magic = 0x63677270;
    struct statfs status {};
    if (::statfs(path.c_str(), &status) != 0) {
        return last_error("opening cgroup.root " + path);
    }
    return status.f_type == kCgroup2Magic ? Result<void>()
                                          : Result<void>(Error{EINVAL, "cgroup.root " + path + " is no cgroup v2"});
}

Cgroups::Cgroups(asio::io_context& io, std::string root, std::string own, const Policy& policy,
                 bpf::Map<std::uint64_t, smc_cgroup> map, PodOf pod_of, std::function<void()> on_change)
    : root_(std::move(root)),
      own_(std::move(own)),
      policy_(policy),
      map_(map),
      pod_of_(std::move(pod_of)),
      on_change_(std::move(on_change)),
      inotify_(io),
      soon_(io),
      more_(io),
      background_(io) {}

Result<void> Cgroups::start() {
    UniqueFd fd(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
    if (!fd) {
        return last_error("watching cgroups");
    }
    if (auto watched = os::watch(inotify_, std::move(fd)); !watched) {
        return watched;
    }
    take(walk(root_, {}));
    for (; !fresh_.empty(); fresh_.pop_front()) {
        add(fresh_.front());
    }
    listen();
    rescan_soon();  // for cgroups that were created before their parent was watched
    return {};
}

void Cgroups::listen() {
    inotify_.async_wait(asio::posix::stream_descriptor::wait_read, [this](std::error_code error) {
        if (error) {
            return;
        }
        alignas(inotify_event) std::array<char, 16384> events;
        while (::read(inotify_.native_handle(), events.data(), events.size()) > 0) {
        }
        rescan_soon();
        listen();
    });
}

// Runs on any thread. Finds the cgroups of the tree, and decides which of them get an entry in the map.
Cgroups::Walked Cgroups::walk(const std::string& root, const std::vector<std::uint64_t>& known) {
    const TimePoint began = os::now();
    Walked walked;
    auto found = walk_cgroups(root);
    if (!found) {
        walked.failed = found.error();
    } else {
        const auto kept = share_entries(*found, SMC_MAX_CGROUPS,
                                        [&](std::uint64_t id) { return std::ranges::binary_search(known, id); });
        for (std::size_t i = 0; i < kept.size(); i++) {
            if (kept[i] && (*found)[i].id != 0) {
                walked.kept.push_back(std::move((*found)[i]));
            }
        }
        walked.left_out = found->size() - walked.kept.size();
    }
    walked.took = os::now() - began;
    return walked;
}

void Cgroups::rescan_soon() {
    constexpr auto kSoon = std::chrono::milliseconds(10);
    constexpr int kRest = 9;  // a pause is nine times the last walk, and at most kLongestRest
    constexpr std::chrono::steady_clock::duration kLongestRest = std::chrono::seconds(10);
    if (std::exchange(soon_pending_, true)) {
        again_ = walks_;
        return;
    }
    soon_.expires_after(kSoon + std::min(last_walk_ * kRest, kLongestRest));
    soon_.async_wait([this](std::error_code error) {
        if (error) {
            return;
        }
        walks_ = true;
        std::vector<std::uint64_t> known;  // sorted
        for (const auto& [id, group] : groups_) {
            known.push_back(id);
        }
        background_.run([root = root_, known = std::move(known)] { return walk(root, known); },
                        [this](Walked walked) {
                            soon_pending_ = walks_ = false;
                            last_walk_ = walked.took;
                            take(std::move(walked));
                            add_some();
                            if (std::exchange(again_, false)) {
                                rescan_soon();
                            }
                        });
    });
}

void Cgroups::watch(const std::string& path) {
    // Without a watch, changes are seen later: the BPF programs report unknown cgroups of clients.
    const int descriptor = inotify_.native_handle();
    const auto add = [descriptor](const std::string& file, std::uint32_t events) {
        return ::inotify_add_watch(descriptor, file.c_str(), events) >= 0 || errno != ENOSPC;
    };
    const bool added = add(path, IN_CREATE | IN_DELETE) && add(path + "/cgroup.events", IN_MODIFY);
    if (!added && std::exchange(has_all_watches_, false)) {
        log()->warn("cgroup {}: it cannot be watched, so servers in new cgroups below it may stay plain TCP: {}", path,
                    "fs.inotify.max_user_watches is too low");
    }
}

void Cgroups::take(Walked walked) {
    if (walked.failed) {
        if (!std::exchange(is_cut_short_, true)) {
            log()->warn("new cgroups are not found for now: {}; trying again", walked.failed->text());
        }
        return rescan_soon();
    }
    is_cut_short_ = false;
    std::map<std::uint64_t, Group> found;
    fresh_.clear();
    for (CgroupFound& one : walked.kept) {
        if (auto known = groups_.extract(one.id)) {
            found.insert(std::move(known));
        } else {
            fresh_.push_back(std::move(one));
        }
    }
    for (const auto& [id, group] : groups_) {  // the remaining ones are gone, or have no entry any more
        map_.erase(id);
    }
    groups_ = std::move(found);
    if (std::exchange(left_out_, walked.left_out) == 0 && left_out_ != 0) {
        log()->limited(LogLevel::kWarn, "{} cgroups are not served: the limit is {}", left_out_, SMC_MAX_CGROUPS);
    }
}

// Adds some of the new cgroups; the rest follows after other work of this thread.
void Cgroups::add_some() {
    constexpr std::size_t kAtOnce = 500;
    const std::size_t before = groups_.size();
    for (std::size_t i = 0; i < kAtOnce && !fresh_.empty(); i++) {
        add(fresh_.front());
        fresh_.pop_front();
    }
    on_change_();
    if (fresh_.empty() && groups_.size() > before) {
        rescan_soon();  // for cgroups that were created in them before they were watched
    } else if (!fresh_.empty()) {
        more_.expires_after(std::chrono::milliseconds(10));
        more_.async_wait([this](std::error_code error) {
            if (!error) {
                add_some();
            }
        });
    }
}

void Cgroups::add(const CgroupFound& one) {
    const std::string below = one.path.size() > root_.size() ? one.path.substr(root_.size()) : "/";
    const Group group = judged(below, std::max(one.owned_by_uid0, root_.size()) - root_.size());
    if (auto put = publish(one.id, group); !put) {
        log()->limited(LogLevel::kWarn, "cgroup {} is not served: {}", below, put.error().text());
        return;  // the next walk tries again
    }
    watch(one.path);
    groups_.emplace(one.id, group);
}

Cgroups::Group Cgroups::judged(const std::string& below, std::size_t owned_by_uid0) const {
    const auto [pod, is_pod, is_asked] = pod_of_(below.substr(0, owned_by_uid0));
    if (is_pod && policy_.may_yet_limit(pod)) {
        return {below, owned_by_uid0, 0, false, pod != nullptr ? pod->text() : ""};
    }
    const std::uint64_t rules = policy_.rules_for_cgroup(below, pod);
    const bool is_own = root_ + (below == "/" ? "" : below) == own_;
    return {below,
            owned_by_uid0,
            rules,
            !is_own && (rules != 0 || policy_.default_allow()),
            pod != nullptr ? pod->text() : "",
            pod != nullptr ? pod->has_bandwidth() : is_pod && is_asked};  // its annotations are not known yet
}

Result<void> Cgroups::publish(std::uint64_t id, const Group& group) const {
    smc_cgroup entry = map_.get(id).value_or(smc_cgroup{});  // keeps `full`
    entry.rules = group.rules;
    entry.enrolled = group.enrolled ? 1 : 0;
    entry.limited = group.limited ? 1 : 0;
    return map_.put(id, entry);
}

bool Cgroups::is_less(std::uint64_t before, std::uint64_t now) const {
    return (policy_.allowing() & before & ~now) != 0 || (policy_.denying() & now & ~before) != 0;
}

bool Cgroups::may_less(std::uint64_t id, std::uint64_t rules) const {
    const auto it = groups_.find(id);
    return it != groups_.end() &&
           (is_less(rules, it->second.rules) || (policy_.without_bypass() & it->second.rules & ~rules) != 0);
}

bool Cgroups::reconsider() {
    bool less = false, changed = false;
    for (auto& [id, group] : groups_) {
        Group now = judged(group.path, group.owned_by_uid0);
        if (now.rules != group.rules || now.enrolled != group.enrolled || now.limited != group.limited) {
            less = less || is_less(group.rules, now.rules);
            changed = true;
            if (auto put = publish(id, now); !put) {
                log()->warn("cgroup {}: its former rules still apply: {}", group.path, put.error().text());
                continue;
            }
        }
        group = std::move(now);
    }
    if (changed) {
        on_change_();
    }
    return less;
}

std::vector<std::string> Cgroups::enrolled() const {
    std::vector<std::string> paths;
    for (const auto& [id, group] : groups_) {
        if (group.enrolled) {
            paths.push_back(root_ + group.path);
        }
    }
    return paths;
}

void leave_own_cgroup_namespace() {
    struct stat own {
    }, initial{};
    if (::stat("/proc/self/ns/cgroup", &own) != 0 || ::stat("/proc/1/ns/cgroup", &initial) != 0 ||
        own.st_ino == initial.st_ino) {
        return;
    }
    const UniqueFd inits_own(::open("/proc/1/ns/cgroup", O_RDONLY | O_CLOEXEC));
    if (!inits_own || ::setns(inits_own.get(), CLONE_NEWCGROUP) != 0) {
        log()->warn("{}: paths of control groups may be wrong",
                    last_error("entering the node's cgroup namespace").text());
    }
}

Result<OwnCgroup> OwnCgroup::enter(const std::string& mount, const std::string& root) {
    const std::string current = own_path();
    if (current != "/") {
        const std::string path = mount + current;
        if (cgroup_id(path) != 0) {
            // ROOT/smc-agent is inherited from the agent that started this one
            return OwnCgroup(path, path == root + "/smc-agent" ? mount : "");
        }
    }
    const std::string path = root + "/smc-agent";
    if (::mkdir(path.c_str(), 0755) != 0 && errno != EEXIST) {
        return last_error("creating cgroup " + path);
    }
    if (!join(path)) {
        return last_error("entering cgroup " + path);
    }
    return OwnCgroup(path, mount);
}

OwnCgroup::~OwnCgroup() {
    if (!came_from_.empty() && join(came_from_)) {
        constexpr int kTries = 20;  // helper processes may be about to end; one that waits for a lock stays there
        for (int n = 0; n < kTries && ::rmdir(path_.c_str()) != 0 && errno == EBUSY; n++) {
            ::usleep(5'000);
        }
    }
}

}  // namespace smc
