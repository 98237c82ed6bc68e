// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/kubernetes/pods.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace smc::kubernetes {

namespace {

using nlohmann::json;

// Annotations of a mirror pod, with kubelet's UID of the static pod, which is also in the names of its control groups.
constexpr const char *kConfigHash = "kubernetes.io/config.hash", *kConfigMirror = "kubernetes.io/config.mirror";
constexpr std::size_t kUidLength = 36, kHashLength = 32;

std::string text(const json& metadata, const char* key) {
    const auto it = metadata.find(key);
    return it != metadata.end() && it->is_string() ? it->get<std::string>() : "";
}

const json& metadata_of(const json& object) {
    static const json none = json::object();
    const auto it = object.is_object() ? object.find("metadata") : object.end();
    return it != object.end() && it->is_object() ? *it : none;
}

bool is_hexadecimal(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

bool is_hash(const std::string& word) {
    return word.size() == kHashLength && std::ranges::all_of(word, is_hexadecimal);
}

bool is_uid(const std::string& word) {
    return is_hash(word) || (word.size() == kUidLength &&
                             std::ranges::all_of(word, [&](char c) { return is_hexadecimal(c) || c == '-'; }));
}

// Empty: the pod is not a mirror pod.
std::string mirrored(const Pod& pod) {
    const auto hash = pod.annotations.find(kConfigHash), mirror = pod.annotations.find(kConfigMirror);
    const bool is_mirror = hash != pod.annotations.end() && mirror != pod.annotations.end() &&
                           hash->second == mirror->second && is_hash(hash->second);
    return is_mirror ? hash->second : "";
}

}  // namespace

std::string pod_uid(const std::string& cgroup) {
    for (auto at = cgroup.find("pod"); at != std::string::npos; at = cgroup.find("pod", at + 1)) {
        const auto end = cgroup.find_first_of("./", at);
        std::string word = cgroup.substr(at + 3, end == std::string::npos ? end : end - at - 3);
        std::ranges::replace(word, '_', '-');
        if (is_uid(word)) {
            return word;
        }
    }
    return "";
}

Pods::Pods(std::set<std::string> keys) : keys_(std::move(keys)) {
    keys_.insert({kConfigHash, kConfigMirror, Pod::kIngressBandwidth, Pod::kEgressBandwidth});
}

// The labels or annotations that are kept.
Pod::Words Pods::words(const json& metadata, const char* which) const {
    Pod::Words out;
    const auto there = metadata.find(which);
    if (there == metadata.end() || !there->is_object()) {
        return out;
    }
    for (const std::string& key : keys_) {
        if (const auto it = there->find(key); it != there->end() && it->is_string()) {
            out.emplace(key, it->get<std::string>());
        }
    }
    return out;
}

void Pods::forget_mirror(const std::string& uid) {
    for (auto& [hash, pods] : mirrors_) {
        pods.erase(uid);
    }
    std::erase_if(mirrors_, [](const auto& entry) { return entry.second.empty(); });
}

void Pods::replace(Kind kind, const json& items) {
    if (kind == Kind::kPods) {
        pods_.clear();
        mirrors_.clear();
    } else {
        namespaces_.clear();
    }
    for (const json& item : items) {
        put(kind, item);
    }
    if (kind == Kind::kNamespaces) {
        for (auto& [uid, pod] : pods_) {
            label(pod);
        }
    }
}

void Pods::change(Kind kind, const std::string& type, const json& object) {
    if (type == "ADDED" || type == "MODIFIED") {
        put(kind, object);
    } else if (type == "DELETED" && kind == Kind::kPods) {
        const std::string uid = text(metadata_of(object), "uid");
        pods_.erase(uid);
        forget_mirror(uid);
    } else if (type == "DELETED") {
        namespaces_.erase(text(metadata_of(object), "name"));
    }
    if (kind == Kind::kNamespaces) {
        for (auto& [uid, pod] : pods_) {
            label(pod);
        }
    }
}

void Pods::put(Kind kind, const json& object) {
    const json& metadata = metadata_of(object);
    const bool is_full = kind == Kind::kNamespaces
                             ? namespaces_.size() >= kMostNamespaces && !namespaces_.contains(text(metadata, "name"))
                             : pods_.size() >= kMostPods && !pods_.contains(text(metadata, "uid"));
    if (is_full) {
        return;  // no cluster and no node has so many
    }
    if (kind == Kind::kNamespaces) {
        namespaces_[text(metadata, "name")] = {words(metadata, "labels"), words(metadata, "annotations")};
        return;
    }
    const std::string uid = text(metadata, "uid");
    if (uid.empty()) {
        return;
    }
    Pod pod{text(metadata, "namespace"),
            text(metadata, "name"),
            words(metadata, "labels"),
            words(metadata, "annotations"),
            {},
            {}};
    label(pod);
    forget_mirror(uid);
    if (const std::string hash = mirrored(pod); !hash.empty()) {
        mirrors_[hash].insert(uid);
    }
    pods_[uid] = std::move(pod);
}

void Pods::label(Pod& pod) const {
    const auto it = namespaces_.find(pod.kubernetes_namespace);
    pod.namespace_known = it != namespaces_.end();
    const Namespace found = pod.namespace_known ? it->second : Namespace();
    pod.namespace_labels = found.labels;
    pod.namespace_annotations = found.annotations;
}

const Pod* Pods::of_cgroup(const std::string& path) const {
    const std::string uid = pod_uid(path);
    if (uid.empty()) {
        return nullptr;
    }
    if (const auto it = pods_.find(uid); it != pods_.end()) {
        return &it->second;
    }
    // Any pod can be created with these annotations, too. If two pods have them, neither is believed.
    const auto mirror = mirrors_.find(uid);
    const auto it =
        mirror != mirrors_.end() && mirror->second.size() == 1 ? pods_.find(*mirror->second.begin()) : pods_.end();
    return it == pods_.end() ? nullptr : &it->second;
}

}  // namespace smc::kubernetes
