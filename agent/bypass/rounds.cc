// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/bypass/rounds.h"

#include <algorithm>
#include <limits>
#include <system_error>
#include <utility>

#include "agent/log/log.h"
#include "os/clock.h"
#include "os/in_namespace.h"

namespace smc::bypass {

namespace {

constexpr auto kRound = std::chrono::milliseconds(250);
constexpr unsigned kRoundsPerLook = 4;
constexpr unsigned kTrials = 5;
constexpr auto kUsualVisit = std::chrono::seconds(1);  // it takes milliseconds

}  // namespace

// Runs `work` on thread_, and then `then` on this thread. False: thread_ is still busy with earlier work.
template <class Work, class Then>
bool Rounds::run_on_thread(Work work, Then then) {
    if (std::exchange(busy_, true)) {
        return false;
    }
    thread_.run(std::move(work), [this, then = std::move(then)](auto result) mutable {
        busy_ = false;
        then(std::move(result));
    });
    return true;
}

void Rounds::tick() {
    if (!trying_) {
        round();
    }
    next_.set_in(kRound);
}

void Rounds::try_again(const Times& times, OnVerdict on_verdict) {
    trials_ = Trials{times.retrial, times.trial, std::move(on_verdict), kTrials};
    next_trial_.set_in(trials_->pause);
}

void Rounds::try_now() {
    trying_ = run_on_thread([&bypass = bypass_, moment = trials_->moment] { return probe(bypass, moment); },
                            [this](const Verdict& verdict) {
                                trying_ = false;
                                const bool last = verdict.obstacle.empty() || --trials_->left == 0;
                                if (!last) {
                                    next_trial_.set_in(trials_->pause);
                                }
                                trials_->on_verdict(verdict, last);
                            });
    if (!trying_) {
        next_trial_.set_in(kRound);
    }
}

void Rounds::round() {
    for (const std::uint64_t netns : bypass_.move_members()) {
        // otherwise, the next round finds this namespace again
        if (visits_.size() < loop::LockHelper::kAtOnce && !visits_.contains(netns)) {
            enrol(netns);
        }
    }
    tell_of_waits();
    if (rounds_++ % kRoundsPerLook == 0 && bypass_.state().members != 0) {
        watch_conntrack();
    }
}

void Rounds::enrol(std::uint64_t cookie) {
    const auto netns = namespaces_.by_cookie(cookie);
    if (!netns) {
        return;
    }
    UniqueFd iterator;
    {
        const UniqueFd handle = netns->handle();
        const InNamespace inside(handle.get());
        iterator = inside.entered() ? bypass_.iterator() : UniqueFd();
    }
    if (!iterator) {
        log()->limited(LogLevel::kWarn, "the bypass: sockets of network namespace {} do not join it: {}",
                       netns->inode(), last_error("creating the iterator smc_bypass_enrol").text());
    } else if (locks_.read_to_end(std::move(iterator), [this, cookie](int error) { enrolled(cookie, error); })) {
        visits_.emplace(cookie, Visit{os::now(), netns->inode()});
    }
}

// Makes enrolled sockets members, unless the probe runs: its sockets must not be moved.
void Rounds::enrolled(std::uint64_t cookie, int error) {
    const auto visit = visits_.extract(cookie);
    if (error != 0) {
        log()->limited(LogLevel::kWarn, "the bypass: sockets do not join it: reading smc_bypass_enrol: {}",
                       std::generic_category().message(error));
    } else if (visit && visit.mapped().told) {
        log()->limited(LogLevel::kInfo, "network namespace {}: sockets may join the bypass again",
                       visit.mapped().inode);
    }
    if (!trying_) {
        (void)bypass_.move_members();  // namespaces that have further proven sockets are left to the next round
    }
}

std::size_t Rounds::held_up() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(visits_, [](const auto& visit) { return visit.second.told; }));
}

void Rounds::tell_of_waits() {
    for (auto& [cookie, visit] : visits_) {
        if (!visit.told && os::now() - visit.since >= kUsualVisit) {
            visit.told = true;
            log()->limited(LogLevel::kWarn,
                           "network namespace {}: no socket joins the bypass for now: a program probably "
                           "holds the lock of a TCP socket there (in a call that waits for a page of memory)",
                           visit.inode);
        }
    }
    if (held_up() == loop::LockHelper::kAtOnce && !std::exchange(all_held_up_, true)) {
        log()->warn("no socket of any network namespace joins the bypass for now: programs of {} namespaces hold locks",
                    held_up());
    }
    all_held_up_ = all_held_up_ && held_up() == loop::LockHelper::kAtOnce;
}

void Rounds::watch_conntrack() {
    run_on_thread([&bypass = bypass_] { return bypass.members(std::numeric_limits<std::size_t>::max()); },
                  [this](std::vector<Bypass::Listed> members) { look(std::move(members)); });
}

void Rounds::look(std::vector<Bypass::Listed> members) {
    std::vector<ConntrackWatch::Netns> namespaces(1);  // the agent's own namespace
    for (const std::uint64_t cookie : ConntrackWatch::spaces_of(members)) {
        if (const auto netns = namespaces_.by_cookie(cookie)) {
            namespaces.push_back({cookie, netns->handle()});
        }
    }
    run_on_thread([this, members = std::move(members),
                   namespaces = std::move(namespaces)] { return conntrack_.look(members, namespaces); },
                  [this](const std::vector<std::uint64_t>& lost) {
                      for (const std::uint64_t cookie : lost) {
                          bypass_.exclude(cookie, SMC_HABIT_UNTRACKED);
                      }
                  });
}

}  // namespace smc::bypass
