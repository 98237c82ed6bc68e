// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/netns/cgroups.h"

#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
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

Cgroups::Cgroups(asio::io_context& io, std::string root, std::string own, const Policy& policy,
                 bpf::Map<std::uint64_t, smc_cgroup> map, std::function<void()> on_change)
    : root_(std::move(root)),
      own_(std::move(own)),
      policy_(policy),
      map_(map),
      on_change_(std::move(on_change)),
      inotify_(io) {}

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
        rescan();
        on_change_();
        listen();
    });
}

void Cgroups::rescan() {
    namespace fs = std::filesystem;
    std::map<std::uint64_t, Group> found;
    const auto visit = [&](const std::string& path) {
        const std::uint64_t id = cgroup_id(path);
        if (id == 0 || found.size() >= SMC_MAX_CGROUPS) {
            return;
        }
        const std::string below = path.size() > root_.size() ? path.substr(root_.size()) : "/";
        const std::uint64_t rules = policy_.rules_for_cgroup(below);
        const bool enrolled = path != own_ && (rules != 0 || policy_.default_allow());
        found[id] = {below, rules, enrolled};
        if (!groups_.contains(id)) {
            // a watch that cannot be had costs only the immediacy: programs ask for unknown cgroups
            ::inotify_add_watch(inotify_.native_handle(), path.c_str(), IN_CREATE | IN_DELETE);
            ::inotify_add_watch(inotify_.native_handle(), (path + "/cgroup.events").c_str(), IN_MODIFY);
        }
    };
    // By hand: a cgroup that vanishes during the walk must cost only itself.
    std::vector<std::string> left{root_};
    while (!left.empty()) {
        const std::string path = std::move(left.back());
        left.pop_back();
        visit(path);
        std::error_code gone;
        for (auto it = fs::directory_iterator(path, gone); !gone && it != fs::directory_iterator();
             it.increment(gone)) {
            std::error_code ignored;
            if (it->is_directory(ignored)) {
                left.push_back(it->path().string());
            }
        }
    }
    for (const auto& [id, group] : groups_) {
        if (!found.contains(id)) {
            map_.erase(id);
        }
    }
    for (const auto& [id, group] : found) {
        if (!groups_.contains(id)) {
            if (auto put = map_.put(id, {group.rules, group.enrolled ? 1U : 0U, 0}); !put) {
                log()->warn("cgroup {} is not served: {}", group.path, put.error().text());
            }
        }
    }
    groups_ = std::move(found);
}

std::vector<int> Cgroups::enrolled_pids() const {
    std::vector<int> pids;
    for (const auto& [id, group] : groups_) {
        if (!group.enrolled) {
            continue;
        }
        std::ifstream procs(root_ + group.path + "/cgroup.procs");
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
