// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The pods of this node and their control groups. What the API server has reported is kept until it reports something
// else: a node that cannot reach the server goes on as before.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>

#include "agent/policy/pod.h"

namespace smc::kubernetes {

// The UID in a control group's path, as kubelet's two drivers write it ("/kubepods.slice/.../kubepods-podUID.slice/..."
// with "_" for "-", or "/kubepods/burstable/podUID/..."); empty: none.
[[nodiscard]] std::string pod_uid(const std::string& cgroup);

class Pods {
 public:
    enum class Kind { kPods, kNamespaces };

    // `keys`: of the labels and annotations to keep. Others belong to other programs.
    explicit Pods(std::set<std::string> keys);

    // A complete list: objects that are not in it are gone.
    void replace(Kind kind, const nlohmann::json& items);
    // An event of a watch: "ADDED", "MODIFIED" or "DELETED" and the object.
    void change(Kind kind, const std::string& type, const nlohmann::json& object);

    // The pod of a control group. nullptr: none, or one that is not known. `path`: the leading part that uid 0 owns;
    // other users may give any name to directories below it.
    [[nodiscard]] const Pod* of_cgroup(const std::string& path) const;
    [[nodiscard]] std::size_t size() const { return pods_.size(); }
    [[nodiscard]] std::size_t namespaces() const { return namespaces_.size(); }

 private:
    static constexpr std::size_t kMostPods = 16384, kMostNamespaces = 16384;
    void put(Kind kind, const nlohmann::json& object);
    void label(Pod& pod) const;
    [[nodiscard]] Pod::Words words(const nlohmann::json& metadata, const char* which) const;
    void forget_mirror(const std::string& uid);

    std::set<std::string> keys_;
    std::map<std::string, Pod> pods_;  // by UID
    // Kubelet's UID of a static pod -> UIDs of pods that say they are its mirror pod. One of them is.
    std::map<std::string, std::set<std::string>> mirrors_;
    struct Namespace {
        Pod::Words labels, annotations;
    };
    std::map<std::string, Namespace> namespaces_;
};

}  // namespace smc::kubernetes
