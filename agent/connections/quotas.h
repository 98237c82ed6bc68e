// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Limits how many of something exist at once: in the whole agent, in one network namespace, and in one cgroup.
#pragma once

#include <algorithm>

#include "agent/connections/quota.h"

namespace smc {

class Quotas {
 public:
    struct Limits {
        std::size_t total;
        unsigned netns_percent, cgroup_percent;  // of the total
    };

    // The callbacks: a namespace or a cgroup has reached its limit, or is below it again.
    Quotas(Limits limits, Quota::OnLimit on_netns, Quota::OnLimit on_cgroup)
        : limits_(limits),
          netns_(share(limits.total, limits.netns_percent), std::move(on_netns)),
          cgroup_(share(limits.total, limits.cgroup_percent), std::move(on_cgroup)) {}

    // Existing ones stay.
    void set_total(std::size_t total) {
        limits_.total = total;
        netns_.set_limit(share(total, limits_.netns_percent));
        cgroup_.set_limit(share(total, limits_.cgroup_percent));
    }

    [[nodiscard]] bool has_any() const { return taken_ < limits_.total; }
    [[nodiscard]] bool has_for_netns(std::uint64_t inode) const { return netns_.is_below_limit(inode); }
    [[nodiscard]] bool has_for_cgroup(std::uint64_t id) const { return cgroup_.is_below_limit(id); }
    // `beyond`: so many more than each limit are allowed.
    [[nodiscard]] bool has_for(std::uint64_t netns, std::uint64_t cgroup, std::size_t beyond = 0) const {
        return taken_ < limits_.total + beyond && netns_.is_below_limit(netns, beyond) &&
               cgroup_.is_below_limit(cgroup, beyond);
    }
    void take(std::uint64_t netns, std::uint64_t cgroup) {
        taken_++;
        netns_.take(netns);
        cgroup_.take(cgroup);
    }
    void give_back(std::uint64_t netns, std::uint64_t cgroup) {
        taken_--;
        netns_.give_back(netns);
        cgroup_.give_back(cgroup);
    }

 private:
    static std::size_t share(std::size_t total, unsigned percent) {
        return std::max<std::size_t>(1, total * percent / 100);
    }

    Limits limits_;
    std::size_t taken_ = 0;
    Quota netns_, cgroup_;  // by inode, by ID
};

}  // namespace smc
