// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/steer/programs.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "agent/log/log.h"
#include "agent/steer/pins.h"
#include "os/random.h"
#include "smc/wire/ebcdic.h"
#include "smc/wire/tcp_option.h"
#include "smc_gateway.skel.h"

namespace smc::bpf {

// The programs write what the protocol library reads.
static_assert(SMC_REASON_OPTION_LOST == static_cast<std::uint32_t>(Reason::kOptionLost));
static_assert(SMC_REASON_CONNECT_FAILED == static_cast<std::uint32_t>(Reason::kConnectFailed));
static_assert(SMC_TCPOPT_KIND == tcp::kExperimentalKind && SMC_TCPOPT_LEN == tcp::kOptionBytes &&
              SMC_TCPOPT_EXID == kEyeCatcherR);

namespace {

int log_libbpf(libbpf_print_level level, const char* format, va_list arguments) {
    if (level == LIBBPF_DEBUG) {
        return 0;
    }
    char line[1024];
    const int n = std::vsnprintf(line, sizeof line, format, arguments);
    std::string_view text(line);
    while (text.ends_with('\n')) {
        text.remove_suffix(1);
    }
    // libbpf warns of probes that fail by design; its real failures also come back as errors
    log()->debug("libbpf: {}", text);
    return n;
}

constexpr const char* kBefore = "-old";  // suffix of a killed agent's pins, while the next one starts

// Path of the pins of an agent that is leaving.
std::string leaving(const std::string& path, unsigned number) {
    return path + "-leaving-" + std::to_string(number);
}

int handle_event(void* context, void* data, std::size_t size) {
    if (size >= sizeof(smc_event)) {
        (*static_cast<Programs::OnEvent*>(context))(*static_cast<const smc_event*>(data));
    }
    return 0;
}

}  // namespace

void log_what_libbpf_says() {
    libbpf_set_print(log_libbpf);
}

Result<void> Programs::open(const Config& config, const LocalParts& local) {
    log_what_libbpf_says();
    const bool reads = may_read_kernel();
    const bool pid_is_open =
        libbpf_probe_bpf_helper(BPF_PROG_TYPE_SCHED_CLS, BPF_FUNC_get_current_pid_tgid, nullptr) == 1;
    const auto prepare = [&](smc_gateway& skeleton) -> Result<void> {
        bpf_map__set_max_entries(skeleton.maps.smc_servers, config.cache_entries);
        skeleton.rodata->smc_pid_is_open = pid_is_open ? 1 : 0;
        skeleton.rodata->smc_reads_kernel = reads ? 1 : 0;
        bpf_program__set_autoload(skeleton.progs.smc_socket_ends, !reads);
        for (const auto& [name, fd] : local.maps) {
            bpf_map* map = bpf_object__find_map_by_name(skeleton.obj, name.c_str());
            if (map == nullptr || bpf_map__reuse_fd(map, fd) != 0) {
                return last_error("taking " + name + " of the bypass");
            }
        }
        return {};
    };
    auto loaded = load_what_is_allowed<smc_gateway>(smc_gateway__open, smc_gateway__load, smc_gateway__destroy, prepare,
                                                    gateway_programs(), states_);
    if (!loaded) {
        return loaded.error();
    }
    skeleton_ = std::move(*loaded);
    if (!reads) {
        states_.push_back(
            {"bpf_probe_read_kernel", "helper", "", "keepalive, resets, figures in smcctl ss", false, EPERM});
        log()->warn("programs may not read the kernel's memory; lost: {}", states_.back().lost);
    }
    return {};
}

Result<void> Programs::try_to_load(const Config& config) {
    const std::unique_ptr<Programs> programs(new Programs({}));
    return programs->open(config, {});
}

Result<std::unique_ptr<Programs>> Programs::load(const Config& config, const Policy& policy, const LocalParts& local,
                                                 OwnInstance instance) {
    std::unique_ptr<Programs> programs(new Programs(std::move(instance)));
    if (auto opened = programs->open(config, local); !opened) {
        return opened.error();
    }
    programs->cgroups = Map<std::uint64_t, smc_cgroup>(programs->map_fd("smc_cgroups"));
    programs->netns = Map<std::uint64_t, smc_netns>(programs->map_fd("smc_netns"));
    programs->devices = Map<smc_device_key, smc_device>(programs->map_fd("smc_devices"));
    programs->clc_listeners = Map<std::uint32_t, std::uint64_t>(programs->map_fd("smc_clc"));
    programs->hairpins = Map<smc_tuple, smc_hairpin>(programs->map_fd("smc_hairpins"));
    programs->heartbeat_ = Map<std::uint32_t, smc_heartbeat>(programs->map_fd("smc_heartbeat"));
    programs->socks_ = Map<int, smc_sock>(programs->map_fd("smc_socks"));
    programs->requests_ = Map<smc_tuple, smc_request>(programs->map_fd("smc_requests"));
    programs->inbound_ = Map<smc_tuple, smc_inbound>(programs->map_fd("smc_inbound"));
    programs->servers_ = Map<smc_dest, smc_server>(programs->map_fd("smc_servers"));
    programs->short_lived_ = Map<smc_short_key, smc_short>(programs->map_fd("smc_short"));
    if (auto chosen = ChosenBuffers::open(programs->map_fd("smc_chosen"), SMC_MAX_CHOSEN)) {
        programs->chosen_ = std::move(*chosen);
    } else {
        log()->warn("map smc_chosen: {}; lost: changes of SO_SNDBUF after connect(), and quicker reads",
                    chosen.error().text());
    }
    programs->try_to_run();
    if (auto filled = programs->fill_tables(config, policy, local); !filled) {
        return filled.error();
    }
    if (auto pinned = programs->pin(config.pin_path); !pinned) {
        return pinned.error();
    }
    return programs;
}

std::shared_ptr<const ChosenBuffers::Lease> Programs::follow_send_buffer(std::uint32_t send) const {
    return chosen_ ? chosen_->take(send) : nullptr;
}

Programs::~Programs() {
    beat(false, false);
    for (const auto& [name, link] : links_) {
        bpf_link__destroy(link);
    }
    ring_buffer__free(ring_);
    unpin();
}

Result<void> Programs::fill_tables(const Config& config, const Policy& policy, const LocalParts& local) const {
    const Map<std::uint32_t, int> tails(map_fd("smc_programs"));
    for (const auto& [index, program] : {std::pair(SMC_PROGRAM_EGRESS, skeleton_->progs.smc_egress),
                                         std::pair(SMC_PROGRAM_INGRESS, skeleton_->progs.smc_ingress)}) {
        if (auto put = tails.put(static_cast<std::uint32_t>(index), bpf_program__fd(program)); !put) {
            return put;
        }
    }
    const Map<std::uint32_t, smc_rule> rules(map_fd("smc_rules"));
    for (std::uint32_t i = 0; i < policy.table().size(); i++) {
        if (auto put = rules.put(i, policy.table()[i]); !put) {
            return put;
        }
    }
    const std::vector<std::uint64_t> zeros(static_cast<std::size_t>(libbpf_num_possible_cpus()));
    for (int i = 0; i < SMC_DECISIONS; i++) {
        if (bpf_map_update_elem(map_fd("smc_counters"), &i, zeros.data(), BPF_ANY) != 0) {
            return last_error("creating the counters");
        }
    }
    smc_config shared{};
    shared.abi_version = SMC_ABI_VERSION;
    shared.rule_count = static_cast<__u32>(policy.table().size());
    shared.heartbeat_max_age_ns = static_cast<__u64>(std::chrono::nanoseconds(config.times.stale).count());
    shared.budget_ns = static_cast<__u64>(std::chrono::nanoseconds(config.budget).count());
    shared.not_now_ns = static_cast<__u64>(std::chrono::nanoseconds(config.cache_time).count());
    shared.default_allow = policy.default_allow() ? 1 : 0;
    shared.local = SMC_LOCAL_TUNE | bypass_of(config.bypass);
    shared.local_mask = local.mask | (config.tune ? SMC_LOCAL_TUNE : 0);
    shared.smcd = config.smcd ? 1 : 0;
    shared.past_limits = config.past_limits ? 1 : 0;
    shared.short_lived = config.short_lived ? 1 : 0;
    // A leg takes no more than about this much that TCP cannot send yet. If the application does not read, the rest
    // stays in the ring, and the peer sees a full ring.
    shared.leg_unsent = 16 * 1024;
    shared.most_requests = SMC_MAX_REQUESTS * config.cgroup_share / 100;
    random_bytes(reinterpret_cast<std::uint8_t*>(&shared.tag), sizeof shared.tag);
    return Map<std::uint32_t, smc_config>(map_fd("smc_config")).put(0, shared);
}

// P1: pins in a private directory first; the rename makes all of them appear at once. (bpffs allows no dots in names.)
Result<void> Programs::pin(const std::string& path) {
    if (auto made = make_pin_directory(path); !made) {
        return made;
    }
    const std::string fresh = path + "-new", before = path + kBefore;
    for (const std::string& directory : {path, fresh, before}) {
        if (auto good = has_only_ours(directory); !good) {
            return good;
        }
    }
    remove_pins(fresh);
    for (const unsigned number : instance_.deserted) {
        remove_pins(leaving(path, number));
    }
    // Pins of an agent that is gone, because we have the lock. Its programs stay on the devices until ours are there.
    before_ = before;
    if (std::filesystem::exists(path)) {
        remove_pins(before_);
        if (::rename(path.c_str(), before_.c_str()) != 0) {
            return last_error("renaming " + path + " to " + before_);
        }
    }
    if (::mkdir(fresh.c_str(), 0700) != 0) {
        return last_error("creating " + fresh);
    }
    if (auto done = pin_maps(fresh, path); !done) {
        remove_pins(fresh);
        return done;
    }
    pinned_ = path;
    return {};
}

Result<void> Programs::pin_maps(const std::string& fresh, const std::string& path) const {
    bpf_map* map = nullptr;
    bpf_object__for_each_map(map, skeleton_->obj) {
        const std::string name = bpf_map__name(map);
        // the bypass has pins of its own
        const bool bypass = name.starts_with("smc_bypass") || name == "smc_paired" || name == "smc_members";
        if (is_to_be_pinned(name) && !bypass && bpf_map__type(map) != BPF_MAP_TYPE_RINGBUF &&
            bpf_map__pin(map, (fresh + "/" + name).c_str()) != 0) {
            return last_error("pinning " + name);
        }
    }
    return ::rename(fresh.c_str(), path.c_str()) == 0 ? Result<void>()
                                                      : last_error("renaming " + fresh + " to " + path);
}

void Programs::unpin() {
    if (!pinned_.empty()) {
        remove_pins(pinned_);
    }
    if (!before_.empty()) {
        // This agent has not replaced the killed one, whose pins get their name back.
        (void)::rename(before_.c_str(), before_.substr(0, before_.size() - std::strlen(kBefore)).c_str());
    }
}

void Programs::replace_predecessor() {
    remove_pins(std::exchange(before_, ""));
}

Result<void> Programs::withdraw() {
    auto renamed = rename_pins();
    instance_.deserted.clear();  // from here on other instances may use these numbers
    // From here on smc_app_sockops tunes and watches no further socket. It stays attached, because it marks sockets
    // behind a leg, which a server may accept late; smc_socket_ends notes their end.
    const Map<std::uint32_t, smc_config> configs(map_fd("smc_config"));
    if (auto config = configs.get(0)) {
        config->local = config->local_mask = 0;
        if (auto put = configs.put(0, *config); !put) {
            return put;
        }
    }
    std::erase_if(links_, [](const auto& entry) {
        const bool goes = entry.first != "smc_app_sockops" && entry.first != "smc_socket_ends";
        if (goes) {
            bpf_link__destroy(entry.second);
        }
        return goes;
    });
    return renamed;
}

// From here on this agent does not touch the pins under the common name, which are its successor's, even if renaming
// fails.
Result<void> Programs::rename_pins() {
    const std::string from = std::exchange(pinned_, leaving(pinned_, instance_.number));
    if (::rename(from.c_str(), pinned_.c_str()) == 0) {
        return {};
    }
    const Error failed = last_error("renaming " + from + " to " + pinned_);
    ::mkdir(pinned_.c_str(), 0700);  // somebody has deleted it: later pins have a place all the same
    return failed;
}

// To be called before new sk_lookup programs are attached: those of the killed agent do not find new SYNs in their old
// maps, and may drop packets that match an old entry.
void Programs::retire_old_lookups() const {
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(before_, ignored)) {
        if (entry.path().filename().string().starts_with("smc_lookup_")) {
            ::unlink(entry.path().c_str());
        }
    }
}

