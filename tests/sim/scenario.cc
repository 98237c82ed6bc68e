// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "scenario.h"

#include <algorithm>
#include <deque>
#include <iterator>

#include "node.h"

namespace smc::sim {

namespace {

using namespace std::chrono_literals;

constexpr Mishap kMishaps[] = {
#define SMC_SIM_LIST(name, text) Mishap::name,
    SMC_SIM_MISHAPS(SMC_SIM_LIST)
#undef SMC_SIM_LIST
};

// Every connection ends within this time, whatever happens to it.
constexpr auto kLongest = 15min;
// Afterwards, within this time, a peer that has not heard of the end of a link finds out (TEST LINK), and surplus
// memory is freed.
constexpr auto kSettle = 2min;

struct Connection {
    Connection(World& world, const Application::Plan& of_client, const Application::Plan& of_server, Node& client_node,
               Node& server_node)
        : client(world, of_client), listener(world, of_server), from(client_node), to(server_node) {}
    Application client;
    Listener listener;
    Node& from;
    Node& to;
};

class Scenario {
 public:
    explicit Scenario(const Choice& choice)
        : world_(choice.seed, choice.tell, choice.spared), fabric_(world_), stormy_(choice.stormy) {}
    ~Scenario() { world_.stop(); }  // before the nodes go, which pending events refer to
    Scenario(const Scenario&) = delete;
    Scenario& operator=(const Scenario&) = delete;

    Report run() {
        Report report;
        try {
            draw();
            connect_all();
            const bool idle = world_.run_until(TimePoint{} + kLongest);
            world_.tell(idle ? "nothing happens any more" : "the connections have had their time");
            world_.forbid_all();
            check_connections();
            world_.run_until(world_.now() + kSettle);
            check_quiet();
            a_->end_link_groups();
            b_->end_link_groups();
            world_.run_until(world_.now() + kSettle);
            a_->smcr_groups().check_all_is_gone();
            b_->smcr_groups().check_all_is_gone();
            world_.require(fabric_.registered() == 0, "a DMB is left");
        } catch (const Violation& violation) {
            report.violation = violation.what();
        }
        report.events = world_.events();
        report.faults = world_.faults();
        report.drawn = world_.drawn();
        for (const Node* node : {a_.get(), b_.get()}) {
            for (const auto& [path, count] : node->paths()) {
                report.paths[path] += count;
            }
        }
        for (const Mishap mishap : kMishaps) {
            if (world_.struck(mishap)) {
                report.mishaps += (report.mishaps.empty() ? "" : ", ") + std::string(text(mishap));
            }
        }
        return report;
    }

 private:
    void draw();
    void draw_mishaps();
    Node::Terms draw_node(const std::string& name, std::uint8_t number);
    void connect_all();
    void check_connections() const;
    void check_quiet() const;
    [[nodiscard]] std::string expected_path() const;

