// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/steer/pins.h"

#include <sys/mount.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "os/mounts.h"

namespace smc::bpf {

namespace {

constexpr long kBpfFsMagic = 0xcafe4a11;
constexpr const char* kBpfFs = "/sys/fs/bpf";

bool is_bpffs(const std::string& path) {
    struct statfs status {};
    return ::statfs(path.c_str(), &status) == 0 && status.f_type == kBpfFsMagic;
}

bool is_ours(const std::string& name) {
    return name.starts_with("smc_");
}

}  // namespace

Result<void> make_pin_directory(const std::string& path) {
    const auto parent = std::filesystem::path(path).parent_path().string();
    if (path.starts_with(std::string(kBpfFs) + "/") && !is_bpffs(kBpfFs)) {
        if (!os::sees_the_nodes_mounts()) {
            return Error{
                ENODEV,
                "pinning maps: the node has no bpf file system on /sys/fs/bpf, and one that the agent mounts in "
                "its own mount namespace would end with it (on the node: mount -t bpf bpf /sys/fs/bpf)"};
        }
        if (::mount("bpf", kBpfFs, "bpf", 0, nullptr) != 0) {
            return last_error("mounting a bpf file system on /sys/fs/bpf");
        }
    }
    std::error_code failure;
    std::filesystem::create_directories(parent, failure);
    if (failure || !is_bpffs(parent)) {
        return Error{failure ? failure.value() : EINVAL, "pinning maps: " + parent + " is not on a bpf file system"};
    }
    return {};
}

Result<LockFile> lock_pins(const std::string& path) {
    if (auto made = make_pin_directory(path); !made) {
        return made.error();
    }
    auto lock = LockFile::take_directory(path + "-lock");
    if (!lock && lock.error().code == EBUSY) {
        return Error{EBUSY,
                     "taking bpf.pin_path " + path +
                         " (an agent with another control.socket has it: stop that one, or choose another path)"};
    }
    return lock;
}

void remove_pins(const std::string& path) {
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(path, ignored)) {
        if (is_ours(entry.path().filename().string())) {
            ::unlink(entry.path().c_str());
        }
    }
    ::rmdir(path.c_str());
}

Result<void> has_only_ours(const std::string& path) {
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(path, ignored)) {
        const std::string name = entry.path().filename().string();
        if (!is_ours(name)) {
            return Error{EEXIST, "pinning maps: " + path + " holds " + name + ", which no smc-agent created"};
        }
    }
    return {};
}

bool is_to_be_pinned(const std::string& map_name) {
    return is_ours(map_name) && map_name.find('.') == std::string::npos;
}

}  // namespace smc::bpf
