// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/netns/cgroups.h"

#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <deque>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "agent/log/log.h"

namespace smc {

namespace {

std::uint64_t cgroup_id(const std::string& path) {
    struct stat status {};
    return ::stat(path.c_str(), &status) == 0 ? status.st_ino : 0;
}

bool join(const std::string& cgroup) {
    std::ofstream procs(cgroup + "/cgroup.procs");
    procs << ::getpid() << std::flush;
    return procs.good();
}

// What cannot be opened for want of these may be there all the same.
bool is_used_up(int error) {
    return error == EMFILE || error == ENFILE || error == ENOMEM;
}

using Found = std::vector<std::pair<std::uint64_t, std::string>>;  // id and path

// The tree, near the root first. By hand: a cgroup that vanishes during the walk must cost only itself.
Result<Found> walk(const std::string& root) {
    namespace fs = std::filesystem;
    Found found;
    std::deque<std::string> left{root};
    for (; !left.empty(); left.pop_front()) {
        const std::string& path = left.front();
        if (const std::uint64_t id = cgroup_id(path); id != 0) {
            found.emplace_back(id, path);
        }
        std::error_code failed;
        for (auto it = fs::directory_iterator(path, failed); !failed && it != fs::directory_iterator();
             it.increment(failed)) {
            std::error_code ignored;
            if (it->is_directory(ignored)) {
                left.push_back(it->path().string());
            }
        }
        if (is_used_up(failed.value())) {
            return Error{failed.value(), "reading " + path};
        }
    }
    return found;
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
    std::ifstream mounts("/proc/self/mounts");
    for (std::string line; std::getline(mounts, line);) {
        std::istringstream words(line);
        std::string device, place, type;
        words >> device >> place >> type;
        if (type == "cgroup2") {
            return place;
        }
    }
    return Error{ENOENT, "finding the cgroup v2 mount"};
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
                 bpf::Map<std::uint64_t, smc_cgroup> map, std::function<void()> on_change)
    : root_(std::move(root)),
      own_(std::move(own)),
      policy_(policy),
      map_(map),
      on_change_(std::move(on_change)),
      inotify_(io),
      soon_(io) {}

Result<void> Cgroups::start() {
    const int fd = ::inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (fd < 0) {
        return last_error("watching cgroups");
    }
    inotify_.assign(fd);
    rescan();
    listen();
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

void Cgroups::rescan_soon() {
    constexpr auto kSoon = std::chrono::milliseconds(10);
    constexpr int kRest = 9;  // so many times what the last walk took: a tenth of the thread at most
    if (std::exchange(soon_pending_, true)) {
        return;
    }
    soon_.expires_after(kSoon + last_walk_ * kRest);
    soon_.async_wait([this](std::error_code error) {
        soon_pending_ = false;
        if (!error) {
            rescan();
            on_change_();
        }
    });
}

void Cgroups::watch(const std::string& path) {
    const int descriptor = inotify_.native_handle();
    // a watch that cannot be had costs only the immediacy: programs ask for unknown cgroups
    ::inotify_add_watch(descriptor, path.c_str(), IN_CREATE | IN_DELETE);
    ::inotify_add_watch(descriptor, (path + "/cgroup.events").c_str(), IN_MODIFY);
}

void Cgroups::rescan() {
    const auto began = std::chrono::steady_clock::now();
    std::map<std::uint64_t, Group> found;
    Found fresh;
    const auto describe = [&](const std::string& path) {
        const std::string below = path.size() > root_.size() ? path.substr(root_.size()) : "/";
        const std::uint64_t rules = policy_.rules_for_cgroup(below);
        return Group{below, rules, path != own_ && (rules != 0 || policy_.default_allow())};
    };
    const auto there = walk(root_);
    if (!there) {
        if (!std::exchange(is_cut_short_, true)) {
            log()->warn("cgroups are not looked for until that is over: {}", there.error().text());
        }
        last_walk_ = std::chrono::steady_clock::now() - began;
        return rescan_soon();
    }
    is_cut_short_ = false;
    for (const auto& [id, path] : *there) {
        if (groups_.contains(id)) {
            found[id] = describe(path);
        } else {
            fresh.emplace_back(id, path);
        }
    }
    for (const auto& [id, group] : groups_) {
        if (!found.contains(id)) {
            map_.erase(id);
        }
    }
    const std::size_t left_out_before = std::exchange(left_out_, 0);
    for (const auto& [id, path] : fresh) {
        if (found.size() >= SMC_MAX_CGROUPS) {
            left_out_++;
            continue;
        }
        const Group group = describe(path);
        if (auto put = map_.put(id, {group.rules, group.enrolled ? 1U : 0U, 0}); !put) {
            log()->warn("cgroup {} is not served: {}", group.path, put.error().text());
            continue;  // the next walk tries it again
        }
        watch(path);
        found[id] = group;
    }
    if (left_out_ != 0 && left_out_before == 0) {
        log()->warn("{} cgroups are not served: there are more than {}", left_out_, SMC_MAX_CGROUPS);
    }
    groups_ = std::move(found);
    last_walk_ = std::chrono::steady_clock::now() - began;
}

std::optional<std::vector<int>> Cgroups::enrolled_pids() const {
    std::vector<int> pids;
    for (const auto& [id, group] : groups_) {
        if (!group.enrolled) {
            continue;
        }
        errno = 0;
        std::ifstream procs(root_ + group.path + "/cgroup.procs");
        if (!procs.is_open() && is_used_up(errno)) {
            return std::nullopt;  // else it is gone
        }
        for (int pid = 0; procs >> pid;) {
            pids.push_back(pid);
        }
    }
    return pids;
}

Result<OwnCgroup> OwnCgroup::enter(const std::string& mount, const std::string& root) {
    const std::string current = own_path();
    if (current != "/") {
        const std::string path = mount + current;
        if (cgroup_id(path) != 0) {
            return OwnCgroup(path, "");
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
        ::rmdir(path_.c_str());
    }
}

}  // namespace smc