    World world_;
    Fabric fabric_;
    SimLink::Network network_;
    Node::Terms terms_a_, terms_b_;
    bool tight_ = false;  // little memory: not every connection gets what it asks for
    // Two links, of which one breaks under load, and packets that it had sent arrive late.
    bool stormy_;
    std::deque<Connection> connections_;
    std::unique_ptr<Node> a_, b_;  // destroyed before everything that they use
};

Node::Terms Scenario::draw_node(const std::string& name, std::uint8_t number) {
    Node::Terms terms;
    terms.name = name;
    for (std::uint8_t i = 0; i < (stormy_ || world_.chance(60) ? 2 : 1); i++) {
        terms.ports.push_back(RoceGid::from_ipv4({10, 0, i, number}));
    }
    terms.node.max_links = stormy_ || world_.chance(85) ? 2 : 1;
    terms.smcr.link_retry = std::chrono::milliseconds(world_.between(500, 30000));
    terms.node.peer_id = {number, 1, 2, 0, 0, 0, 0, number};
    for (std::uint16_t fabric = 0; fabric < clc::kMostIsmDevices; fabric++) {
        if (world_.chance(fabric == 0 ? 75 : 30)) {
            clc::IsmDevice device{{}, Chid{static_cast<std::uint16_t>(0xff00 + fabric)}};
            device.gid.bytes[0] = number;
            device.gid.bytes[15] = static_cast<std::uint8_t>(0x77 + fabric);
            terms.node.ism.insert(terms.node.ism.begin() + static_cast<long>(world_.below(terms.node.ism.size() + 1)),
                                  device);
        }
    }
    terms.node.host_name = name;
    terms.node.ueids = {*Eid::parse(stormy_ || world_.chance(96) ? "SIM" : "OTHER-" + std::to_string(number))};
    terms.node.max_connections = static_cast<std::uint8_t>(world_.between(16, 40));
    terms.means.smcd = !stormy_ && world_.chance(90);
    if (stormy_ || world_.chance(90)) {
        clc::RoceOffer& roce = terms.means.roce.emplace();
        roce.gids = terms.ports;
        roce.v1 = world_.chance(50);
        roce.v2 = !roce.v1 || world_.chance(85);
        roce.own_address = terms.ports.front();
        roce.peer_address = RoceGid::from_ipv4({10, 0, 0, static_cast<std::uint8_t>(3 - number)});
        roce.prefix_bits = 24;
    }
    terms.smcr.rmbe_bytes = kSmallestBuffer << world_.below(2);
    terms.smcr.rmbes_per_rmb = static_cast<std::uint8_t>(world_.between(1, 4));
    terms.smcr.link_bytes = 4096;
    terms.smcr.memory_limit = tight_ ? std::size_t{256} << 10 : std::size_t{64} << 20;
    terms.smcr.eye_catchers = world_.chance(30);
    terms.smcr.test_interval = std::chrono::milliseconds(world_.between(5000, 30000));
    terms.dmb_bytes = kSmallestBuffer << world_.below(2);
    terms.chooses_buffers = world_.chance(15);
    terms.reads_like_linux = world_.chance(30);
    terms.sends_on_any_link = world_.chance(stormy_ ? 70 : 20);
    return terms;
}

void Scenario::draw_mishaps() {
    if (stormy_) {
        const Delay first = world_.between(10, 100) * 1ms;
        a_->move_connections(world_.between(1, 10) * first / 10);
        b_->move_connections(world_.between(1, 10) * first / 10);
        (world_.chance(50) ? a_ : b_)->flap_first_port(first, world_.some_time(2s));
        (world_.chance(50) ? a_ : b_)->flap_port(first + world_.between(100, 1000) * 1ms, world_.some_time(2s));
        world_.allow(Mishap::kLateWrites, 90);
        world_.allow(Mishap::kEndsLate, 90);
        return;
    }
    if (world_.chance(20)) {
        return;
    }
    const unsigned percents[] = {5, 20, 60};
    for (std::uint64_t n = world_.between(1, 4); n > 0; n--) {
        const Mishap mishap = kMishaps[world_.below(std::size(kMishaps))];
        const bool often_asked =
            mishap == Mishap::kLinkSlow || mishap == Mishap::kApplicationStalls || mishap == Mishap::kAckedAndLost;
        world_.allow(mishap, often_asked ? 1 : percents[world_.below(std::size(percents))]);
    }
}

void Scenario::draw() {
    tight_ = world_.chance(5);
    stormy_ |= world_.chance(3);
    if (stormy_ || world_.chance(20)) {
        world_.slow_network();
    }
    terms_a_ = draw_node("a", 1);
    terms_b_ = draw_node("b", 2);
    a_ = std::make_unique<Node>(world_, network_, fabric_, terms_a_);
    b_ = std::make_unique<Node>(world_, network_, fabric_, terms_b_);
    draw_mishaps();
    for (Node* node : {a_.get(), b_.get()}) {
        Node* other = node == a_.get() ? b_.get() : a_.get();
        if (world_.strikes(Mishap::kGroupsEnd)) {
            world_.after(world_.some_time(10s), [node] { node->end_link_groups(); });
        }
        if (world_.strikes(Mishap::kPortDown)) {
            for (std::uint64_t n = world_.between(1, 3); n > 0; n--) {
                node->flap_port(world_.some_time(20s), world_.some_time(20s));
            }
        }
        if (world_.strikes(Mishap::kDeviceGone)) {
            node->lose_device(world_.some_time(20s), world_.some_time(20s));
        }
        if (world_.strikes(Mishap::kNonsense)) {
            for (std::uint64_t n = world_.between(1, 5); n > 0; n--) {
                world_.after(world_.some_time(20s), [node] { node->speak_nonsense(); });
            }
        }
        if (world_.strikes(Mishap::kDies)) {
            world_.after(world_.some_time(20s), [node] { node->die(); });
        }
        if (world_.strikes(Mishap::kFabricLost)) {
            world_.after(world_.some_time(10s), [node, other] { node->lose_fabric(*other); });
        }
    }
    if (world_.strikes(Mishap::kFlowsAtOnce)) {
        for (std::uint64_t n = world_.between(1, 6); n > 0; n--) {
            const TimePoint when = world_.now() + world_.some_time(20s);
            for (Node* node : {a_.get(), b_.get()}) {
                world_.at(when, [node] { node->change_links(); });
            }
        }
    }
    world_.tell("expected: " + expected_path());
}

// The path that the two nodes agree on if nothing goes wrong.
std::string Scenario::expected_path() const {
    const bool common_eid = terms_a_.node.ueids == terms_b_.node.ueids;
    const bool both_want_smcd = terms_a_.means.smcd && terms_b_.means.smcd;
    const auto& fabrics = terms_a_.node.ism;
    const bool common_fabric = std::ranges::any_of(
        fabrics, [&](const clc::IsmDevice& device) { return terms_b_.node.ism_on(device.chid) != nullptr; });
    if (both_want_smcd && common_eid && common_fabric) {
        return "smcd";
    }
    const auto& a = terms_a_.means.roce;
    const auto& b = terms_b_.means.roce;
    const bool v2 = a && b && a->v2 && b->v2 && common_eid, v1 = a && b && a->v1 && b->v1;
    return v2 || v1 ? "smcr" : "tcp";
}

void Scenario::connect_all() {
    const std::uint64_t count = !stormy_ && world_.chance(20) ? world_.between(7, 45) : world_.between(1, 6);
    const std::uint64_t most = stormy_ ? 500000 : count > 6 ? 5000 : world_.chance(20) ? 150000 : 20000;
    for (std::uint64_t i = 0; i < count; i++) {
        const bool forward = world_.chance(70);
        const auto plan = [&](const char* role, std::uint64_t out, std::uint64_t in) {
            Application::Plan p;
            p.name = "application " + std::to_string(i) + " (" + role + ")";
            p.out = out;
            p.in = in;
            p.reads_late = world_.chance(80) ? Delay{} : world_.some_time(5s);
            p.bytes = world_.chance(10) ? 0 : world_.below(world_.chance(stormy_ ? 5 : 30) ? 300 : most);
            if (world_.strikes(Mishap::kApplicationResets)) {
                p.resets_at = world_.now() + world_.some_time(10s);
            }
            return p;
        };
        Application::Plan client = plan("client", 2 * i, 2 * i + 1), server = plan("server", 2 * i + 1, 2 * i);
        client.urgent = server.urgent = world_.chance(20);
        client.is_slow = server.is_slow = stormy_ && world_.chance(50);
        (world_.chance(50) ? client : server).waits_for_end = world_.chance(20);
        connections_.emplace_back(world_, client, server, forward ? *a_ : *b_, forward ? *b_ : *a_);
    }
    for (Connection& c : connections_) {
        world_.after(world_.chance(70) ? world_.network() : world_.some_time(20s),
                     [&c] { c.from.connect(c.client, c.to, c.listener); });
    }
}

void Scenario::check_connections() const {
    for (const Connection& c : connections_) {
        const auto& served = c.listener.served();
        world_.require(c.client.over(), "stuck: " + c.client.state());
        for (const Application& server : served) {
            world_.require(server.over(), "stuck: " + server.state() + "; " + c.client.state());
            world_.require(server.has_read_from(c.client),
                           "read an end that was none: " + server.state() + "; " + c.client.state());
        }
        world_.require(
            (c.client.read() == 0 && c.client.end() != Application::End::kOrderly) ||
                std::ranges::any_of(served, [&](const Application& server) { return c.client.has_read_from(server); }),
            "read an end that was none: " + c.client.state());
        if (!world_.anything_struck()) {
            world_.require(served.size() == 1 && served.front().end() == Application::End::kOrderly &&
                               c.client.end() == Application::End::kOrderly,
                           "nothing went wrong, and it ended with an error: " + c.client.state());
        }
    }
    if (!world_.anything_struck() && !tight_) {
        for (const Node* node : {a_.get(), b_.get()}) {
            for (const auto& [path, count] : node->paths()) {
                world_.require(path == expected_path(), "nothing went wrong, and " + std::to_string(count) +
                                                            " connections ran on " + path + ", not on " +
                                                            expected_path());
            }
        }
    }
}

// Requires that both sides have the same link groups, without connections.
void Scenario::check_quiet() const {
    a_->check_quiet();
    b_->check_quiet();
    const auto of_a = a_->smcr_groups().active(), of_b = b_->smcr_groups().active();
    std::map<std::string, std::string> mirrored;
    for (const auto& [own, peer] : of_b) {
        mirrored.emplace(peer, own);
    }
    // A peer may have acted on the nonsense that it was sent.
    world_.require(of_a == mirrored || world_.struck(Mishap::kNonsense),
                   "the peers disagree about their link groups: a has " + std::to_string(of_a.size()) + ", b " +
                       std::to_string(of_b.size()));
}

}  // namespace

Report run(const Choice& choice) {
    return Scenario(choice).run();
}

}  // namespace smc::sim
