// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How the agent starts.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <asio/post.hpp>
#include <csignal>
#include <nlohmann/json.hpp>
#include <thread>

#include "agent/agent.h"
#include "agent/steer/pins.h"
#include "agent/upgrade/predecessor.h"
#include "os/clock.h"
#include "os/random.h"
#include "os/unix_socket.h"

namespace smc {

static_assert(bpf::OwnInstance::kMost == upgrade::Instance::kMost);

namespace {

constexpr auto kSweep = std::chrono::seconds(1);     // the tables of the BPF programs
constexpr auto kRefresh = std::chrono::seconds(2);   // the list of RoCE devices
constexpr auto kTidying = std::chrono::seconds(10);  // members of the bypass that other builds have left

// How long a leaving agent waits for connections that are being set up; each of them has its budget.
std::chrono::milliseconds settling(const Config& config) {
    return std::max(config.times.settle, config.budget);
}

// Leaves at least half of the processors to the applications, if there are two or more.
unsigned usual_threads() {
    return std::clamp(std::thread::hardware_concurrency() / 2, 1U, 4U);
}

std::string host_name(const Config& config) {
    char name[256] = "";
    ::gethostname(name, sizeof name - 1);
    return (config.host_name.empty() ? std::string(name) : config.host_name).substr(0, 32);
}

clc::LocalNode local_node(const Config& config) {
    clc::LocalNode node;
    random_bytes(node.peer_id.data(), node.peer_id.size());
    std::transform(config.ueids.begin(), config.ueids.end(), std::back_inserter(node.ueids),
                   [](const std::string& text) { return *Eid::parse(text); });
    node.seid = Eid::parse(config.seid);
    node.host_name = host_name(config);
    node.step_timeout = config.step_timeout;
    node.last_word = config.times.last_word;
    node.late = config.times.late;
    node.max_connections = static_cast<std::uint8_t>(config.roce.max_connections);
    node.max_links = static_cast<std::uint8_t>(config.roce.max_links);
    return node;
}

// Hash of the settings that decide which connections may be bypassed.
std::uint64_t policy_hash(const Config& config) {
    const auto all = nlohmann::json::parse(print_config(config, Keys::kAll, -1));
    return std::hash<std::string>()(all.at("policy").dump() + all.at("local").dump() + all.at("cgroup").dump());
}

// With a single processor, busy-polling would keep the applications that it waits for from running.
std::chrono::microseconds usual_spin() {
    return std::chrono::microseconds(std::thread::hardware_concurrency() > 1 ? 200 : 0);
}

}  // namespace

Agent::Agent(Config config, bool take_over, UniqueFd ready_fd)
    : config_(std::move(config)),
      take_over_(take_over),
      ready_fd_(std::move(ready_fd)),
      policy_(config_),
      signals_(io_),
      heartbeat_(io_),
      standstill_(config_.times.beat, config_.times.standstill),
      sweep_(kSweep),
      refresh_(kRefresh),
      tidying_(kTidying),
      node_(local_node(config_)),
      departure_({io_, config_.stop_drain, config_.upgrade_drain, settling(config_),
                  config_.times.successor + config_.times.prepare, [this] { return connections_.live(); },
                  [this] { return gateway_->handshakes() == 0 && !programs_->awaits_answers(config_.times.requests); },
                  [this] { return bool(connect_unix(config_.control_socket, SOCK_STREAM | SOCK_NONBLOCK)); },
                  [this] { tell_programs(); }, [this] { hand_over(); }, [this] { io_.stop(); },
                  [this] { return standstill_.hangs(); }}) {}

Result<void> Agent::start() {
    take_signals();
    lower_to_the_descriptors(config_);
    memory_.look();
    auto instance = upgrade::Instance::take(config_.control_socket);
    if (!instance) {
        return instance.error();
    }
    instance_.emplace(std::move(*instance));
    if (auto opened = take_over_ ? Result<void>() : open_control(); !opened) {
        return opened;
    }
    const auto mount = find_cgroup_mount();
    if (!mount) {
        return mount.error();
    }
    const std::string root = config_.cgroup_root.empty() ? *mount : config_.cgroup_root;
    if (auto checked = check_cgroup(root); !checked) {
        return checked;
    }
    auto own = OwnCgroup::enter(*mount, root);
    if (!own) {
        return own.error();
    }
    own_cgroup_.emplace(std::move(*own));

    if (auto opened = open_fabrics(); !opened) {
        return opened;
    }
    auto engines = Engines::start(
        config_.engine_threads != 0 ? config_.engine_threads : usual_threads(),
        [this](const ConnectionEnd& end) { asio::post(io_, [this, end] { gateway_->connection_ended(end); }); },
        config_.longest_spin.value_or(usual_spin()), fabrics_->busy_polls());
    if (!engines) {
        return engines.error();
    }
    engines_ = std::move(*engines);
    roce_devices_ = std::make_unique<smcr::Devices>(
        io_, config_.roce, [this](const std::string& device) { smcr_groups_->device_gone(device); },
        [this] { smcr_groups_->ports_changed(); });
    smcr_groups_ = std::make_unique<smcr::LinkGroups>(io_, *engines_, config_, *roce_devices_);
    if (config_.roce.enabled) {
        roce_devices_->refresh();
    }
    // RFC 7609 A.2.1: an instance number, and the MAC address of a RoCE port.
    for (const roce::Port& port : roce_devices_->ports()) {
        if (const roce::PortGid* gid = port.first_gid()) {
            std::ranges::copy(gid->mac.bytes, node_.peer_id.begin() + 2);
            break;
        }
    }
    if (auto taken = take_over_ ? take_over_from_predecessor() : Result<void>(); !taken) {
        return taken;
    }
    return start_bpf(root, own_cgroup_->path());
}

// Handles or ignores signals that would end the process as SIGKILL does, with its pins and hairpins left behind.
void Agent::take_signals() {
    for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) {
        signals_.add(number);
    }
    // SIGXFSZ: a DMB is a file, and one beyond the file size limit must be an error, not the agent's end.
    for (const int number :
         {SIGPIPE, SIGXFSZ, SIGXCPU, SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGIO, SIGPWR, SIGSTKFLT}) {
        std::signal(number, SIG_IGN);
    }
    for (int number = SIGRTMIN; number <= SIGRTMAX; number++) {
        std::signal(number, SIG_IGN);
    }
    std::signal(SIGCHLD, SIG_DFL);  // the parent may have ignored it: then nobody could wait for a successor
}

