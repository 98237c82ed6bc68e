// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The agent's configuration, typed and valid. Defaults are the members' initial values; keys.cc has a row for each
// member with its JSON key, its allowed values and its meaning.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "bpf/abi.h"
#include "os/paths.h"
#include "smc/times.h"
#include "smc/wire/ids.h"

namespace smc {

struct Cidr {
    std::array<std::uint8_t, 16> prefix{};  // IPv4-mapped, host bits zero
    std::uint8_t bits = 0;                  // of the mapped form: IPv4 /8 is 104

    [[nodiscard]] bool contains(const std::array<std::uint8_t, 16>& address) const;
};

struct PortRange {
    std::uint16_t first = 0;
    std::uint16_t last = 65535;
};

// Pods that a rule is about. Every condition must hold; * in a value stands for anything.
struct PodSelector {
    using Words = std::map<std::string, std::string>;
    std::vector<std::string> namespaces{"*"};
    Words labels{}, annotations{}, namespace_labels{}, namespace_annotations{};

    bool operator==(const PodSelector&) const = default;
};

inline constexpr int kMostRules = 1024;
inline constexpr int kMostOtherFabrics = 3;  // a Proposal has space for four

struct Rule {
    std::string name;
    bool allow = false;
    smc_direction directions = SMC_BOTH;
    std::vector<std::string> cgroups{"*"};  // empty: `pods` alone select the applications
    std::vector<PodSelector> pods{};
    std::vector<std::string> remotes{"0.0.0.0/0", "::/0"};
    std::vector<std::string> ports{"0-65535"};
    bool tune = true;                      // connections within the node
    std::string bypass{};                  // auto, off or force; empty: as local.bypass
    std::optional<bool> smcd = {};         // nullopt: as local.smcd
    std::optional<bool> past_limits = {};  // nullopt: as policy.past_limits
    std::optional<bool> short_lived = {};  // nullopt: as policy.short_lived
};

// A physical network: RoCE devices on it ("mlx5_0", or a port of one, "mlx5_0/1"), and the CIDRs of the local addresses
// whose connections use these devices.
struct Pnet {
    std::string id;
    std::vector<std::string> devices, networks;
};

// A fabric of SMC-D that this node is on.
struct IsmFabric {
    std::string provider = "local";
    std::string device;  // for ivshmem; empty: the first device of this machine
    std::string directory = "/run/smc-agent/ism";
    std::string chid = "0xff00";
};

struct Config {
    std::string host_name;    // empty: the system's
    std::string cgroup_root;  // empty: the cgroup2 mount
    std::string pin_path = "/sys/fs/bpf/smc-agent";
    std::string tc = "auto";
    std::string control_socket = kControlSocket;
    std::chrono::seconds stop_drain{0}, upgrade_drain{3600};
    std::vector<std::string> notes;              // about keys of earlier versions, for the log
    std::string http_listen = "127.0.0.1:7609";  // empty: no HTTP server
    bool http_page = true;

    struct Kubernetes {
        std::string api;                  // "in-cluster", or a URL; empty: no API server
        std::string node;                 // empty: NODE_NAME of the environment
        std::string token_file, ca_file;  // empty: with "in-cluster" the pod's own files
    } kubernetes;

    bool default_allow = false;
    std::vector<Rule> rules{{"private-networks",
                             true,
                             SMC_BOTH,
                             {"*"},
                             {},
                             {"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"},
                             {"0-65535"}}};
    bool past_limits = false;  // SMC also where a device shapes, filters or encrypts packets
    bool short_lived = false;  // SMC also where connections end too early to be worth it
    bool tune = true;
    std::string bypass = "auto";
    unsigned bypass_mib = 256;
    bool smcd = false;  // with other agents; unset in JSON: true with ivshmem

    std::vector<std::string> ueids{"SMC-AGENT.DEFAULT"};
    std::string seid;
    std::chrono::milliseconds step_timeout{6000};
    std::chrono::milliseconds close_timeout{10000};
    std::chrono::seconds keepalive{60};

    IsmFabric ism;
    std::vector<IsmFabric> other_fabrics;  // tried after `ism`, in order of preference
    [[nodiscard]] std::vector<IsmFabric> fabrics() const;
    unsigned dmb_kib = 1024;
    unsigned ism_memory_mib = 4096;

    struct Roce {
        bool enabled = true;
        std::vector<std::string> devices;  // empty: all
        std::vector<Pnet> pnets;
        std::vector<unsigned> versions{2};
        unsigned rmbe_kib = 256;
        unsigned rmbes_per_rmb = 8;
        unsigned max_connections = 255;  // of a link group
        unsigned max_links = 2;          // of a link group
        std::chrono::seconds link_retry{30};
        unsigned memory_mib = 1024;  // registered with RDMA devices, in all
        std::chrono::seconds group_idle{600};
        std::chrono::milliseconds llc_timeout{2000};
        std::chrono::seconds test_link{30};
        unsigned sends = 256, receives = 128;
        unsigned timeout = 17, retries = 7;
    } roce;

    unsigned cache_entries = 8192;
    std::chrono::seconds cache_time{60};
    std::chrono::milliseconds budget{1000};
    unsigned max_connections = 10000;
    unsigned max_handshakes = 512;
    std::optional<std::chrono::microseconds> longest_spin;  // nullopt: depends on the number of processors
    unsigned engine_threads = 0;
    // Percent of max_connections and of max_handshakes that one network namespace or one cgroup may have.
    unsigned namespace_share = 75;
    unsigned cgroup_share = 75;
    Times times;
    std::string log_level = "info";

    // How long the handshake of a leg may take: less than TCP waits before it repeats a SYN.
    [[nodiscard]] std::chrono::milliseconds leg_timeout() const {
        return times.leg.count() != 0 ? times.leg : std::min(budget * 3 / 10, std::chrono::milliseconds(900));
    }
};

// One line for the operator: "/limits/connections: found \"many\", allowed: integer from 1 to 1000000".
struct ConfigProblem {
    std::string pointer;  // JSON pointer, empty for the document as a whole
    std::string text;
};

inline constexpr std::size_t kMostConfigText = std::size_t{4} << 20;  // bytes
std::variant<Config, ConfigProblem> parse_config(const std::string& json);
// The keys to start with, or all keys.
enum class Keys : std::uint8_t { kFirst, kAll };
// These keys with their effective values, in the form that parse_config() takes; indent -1: one line.
std::string print_config(const Config& config, Keys which = Keys::kAll, int indent = 2);

// nullopt: not an address, or more bits than the family has.
std::optional<Cidr> parse_cidr(const std::string& text);
std::optional<PortRange> parse_ports(const std::string& text);

}  // namespace smc
