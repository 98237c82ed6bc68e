// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

namespace smc {

// The calling thread is inside another network namespace while this object lives; other threads are not moved. If the
// thread cannot return, the process aborts: every socket that it made afterwards would be in the wrong namespace.
class InNamespace {
 public:
    explicit InNamespace(int netns_fd);
    InNamespace(const InNamespace&) = delete;
    InNamespace& operator=(const InNamespace&) = delete;
    ~InNamespace();
    // False: the thread is still in its former namespace.
    [[nodiscard]] bool entered() const { return entered_; }

 private:
    bool entered_ = false;
};

// A descriptor of the process's own network namespace, wherever its threads are at the moment.
int home_netns();

}  // namespace smc
