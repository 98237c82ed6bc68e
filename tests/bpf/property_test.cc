// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The real programs, run by BPF_PROG_TEST_RUN, against an oracle that knows only the text of the configuration. Needs
// root.
#include <arpa/inet.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "bpf/loaded.h"
#include "os/rtnetlink.h"

using namespace smc;
using nlohmann::json;

namespace {

// A rule of the configuration.
struct Written {
    std::string name;
    bool allow = false;
    std::string direction;
    std::vector<std::string> cgroups, remotes, ports;
    unsigned smcd = 0;  // 1: the rule denies it; 2: the rule allows it; else not set
};

// The oracle follows the documentation and shares no code with the implementation: it compares text with text.
bool address_matches(const std::string& cidr, const std::string& address) {
    const auto slash = cidr.find('/');
    const std::string prefix = cidr.substr(0, slash);
    const bool v6 = prefix.find(':') != std::string::npos;
    if (v6 != (address.find(':') != std::string::npos)) {
        return false;
    }
    std::uint8_t a[16] = {}, b[16] = {};
    ::inet_pton(v6 ? AF_INET6 : AF_INET, prefix.c_str(), a);
    ::inet_pton(v6 ? AF_INET6 : AF_INET, address.c_str(), b);
    const int bits = slash == std::string::npos ? (v6 ? 128 : 32) : std::stoi(cidr.substr(slash + 1));
    for (int i = 0; i < bits; i++) {
        if (((a[i / 8] ^ b[i / 8]) & (128 >> i % 8)) != 0) {
            return false;
        }
    }
    return true;
}

bool port_matches(const std::string& range, int port) {
    const auto dash = range.find('-');
    return dash == std::string::npos ? std::stoi(range) == port
                                     : std::stoi(range) <= port && port <= std::stoi(range.substr(dash + 1));
}

template <class Match>
bool any(const std::vector<std::string>& list, Match match) {
    return list.empty() || std::ranges::any_of(list, match);
}

// Only whole components here: "/web" or "/web/*"; "*" stands for all.
bool cgroup_matches(const std::string& glob, const std::string& path) {
    return glob == "*" || glob == path || (glob.ends_with("/*") && path.starts_with(glob.substr(0, glob.size() - 1)));
}

std::string oracle(const std::vector<Written>& rules, const std::string& cgroup, const std::string& address, int port,
                   const std::string& direction) {
    for (const Written& rule : rules) {
        if (any(rule.cgroups, [&](const auto& glob) { return cgroup_matches(glob, cgroup); }) &&
            any(rule.remotes, [&](const auto& cidr) { return address_matches(cidr, address); }) &&
            any(rule.ports, [&](const auto& range) { return port_matches(range, port); }) &&
            (rule.direction == "both" || rule.direction == direction)) {
            return rule.name;
        }
    }
    return "default";
}

class Draw {
 public:
    explicit Draw(unsigned seed) : random_(seed) {}
    unsigned below(unsigned n) { return static_cast<unsigned>(random_()) % n; }
    // The values are few, so that rules often match.
    std::string address() {
        const std::string last = std::to_string(below(4));
        return below(2) == 0 ? "10." + std::to_string(below(3)) + ".0." + last
                             : "fd0" + std::to_string(below(3)) + "::" + last;
    }
    std::string cidr() {
        const std::string base = address();
        const unsigned longest = base.find(':') != std::string::npos ? 128 : 32;
        const unsigned lengths[] = {0, 8, 12, 15, 16, longest - 1, longest};
        return below(4) == 0 ? base : base + "/" + std::to_string(lengths[below(7)]);
    }
    std::string ports() {
        const unsigned first = 1 + below(6);
        return below(2) == 0 ? std::to_string(first) : std::to_string(first) + "-" + std::to_string(first + below(3));
    }
    std::string cgroup() {
        const char* paths[] = {"/web", "/web/a", "/web/b", "/db", "/"};
        return paths[below(5)];
    }
    std::string glob() {
        const char* globs[] = {"/web", "/web/*", "/db", "*"};
        return globs[below(4)];
    }
    std::string direction() {
        const char* directions[] = {"both", "outbound", "inbound"};
        return directions[below(3)];
    }
    template <class Make>
    std::vector<std::string> list(Make make) {
        std::vector<std::string> out;
        for (unsigned n = below(3); n > 0; n--) {
            out.push_back(make());
        }
        return out;
    }
    std::vector<Written> rules() {
        std::vector<Written> out;
        for (unsigned n = below(9); n > 0; n--) {
            out.push_back({"r" + std::to_string(out.size()), below(2) == 0, direction(), list([&] { return glob(); }),
                           list([&] { return cidr(); }), list([&] { return ports(); }), below(4)});
        }
        return out;
    }

