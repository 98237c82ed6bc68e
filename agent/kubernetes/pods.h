// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The pods of this node and their control groups. What the API server has reported is kept until it reports something
// else: a node that cannot reach the server goes on as before.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "agent/policy/pod.h"

namespace smc::kubernetes {

// The UID in a control group's path, as kubelet's two drivers write it ("/kubepods.slice/.../kubepods-podUID.slice/..."
// with "_" for "-", or "/kubepods/burstable/podUID/..."); empty: none.
[[nodiscard]] std::string pod_uid(const std::string& cgroup);

class Pods {
 public:
    enum class Kind { kPods, kNamespaces };

    // A complete list: objects that are not in it are gone.
    void replace(Kind kind, const nlohmann::json& items);
    // An event of a watch: "ADDED", "MODIFIED" or "DELETED" and the object.
    void change(Kind kind, const std::string& type, const nlohmann::json& object);

    // The pod of a control group. nullptr: none, or one that is not known.
    [[nodiscard]] const Pod* of_cgroup(const std::string& path) const;
    [[nodiscard]] std::size_t size() const { return pods_.size(); }
    [[nodiscard]] std::size_t namespaces() const { return namespaces_.size(); }

 private:
    static constexpr std::size_t kMostPods = 16384, kMostNamespaces = 16384;
    void put(Kind kind, const nlohmann::json& object);
    void label(Pod& pod) const;

    std::map<std::string, Pod> pods_;             // by UID
    std::map<std::string, std::string> mirrors_;  // kubelet's UID of a static pod -> UID of its mirror pod
    struct Namespace {
        Pod::Words labels, annotations;
    };
    std::map<std::string, Namespace> namespaces_;
};

}  // namespace smc::kubernetes
