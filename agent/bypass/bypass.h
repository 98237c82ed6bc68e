// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The bypass: pairs of sockets of this node that exchange their bytes past TCP (bpf/bypass_abi.h). The programs decide
// about each message; this decides who may, and takes out who may not any more.
//
// Invariants:
//   B1  Maps, and the places of the programs, are pinned beside the gateway's. They outlive the agent, because a socket
//       whose map is gone loses what is queued in it. The next agent of the same build takes them over with the pairs
//       in them; one of another build switches them off, and removes the pins when the last of these sockets is closed.
//   B2  A socket is taken out of its map only when what was redirected to it is consumed.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "agent/steer/loading.h"
#include "agent/steer/map.h"
#include "bpf/bypass_abi.h"
#include "os/result.h"
#include "os/unique_fd.h"

struct smc_bypass;
struct bpf_link;
struct bpf_map;
struct bpf_program;

namespace smc::bypass {

// Who may have how much. What is queued for a pair's ends is bounded: by bytes, and by messages of 1 KiB each.
struct Terms {
    std::uint64_t memory = 0;    // bytes, of all
    unsigned cgroup_share = 75;  // percent of the places that one cgroup may have
    std::uint64_t policy = 0;    // a hash: pairs of another one are revoked
    int cgroup_fd = -1;          // below which its sockets are
};

class Bypass {
 public:
    // Loads the programs, or takes over those of an agent that was here before. An Error: this kernel cannot.
    // `states` is told of each program that is loaded or refused; it outlives this.
    static Result<std::unique_ptr<Bypass>> open(const std::string& pin_path, const Terms& terms,
                                                std::vector<bpf::ProgramState>& states);
    // Something is pinned there.
    static bool left_behind(const std::string& pin_path);
    // What other builds have pinned goes when the last of their members has.
    static void remove_retired(const std::string& pin_path);
    // What is pinned stays if anybody is a member.
    ~Bypass();
    Bypass(const Bypass&) = delete;
    Bypass& operator=(const Bypass&) = delete;

    // Those that the gateway's programs use, too.
    [[nodiscard]] std::vector<std::pair<std::string, int>> shared_maps() const;

    // To be called four times a second. Who has to be enrolled afterwards: the cookies of their network namespaces.
    std::vector<std::uint64_t> turn();
    // What it said, last.
    [[nodiscard]] const smc_bypass_turn& state() const { return state_; }
    // Since the start of this agent.
    struct Totals {
        std::uint64_t members = 0;  // sockets that became one
        std::uint64_t bytes = 0;    // past TCP, each of them sent and received on this node
    };
    [[nodiscard]] const Totals& totals() const { return totals_; }
    [[nodiscard]] smc_bypass_config limits() const;
    // Sockets are in the map.
    [[nodiscard]] bool has_members() const;
    // Walks the sockets of the calling thread's network namespace. May take milliseconds.
    void enrol() const;

    // This one leaves, for a reason of enum smc_habit.
    void bar(std::uint64_t cookie, smc_habit habit) const;
    // All that are pairs now leave, within two turns after their ends have read what they have.
    void revoke();
    // Off: no socket becomes a member any more, and those that are leave.
    void set_off(bool off);

    struct Listed {
        std::uint64_t cookie;
        smc_member member;
        std::uint64_t sent;  // bytes that its peer has received
    };
    // Cgroups that have members, by their IDs.
    [[nodiscard]] std::vector<std::pair<std::uint64_t, smc_bypass_cgroup>> cgroups() const;
    // No more than so many that are members.
    [[nodiscard]] std::vector<Listed> members(std::size_t most) const;
    // One of the guards (bpf/smc_guards.bpf.c), by its program's name: this kernel has taken it.
    [[nodiscard]] bool has_guard(const std::string& name) const;

    // For the probe: what is known of a socket that the programs have not met.
    [[nodiscard]] smc_member entry(std::uint64_t cookie) const;
    void set_entry(std::uint64_t cookie, const smc_member& entry) const;
    void forget(std::uint64_t cookie) const;

    [[nodiscard]] const std::string& pins() const { return path_; }
    [[nodiscard]] bool taken_over() const { return taken_over_; }

 private:
    explicit Bypass(std::vector<bpf::ProgramState>& states) : states_(states) {}
    [[nodiscard]] int map_fd(const std::string& name) const;
    Result<void> load(bool take_over);
    Result<void> attach_and_pin() const;
    [[nodiscard]] Error refused(const std::string& program, int error) const;
    void set_guards() const;
    void see_guards() const;
    [[nodiscard]] Result<void> pin(const bpf_program* program, bpf_link* link) const;
    void set_limits();
    void take_out() const;
    [[nodiscard]] std::uint64_t missed() const;

    std::vector<bpf::ProgramState>& states_;
    std::shared_ptr<::smc_bypass> skeleton_;
    bpf_link* enrolling_ = nullptr;
    std::string path_;
    Terms terms_;
    bool taken_over_ = false;
    bool ready_ = false;  // it is whole
    UniqueFd received_;   // the program that counts receives
    std::uint64_t missed_ = 0;
    smc_bypass_turn state_{};
    Totals totals_;
};

}  // namespace smc::bypass