 private:
    std::mt19937 random_;
};

json as_json(const std::vector<Written>& rules, bool default_allow) {
    json list = json::array();
    for (const Written& rule : rules) {
        json r = {{"name", rule.name}, {"action", rule.allow ? "allow" : "deny"}, {"direction", rule.direction}};
        for (const auto& [key, values] :
             {std::pair("cgroups", rule.cgroups), {"remotes", rule.remotes}, {"ports", rule.ports}}) {
            if (!values.empty()) {
                r[key] = values;
            }
        }
        if (rule.smcd == 1 || rule.smcd == 2) {
            r["smcd"] = rule.smcd == 2;
        }
        list.push_back(r);
    }
    return {{"default", default_allow ? "allow" : "deny"}, {"rules", list}};
}

// The rule that decides, and its decision.
struct Expected {
    std::string rule;
    bool allow = false, smcd = false;
};

Expected expected_of(const std::vector<Written>& rules, bool default_allow, const std::string& rule,
                     bool default_smcd = true) {
    const auto it = std::ranges::find(rules, rule, &Written::name);
    const bool says = it != rules.end() && (it->smcd == 1 || it->smcd == 2);
    return {rule, it == rules.end() ? default_allow : it->allow, says ? it->smcd == 2 : default_smcd};
}

std::string with_port(const std::string& address, unsigned port) {
    return (address.find(':') != std::string::npos ? "[" + address + "]" : address) + ":" + std::to_string(port);
}

}  // namespace

TEST_CASE("property__the_programs_decide_what_the_configuration_says") {
    for (unsigned seed = 1; seed <= 25; seed++) {
        Draw draw(seed);
        const auto rules = draw.rules();
        const bool default_allow = draw.below(2) == 0;
        Loaded p(as_json(rules, default_allow));
        CAPTURE(seed, as_json(rules, default_allow).dump());
        for (int i = 0; i < 400; i++) {
            const std::string cgroup = draw.cgroup(), address = draw.address();
            const unsigned port = 1 + draw.below(8);
            const bool outbound = draw.below(2) == 0;
            CAPTURE(cgroup, address, port, outbound);
            const auto expected =
                expected_of(rules, default_allow,
                            oracle(rules, cgroup, address, static_cast<int>(port), outbound ? "outbound" : "inbound"));
            const auto answer =
                p.ask(cgroup.c_str(), with_port(address, port).c_str(), outbound ? SMC_OUTBOUND : SMC_INBOUND);
            const bool enrolled = (answer.failed >> (outbound ? SMC_OUT_NOT_ENROLLED : SMC_IN_NOT_ENROLLED) & 1) == 0;
            const bool denied = (answer.failed >> (outbound ? SMC_OUT_DENIED : SMC_IN_DENIED) & 1) != 0;
            REQUIRE(p.policy.rule_name(answer.rule) == expected.rule);
            REQUIRE(denied == !expected.allow);
            REQUIRE((enrolled || !expected.allow || default_allow));
        }
    }
}

// --- tc: the decision itself ----------------------------------------------------------------------------------------

