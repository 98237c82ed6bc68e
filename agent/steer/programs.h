// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The BPF programs and maps, which exist once per agent. Only agent/steer/ and agent/bypass/ use libbpf.
//
// Invariants:
//   P1  Maps are pinned for readers (bpftool map dump pinned ...), and so are the links of the programs on devices:
//       however the agent dies, the answer to a request that is under way is still recognized, and the
//       reset of a leg still reaches its application. Without a heartbeat the programs send no requests, and every new
//       connection is plain TCP. The next agent replaces these programs by its own, those of clsact on devices that it
//       serves itself.
//   P2  Agents that are leaving keep their maps and programs, each for the legs that it still has. Only one agent
//       sends and answers requests: the others have no heartbeat, and no sk_lookup program hands them a SYN.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "agent/config/config.h"
#include "agent/policy/policy.h"
#include "agent/steer/chosen_buffers.h"
#include "agent/steer/loading.h"
#include "agent/steer/map.h"
#include "bpf/abi.h"
#include "os/endpoint.h"
#include "os/keepalive_terms.h"
#include "os/unique_fd.h"
#include "smc/wire/reason.h"

struct smc_gateway;
struct ring_buffer;
struct bpf_link;
struct bpf_program;

namespace smc::bpf {

// The parts of the bypass (agent/bypass/) that the gateway's programs use.
struct LocalParts {
    std::vector<std::pair<std::string, int>> maps;  // those of bpf/bypass_maps.h, by name; empty: there is no bypass
    std::uint32_t mask = 0;                         // enum smc_local: the kinds of bypass that are available
};

// This agent's number among the agents of its node, and the numbers of those that are gone (agent/upgrade/instance.h).
struct OwnInstance {
    static constexpr unsigned kMost = 8;
    unsigned number = 0;
    std::vector<unsigned> deserted{0};  // instances that are gone, and may have left pins and filters
};

// Sends libbpf's messages to the log, at level debug: it warns of probes that fail by design, and its real failures
// also come back as errors.
void log_what_libbpf_says();

// Findings of program smc_sweep about hairpins.
struct Swept {
    // Applications that changed their keepalive settings.
    std::vector<std::pair<smc_tuple, KeepaliveTerms>> keepalives;
    // Sockets of applications and legs whose other end is gone, by their cookie. The number is limited: the others come
    // with the next sweep.
    std::vector<std::pair<std::uint64_t, smc_half_open>> half_open;
};

// Sockets whose other end is on this node and that were tuned, by their cookie.
struct Tuned {
    std::vector<std::pair<std::uint64_t, smc_tuned_socket>> sockets;
    bool whole = true;  // false: there may be more
};

class Programs {
 public:
    using OnEvent = std::function<void(const smc_event&)>;

    static Result<std::unique_ptr<Programs>> load(const Config& config, const Policy& policy,
                                                  const LocalParts& local = {}, OwnInstance instance = {});
    // An Error: this kernel refuses programs that the agent needs. Leaves nothing behind.
    static Result<void> try_to_load(const Config& config);
    // Which programs are loaded, and what is lost without the others.
    [[nodiscard]] const std::vector<ProgramState>& states() const { return states_; }
    ~Programs();
    Programs(const Programs&) = delete;
    Programs& operator=(const Programs&) = delete;

    // From here on the programs see sockets of applications below the root cgroup, and the agent's in its own cgroup.
    Result<void> attach(int root_cgroup_fd, int own_cgroup_fd);
    // The programs of one network namespace; the caller attaches them.
    enum class PerNamespace : std::uint8_t { kOut, kIn, kLookup };
    [[nodiscard]] Result<UniqueFd> for_slot(PerNamespace which, std::uint32_t slot) const;

    // Removes the programs of an agent that was killed. To be called when our own are on the devices (P1).
    void replace_predecessor();

    // P2: from here on the programs only serve the existing legs. Changes pins(), so no other thread may be using it.
    Result<void> withdraw();
    [[nodiscard]] const OwnInstance& instance() const { return instance_; }

    // Readable when events wait; poll() then calls back for each.
    [[nodiscard]] int events_fd() const;
    Result<void> subscribe(OnEvent on_event);
    void poll();

    // The heartbeat. `accepting`: new connections may ask for SMC. `roce`: there is a RoCE device.
    void beat(bool accepting, bool roce) const;

    // Marks a socket of the agent's before connect() or listen().
    Result<void> mark_socket(int fd, const smc_sock& mark) const;
    // Option 254 in the SYN-ACK on a CLC socket.
    [[nodiscard]] smc_option_seen option_seen(int fd) const;

