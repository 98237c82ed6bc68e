// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The BPF programs that exist once per agent, and every map. With inbound.h the only user of libbpf.
//
// Invariant:
//   P1  Maps are pinned, for the reader (bpftool map dump pinned ...); links are not: when the agent dies in whatever
//       way, the kernel detaches the programs and every new connection is plain TCP.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "agent/config/config.h"
#include "agent/policy/policy.h"
#include "agent/steer/map.h"
#include "bpf/abi.h"
#include "os/endpoint.h"
#include "os/unique_fd.h"
#include "smc/wire/reason.h"

struct smc_gateway;
struct ring_buffer;
struct bpf_link;

namespace smc::bpf {

class Programs {
 public:
    using OnEvent = std::function<void(const smc_event&)>;

    static Result<std::unique_ptr<Programs>> load(const Config& config, const Policy& policy);
    ~Programs();
    Programs(const Programs&) = delete;
    Programs& operator=(const Programs&) = delete;

    // Applications below `root` are steered from here on; `own` holds the agent's CLC sockets.
    Result<void> attach(int root_cgroup_fd, int own_cgroup_fd);

    // Readable when events wait; poll() then calls back for each.
    [[nodiscard]] int events_fd() const;
    Result<void> subscribe(OnEvent on_event);
    void poll();

    // The heartbeat; steer false stops new connections from being steered at once.
    void beat(bool steer) const;

    // Marks a socket of the agent's before connect() or listen().
    Result<void> mark_socket(int fd, smc_role role, const Endpoint& remote = {}) const;
    // What the SYN-ACK on a CLC socket said about option 254.
    [[nodiscard]] smc_option_seen option_seen(int fd) const;
    // The application's socket `cookie` shall be shown `local` as its own address.
    void release_flow(std::uint64_t cookie, const Endpoint& local) const;
    // Flows end with their sockets; what never got as far as a SYN is swept here, now and then.
    void sweep_flows() const;
    void remember_incapable(std::uint64_t netns, const Endpoint& remote, Reason reason,
                            std::chrono::seconds how_long) const;
    // Fills in the answers to everything that needs no socket. Changes nothing.
    [[nodiscard]] Result<smc_query> explain(smc_query query) const;
    [[nodiscard]] std::optional<smc_incapable> incapable(std::uint64_t netns, const Endpoint& remote) const;
    // Sum over the CPUs.
    [[nodiscard]] std::uint64_t counter(smc_decision decision) const;
    // "SMC_OUT_STEERED", from BTF.
    [[nodiscard]] static std::string decision_name(smc_decision decision);

    // Names of the attached programs.
    [[nodiscard]] std::vector<std::string> attached() const;

    // Every map by name, for objects that share them.
    [[nodiscard]] int map_fd(const std::string& name) const;

    Map<std::uint64_t, smc_cgroup> cgroups;
    Map<std::uint64_t, smc_netns> netns;
    Map<std::uint32_t, std::uint64_t> clc_listeners;
    Map<std::uint64_t, smc_flow> flows;

 private:
    Programs() = default;
    Result<void> fill_tables(const Policy& policy) const;
    Result<void> pin(const std::string& path);
    void unpin();

    smc_gateway* skeleton_ = nullptr;
    ring_buffer* ring_ = nullptr;
    OnEvent on_event_;
    std::vector<std::pair<std::string, bpf_link*>> links_;
    std::string pinned_;
};

}  // namespace smc::bpf