namespace {

// Unusual options of a SYN.
struct Has {
    bool smc = false, mptcp = false, fast_open = false, own_tag = false;
};

// Ethernet, IPv4 or IPv6, TCP with options.
std::vector<std::uint8_t> syn(const std::string& from, const std::string& to, unsigned port, const Has& has,
                              std::uint32_t tag) {
    std::vector<std::uint8_t> options;
    const auto add = [&](std::initializer_list<int> bytes) {
        for (const int byte : bytes) {
            options.push_back(static_cast<std::uint8_t>(byte));
        }
    };
    add({2, 4, 5, 180, 1});
    if (has.mptcp) {
        add({30, 4, 0, 0});
    }
    if (has.fast_open) {
        add({34, 2});
    }
    if (has.smc) {
        add({254, 6, 0xe2, 0xd4, 0xc3, 0xd9});
    }
    if (has.own_tag) {
        const auto byte = [&](unsigned shift) { return static_cast<int>(tag >> shift & 0xff); };
        add({254, 14, 0x53, 0x4d, 0x43, 0x41, byte(24), byte(16), byte(8), byte(0), 0, 0, 0, 0});
    }
    while (options.size() % 4 != 0) {
        options.push_back(0);
    }
    const bool v6 = from.find(':') != std::string::npos;
    const std::size_t tcp_bytes = 20 + options.size();
    std::vector<std::uint8_t> packet(14);
    packet[12] = v6 ? 0x86 : 0x08;
    packet[13] = v6 ? 0xdd : 0x00;
    if (v6) {
        std::uint8_t ip[40] = {0x60, 0, 0, 0, 0, static_cast<std::uint8_t>(tcp_bytes), 6, 64};
        ::inet_pton(AF_INET6, from.c_str(), ip + 8);
        ::inet_pton(AF_INET6, to.c_str(), ip + 24);
        packet.insert(packet.end(), ip, ip + 40);
    } else {
        std::uint8_t ip[20] = {0x45, 0, 0, static_cast<std::uint8_t>(20 + tcp_bytes), 0, 0, 0, 0, 64, 6};
        ::inet_pton(AF_INET, from.c_str(), ip + 12);
        ::inet_pton(AF_INET, to.c_str(), ip + 16);
        packet.insert(packet.end(), ip, ip + 20);
    }
    std::uint8_t tcp[20] = {0x9c, 0x40, static_cast<std::uint8_t>(port >> 8), static_cast<std::uint8_t>(port)};
    tcp[12] = static_cast<std::uint8_t>(tcp_bytes / 4 << 4);
    tcp[13] = 2;
    packet.insert(packet.end(), tcp, tcp + 20);
    packet.insert(packet.end(), options.begin(), options.end());
    return packet;
}

UniqueFd listener(bool v6, unsigned port, const char* device) {
    UniqueFd fd(::socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM, 0));
    const int one = 1;
    if (v6) {
        ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
    }
    if (device != nullptr) {
        ::setsockopt(fd.get(), SOL_SOCKET, SO_BINDTODEVICE, device, static_cast<socklen_t>(std::strlen(device)));
    }
    sockaddr_storage address{};
    const socklen_t length =
        Endpoint::parse(with_port(v6 ? "::" : "0.0.0.0", port))->to_sockaddr(address, v6 ? AF_INET6 : AF_INET);
    REQUIRE(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), length) == 0);
    REQUIRE(::listen(fd.get(), 8) == 0);
    return fd;
}

std::uint64_t own_cgroup() {
    std::ifstream file("/proc/self/cgroup");
    for (std::string line; std::getline(file, line);) {
        struct stat status {};
        for (const char* mount : {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}) {
            if (line.starts_with("0::") && ::stat((mount + line.substr(3) + "/cgroup.procs").c_str(), &status) == 0 &&
                ::stat((mount + line.substr(3)).c_str(), &status) == 0) {
                return status.st_ino;
            }
        }
    }
    return 0;
}

}  // namespace