Result<void> Programs::attach(int root_cgroup_fd, int own_cgroup_fd) {
    retire_old_lookups();
    const auto& programs = skeleton_->progs;
    const std::array<std::pair<bpf_program*, int>, 2> wanted{{
        {programs.smc_clc_ops, own_cgroup_fd},
        {programs.smc_app_sockops, root_cgroup_fd},
    }};
    for (const auto& [program, cgroup] : wanted) {
        bpf_link* link = bpf_program__attach_cgroup(program, cgroup);
        if (link == nullptr) {
            return refusal(std::string("to attach BPF program ") + bpf_program__name(program) + " (sockops)", errno);
        }
        links_.emplace_back(bpf_program__name(program), link);
    }
    return attach_ends();
}

// Attaches smc_socket_ends if it is loaded. Pinned (P1): programs that stay on devices must learn which legs are gone.
Result<void> Programs::attach_ends() {
    const bpf_program* program = skeleton_->progs.smc_socket_ends;
    if (bpf_program__fd(program) < 0) {
        return {};
    }
    bpf_link* link = bpf_program__attach(program);
    if (link == nullptr) {
        return refusal(std::string("to attach BPF program ") + bpf_program__name(program), errno);
    }
    links_.emplace_back(bpf_program__name(program), link);
    return bpf_link__pin(link, (pinned_ + "/" + bpf_program__name(program)).c_str()) == 0
               ? Result<void>()
               : Result<void>(last_error(std::string("pinning ") + bpf_program__name(program)));
}

