// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The BPF programs and maps, which exist once per agent. With hooks.h the only user of libbpf.
//
// Invariant:
//   P1  Maps are pinned, for the reader (bpftool map dump pinned ...). So are the programs' places on devices: when the
//       agent dies in whatever way, a request that is under way is still recognized when it is answered, and the reset
//       of a leg still finds the application. Without a heartbeat they ask nothing, and every new connection is plain
//       TCP. The next agent puts its own in their place.
//   P2  Agents that are leaving keep their maps and programs, each for the legs that it still has. Only one asks and
//       is asked: the others have no heartbeat, and hand no SYN to themselves.
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

// What there is of the bypass (agent/bypass/): maps of it that the gateway's programs use, too.
struct LocalParts {
    std::vector<std::pair<std::string, int>> maps;  // by name, those of bpf/bypass_maps.h; empty: there is none
    std::uint32_t mask = 0;                         // of enum smc_local: what of it can be had
};

// Which of the agents of this node it is (agent/upgrade/instance.h).
struct OwnInstance {
    static constexpr unsigned kMost = 8;
    unsigned number = 0;
    std::vector<unsigned> deserted{0};  // numbers under which only agents have left something that are gone
};

// Its messages go to the log, at level debug: it warns of probes that fail by design, and its errors come back.
void log_what_libbpf_says();

// What the programs found when they went through the hairpins.
struct Swept {
    // Applications that changed what they want of keepalive.
    std::vector<std::pair<smc_tuple, KeepaliveTerms>> keepalives;
    // Applications and legs that wait for their other end, which is gone; by their cookie. Some of them: the others are
    // told the next time.
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
    // Whether this kernel takes them. Leaves nothing behind.
    static Result<void> try_to_load(const Config& config);
    // What has become of each program.
    [[nodiscard]] const std::vector<ProgramState>& states() const { return states_; }
    ~Programs();
    Programs(const Programs&) = delete;
    Programs& operator=(const Programs&) = delete;

    // Applications below `root` are watched from here on; `own` holds the agent's own sockets.
    Result<void> attach(int root_cgroup_fd, int own_cgroup_fd);
    // The programs of one network namespace; the caller attaches them.
    enum class Stamped : std::uint8_t { kOut, kIn, kLookup };
    [[nodiscard]] Result<UniqueFd> stamped(Stamped which, std::uint32_t slot) const;

    // The programs of an agent that was killed are still on the devices; now ours are, too, and those can go (P1).
    void replace_predecessor();

    // P2: from here on for the legs that there are. What is pinned has another path, so those who use pins() on other
    // threads must have come to rest.
    Result<void> withdraw();
    [[nodiscard]] const OwnInstance& instance() const { return instance_; }

    // Readable when events wait; poll() then calls back for each.
    [[nodiscard]] int events_fd() const;
    Result<void> subscribe(OnEvent on_event);
    void poll();

    // The heartbeat. `steer`: new connections may be asked about. `roce`: there is a RoCE device.
    void beat(bool steer, bool roce) const;

    // Marks a socket of the agent's before connect() or listen().
    Result<void> mark_socket(int fd, const smc_sock& mark) const;
    // What the SYN-ACK on a CLC socket said about option 254.
    [[nodiscard]] smc_option_seen option_seen(int fd) const;

    // The SYN of this request decides from here on, without options. False: it does already, or is answered.
    [[nodiscard]] bool let_go(const smc_tuple& request, std::uint64_t cookie) const;
    // A server's leg need not hold back any more: what it held, to be sent now. Nothing: it held nothing.
    [[nodiscard]] std::optional<smc_request> release_leg(int fd) const;
    // For a leg, before mark_socket(): where its application's send buffer is to be read. `send`: what it has chosen by
    // now. nullptr: it cannot be had.
    [[nodiscard]] std::shared_ptr<const ChosenBuffers::Word> follow_send_buffer(std::uint32_t send) const;
    // The SYN of this leg was refused by its time stamp (SMC_LEG_PAWS): from another port it may be taken.
    [[nodiscard]] bool refused_by_paws(int fd) const;
    // What was held of a leg that is gone.
    void forget_leg(const smc_tuple& app) const;
    // Its application still waits, and no leg has come.
    [[nodiscard]] bool holds(const smc_tuple& request, std::uint64_t cookie) const;
    // Connections whose SYN has asked, or waits.
    [[nodiscard]] std::size_t requests() const;
    // What tc learnt of a SYN that was handed to the listener for CLC sockets; it is forgotten.
    [[nodiscard]] smc_inbound take_inbound(const smc_tuple& tuple) const;
    // Once a second: entries of tables that nobody needs any more go.
    Swept sweep();
    // How full the tables were that the last sweep() went through.
    struct Fill {
        const char* map;
        std::size_t entries, room;
    };
    [[nodiscard]] const std::vector<Fill>& fill() const { return fill_; }

