// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

namespace smc {

// The calling thread is inside another network namespace while this lives. setns() moves only the thread. A thread that
// cannot come back ends the process: every socket that it made from there on would be in the wrong namespace.
class InNamespace {
 public:
    explicit InNamespace(int netns_fd);
    InNamespace(const InNamespace&) = delete;
    InNamespace& operator=(const InNamespace&) = delete;
    ~InNamespace();
    // False: it is where it was.
    [[nodiscard]] bool entered() const { return entered_; }

 private:
    bool entered_ = false;
};

// The process's own network namespace, wherever its threads are at the moment.
int home_netns();

}  // namespace smc
