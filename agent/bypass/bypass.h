// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The bypass: pairs of sockets of this node that exchange their bytes past TCP (bpf/bypass_abi.h). The programs decide
// about each message; this class decides which sockets may be members, and takes out those that may not any more.
//
// Invariants:
//   B1  Maps and links of programs are pinned beside the gateway's. They outlive the agent, because a socket whose map
//       is gone loses what is queued in it. The next agent of the same build takes them over with the pairs in them; an
//       agent of another build switches them off, and removes the pins when the last of these sockets is closed.
//   B2  A socket is taken out of its map only when what was redirected to it is consumed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "agent/steer/loading.h"
#include "bpf/bypass_abi.h"
#include "os/result.h"
#include "os/unique_fd.h"

struct smc_bypass;
struct bpf_link;
struct bpf_map;
struct bpf_program;

namespace smc::bypass {

// Limits of the bypass. Half of the memory is for the bytes that members have under way, half for the overhead of their
// messages, 1 KiB each.
struct Terms {
    std::uint64_t memory = 0;    // bytes, of all members together
    unsigned cgroup_share = 75;  // percent of all members that one cgroup may have
    std::uint64_t policy = 0;    // hash of the settings; pairs made under others are revoked
    int cgroup_fd = -1;          // the cgroup below which the applications are
};

class Bypass {
 public:
    // Loads the programs, or takes over those of an earlier agent. An Error: this kernel cannot run them. Adds each
    // program that is loaded or refused to `states`, which must outlive this object.
    static Result<std::unique_ptr<Bypass>> open(const std::string& pin_path, const Terms& terms,
                                                std::vector<bpf::ProgramState>& states);
    // Whether an earlier agent has left pins there.
    static bool left_behind(const std::string& pin_path);
    // Removes the pins of other builds whose last member is gone.
    static void remove_moved_aside(const std::string& pin_path);
    // Removes the pins, unless there may be members.
    ~Bypass();
    Bypass(const Bypass&) = delete;
    Bypass& operator=(const Bypass&) = delete;

    // The maps that the gateway's programs use, too.
    [[nodiscard]] std::vector<std::pair<std::string, int>> shared_maps() const;

    // To be called four times a second. Returns the cookies of network namespaces in which iterator() is to be read.
    std::vector<std::uint64_t> move_members();
    // Output of the last move_members().
    [[nodiscard]] const smc_bypass_step& state() const { return state_; }
    // Whether the programs recognise waiters in epoll and poll() (bpf/bypass_wakes.h).
    [[nodiscard]] bool knows_waiters() const;
    // Since the start of this agent.
    struct Totals {
        std::uint64_t members = 0;  // sockets that became members
        std::uint64_t bytes = 0;    // past TCP, each of them sent and received on this node
    };
    [[nodiscard]] const Totals& totals() const { return totals_; }
    [[nodiscard]] smc_bypass_config limits() const;
    // Whether map smc_members has sockets.
    [[nodiscard]] bool has_members() const;
    // Puts proven sockets of the calling thread's network namespace into map smc_members while it is read to its end
    // (loop::LockHelper); the next move_members() makes them members. Empty, with errno: the kernel refuses it.
    [[nodiscard]] UniqueFd iterator() const;

    // Makes a socket leave, for a reason of enum smc_habit.
    void exclude(std::uint64_t cookie, smc_habit habit) const;
    // Whether this is true of any socket that is a member, or may become one: sockets of revoked pairs do not count.
    [[nodiscard]] bool any_of(const std::function<bool(const smc_member&)>& is) const;
    // Makes all present pairs leave, within two calls of move_members() after their ends have read what is queued.
    void revoke();
    // Off: no socket becomes a member any more, and present members leave.
    void set_off(bool off);

    struct Listed {
        std::uint64_t cookie;
        smc_member member;
        std::uint64_t sent;  // bytes that its peer has received
    };
    // Cgroups that have members, by their IDs.
    [[nodiscard]] std::vector<std::pair<std::uint64_t, smc_bypass_cgroup>> cgroups() const;
    // Up to `most` members.
    [[nodiscard]] std::vector<Listed> members(std::size_t most) const;
    // Whether a guard (bpf/smc_guards.bpf.c) is attached, by its program's name.
    [[nodiscard]] bool has_guard(const std::string& name) const;

    // For the probe: entries of sockets that the gateway's programs have not seen.
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
    [[nodiscard]] Result<void> pin(const bpf_program* program, bpf_link* link, const std::string& name) const;
    [[nodiscard]] Result<void> watch_root() const;
    void set_limits();
    void take_out() const;
    [[nodiscard]] std::uint64_t missed() const;
    void note_missed(std::uint64_t missed);
    [[nodiscard]] bool is_abandoned();

    std::vector<bpf::ProgramState>& states_;
    std::shared_ptr<::smc_bypass> skeleton_;
    bpf_link* enrolling_ = nullptr;
    std::string path_;
    Terms terms_;
    bool taken_over_ = false;
    bool ready_ = false;  // all programs are in place
    UniqueFd received_;   // the program that counts receives
    std::uint64_t missed_ = 0;
    smc_bypass_step state_{};
    Totals totals_;
};

}  // namespace smc::bypass