    // `ttl`: of its SYN-ACK; 0: not known.
    void remember(std::uint64_t netns, const Endpoint& server, smc_knowledge knowledge, Reason reason,
                  std::chrono::seconds how_long, std::uint8_t ttl = 0) const;
    // It is not to be asked for a while: `first`, and each time that this comes again twice as long, up to `most`.
    void pause(std::uint64_t netns, const Endpoint& server, Reason reason, std::chrono::seconds first,
               std::chrono::seconds most) const;
    void forget(std::uint64_t netns, const Endpoint& server) const;
    [[nodiscard]] std::optional<smc_server> knows(std::uint64_t netns, const Endpoint& server) const;
    // Fills in the answers to everything that needs no socket. Changes nothing.
    [[nodiscard]] Result<smc_query> explain(const smc_query& query) const;
    // Sum over the CPUs.
    [[nodiscard]] std::uint64_t counter(smc_decision decision) const;
    // "SMC_OUT_ASKED", from BTF.
    [[nodiscard]] static std::string decision_name(smc_decision decision);

    // Names of the attached programs.
    [[nodiscard]] std::vector<std::string> attached() const;
    // A program by its name, for tests; -1: there is none.
    [[nodiscard]] int program_fd(const std::string& name) const;
    [[nodiscard]] int map_fd(const std::string& name) const;
    // Where maps and the places of programs are pinned.
    [[nodiscard]] const std::string& pins() const { return pinned_; }

    Map<std::uint64_t, smc_cgroup> cgroups;
    Map<std::uint64_t, smc_netns> netns;
    Map<smc_device_key, smc_device> devices;
    Map<std::uint32_t, std::uint64_t> clc_listeners;
    Map<smc_tuple, smc_hairpin> hairpins;

    // How long the application's socket behind a leg waits for a peer, as sweep() saw last.
    [[nodiscard]] KeepaliveTerms keepalive_of(const smc_tuple& app) const;
    // No more than so many.
    [[nodiscard]] Tuned tuned(std::size_t most) const;

    // What could not be had at first, of enum smc_local.
    void allow_local(std::uint32_t what) const;
    // A cgroup has as many connections as it may have, or no longer.
    void set_full(std::uint64_t cgroup, bool full) const;

 private:
    explicit Programs(OwnInstance instance) : instance_(std::move(instance)) {}
    Result<void> open(const Config& config, const LocalParts& local);
    Result<void> fill_tables(const Config& config, const Policy& policy, const LocalParts& local) const;
    Result<void> pin(const std::string& path);
    Result<void> pin_maps(const std::string& fresh, const std::string& path) const;
    void unpin();
    Result<void> attach_ends();
    void try_to_run();
    [[nodiscard]] Result<void> run(const bpf_program* program) const;
    void retire_old_lookups() const;
    [[nodiscard]] std::uint64_t ktime_ns() const;

    std::shared_ptr<smc_gateway> skeleton_;
    std::shared_ptr<ChosenBuffers> chosen_;  // nullptr: the map cannot be mapped
    std::vector<ProgramState> states_;
    ring_buffer* ring_ = nullptr;
    OnEvent on_event_;
    std::vector<std::pair<std::string, bpf_link*>> links_;
    std::vector<Fill> fill_;
    OwnInstance instance_;
    std::string pinned_;
    std::string before_;                // what an agent that was killed had pinned
    std::uint64_t clock_ahead_ns_ = 0;  // of the programs' clock, modulo 2^64: not 0 in a time namespace
};

}  // namespace smc::bpf
