// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/bypass/pins.h"

#include <bpf/bpf.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

#include "agent/steer/pins.h"
#include "bpf/bypass_abi.h"
#include "smc_bypass.skel.h"
#include "smc_guards.skel.h"

namespace smc::bypass {

namespace {

// The entry of map smc_bypass_config in a pin directory. Its size may be another one if another build has pinned it.
class ForeignConfig {
 public:
    explicit ForeignConfig(const std::string& directory) : map_(pinned(directory, "smc_bypass_config")) {
        bpf_map_info info{};
        __u32 size = sizeof info;
        if (!map_ || bpf_obj_get_info_by_fd(map_.get(), &info, &size) != 0 || info.value_size < sizeof identity_) {
            return;
        }
        value_.resize(info.value_size);
        if (bpf_map_lookup_elem(map_.get(), &kKey, value_.data()) == 0) {
            std::memcpy(&identity_, value_.data(), sizeof identity_);
        }
    }
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
};

}  // namespace

void remove_moved_aside(const std::string& directory) {
    std::error_code ignored;
    const std::filesystem::path own(directory);
    std::vector<std::string> idle;
    for (const auto& entry : std::filesystem::directory_iterator(own.parent_path(), ignored)) {
        if (entry.path().filename().string().starts_with(own.filename().string() + "-")) {
            const UniqueFd members = pinned(entry.path().string(), "smc_members");
            if (!members || is_empty(members.get())) {
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
    return bpf_map_get_next_key(members_fd, nullptr, &key) != 0;
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
    if (std::filesystem::exists(directory) && ForeignConfig(directory).build() != build()) {
        move_aside(directory);
    }
    remove_moved_aside(directory);
    return {};
}

void move_aside(const std::string& directory) {
    ForeignConfig config(directory);
    if (config.build() == 0) {
        bpf::remove_pins(directory);
        return;
    }
    config.switch_off();
    std::string aside = fmt::format("{}-{:016x}", directory, config.build());
    while (std::filesystem::exists(aside)) {
        aside += "-";  // another directory of that build, which may still have members
    }
    (void)::rename(directory.c_str(), aside.c_str());
}

}  // namespace smc::bypass
