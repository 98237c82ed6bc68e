// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/bypass/pins.h"

#include <bpf/bpf.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

#include "agent/steer/pins.h"
#include "agent/steer/run_program.h"
#include "bpf/bypass_abi.h"
#include "smc_bypass.skel.h"
#include "smc_guards.skel.h"

namespace smc::bypass {

namespace {

// The entry of map smc_bypass_config in a pin directory. Its size may be another one if another build has pinned it.
class ForeignConfig {
 public:
    explicit ForeignConfig(const std::string& directory) : map_(pinned(directory, "smc_bypass_config")) {
        if (!map_ && errno == ENOENT) {
            known_ = true;  // it was not pinned yet
        }
        bpf_map_info info{};
        __u32 size = sizeof info;
        if (!map_ || bpf_obj_get_info_by_fd(map_.get(), &info, &size) != 0 || info.value_size < sizeof identity_) {
            return;
        }
        value_.resize(info.value_size);
        if (bpf_map_lookup_elem(map_.get(), &kKey, value_.data()) == 0) {
            std::memcpy(&identity_, value_.data(), sizeof identity_);
            known_ = true;
        }
    }
    // False: it could not be read, so nothing is known of members.
    [[nodiscard]] bool is_known() const { return known_; }
    // 0: the programs were never all in place, so there never was a member.
    [[nodiscard]] std::uint64_t build() const { return identity_.build; }
    void switch_off() {
        if (value_.empty()) {
            return;
        }
        identity_.off = 1;
        std::memcpy(value_.data(), &identity_, sizeof identity_);
        bpf_map_update_elem(map_.get(), &kKey, value_.data(), BPF_ANY);
    }

 private:
    static constexpr std::uint32_t kKey = 0;
    UniqueFd map_;
    std::vector<char> value_;
    smc_bypass_identity identity_{};
    bool known_ = false;
};

// Moves the members of a bypass that was moved aside towards its end: runs its smc_bypass_step, and takes out the
// sockets that this has found drained (B2). Builds before 0.7.0 did not pin that program: their members stay until they
// close.
void step(const std::string& directory, int members) {
    const UniqueFd program = pinned(directory, "smc_bypass_step"), gone = pinned(directory, "smc_bypass_gone");
    bpf_prog_info info{};
    __u32 size = sizeof info;
    if (!program || !gone || bpf_obj_get_info_by_fd(program.get(), &info, &size) != 0 ||
        !bpf::run_program(program.get(), static_cast<bpf_prog_type>(info.type))) {
        return;
    }
    std::uint64_t cookie = 0;
    while (bpf_map_lookup_and_delete_elem(gone.get(), nullptr, &cookie) == 0) {
        bpf_map_delete_elem(members, &cookie);
    }
}

// Whether a bypass that was moved aside has no members any more. If its map cannot be opened now (EMFILE, for example),
// it may have some.
bool is_done(const std::string& directory) {
    const UniqueFd members = pinned(directory, "smc_members");
    if (!members) {
        return errno == ENOENT;
    }
    step(directory, members.get());
    return is_empty(members.get());
}

}  // namespace

void remove_moved_aside(const std::string& directory) {
    std::error_code ignored;
    const std::filesystem::path own(directory);
    std::vector<std::string> idle;
    for (const auto& entry : std::filesystem::directory_iterator(own.parent_path(), ignored)) {
        if (entry.path().filename().string().starts_with(own.filename().string() + "-")) {
            if (is_done(entry.path().string())) {
                idle.push_back(entry.path().string());
            }
        }
    }
    std::ranges::for_each(idle, bpf::remove_pins);
}

std::string directory_of(const std::string& pin_path) {
    return pin_path + "-bypass";
}

UniqueFd pinned(const std::string& directory, const std::string& name) {
    return UniqueFd(bpf_obj_get((directory + "/" + name).c_str()));
}

bool is_empty(int members_fd) {
    std::uint64_t key = 0;
    return bpf_map_get_next_key(members_fd, nullptr, &key) != 0 && errno == ENOENT;
}

std::uint64_t build() {
    std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
    const auto add = [&](const void* elf, std::size_t size) {
        const auto* bytes = static_cast<const unsigned char*>(elf);
        for (std::size_t i = 0; i < size; i++) {
            hash = (hash ^ bytes[i]) * 0x100000001b3;
        }
    };
    std::size_t size = 0;
    const void* elf = smc_bypass__elf_bytes(&size);
    add(elf, size);
    elf = smc_guards__elf_bytes(&size);
    add(elf, size);
    return hash;
}

Result<void> make_way(const std::string& directory) {
    if (auto made = bpf::make_pin_directory(directory); !made) {
        return made;
    }
    if (auto good = bpf::has_only_ours(directory); !good) {
        ForeignConfig(directory).switch_off();  // there may be members, which no agent would take out any more
        return good;
    }
    if (std::filesystem::exists(directory)) {
        const ForeignConfig found(directory);
        if (!found.is_known()) {
            return Error{EIO, "reading " + directory + "/smc_bypass_config, which another agent has pinned"};
        }
        if (found.build() != build()) {
            move_aside(directory);
        }
    }
    remove_moved_aside(directory);
    return {};
}

void move_aside(const std::string& directory) {
    ForeignConfig config(directory);
    if (config.is_known() && config.build() == 0) {
        bpf::remove_pins(directory);
        return;
    }
    config.switch_off();
    std::string aside = fmt::format("{}-{:016x}", directory, config.build());
    while (std::filesystem::exists(aside)) {
        aside += "-";  // another directory of that build, which may still have members
    }
    if (::rename(directory.c_str(), aside.c_str()) == 0) {
        remove_moved_aside(directory);  // members that have nothing queued leave: it takes two steps
        remove_moved_aside(directory);
    }
}

}  // namespace smc::bypass