std::vector<std::string> Programs::attached() const {
    std::vector<std::string> names;
    for (const auto& [name, link] : links_) {
        names.push_back(name);
    }
    return names;
}

Result<void> Programs::subscribe(OnEvent on_event) {
    on_event_ = std::move(on_event);
    ring_ = ring_buffer__new(map_fd("smc_events"), handle_event, &on_event_, nullptr);
    if (ring_ == nullptr) {
        return last_error("opening the event ring");
    }
    return {};
}

int Programs::events_fd() const {
    return ring_buffer__epoll_fd(ring_);
}

void Programs::poll() {
    ring_buffer__consume(ring_);
}

namespace {

// Replaces the placeholder of a namespace's slot (SMC_OWN_SLOT). False: it is not there exactly once.
bool replace_slot(std::vector<bpf_insn>& code, std::uint32_t slot) {
    int found = 0;
    for (bpf_insn& instruction : code) {
        if (instruction.code == (BPF_ALU64 | BPF_MOV | BPF_K) && instruction.imm == SMC_SLOT_PLACEHOLDER) {
            instruction.imm = static_cast<__s32>(slot);
            found++;
        }
    }
    return found == 1;
}

}  // namespace

Result<UniqueFd> Programs::for_slot(PerNamespace which, std::uint32_t slot) const {
    const auto& programs = skeleton_->progs;
    const bpf_program* program = which == PerNamespace::kOut  ? programs.smc_out
                                 : which == PerNamespace::kIn ? programs.smc_in
                                                              : programs.smc_lookup;
    const bpf_insn* first = bpf_program__insns(program);
    std::vector<bpf_insn> code(first, first + bpf_program__insn_cnt(program));
    if (!replace_slot(code, slot)) {
        return Error{EINVAL, std::string("internal: no unique slot placeholder in ") + bpf_program__name(program)};
    }
    bpf_prog_load_opts options{};
    options.sz = sizeof options;
    options.expected_attach_type = bpf_program__expected_attach_type(program);
    UniqueFd fd(bpf_prog_load(bpf_program__type(program), bpf_program__name(program), "Dual BSD/GPL", code.data(),
                              code.size(), &options));
    return fd ? Result<UniqueFd>(std::move(fd)) : last_error(std::string("loading ") + bpf_program__name(program));
}

int Programs::program_fd(const std::string& name) const {
    const bpf_program* program = bpf_object__find_program_by_name(skeleton_->obj, name.c_str());
    return program != nullptr ? bpf_program__fd(program) : -1;
}

int Programs::map_fd(const std::string& name) const {
    return bpf_object__find_map_fd_by_name(skeleton_->obj, name.c_str());
}

}  // namespace smc::bpf
