// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The pods of this node, kept up to date by the API server.
#pragma once

#include <asio/io_context.hpp>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "agent/config/config.h"
#include "agent/kubernetes/api_watch.h"
#include "agent/kubernetes/pods.h"
#include "agent/loop/deadline.h"

namespace smc::kubernetes {

// Whether this process runs in a pod, and so ends with its container: kubelet gives every container the API server's
// address.
[[nodiscard]] bool is_in_pod();

class NodePods {
 public:
    // `on_change`: pods or labels have changed. Called a little later, once for many changes.
    // `keys`: see Pods::Pods().
    NodePods(asio::io_context& io, const Config::Kubernetes& config, std::set<std::string> keys,
             std::function<void()> on_change);
    ~NodePods();
    NodePods(const NodePods&) = delete;
    NodePods& operator=(const NodePods&) = delete;

    [[nodiscard]] const Pods& pods() const { return pods_; }
    // Why the known pods may be out of date; empty: they are not.
    [[nodiscard]] std::string problem() const;
    [[nodiscard]] std::uint64_t lists() const { return lists_; }
    [[nodiscard]] std::uint64_t changes() const { return changes_; }

 private:
    [[nodiscard]] ApiWatch::Callbacks callbacks(Pods::Kind kind);

    Pods pods_;
    std::string problems_[2] = {"not asked yet", "not asked yet"};  // by kind
    std::uint64_t lists_ = 0, changes_ = 0;
    loop::Deadline soon_;
    bool pending_ = false;
    std::unique_ptr<ApiWatch> watches_[2];
};

}  // namespace smc::kubernetes
