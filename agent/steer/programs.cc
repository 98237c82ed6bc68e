// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/steer/programs.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>

#include "agent/log/log.h"
#include "agent/steer/addresses.h"
#include "os/random.h"
#include "smc/wire/ebcdic.h"
#include "smc/wire/tcp_option.h"
#include "smc_gateway.skel.h"

namespace smc::bpf {

// The programs write what the protocol library reads.
static_assert(SMC_REASON_OPTION_LOST == static_cast<std::uint32_t>(Reason::kOptionLost));
static_assert(SMC_TCPOPT_KIND == tcp::kExperimentalKind && SMC_TCPOPT_LEN == tcp::kOptionBytes &&
              SMC_TCPOPT_EXID == kEyeCatcherR);

namespace {

constexpr long kBpfFsMagic = 0xcafe4a11;
constexpr const char* kBpfFs = "/sys/fs/bpf";

std::uint64_t monotonic_ns() {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

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

bool is_bpffs(const std::string& path) {
    struct statfs status {};
    return ::statfs(path.c_str(), &status) == 0 && status.f_type == kBpfFsMagic;
}

Result<void> make_pin_directory(const std::string& path) {
    const auto parent = std::filesystem::path(path).parent_path().string();
    if (path.starts_with(std::string(kBpfFs) + "/") && !is_bpffs(kBpfFs) &&
        ::mount("bpf", kBpfFs, "bpf", 0, nullptr) != 0) {
        return last_error("mounting a bpf file system on /sys/fs/bpf");
    }
    std::error_code failure;
    std::filesystem::create_directories(parent, failure);
    if (failure || !is_bpffs(parent)) {
        return Error{failure ? failure.value() : EINVAL, "pinning maps: " + parent + " is not on a bpf file system"};
    }
    return {};
}

int handle_event(void* context, void* data, std::size_t size) {
    if (size >= sizeof(smc_event)) {
        (*static_cast<Programs::OnEvent*>(context))(*static_cast<const smc_event*>(data));
    }
    return 0;
}

}  // namespace

Result<std::unique_ptr<Programs>> Programs::load(const Config& config, const Policy& policy) {
    libbpf_set_print(log_libbpf);
    std::unique_ptr<Programs> programs(new Programs);
    programs->skeleton_ = smc_gateway__open();
    if (programs->skeleton_ == nullptr) {
        return last_error("opening the BPF object");
    }
    bpf_map__set_max_entries(programs->skeleton_->maps.smc_servers, config.cache_entries);
    programs->skeleton_->rodata->smc_pid_is_open =
        libbpf_probe_bpf_helper(BPF_PROG_TYPE_SCHED_CLS, BPF_FUNC_get_current_pid_tgid, nullptr) == 1 ? 1 : 0;
    if (const int rc = smc_gateway__load(programs->skeleton_); rc != 0) {
        return Error{-rc, "loading the BPF programs (is this kernel 6.1 or newer, with BTF?)"};
    }
    programs->cgroups = Map<std::uint64_t, smc_cgroup>(programs->map_fd("smc_cgroups"));
    programs->netns = Map<std::uint64_t, smc_netns>(programs->map_fd("smc_netns"));
    programs->devices = Map<smc_device_key, smc_device>(programs->map_fd("smc_devices"));
    programs->clc_listeners = Map<std::uint32_t, std::uint64_t>(programs->map_fd("smc_clc"));
    programs->hairpins = Map<smc_tuple, smc_hairpin>(programs->map_fd("smc_hairpins"));
    programs->sweep();  // for its clock
    if (auto filled = programs->fill_tables(config, policy); !filled) {
        return filled.error();
    }
    if (auto pinned = programs->pin(config.pin_path); !pinned) {
        return pinned.error();
    }
    return programs;
}

Programs::~Programs() {
    beat(false);
    for (const auto& [name, link] : links_) {
        bpf_link__destroy(link);
    }
    ring_buffer__free(ring_);
    unpin();
    smc_gateway__destroy(skeleton_);
}

Result<void> Programs::fill_tables(const Config& config, const Policy& policy) const {
    const Map<std::uint32_t, int> tails(map_fd("smc_programs"));
    for (const auto& [place, program] : {std::pair(SMC_PROGRAM_EGRESS, skeleton_->progs.smc_egress),
                                         std::pair(SMC_PROGRAM_INGRESS, skeleton_->progs.smc_ingress)}) {
        if (auto put = tails.put(static_cast<std::uint32_t>(place), bpf_program__fd(program)); !put) {
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
    shared.heartbeat_max_age_ns = 900'000'000;  // beats come every 250 ms; promised is one second
    shared.budget_ns = static_cast<__u64>(std::chrono::nanoseconds(config.budget).count());
    shared.default_allow = policy.default_allow() ? 1 : 0;
    random_bytes(reinterpret_cast<std::uint8_t*>(&shared.tag), sizeof shared.tag);
    return Map<std::uint32_t, smc_config>(map_fd("smc_config")).put(0, shared);
}

namespace {

// Removes what an agent pinned, and nothing else that may be in the directory.
void remove_pins(const std::string& path) {
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(path, ignored)) {
        if (entry.path().filename().string().starts_with("smc_")) {
            ::unlink(entry.path().c_str());
        }
    }
    ::rmdir(path.c_str());
}

}  // namespace

// P1: pins in a private directory first; the rename makes all of them appear at once. (bpffs takes no dots.)
Result<void> Programs::pin(const std::string& path) {
    if (auto made = make_pin_directory(path); !made) {
        return made;
    }
    const std::string fresh = path + "-new";
    remove_pins(fresh);
    remove_pins(path);  // of an agent that was killed; the lock says it is gone
    if (::mkdir(fresh.c_str(), 0700) != 0) {
        return last_error("creating " + fresh);
    }
    bpf_map* map = nullptr;
    bpf_object__for_each_map(map, skeleton_->obj) {
        const std::string name = bpf_map__name(map);
        // .rodata and the like are nobody's business
        if (name.starts_with("smc_") && bpf_map__type(map) != BPF_MAP_TYPE_RINGBUF &&
            name.find('.') == std::string::npos && bpf_map__pin(map, (fresh + "/" + name).c_str()) != 0) {
            return last_error("pinning " + name);
        }
    }
    if (::rename(fresh.c_str(), path.c_str()) != 0) {
        const Error error = last_error("renaming " + fresh + " to " + path);
        remove_pins(fresh);
        return error;
    }
    pinned_ = path;
    return {};
}

void Programs::unpin() {
    if (!pinned_.empty()) {
        remove_pins(pinned_);
    }
}

Result<void> Programs::attach(int root_cgroup_fd, int own_cgroup_fd) {
    const auto& programs = skeleton_->progs;
    const std::array<std::pair<bpf_program*, int>, 2> wanted{{
        {programs.smc_clc_ops, own_cgroup_fd},
        {programs.smc_app_sockops, root_cgroup_fd},
    }};
    for (const auto& [program, cgroup] : wanted) {
        bpf_link* link = bpf_program__attach_cgroup(program, cgroup);
        if (link == nullptr) {
            return last_error(std::string("attaching ") + bpf_program__name(program));
        }
        links_.emplace_back(bpf_program__name(program), link);
    }
    return {};
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

void Programs::beat(bool steer) const {
    if (skeleton_ != nullptr && skeleton_->maps.smc_heartbeat != nullptr) {
        const smc_heartbeat value{ktime_ns(), steer ? 1U : 0U};
        [[maybe_unused]] const auto put = Map<std::uint32_t, smc_heartbeat>(map_fd("smc_heartbeat")).put(0, value);
    }
}

namespace {

// The instruction that stands in a namespace's slot's place (SMC_OWN_SLOT).
bool replace_slot(std::vector<bpf_insn>& code, std::uint32_t slot) {
    int found = 0;
    for (bpf_insn& instruction : code) {
        if (instruction.code == (BPF_ALU64 | BPF_MOV | BPF_K) && instruction.imm == SMC_SLOT_PLACE) {
            instruction.imm = static_cast<__s32>(slot);
            found++;
        }
    }
    return found == 1;
}

}  // namespace

Result<UniqueFd> Programs::stamped(Stamped which, std::uint32_t slot) const {
    const auto& programs = skeleton_->progs;
    const bpf_program* program = which == Stamped::kOut  ? programs.smc_out
                                 : which == Stamped::kIn ? programs.smc_in
                                                         : programs.smc_lookup;
    const bpf_insn* first = bpf_program__insns(program);
    std::vector<bpf_insn> code(first, first + bpf_program__insn_cnt(program));
    if (!replace_slot(code, slot)) {
        return Error{EINVAL, std::string("finding the slot's place in ") + bpf_program__name(program)};
    }
    bpf_prog_load_opts options{};
    options.sz = sizeof options;
    options.expected_attach_type = bpf_program__expected_attach_type(program);
    UniqueFd fd(bpf_prog_load(bpf_program__type(program), bpf_program__name(program), "Dual BSD/GPL", code.data(),
                              code.size(), &options));
    return fd ? Result<UniqueFd>(std::move(fd)) : last_error(std::string("loading ") + bpf_program__name(program));
}

Result<void> Programs::mark_socket(int fd, const smc_sock& mark) const {
    return Map<int, smc_sock>(map_fd("smc_socks")).put(fd, mark);
}

smc_option_seen Programs::option_seen(int fd) const {
    const auto value = Map<int, smc_sock>(map_fd("smc_socks")).get(fd);
    return value ? value->option : SMC_OPTION_UNKNOWN;
}

bool Programs::let_go(const smc_tuple& tuple, std::uint64_t cookie) const {
    const Map<smc_tuple, smc_question> questions(map_fd("smc_questions"));
    auto question = questions.get(tuple);
    if (!question || question->cookie != cookie ||
        (question->state != SMC_QUESTION_HELD && question->state != SMC_QUESTION_TAKEN)) {
        return false;
    }
    question->state = SMC_QUESTION_LET_GO;
    return bpf_map_update_elem(questions.fd(), &tuple, &*question, BPF_EXIST) == 0;
}

std::optional<smc_question> Programs::release_leg(int fd) const {
    const Map<int, smc_sock> socks(map_fd("smc_socks"));
    auto mark = socks.get(fd);
    if (!mark) {
        return std::nullopt;
    }
    mark->hold = 0;
    if (auto put = socks.put(fd, *mark); !put) {
        log()->warn("releasing a leg: {}", put.error().text());
    }
    const Map<smc_tuple, smc_question> questions(map_fd("smc_questions"));
    const auto held = questions.get(mark->front);
    if (!held || held->state != SMC_QUESTION_LEG) {
        return std::nullopt;
    }
    questions.erase(mark->front);
    return held;
}

std::size_t Programs::questions() const {
    const Map<smc_tuple, smc_question> questions(map_fd("smc_questions"));
    const auto keys = questions.keys();
    return static_cast<std::size_t>(std::ranges::count_if(keys, [&](const smc_tuple& key) {
        const auto question = questions.get(key);
        return question && question->state <= SMC_QUESTION_HELD;
    }));
}

smc_inbound Programs::take_inbound(const smc_tuple& tuple) const {
    const Map<smc_tuple, smc_inbound> inbound(map_fd("smc_inbound"));
    const auto found = inbound.get(tuple);
    inbound.erase(tuple);
    return found.value_or(smc_inbound{});
}

void Programs::sweep() {
    smc_clock clock{};
    bpf_test_run_opts options{};
    options.sz = sizeof options;
    options.ctx_in = &clock;  // and what the program makes of it
    options.ctx_size_in = sizeof clock;
    if (bpf_prog_test_run_opts(bpf_program__fd(skeleton_->progs.smc_sweep), &options) != 0) {
        log()->warn("sweeping the tables: {}", std::generic_category().message(errno));
    } else {
        constexpr std::uint64_t kNotWorthIt = 50'000'000;  // the run itself takes a while
        const std::uint64_t ahead = clock.ktime_ns - monotonic_ns();
        clock_ahead_ns_ = ahead + kNotWorthIt < 2 * kNotWorthIt ? 0 : ahead;
    }
}

std::uint64_t Programs::ktime_ns() const {
    return monotonic_ns() + clock_ahead_ns_;
}

void Programs::set_full(std::uint64_t cgroup, bool full) const {
    if (auto value = cgroups.get(cgroup)) {
        value->full = full ? 1 : 0;
        bpf_map_update_elem(cgroups.fd(), &cgroup, &*value, BPF_EXIST);
    }
}

void Programs::remember(std::uint64_t cookie, const Endpoint& server, smc_knowledge knowledge, Reason reason,
                        std::chrono::seconds how_long, std::uint8_t ttl) const {
    const auto duration = std::chrono::nanoseconds(how_long).count();
    const smc_server value{knowledge, static_cast<__u32>(reason), ktime_ns() + static_cast<std::uint64_t>(duration),
                           ttl};
    [[maybe_unused]] const auto put =
        Map<smc_dest, smc_server>(map_fd("smc_servers")).put({cookie, to_abi(server), 0}, value);
}

void Programs::forget(std::uint64_t cookie, const Endpoint& server) const {
    Map<smc_dest, smc_server>(map_fd("smc_servers")).erase({cookie, to_abi(server), 0});
}

std::optional<smc_server> Programs::knows(std::uint64_t cookie, const Endpoint& server) const {
    auto value = Map<smc_dest, smc_server>(map_fd("smc_servers")).get({cookie, to_abi(server), 0});
    return value && value->expires_ns > ktime_ns() ? value : std::nullopt;
}

Result<smc_query> Programs::explain(smc_query query) const {
    bpf_test_run_opts options{};
    options.sz = sizeof options;
    options.ctx_in = &query;
    options.ctx_size_in = sizeof query;
    if (bpf_prog_test_run_opts(bpf_program__fd(skeleton_->progs.smc_explain), &options) != 0) {
        return last_error("running smc_explain");
    }
    return query;
}

std::uint64_t Programs::counter(smc_decision decision) const {
    std::vector<std::uint64_t> values(static_cast<std::size_t>(libbpf_num_possible_cpus()));
    const int key = decision;
    bpf_map_lookup_elem(map_fd("smc_counters"), &key, values.data());
    std::uint64_t sum = 0;
    for (const auto value : values) {
        sum += value;
    }
    return sum;
}

std::string Programs::decision_name(smc_decision decision) {
    static const auto kObject = [] {
        std::size_t size = 0;
        const void* elf = smc_gateway__elf_bytes(&size);
        return std::unique_ptr<bpf_object, decltype(&bpf_object__close)>(bpf_object__open_mem(elf, size, nullptr),
                                                                         &bpf_object__close);
    }();
    const btf* types = kObject ? bpf_object__btf(kObject.get()) : nullptr;
    const int id = types != nullptr ? btf__find_by_name_kind(types, "smc_decision", BTF_KIND_ENUM) : -1;
    if (id < 0) {
        return std::to_string(decision);
    }
    const btf_type* type = btf__type_by_id(types, static_cast<__u32>(id));
    for (int i = 0; i < btf_vlen(type); i++) {
        if (btf_enum(type)[i].val == static_cast<int>(decision)) {
            return btf__name_by_offset(types, btf_enum(type)[i].name_off);
        }
    }
    return std::to_string(decision);
}

int Programs::program_fd(const std::string& name) const {
    const bpf_program* program = bpf_object__find_program_by_name(skeleton_->obj, name.c_str());
    return program != nullptr ? bpf_program__fd(program) : -1;
}

int Programs::map_fd(const std::string& name) const {
    return bpf_object__find_map_fd_by_name(skeleton_->obj, name.c_str());
}

}  // namespace smc::bpf