    // From here on the SYN of this request goes out without options. False: its SYN is not held any more.
    [[nodiscard]] bool let_go(const smc_tuple& request, std::uint64_t cookie) const;
    // Ends the holding back of a server's leg. Returns the packet that must be sent now; nothing: none was held.
    [[nodiscard]] std::optional<smc_request> release_leg(int fd) const;
    // For a leg, before mark_socket(): the entry in which the programs note its application's SO_SNDBUF, and that it
    // has sent urgent data. `send`: the present value. nullptr: no entry is free, or the map cannot be used.
    [[nodiscard]] std::shared_ptr<const ChosenBuffers::Lease> follow_send_buffer(std::uint32_t send) const;
    // The state of a leg's SYN.
    enum class LegSyn : std::uint8_t {
        kNotJoined,  // this host has dropped, redirected or translated it, or it has not been sent yet
        kJoined,     // smc_egress has turned it towards its application
        kTooOld,     // refused because of its time stamp (SMC_LEG_PAWS): from another port it may be accepted
        kRefused,    // refused for another reason
    };
    [[nodiscard]] LegSyn leg_syn(int fd) const;
    // Resets a server's leg that its application has not seen, and deletes its entry.
    void reset_leg(UniqueFd leg) const;
    // The state of a request; nothing: it has ended. SMC_REQUEST_HELD: its application waits, and no leg has answered.
    [[nodiscard]] std::optional<smc_request_state> state_of(const smc_tuple& request, std::uint64_t cookie) const;
    // Whether an answer is awaited that only this agent's programs know: of a request that is not answered yet, or
    // held, or the last ACK of a handshake with a SYN cookie, if that began less than `cookie_age` ago.
    [[nodiscard]] bool awaits_answers(std::chrono::milliseconds cookie_age) const;
    // Takes out what tc noted about a SYN that was handed to the listener for CLC sockets.
    [[nodiscard]] smc_inbound take_inbound(const smc_tuple& tuple) const;
    // Deletes table entries that are not needed any more. To be called once a second.
    Swept sweep();
    // How full the tables were at the last sweep().
    struct Fill {
        const char* map;
        std::size_t entries, max_entries;
    };
    [[nodiscard]] const std::vector<Fill>& fill() const { return fill_; }

    // Notes what was learnt about a server. `ttl`: of its SYN-ACK; 0: not known.
    void remember(std::uint64_t netns, const Endpoint& server, smc_knowledge knowledge, Reason reason,
                  std::chrono::seconds how_long, std::uint8_t ttl = 0) const;
    // Pauses a server for `first`; soon after another pause, for twice as long as that one. Never longer than `most`.
    void pause(std::uint64_t netns, const Endpoint& server, Reason reason, std::chrono::seconds first,
               std::chrono::seconds most) const;
    void forget(std::uint64_t netns, const Endpoint& server) const;
    [[nodiscard]] std::optional<smc_server> knows(std::uint64_t netns, const Endpoint& server) const;
    // A connection of this kind has ended on SMC, or has earned its set-up. If most of its kind are short-lived, new
    // ones are left to TCP.
    void judge(const smc_short_key& kind, bool short_lived) const;
    // The kinds of connections that are left to TCP now, because they are short-lived.
    [[nodiscard]] std::vector<smc_short_key> kinds_left_to_tcp() const;
    // Makes all checks that need no socket. Changes nothing.
    [[nodiscard]] Result<smc_query> explain(const smc_query& query) const;
    // Sum over the CPUs.
    [[nodiscard]] std::uint64_t counter(smc_decision decision) const;
    // The name of a decision ("SMC_OUT_ASKED"), from BTF.
    [[nodiscard]] static std::string decision_name(smc_decision decision);

    // Names of the attached programs.
    [[nodiscard]] std::vector<std::string> attached() const;
    // A program by its name, for tests; -1: there is none.
    [[nodiscard]] int program_fd(const std::string& name) const;
    [[nodiscard]] int map_fd(const std::string& name) const;
    // The directory where maps and links of programs are pinned.
    [[nodiscard]] const std::string& pins() const { return pinned_; }

    Map<std::uint64_t, smc_cgroup> cgroups;
    Map<std::uint64_t, smc_netns> netns;
    Map<smc_device_key, smc_device> devices;
    Map<std::uint32_t, std::uint64_t> clc_listeners;
    Map<smc_tuple, smc_hairpin> hairpins;

    // Keepalive settings of the application's socket behind a leg, as the last sweep() found them.
    [[nodiscard]] KeepaliveTerms keepalive_of(const smc_tuple& app) const;
    // Up to `most` tuned sockets.
    [[nodiscard]] Tuned tuned(std::size_t most) const;

    // Adds parts of enum smc_local that have become available.
    void allow_local(std::uint32_t what) const;
    // Notes whether a cgroup has as many connections or handshakes as it may have.
    void set_full(std::uint64_t cgroup, bool full) const;

 private:
    explicit Programs(OwnInstance instance) : instance_(std::move(instance)) {}
    Result<void> open(const Config& config, const LocalParts& local);
    Result<void> fill_tables(const Config& config, const Policy& policy, const LocalParts& local) const;
    Result<void> pin(const std::string& path);
    Result<void> pin_maps(const std::string& fresh, const std::string& path) const;
    Result<void> rename_pins();
    void unpin();
    Result<void> attach_ends();
    void try_to_run();
    [[nodiscard]] Result<void> run(const bpf_program* program) const;
    void retire_old_lookups() const;
    [[nodiscard]] std::uint64_t ktime_ns() const;

    std::shared_ptr<smc_gateway> skeleton_;
    Map<std::uint32_t, smc_heartbeat> heartbeat_;
    Map<int, smc_sock> socks_;  // by descriptor: each socket's own value
    Map<smc_tuple, smc_request> requests_;
    Map<smc_tuple, smc_inbound> inbound_;
    Map<smc_dest, smc_server> servers_;
    Map<smc_short_key, smc_short> short_lived_;
    std::shared_ptr<ChosenBuffers> chosen_;  // nullptr: map smc_chosen cannot be mapped
    std::vector<ProgramState> states_;
    ring_buffer* ring_ = nullptr;
    OnEvent on_event_;
    std::vector<std::pair<std::string, bpf_link*>> links_;
    std::vector<Fill> fill_;
    OwnInstance instance_;
    std::string pinned_;
    std::string before_;                // directory with the pins of an agent that was killed
    std::uint64_t clock_ahead_ns_ = 0;  // lead of the programs' clock, modulo 2^64; not 0 in a time namespace
};

}  // namespace smc::bpf