// U1: an agent may go on from here only with the control socket's lock. The steps that are likely to fail are tried
// first, because no agent serves between the other agent's departure and this one's start.
Result<void> Agent::take_over_from_predecessor() {
    if (auto tried = bpf::Programs::try_to_load(config_); !tried) {
        return tried;
    }
    const auto asked = upgrade::ask_to_leave(config_.control_socket, config_.pin_path, config_.times.answer);
    if (!asked) {
        return asked.error();
    }
    const TimePoint until = os::now() + config_.times.answer + settling(config_);
    auto opened = open_control();
    while (!opened && opened.error().code == EBUSY && *asked && os::now() < until) {
        ::usleep(10'000);
        opened = open_control();
    }
    return opened;
}

Result<void> Agent::open_control() {
    control_ = std::make_unique<ControlServer>(
        io_, config_.control_socket, config_.times.control,
        [this](const nlohmann::json& request, const ControlServer::Who& who) {
            return admin_ ? answer(request, who) : nlohmann::json{{"error", "starting"}};
        });
    return control_->start();
}

Result<void> Agent::open_fabrics() {
    smcd_memory_ = std::make_unique<smcd::Memory>(std::uint64_t{config_.ism_memory_mib} << 20);
    auto opened = smcd::Fabrics::open(io_, config_, [this](const smcd::Peer& peer) { lose_peer(peer); });
    if (!opened) {
        return opened.error();
    }
    fabrics_ = std::move(*opened);
    node_.ism = fabrics_->devices();
    smcd_pool_ = std::make_unique<smcd::Pool>(*smcd_memory_);
    return {};
}

Result<void> Agent::start_bpf(const std::string& root, const std::string& own) {
    auto lock = bpf::lock_pins(config_.pin_path);
    if (!lock) {
        return lock.error();
    }
    pins_lock_.emplace(std::move(*lock));
    const UniqueFd root_fd(::open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    const UniqueFd own_fd(::open(own.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!root_fd || !own_fd) {
        return last_error("opening cgroup " + (root_fd ? own : root));
    }
    auto programs = bpf::Programs::load(config_, policy_, open_bypass(root_fd.get()),
                                        {instance_->number(), instance_->clear_deserted()});
    if (!programs) {
        return programs.error();
    }
    programs_ = std::move(*programs);
    make_parts(root, own);
    return begin(root_fd.get(), own_fd.get());
}

// Makes the objects that need the BPF programs. Each uses those before it.
void Agent::make_parts(const std::string& root, const std::string& own) {
    cgroups_ = std::make_unique<Cgroups>(
        io_, root, own, policy_, programs_->cgroups,
        [this](const std::string& path) -> Cgroups::PodAt {
            return {pods_ ? pods_->pods().of_cgroup(path) : nullptr, !kubernetes::pod_uid(path).empty(),
                    !config_.kubernetes.api.empty()};
        },
        [this] { namespaces_->rescan_soon(); });
    namespaces_ = std::make_unique<Namespaces>(
        io_, config_.times, *programs_, *cgroups_, config_.cgroup_share,
        bpf::Hooks::Options{bpf::Hooks::tc_of(config_.tc), config_.roce.enabled},
        [this](const std::shared_ptr<Namespace>& netns) { gateway_->serve(netns); },
        [this](std::uint64_t inode) { return connections_.live_in(inode); });
    if (bypass_) {
        rounds_ = std::make_unique<bypass::Rounds>(io_, *bypass_, *namespaces_);
        if (verdict_ && !verdict_->obstacle.empty() && !verdict_->lasts) {
            rounds_->try_again(config_.times, [this](const auto& verdict, bool last) { bypass_tried(verdict, last); });
        }
    }
    const SessionParts session{io_,         config_,      node_,          *fabrics_,
                               *smcd_pool_, smcd_groups_, *roce_devices_, *smcr_groups_};
    gateway_ = std::make_unique<Gateway>(
        Gateway::Parts{session, *programs_, *namespaces_, *engines_, connections_, [this] { tell_programs(); }});
    introspection_ = std::make_unique<Introspection>(IntrospectionParts{config_,
                                                                        node_,
                                                                        policy_,
                                                                        *programs_,
                                                                        *cgroups_,
                                                                        *namespaces_,
                                                                        *fabrics_,
                                                                        *smcd_memory_,
                                                                        *smcd_pool_,
                                                                        connections_,
                                                                        smcd_groups_,
                                                                        *roce_devices_,
                                                                        *smcr_groups_,
                                                                        *engines_,
                                                                        bypass_,
                                                                        bypass_programs_,
                                                                        rounds_,
                                                                        verdict_,
                                                                        drain_,
                                                                        pods_,
                                                                        [this] { return not_ready(); },
                                                                        [this] { return obstacle(); }});
    admin_ = std::make_unique<Admin>(Admin::Parts{io_, config_.pin_path, node_, connections_, bypass_, drain_,
                                                  departure_, kubernetes::is_in_pod(), config_.times.control,
                                                  [this] { tell_programs(); }});
}

// Attaches the programs and lets the first connections in.
Result<void> Agent::begin(int root_cgroup_fd, int own_cgroup_fd) {
    if (auto started = cgroups_->start(); !started) {
        return started;
    }
    if (auto subscribed = programs_->subscribe([this](const smc_event& event) { handle(event); }); !subscribed) {
        return subscribed;
    }
    program_events_.emplace(io_, duplicate(programs_->events_fd()));
    if (!program_events_->watch()) {
        return last_error("watching the programs' events");
    }
    listen_to_programs();
    // Attach first: the programs for CLC sockets must see listen() on the namespaces' listeners.
    if (auto attached = programs_->attach(root_cgroup_fd, own_cgroup_fd); !attached) {
        return attached;
    }
    namespaces_->start();
    namespaces_->settle();
    programs_->replace_predecessor();
    if (rounds_) {
        rounds_->start();
    }
    beat();  // requests begin here
    if (departure_.released()) {
        return {};  // another agent has asked to take over, and got everything, while the namespaces were opened
    }
    if (!config_.kubernetes.api.empty()) {
        pods_ = std::make_unique<kubernetes::NodePods>(io_, config_.kubernetes, policy_.pod_keys(),
                                                       [this] { pods_changed(); });
    }
    if (!config_.http_listen.empty()) {
        site_.emplace(*introspection_, config_.http_page, [this] { return standstill_.stands_still(); });
        web_ =
            std::make_unique<WebServer>(io_, *Endpoint::parse(config_.http_listen),
                                        [this](const WebServer::Request& request) { return site_->answer(request); });
    }
    return {};
}

bpf::LocalParts Agent::open_bypass(int root_cgroup_fd) {
    auto opened = bypass::open_as_configured(config_, policy_hash(config_), root_cgroup_fd, bypass_programs_);
    bypass_ = std::move(opened.bypass);
    verdict_ = std::move(opened.verdict);
    bypass_forced_ = opened.forced;
    return bypass_ ? bpf::LocalParts{bypass_->shared_maps(), opened.mask} : bpf::LocalParts{};
}

}  // namespace smc
