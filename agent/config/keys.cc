// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/config/keys.h"

#include <algorithm>
#include <string_view>
#include <type_traits>

#include "agent/config/lists.h"
#include "agent/config/values.h"
#include "smc/wire/clc.h"

namespace smc {

namespace {

using nlohmann::json;
using namespace schema;

// --- values

template <class T>
struct IsDuration : std::false_type {};
template <class Rep, class Period>
struct IsDuration<std::chrono::duration<Rep, Period>> : std::true_type {};

template <class T>
void from_json(const json& value, T& to) {
    if constexpr (IsDuration<T>::value) {
        to = T(value.get<typename T::rep>());
    } else {
        value.get_to(to);
    }
}

template <class T>
ordered_json to_json(const T& value) {
    if constexpr (IsDuration<T>::value) {
        return value.count();
    } else {
        return value;
    }
}

// `member`: returns a reference to the member, of a Config or of a const Config.
template <class Member>
ConfigKey key(const char* section, const char* name, Member member, ordered_json schema, const char* meaning) {
    return {section,
            name,
            std::move(schema),
            meaning,
            [member](Config& c, const json& value) { from_json(value, member(c)); },
            [member](const Config& c) { return to_json(member(c)); }};
}

// A key whose value is a path. Trailing slashes are removed.
template <class Member>
ConfigKey directory(const char* section, const char* name, Member member, ordered_json schema, const char* meaning) {
    ConfigKey row = key(section, name, member, std::move(schema), meaning);
    row.set = [member](Config& c, const json& value) {
        std::string path = value.get<std::string>();
        while (path.size() > 1 && path.back() == '/') {
            path.pop_back();
        }
        member(c) = path;
    };
    return row;
}

// --- the rows

// The only keys that most nodes need.
constexpr std::string_view kFirst[] = {
    "cgroup.root",        "policy.default", "policy.rules",    "kubernetes.api",  "http.listen",
    "limits.connections", "ism.memory_mib", "roce.memory_mib", "upgrade.drain_s", "log.level",
};

// NOLINTNEXTLINE(bugprone-macro-parentheses): a member name cannot be put in parentheses
#define SMC_MEMBER(name) [](auto& c) -> auto& { return c.name; }

// NOLINTNEXTLINE(readability-function-size): a table with one row per key
std::vector<ConfigKey> make_keys() {
    std::vector<ConfigKey> keys{
        key("node", "host_name", SMC_MEMBER(host_name), string("^[A-Za-z0-9.-]*$", 32),
            "Name told to peers in the First Contact Extension. Empty: the system's host name."),
        directory("cgroup", "root", SMC_MEMBER(cgroup_root), string("^(/.*)?$"),
                  "cgroup v2 directory below which applications are served. Empty: the whole mount."),
        directory("bpf", "pin_path", SMC_MEMBER(pin_path), string("^/.+/[^/.]+/*$"),
                  "Directory on a bpf file system where the maps are pinned, for bpftool."),
        key("bpf", "tc", SMC_MEMBER(tc), one_of({"auto", "tcx", "clsact"}),
            "How the programs attach to devices. auto: tcx where the kernel has it (6.6), else clsact."),
        key("control", "socket", SMC_MEMBER(control_socket), string(kAbsolutePath, 90),
            "Socket for smcctl; its .lock file keeps a second agent out."),
        key("stop", "drain_s", SMC_MEMBER(stop_drain), integer(0, 86400),
            "From SIGTERM on, how long connections may take to end; new ones are plain TCP."),
        key("upgrade", "drain_s", SMC_MEMBER(upgrade_drain), integer(0, 604800),
            "How long connections may take to end in an agent that another one has replaced."),
        key("kubernetes", "api", SMC_MEMBER(kubernetes.api),
            string(R"(^(in-cluster|https://.+|http://(127\.0\.0\.1|localhost|\[::1\])(:[0-9]+)?)?$)", 200),
            "API server that tells of pods: in-cluster, or its URL. Empty: none."),
        key("kubernetes", "node", SMC_MEMBER(kubernetes.node), string("^[a-z0-9.-]*$", 253),
            "Name of this node in Kubernetes. Empty: NODE_NAME of the environment."),
        key("kubernetes", "token_file", SMC_MEMBER(kubernetes.token_file), string("^(/.+)?$"),
            "File with the bearer token. Empty: in-cluster the pod's own, else none."),
        key("kubernetes", "ca_file", SMC_MEMBER(kubernetes.ca_file), string("^(/.+)?$"),
            "Certificates of the server. Empty: in-cluster the pod's own, else the system's."),
        key("http", "listen", SMC_MEMBER(http_listen), string("^(.+:[0-9]{1,5})?$", 64),
            "Where /metrics, /healthz, /readyz and the page are. Empty: nowhere."),
        key("http", "page", SMC_MEMBER(http_page), boolean(),
            "A page for a browser, with what the node accelerates and why not the rest."),
        {"policy", "default", one_of({"allow", "deny"}),
         "allow or deny: what happens to a connection that no rule matches.",
         [](Config& c, const json& value) { c.default_allow = value == "allow"; },
         [](const Config& c) { return c.default_allow ? "allow" : "deny"; }},
        key("policy", "past_limits", SMC_MEMBER(past_limits), boolean(),
            "SMC also where a device limits or encrypts packets, although SMC evades that."),
        key("policy", "short_lived", SMC_MEMBER(short_lived), boolean(),
            "SMC also where connections have ended too early lately to be worth it."),
        rules_key(),
        key("local", "tune", SMC_MEMBER(tune), boolean(),
            "Do not pace connections within this node, even if the system's default paces (bbr)."),
        key("local", "bypass", SMC_MEMBER(bypass), one_of({"auto", "off", "force"}),
            "auto: connections between pods may go past TCP, if `smcctl probe` says so."),
        key("local", "bypass_mib", SMC_MEMBER(bypass_mib), integer(1, 65536),
            "Memory for bytes in transit on the bypass, in all; its sockets share it evenly."),
        key("local", "smcd", SMC_MEMBER(smcd), boolean(),
            "SMC-D with other agents. Both ends must want it. Unset: on with ivshmem, else off."),
        key("smc", "ueids", SMC_MEMBER(ueids),
            list(string(("^" + std::string(kEid) + "$").c_str()), 0, clc::kMostUeids),
            "User-defined EIDs, in order of preference. Peers need one in common."),
        key("smc", "seid", SMC_MEMBER(seid), string(("^(" + std::string(kEid) + ")?$").c_str()),
            "System EID. Empty: none is offered."),
        key("smc", "step_timeout_ms", SMC_MEMBER(step_timeout), integer(100, 60000),
            "How long each step of the CLC handshake may take."),
        key("smc", "close_timeout_ms", SMC_MEMBER(close_timeout), integer(100, 600000),
            "Time for a peer to confirm the close, and for a late reader after a failure."),
        key("smc", "keepalive_s", SMC_MEMBER(keepalive), integer(0, 32767),
            "TCP keepalive on the idle CLC socket; 0: off."),
        key("ism", "provider", SMC_MEMBER(ism.provider), ism_provider(),
            "local: shared memory of this kernel. ivshmem: a PCI BAR that virtual machines share."),
        key("ism", "device", SMC_MEMBER(ism.device), ism_device(),
            "The BAR of `ivshmem`: a file. Empty: that of the first ivshmem device of this machine."),
        key("ism", "directory", SMC_MEMBER(ism.directory), ism_directory(),
            "Rendezvous directory of `local`, common to all agents of one fabric."),
        key("ism", "chid", SMC_MEMBER(ism.chid), ism_chid(),
            "Emulated-ISM CHID of the fabric, 0xff00 to 0xfffe, equal at both ends."),
        other_fabrics_key(),
        key("ism", "memory_mib", SMC_MEMBER(ism_memory_mib), integer(1, 1048576),
            "Memory of DMBs, own and attached, in all. A connection that needs more is declined."),
        key("ism", "dmb_kib", SMC_MEMBER(dmb_kib), power_of_two_kib(),
            "Size of the DMB that receives for one connection; memory is taken as it is used."),
        key("roce", "enabled", SMC_MEMBER(roce.enabled), boolean(),
            "SMC-R over the RoCE devices of this node, if it has any."),
        key("roce", "devices", SMC_MEMBER(roce.devices), list(string("^[^/]{1,63}$"), 0, 64),
            "RDMA devices to use, as `rdma dev` names them: \"mlx5_0\". Empty: all."),
        pnets_key(),
        key(
            "roce", "versions", SMC_MEMBER(roce.versions),
            [] {
                ordered_json versions = list(one_of({1, 2}), 1, 2);
                versions["uniqueItems"] = true;
                return versions;
            }(),
            "SMC versions to offer and to accept. 1 is RFC 7609's, within one IP subnet."),
        key("roce", "rmbe_kib", SMC_MEMBER(roce.rmbe_kib), power_of_two_kib(),
            "RMBE of a connection, and its memory to send from, if the program chose no size."),
        key("roce", "rmbes_per_rmb", SMC_MEMBER(roce.rmbes_per_rmb), integer(1, 255),
            "RMBEs in one RMB, the unit that is registered and told to the peer."),
        key("roce", "max_connections", SMC_MEMBER(roce.max_connections), integer(16, 255),
            "Connections of a link group. One more begins another link group."),
        key("roce", "max_links", SMC_MEMBER(roce.max_links), integer(1, 2),
            "Links of a link group. 2: another path for when one fails, where peers agree."),
        key("roce", "link_retry_s", SMC_MEMBER(roce.link_retry), integer(1, 86400),
            "Time between attempts to add a second link; up to 16 times as long if there is none."),
        key("roce", "memory_mib", SMC_MEMBER(roce.memory_mib), integer(1, 1048576),
            "Memory registered with RDMA devices, in all. A connection that needs more is declined."),
        key("roce", "group_idle_s", SMC_MEMBER(roce.group_idle), integer(1, 86400),
            "How long a link group without connections is kept."),
        key("roce", "llc_timeout_ms", SMC_MEMBER(roce.llc_timeout), integer(100, 60000),
            "How long LLC may take at first contact; later requests have twice as long."),
        key("roce", "test_link_s", SMC_MEMBER(roce.test_link), integer(1, 86400),
            "TEST LINK is sent when nothing was heard from the peer for so long."),
        key("roce", "sends", SMC_MEMBER(roce.sends), integer(16, 8192),
            "Send requests that one link may have outstanding."),
        key("roce", "receives", SMC_MEMBER(roce.receives), integer(16, 8192),
            "Messages that may arrive on a link before the agent takes them."),
        key("roce", "timeout", SMC_MEMBER(roce.timeout), integer(8, 24),
            "InfiniBand's local ACK timeout: 4.096 us times 2 to this power."),
        key("roce", "retries", SMC_MEMBER(roce.retries), integer(0, 7), "Retransmissions before a link breaks."),
        {"engine", "spin_us", either(one_of({"auto"}), integer(0, 1000)),
         "Longest busy-poll before the data path sleeps. 0: none; auto: 200, on one processor 0.",
         [](Config& c, const json& value) {
             c.longest_spin.reset();
             if (value.is_number()) {
                 c.longest_spin = std::chrono::microseconds(value.get<int>());
             }
         },
         [](const Config& c) { return c.longest_spin ? ordered_json(c.longest_spin->count()) : ordered_json("auto"); }},
        key("engine", "threads", SMC_MEMBER(engine_threads), integer(0, 64),
            "Threads of the data path; 0: half as many as processors, and at most 4."),
        key("fallback", "budget_ms", SMC_MEMBER(budget), integer(50, 30000),
            "Longest time from the server's answer to a connection on SMC; after it, TCP."),
        key("fallback", "cache_entries", SMC_MEMBER(cache_entries), integer(16, 1000000),
            "Servers that speak SMC, or have failed; the least recently used goes first."),
        key("fallback", "cache_s", SMC_MEMBER(cache_time), integer(1, 86400),
            "How long a server is remembered. One that failed is not asked meanwhile."),
        key("limits", "connections", SMC_MEMBER(max_connections), integer(1, 1000000),
            "Connections in the agent, handshakes included. Beyond it new ones are plain TCP."),
        key("limits", "handshakes", SMC_MEMBER(max_handshakes), integer(1, 1000000),
            "Handshakes under way, of limits.connections. Beyond it new connections are plain TCP."),
        key("limits", "namespace_percent", SMC_MEMBER(namespace_share), integer(1, 100),
            "Percent of connections and handshakes that one network namespace may have."),
        key("limits", "cgroup_percent", SMC_MEMBER(cgroup_share), integer(1, 100),
            "Percent of connections, handshakes and namespaces that one cgroup may have."),
        key("log", "level", SMC_MEMBER(log_level), one_of({"debug", "info", "warn", "error"}),
            "debug, info, warn or error. debug has a line for every connection."),
    };
#define SMC_TIME_KEY(name, usual, least, most, meaning) \
    keys.push_back(key("times", #name "_ms", SMC_MEMBER(times.name), integer(least, most), meaning));
    SMC_TIMES(SMC_TIME_KEY)
#undef SMC_TIME_KEY
    for (ConfigKey& row : keys) {
        row.first = std::ranges::count(kFirst, row.section + "." + row.name) != 0;
    }
    return keys;
}

}  // namespace

const std::vector<ConfigKey>& config_keys() {
    static const std::vector<ConfigKey> keys = make_keys();
    return keys;
}

const std::vector<FormerKey>& former_keys() {
    static const std::vector<FormerKey> keys{
        {"stop", "patience_s", "drain_s", "it is called stop.drain_s"},
        {"upgrade", "patience_s", "drain_s", "it is called upgrade.drain_s"},
        {"times", "questions_ms", "requests_ms", "it is called times.requests_ms"},
        {"local", "queue_kib", nullptr, "it is gone: TCP_NOTSENT_LOWAT is left to applications"},
        {"roce", "eye_catchers", nullptr, "it is gone: RMBEs begin with an eye catcher if the peer's do"},
        {"roce", "busy_poll_us", nullptr, "it is gone: engine.spin_us decides for SMC-R, too"},
    };
    return keys;
}

}  // namespace smc