TEST_CASE("property__tc_decides_what_the_configuration_says") {
    REQUIRE(::unshare(CLONE_NEWNET) == 0);  // the listeners are in no other test's namespace
    REQUIRE(::system("ip link set lo up") == 0);
    const std::uint64_t cgroup = own_cgroup();
    REQUIRE(cgroup != 0);
    const auto rtnetlink = Rtnetlink::open();
    REQUIRE(rtnetlink);
    const std::uint64_t netns = rtnetlink->netns_cookie();
    // BPF_PROG_TEST_RUN's packets come from lo, in slot 0.
    const smc_device_key lo{0, 1};
    // Ports 1 to 3: listeners; 4: one that is bound to a device; 5: one with a mark; 6: one with SO_INCOMING_CPU;
    // others: none.
    std::vector<UniqueFd> listeners;
    for (const bool v6 : {false, true}) {
        for (unsigned port = 1; port <= 6; port++) {
            listeners.push_back(listener(v6, port, port == 4 ? "lo" : nullptr));
        }
        const int mark = 7, processor = 0;
        REQUIRE(::setsockopt(listeners[listeners.size() - 2].get(), SOL_SOCKET, SO_MARK, &mark, sizeof mark) == 0);
        REQUIRE(::setsockopt(listeners.back().get(), SOL_SOCKET, SO_INCOMING_CPU, &processor, sizeof processor) == 0);
    }
    for (unsigned seed = 100; seed <= 120; seed++) {
        Draw draw(seed);
        const auto rules = draw.rules();
        const bool default_allow = draw.below(2) == 0, default_smcd = draw.below(2) == 0;
        Loaded p(as_json(rules, default_allow), default_smcd);
        const std::string path = draw.cgroup();
        const std::uint64_t matched = p.policy.rules_for_cgroup(path);
        const bool enrolled = draw.below(8) != 0, known = draw.below(8) != 0, serves = draw.below(8) != 0;
        const bool slow_pod = draw.below(16) == 0, slow_device = draw.below(16) == 0;
        const bool hairpin4 = draw.below(8) != 0, hairpin6 = draw.below(8) != 0, roce = draw.below(2) != 0;
        if (known) {
            REQUIRE(p.programs->cgroups.put(cgroup, {matched, enrolled ? 1U : 0U, 0, slow_pod ? __u16{1} : __u16{0}}));
        }
        const __u8 limited = slow_device ? 1 : 0;
        REQUIRE(p.programs->netns.put(netns,
                                      {0, hairpin4 ? __u8{1} : __u8{0}, hairpin6 ? __u8{1} : __u8{0}, 0, limited, 1}));
        REQUIRE(p.programs->devices.put(lo, {14, 0, 0, 0, 0, 0}));
        const auto config = bpf::Map<std::uint32_t, smc_config>(p.programs->map_fd("smc_config")).get(0);
        REQUIRE(config);
        for (int i = 0; i < 200; i++) {
            const std::string from = draw.address();
            const bool v6 = from.find(':') != std::string::npos;
            const unsigned port = 1 + draw.below(8);
            const Has has{draw.below(10) != 0, draw.below(10) == 0, draw.below(10) == 0, draw.below(10) == 0};
            CAPTURE(seed, as_json(rules, default_allow).dump(), path, from, port, known, enrolled, serves);
            CAPTURE(has.smc, has.mptcp, has.fast_open, has.own_tag, hairpin4, hairpin6, roce, default_smcd);
            smc_decision expected = SMC_IN_STEERED;
            const auto rule = oracle(rules, path, from, static_cast<int>(port), "inbound");
            if (!serves) {
                expected = SMC_IN_AGENT_FULL;
            } else if (has.own_tag) {
                expected = SMC_IN_SAME_AGENT;
            } else if (has.mptcp) {
                expected = SMC_IN_MPTCP;
            } else if (has.fast_open) {
                expected = SMC_IN_FAST_OPEN;
            } else if (port > 6) {
                expected = SMC_IN_NO_LISTENER;
            } else if (!(v6 ? hairpin6 : hairpin4)) {
                expected = SMC_IN_NOT_SERVED;
            } else if (!known || !enrolled) {
                expected = SMC_IN_NOT_ENROLLED;
            } else if (!expected_of(rules, default_allow, rule).allow) {
                expected = SMC_IN_DENIED;
            } else if (slow_pod || slow_device) {
                expected = SMC_IN_LIMITED;
            } else if (port == 4 || port == 5) {
                expected = SMC_IN_BOUND;
            } else if (port == 6) {
                expected = SMC_IN_INCOMING_CPU;
            } else if (!roce && !expected_of(rules, default_allow, rule, default_smcd).smcd) {
                expected = SMC_IN_NO_DEVICE;
            }
            // A SYN with this agent's tag may ask no other agent.
            const bool counts = has.smc || expected == SMC_IN_SAME_AGENT;
            const auto packet = syn(from, v6 ? "::1" : "127.0.0.1", port, has, config->tag);
            std::vector<std::uint64_t> before;
            for (int d = 0; d < SMC_DECISIONS; d++) {
                before.push_back(p.programs->counter(static_cast<smc_decision>(d)));
            }
            p.programs->beat(serves, roce);
            bpf_test_run_opts options{};
            options.sz = sizeof options;
            options.data_in = packet.data();
            options.data_size_in = static_cast<__u32>(packet.size());
            REQUIRE(bpf_prog_test_run_opts(p.programs->program_fd("smc_ingress"), &options) == 0);
            CHECK(options.retval == static_cast<__u32>(-1));  // TC_ACT_UNSPEC: the packet passes
            for (int d = 0; d < SMC_DECISIONS; d++) {
                const auto decision = static_cast<smc_decision>(d);
                CAPTURE(bpf::Programs::decision_name(decision), bpf::Programs::decision_name(expected));
                REQUIRE(p.programs->counter(decision) - before[static_cast<std::size_t>(d)] ==
                        (counts && decision == expected ? 1 : 0));
            }
        }
    }
}
