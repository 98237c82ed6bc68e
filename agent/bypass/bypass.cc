// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/bypass/bypass.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "agent/bypass/pins.h"
#include "agent/log/log.h"
#include "agent/steer/pins.h"
#include "agent/steer/programs.h"
#include "agent/steer/run_program.h"
#include "smc_bypass.skel.h"

namespace smc::bypass {

namespace {

using bpf::Map;
using ConfigMap = Map<std::uint32_t, smc_bypass_config>;

constexpr std::uint32_t kLeast = 8 << 10, kMost = 256 << 10;  // limits for the bytes that a member may have under way
constexpr std::uint32_t kPerMessage = 1 << 10;                // the kernel's overhead, which it charges to no socket

// The attached program of this name; it may be an earlier agent's.
UniqueFd attached_program(const std::string& directory, const std::string& name) {
    const UniqueFd link = pinned(directory, name);
    bpf_link_info info{};
    __u32 size = sizeof info;
    return UniqueFd(link && bpf_obj_get_info_by_fd(link.get(), &info, &size) == 0 ? bpf_prog_get_fd_by_id(info.prog_id)
                                                                                  : -1);
}

}  // namespace

bool Bypass::left_behind(const std::string& pin_path) {
    return std::filesystem::exists(directory_of(pin_path));
}

void Bypass::remove_moved_aside(const std::string& pin_path) {
    bypass::remove_moved_aside(directory_of(pin_path));
}

Result<std::unique_ptr<Bypass>> Bypass::open(const std::string& pin_path, const Terms& terms,
                                             std::vector<bpf::ProgramState>& states) {
    std::unique_ptr<Bypass> bypass(new Bypass(states));
    bpf::log_what_libbpf_says();
    bypass->path_ = directory_of(pin_path);
    bypass->terms_ = terms;
    const std::string& path = bypass->path_;
    if (auto made = make_way(path); !made) {
        return made.error();
    }
    bypass->taken_over_ = std::filesystem::exists(path);
    if (auto loaded = bypass->load(bypass->taken_over_); !loaded) {
        return loaded.error();
    }
    if (!bypass->taken_over_) {
        if (auto done = bypass->attach_and_pin(); !done) {
            return done.error();
        }
    } else {
        if (auto watched = bypass->watch_root(); !watched) {
            return watched.error();
        }
        bypass->see_guards();
    }
    if (const auto done = bpf::run_program(bypass->skeleton_->progs.smc_bypass_step); !done) {
        return bypass->refused("smc_bypass_step", done.error().code);
    }
    bypass->ready_ = true;
    bypass->received_ = attached_program(path, "smc_bypass_received");
    bypass->missed_ = bypass->taken_over_ ? bypass->limits().missed : bypass->missed();
    bypass->set_limits();
    return bypass;
}

smc_member Bypass::entry(std::uint64_t cookie) const {
    return Map<std::uint64_t, smc_member>(map_fd("smc_bypass")).get(cookie).value_or(smc_member{});
}

void Bypass::set_entry(std::uint64_t cookie, const smc_member& entry) const {
    smc_member whole = entry;
    whole.generation = Map<std::uint32_t, std::uint32_t>(map_fd("smc_bypass_generation")).get(0).value_or(0);
    [[maybe_unused]] const auto put = Map<std::uint64_t, smc_member>(map_fd("smc_bypass")).put(cookie, whole);
}

void Bypass::forget(std::uint64_t cookie) const {
    Map<std::uint64_t, smc_member>(map_fd("smc_bypass")).erase(cookie);
    bpf_map_delete_elem(map_fd("smc_members"), &cookie);
}

Bypass::~Bypass() {
    if (skeleton_ == nullptr && !taken_over_) {
        return;
    }
    if (!ready_) {
        if (taken_over_) {
            move_aside(path_);  // B1: there may be members
        } else {
            bpf::remove_pins(path_);
        }
    } else if (!is_abandoned()) {
        log()->info("{} sockets stay in the bypass; the next agent of this build takes them over", state_.members);
    } else {
        bpf::remove_pins(path_);
    }
    bpf_link__destroy(enrolling_);
}

// Whether there is no member, nor will be. Another process may still be visiting sockets.
bool Bypass::is_abandoned() {
    if (has_members()) {
        return false;
    }
    const bool was_off = limits().identity.off != 0;
    set_off(true);
    if (has_members()) {
        set_off(was_off);
        return false;
    }
    return true;
}

int Bypass::map_fd(const std::string& name) const {
    return bpf_object__find_map_fd_by_name(skeleton_->obj, name.c_str());
}

std::vector<std::pair<std::string, int>> Bypass::shared_maps() const {
    std::vector<std::pair<std::string, int>> maps;
    for (const char* name : {"smc_bypass", "smc_members", "smc_paired", "smc_bypass_generation"}) {
        maps.emplace_back(name, map_fd(name));
    }
    return maps;
}

bool Bypass::has_members() const {
    const int members = map_fd("smc_members");
    return members >= 0 && !is_empty(members);
}

// The memory is shared out evenly among the members. No socket becomes a member if a share would get too small.
void Bypass::set_limits() {
    const ConfigMap configs(map_fd("smc_bypass_config"));
    auto config = configs.get(0).value_or(smc_bypass_config{});
    const std::uint64_t shares = std::max<std::uint64_t>(state_.members, 1) * 2;  // half for bytes, half for messages
    const std::uint64_t members = std::min<std::uint64_t>(terms_.memory / kLeast / 2, SMC_MAX_MEMBERS);
    const auto before = config;
    config.limit = static_cast<__u32>(std::clamp<std::uint64_t>(terms_.memory / shares, kLeast, kMost));
    config.messages = config.limit / kPerMessage;
    config.max_members = static_cast<__u32>(members);
    config.max_cgroup_members = static_cast<__u32>(members * terms_.cgroup_share / 100);
    if (config.policy != terms_.policy) {
        config.policy = terms_.policy;
        revoke();
    }
    if (config.limit != before.limit || config.max_members != before.max_members ||
        config.max_cgroup_members != before.max_cgroup_members || config.policy != before.policy) {
        [[maybe_unused]] const auto put = configs.put(0, config);
    }
}

std::vector<std::uint64_t> Bypass::move_members() {
    skeleton_->bss->smc_inexact = 0;
    if (const auto missed = this->missed(); missed > missed_) {
        if (has_members()) {
            log()->warn(
                "{} receives were not counted, because the kernel skipped the program (recursion): all connections "
                "return from the bypass to TCP",
                missed - missed_);
        }
        note_missed(missed);
        skeleton_->bss->smc_inexact = 1;
        revoke();
    }
    if (const auto done = bpf::run_program(skeleton_->progs.smc_bypass_step); !done) {
        log()->warn("the bypass: no socket joins or leaves: smc_bypass_step failed: {}", done.error().text());
        return {};
    }
    state_ = skeleton_->bss->smc_step_result;
    totals_.members += state_.joined;
    totals_.bytes += state_.moved;
    take_out();
    set_limits();
    const Map<std::uint64_t, std::uint32_t> wanted(map_fd("smc_bypass_spaces"));
    std::vector<std::uint64_t> namespaces = state_.enrol != 0 ? wanted.keys() : std::vector<std::uint64_t>();
    std::ranges::for_each(namespaces, [&](std::uint64_t cookie) { wanted.erase(cookie); });
    return namespaces;
}

// The kernel skips a program that would interrupt a run of itself on the same CPU: that receive is not counted.
std::uint64_t Bypass::missed() const {
    bpf_prog_info info{};
    __u32 size = sizeof info;
    return received_ && bpf_obj_get_info_by_fd(received_.get(), &info, &size) == 0 ? info.recursion_misses : 0;
}

// Noted in a map, because a receive may be missed while no agent runs.
void Bypass::note_missed(std::uint64_t missed) {
    missed_ = missed;
    const ConfigMap configs(map_fd("smc_bypass_config"));
    if (auto config = configs.get(0)) {
        config->missed = missed;
        [[maybe_unused]] const auto put = configs.put(0, *config);
    }
}

// B2: smc_bypass_step has found these sockets drained.
void Bypass::take_out() const {
    const int gone = map_fd("smc_bypass_gone"), members = map_fd("smc_members");
    std::uint64_t cookie = 0;
    while (bpf_map_lookup_and_delete_elem(gone, nullptr, &cookie) == 0) {
        bpf_map_delete_elem(members, &cookie);
    }
}

bool Bypass::knows_waiters() const {
    return skeleton_->bss->smc_step_result.knows_waiters != 0;
}

UniqueFd Bypass::iterator() const {
    return UniqueFd(bpf_iter_create(bpf_link__fd(enrolling_)));
}

void Bypass::exclude(std::uint64_t cookie, smc_habit habit) const {
    skeleton_->bss->smc_barred = {cookie, static_cast<__u32>(habit), 0};
    if (const auto done = bpf::run_program(skeleton_->progs.smc_bypass_bar); !done) {
        log()->warn("the bypass: socket {} does not leave: {}", cookie, done.error().text());
    }
}

void Bypass::revoke() {
    const Map<std::uint32_t, std::uint32_t> generations(map_fd("smc_bypass_generation"));
    [[maybe_unused]] const auto put = generations.put(0, generations.get(0).value_or(0) + 1);
}

bool Bypass::any_of(const std::function<bool(const smc_member&)>& is) const {
    const auto generation = Map<std::uint32_t, std::uint32_t>(map_fd("smc_bypass_generation")).get(0).value_or(0);
    const Map<std::uint64_t, smc_member> all(map_fd("smc_bypass"));
    return std::ranges::any_of(all.keys(), [&](std::uint64_t cookie) {
        const auto member = all.get(cookie);
        return member && member->generation == generation && member->state <= SMC_MEMBER_MEMBER && is(*member);
    });
}

void Bypass::set_off(bool off) {
    const ConfigMap configs(map_fd("smc_bypass_config"));
    if (auto config = configs.get(0)) {
        config->identity.off = off ? 1 : 0;
        [[maybe_unused]] const auto put = configs.put(0, *config);
    }
}

smc_bypass_config Bypass::limits() const {
    return ConfigMap(map_fd("smc_bypass_config")).get(0).value_or(smc_bypass_config{});
}

std::vector<std::pair<std::uint64_t, smc_bypass_cgroup>> Bypass::cgroups() const {
    std::vector<std::pair<std::uint64_t, smc_bypass_cgroup>> found;
    const Map<std::uint64_t, smc_bypass_cgroup> all(map_fd("smc_bypass_cgroups"));
    for (const std::uint64_t id : all.keys()) {
        if (const auto one = all.get(id); one && one->members != 0) {
            found.emplace_back(id, *one);
        }
    }
    return found;
}

std::vector<Bypass::Listed> Bypass::members(std::size_t most) const {
    std::vector<Listed> found;
    const Map<std::uint64_t, smc_member> all(map_fd("smc_bypass"));
    for (const std::uint64_t cookie : all.keys()) {
        const auto member = all.get(cookie);
        if (!member || member->state != SMC_MEMBER_MEMBER) {
            continue;
        }
        const auto peer = all.get(member->peer);
        found.push_back({cookie, *member, peer ? peer->consumed : 0});
        if (found.size() == most) {
            break;
        }
    }
    return found;
}

}  // namespace smc::bypass
