// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How the agent exchanges data with the programs while they run.
#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <time.h>

#include <algorithm>

#include "agent/log/log.h"
#include "agent/steer/addresses.h"
#include "agent/steer/programs.h"
#include "agent/steer/run_program.h"
#include "os/clock.h"
#include "smc_gateway.skel.h"

namespace smc::bpf {

namespace {

KeepaliveTerms in_seconds(const smc_keepalive& terms) {
    timespec tick{};
    ::clock_getres(CLOCK_MONOTONIC_COARSE, &tick);
    const auto per_second = static_cast<unsigned>(1'000'000'000 / std::max(tick.tv_nsec, 1L));
    const auto seconds = [&](std::uint32_t ticks) { return ticks != 0 ? std::max(1U, ticks / per_second) : 0; };
    return {terms.on != 0, seconds(terms.idle_ticks), seconds(terms.interval_ticks), terms.probes,
            terms.user_timeout_ms};
}

}  // namespace

void Programs::beat(bool accepting, bool roce) const {
    [[maybe_unused]] const auto put = heartbeat_.put(0, {ktime_ns(), accepting ? 1U : 0U, roce ? 1U : 0U});
}

Result<void> Programs::mark_socket(int fd, const smc_sock& mark) const {
    return socks_.put(fd, mark);
}

smc_option_seen Programs::option_seen(int fd) const {
    const auto value = socks_.get(fd);
    return value ? value->option : SMC_OPTION_UNKNOWN;
}

bool Programs::let_go(const smc_tuple& tuple, std::uint64_t cookie) const {
    auto request = requests_.get(tuple);
    if (!request || request->cookie != cookie ||
        (request->state != SMC_REQUEST_HELD && request->state != SMC_REQUEST_ANSWERED)) {
        return false;
    }
    // The hairpin goes, or it would turn the SYN round to the leg that has failed.
    if (const auto hairpin = hairpins.get(tuple); hairpin && request->state == SMC_REQUEST_ANSWERED) {
        smc_tuple leg = tuple;
        leg.local_port = hairpin->to_port;
        hairpins.erase(tuple);
        hairpins.erase(leg);
    }
    request->state = SMC_REQUEST_LET_GO;
    return bpf_map_update_elem(requests_.fd(), &tuple, &*request, BPF_EXIST) == 0;
}

std::optional<smc_request_state> Programs::state_of(const smc_tuple& tuple, std::uint64_t cookie) const {
    const auto request = requests_.get(tuple);
    return request && request->cookie == cookie ? std::optional(request->state) : std::nullopt;
}

std::optional<smc_request> Programs::release_leg(int fd) const {
    auto mark = socks_.get(fd);
    if (!mark) {
        return std::nullopt;
    }
    const auto is_its_own = [&](const std::optional<smc_request>& held) {
        return held && held->state == SMC_REQUEST_LEG && held->isn == mark->isn;
    };
    if (const auto hairpin = hairpins.get(mark->app); !hairpin || hairpin->isn != mark->isn) {
        return std::nullopt;  // the tuple belongs to another connection by now; the leg has no application
    }
    mark->hold = 0;
    if (auto put = socks_.put(fd, *mark); !put) {
        log()->warn("the hold mark of a leg could not be cleared, so its application may not see the connection: {}",
                    put.error().text());
    }
    const auto held = requests_.get(mark->app);
    if (!is_its_own(held)) {
        return std::nullopt;
    }
    requests_.erase(mark->app);
    return held->packet_len != 0 ? held : std::nullopt;
}

Programs::LegSyn Programs::leg_syn(int fd) const {
    const auto mark = socks_.get(fd);
    return !mark                            ? LegSyn::kRefused
           : mark->to_port != 0             ? LegSyn::kJoined
           : mark->paws == SMC_PAWS_REFUSED ? LegSyn::kTooOld
           : mark->paws == SMC_SYN_REFUSED  ? LegSyn::kRefused
                                            : LegSyn::kNotJoined;
}

void Programs::reset_leg(UniqueFd leg) const {
    const auto mark = socks_.get(leg.get());
    leg.reset();  // closing resets it (L1)
    const auto held = mark ? requests_.get(mark->app) : std::nullopt;
    if (held && held->state == SMC_REQUEST_LEG && held->isn == mark->isn) {
        requests_.erase(mark->app);
    }
}

bool Programs::awaits_answers(std::chrono::milliseconds cookie_age) const {
    const std::uint64_t now = ktime_ns(),
                        longest = static_cast<std::uint64_t>(std::chrono::nanoseconds(cookie_age).count());
    return std::ranges::any_of(requests_.entries(SMC_MAX_REQUESTS),
                               [](const auto& entry) { return entry.second.state <= SMC_REQUEST_HELD; }) ||
           std::ranges::any_of(inbound_.entries(SMC_MAX_INBOUND), [&](const auto& entry) {
               return entry.second.syncookie != 0 && entry.second.since_ns + longest >= now;
           });
}

smc_inbound Programs::take_inbound(const smc_tuple& tuple) const {
    return inbound_.take_one(tuple).value_or(smc_inbound{});
}

Swept Programs::sweep() {
    constexpr std::size_t kEndedAtOnce = 256;  // each of these costs user space a few system calls
    Swept found;
    if (const auto done = run(skeleton_->progs.smc_sweep); !done) {
        if (done.error().code != EOPNOTSUPP) {
            log()->warn("BPF tables: old entries stay: {}", done.error().text());
        }
        return found;
    }
    const smc_clock clock = skeleton_->bss->smc_swept;
    fill_ = {{"smc_requests", clock.requests, SMC_MAX_REQUESTS},
             {"smc_hairpins", clock.hairpins, SMC_MAX_HAIRPINS},
             {"smc_inbound", clock.inbound, SMC_MAX_INBOUND},
             {"smc_tuned", clock.tuned, SMC_MAX_TUNED}};
    constexpr std::uint64_t kNotWorthIt = 50'000'000;  // ns; a smaller difference may be the duration of the run
    const std::uint64_t ahead = clock.ktime_ns - os::monotonic_ns();
    clock_ahead_ns_ = ahead + kNotWorthIt < 2 * kNotWorthIt ? 0 : ahead;
    const Map<smc_tuple, smc_keepalive> keepalives(map_fd("smc_keepalives"));
    for (const auto& [app, terms] : keepalives.take(SMC_MAX_REPORTS)) {
        found.keepalives.emplace_back(app, in_seconds(terms));
    }
    found.half_open = Map<std::uint64_t, smc_half_open>(map_fd("smc_half_open")).take(kEndedAtOnce);
    return found;
}

// Leaves out the programs that user space is to run, if it may not run them.
void Programs::try_to_run() {
    for (const bpf_program* program :
         {skeleton_->progs.smc_sweep, skeleton_->progs.smc_explain, skeleton_->progs.smc_see_tuned}) {
        if (const auto done = run(program); !done && done.error().code != EOPNOTSUPP) {
            leave_out(states_, bpf_program__name(program), done.error().code);
        }
    }
    sweep();  // sets clock_ahead_ns_
}

// EOPNOTSUPP: the program is left out.
Result<void> Programs::run(const bpf_program* program) const {
    const auto state = std::ranges::find(states_, bpf_program__name(program), &ProgramState::name);
    if (state == states_.end() || !state->loaded) {
        return Error{EOPNOTSUPP, std::string("running ") + bpf_program__name(program) + ", which this kernel refuses"};
    }
    return run_program(program);
}

std::uint64_t Programs::ktime_ns() const {
    return os::monotonic_ns() + clock_ahead_ns_;
}

KeepaliveTerms Programs::keepalive_of(const smc_tuple& app) const {
    const auto hairpin = hairpins.get(app);
    return hairpin ? in_seconds(hairpin->keepalive) : KeepaliveTerms{};
}

Tuned Programs::tuned(std::size_t most) const {
    const Map<std::uint64_t, smc_tuned_socket> sockets(map_fd("smc_tuned"));
    if (const auto seen = run(skeleton_->progs.smc_see_tuned); !seen) {
        log()->warn("tuned connections are not listed: {}", seen.error().text());
        return {.sockets = {}, .whole = false};
    }
    Tuned found{.sockets = sockets.entries(SMC_MAX_TUNED), .whole = true};
    found.whole = found.sockets.size() < SMC_MAX_TUNED;
    std::erase_if(found.sockets, [](const auto& entry) {
        const __u32 state = entry.second.state;  // without a connection: it is gone, or was disconnected
        return state == BPF_TCP_CLOSE || state == BPF_TCP_LISTEN || state == BPF_TCP_SYN_SENT;
    });
    if (found.sockets.size() > most) {
        found.sockets.resize(most);
        found.whole = false;
    }
    return found;
}

void Programs::allow_local(std::uint32_t what) const {
    const Map<std::uint32_t, smc_config> configs(map_fd("smc_config"));
    if (auto config = configs.get(0)) {
        config->local_mask |= what;
        [[maybe_unused]] const auto put = configs.put(0, *config);
    }
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
                           ttl, 0};
    [[maybe_unused]] const auto put = servers_.put({cookie, to_abi(server), 0}, value);
}

void Programs::pause(std::uint64_t cookie, const Endpoint& server, Reason reason, std::chrono::seconds first,
                     std::chrono::seconds most) const {
    const auto before = servers_.get({cookie, to_abi(server), 0});
    const bool not_now = before && before->knowledge == SMC_SERVER_NOT_NOW;
    if (not_now && before->expires_ns > ktime_ns()) {
        return;  // several connections failed at once
    }
    const auto lately = static_cast<std::uint64_t>(std::chrono::nanoseconds(most).count());
    const bool again = not_now && before->expires_ns + lately > ktime_ns();
    const std::chrono::seconds twice(again ? 2 * before->pause_s : 0);
    const auto pause = std::clamp(std::max(first, twice), std::chrono::seconds(1), most);
    const auto duration = std::chrono::nanoseconds(pause).count();
    const smc_server value{SMC_SERVER_NOT_NOW, static_cast<__u32>(reason),
                           ktime_ns() + static_cast<std::uint64_t>(duration), 0, static_cast<__u32>(pause.count())};
    [[maybe_unused]] const auto put = servers_.put({cookie, to_abi(server), 0}, value);
}

void Programs::forget(std::uint64_t cookie, const Endpoint& server) const {
    servers_.erase({cookie, to_abi(server), 0});
}

void Programs::judge(const smc_short_key& kind, bool short_lived) const {
    constexpr __u32 kDown = 4;  // so more than four fifths have to be short-lived
    const auto before = short_lived_.get(kind);
    if (!before && !short_lived) {
        return;
    }
    smc_short now = before.value_or(smc_short{});
    now.score = short_lived ? std::min<__u32>(now.score + 1, SMC_SHORT_MANY) : now.score - std::min(now.score, kDown);
    if (now.score == SMC_SHORT_MANY && (!before || before->score < SMC_SHORT_MANY)) {
        now.left = 0;
        now.tried_ns = ktime_ns();
    }
    if (!before || now.score != before->score) {
        [[maybe_unused]] const auto put = short_lived_.put(kind, now);
    }
}

// An entry whose last trial is long ago does not count: the next connection is tried.
std::vector<smc_short_key> Programs::kinds_left_to_tcp() const {
    std::vector<smc_short_key> kinds;
    const std::uint64_t now = ktime_ns();
    for (const auto& [kind, value] : short_lived_.entries(SMC_MAX_SHORT)) {
        if (value.score >= SMC_SHORT_MANY && now - value.tried_ns < SMC_SHORT_TRIAL_LATEST_NS) {
            kinds.push_back(kind);
        }
    }
    return kinds;
}

std::optional<smc_server> Programs::knows(std::uint64_t cookie, const Endpoint& server) const {
    auto value = servers_.get({cookie, to_abi(server), 0});
    return value && value->expires_ns > ktime_ns() ? value : std::nullopt;
}

Result<smc_query> Programs::explain(const smc_query& query) const {
    smc_query& asked = skeleton_->bss->smc_asked;
    asked = query;
    if (const auto done = run(skeleton_->progs.smc_explain); !done) {
        return done.error();
    }
    return asked;
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

}  // namespace smc::bpf
