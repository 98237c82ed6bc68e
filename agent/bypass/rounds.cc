// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/bypass/rounds.h"

#include <limits>
#include <utility>

#include "agent/log/log.h"
#include "os/in_namespace.h"

namespace smc::bypass {

namespace {

constexpr auto kRound = std::chrono::milliseconds(250);
constexpr unsigned kRoundsPerLook = 4;
constexpr unsigned kTrials = 5;

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
        if (enroller_.is_free_for(netns)) {  // otherwise, the next round finds this namespace again
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
    const UniqueFd handle = netns ? netns->handle() : UniqueFd();
    const InNamespace inside(handle.get());
    UniqueFd iterator = inside.entered() ? bypass_.iterator() : UniqueFd();
    if (!iterator) {
        return;
    }
    if (const auto enrolled = enroller_.enrol(cookie, std::move(iterator)); !enrolled) {
        log()->limited(LogLevel::kWarn, "the bypass: no further socket becomes a member: {}", enrolled.error().text());
    }
}

// Makes enrolled sockets members, unless the probe runs: its sockets must not be moved.
void Rounds::enrolled() {
    if (!trying_) {
        bypass_.move_members();
    }
}

void Rounds::tell_of_waits() {
    const auto inode = [this](std::uint64_t cookie) {
        const auto netns = namespaces_.by_cookie(cookie);
        return netns ? netns->inode() : 0;
    };
    const std::set<std::uint64_t> before = std::exchange(held_up_, enroller_.held_up());
    for (const std::uint64_t cookie : held_up_) {
        if (!before.contains(cookie)) {
            log()->limited(
                LogLevel::kWarn,
                "network namespace {}: no socket joins the bypass for now: a program holds the lock of one of "
                "its sockets (a send() or receive that waits for a page of memory, for example)",
                inode(cookie));
        }
    }
    for (const std::uint64_t cookie : before) {
        if (!held_up_.contains(cookie)) {
            log()->limited(LogLevel::kInfo, "network namespace {}: sockets may join the bypass again", inode(cookie));
        }
    }
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
