// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/kubernetes/node_pods.h"

#include <cstdlib>

#include "agent/log/log.h"

namespace smc::kubernetes {

namespace {

constexpr auto kSoon = std::chrono::milliseconds(20);

std::string environment(const char* name) {
    const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nobody changes it
    return value != nullptr ? value : "";
}

// In a pod, the server's address is in the environment (Kubernetes: "Accessing the API from a Pod").
std::string url_of(const Config::Kubernetes& config) {
    if (config.api != "in-cluster") {
        return config.api.substr(0, config.api.find_last_not_of('/') + 1);  // a path is added to it
    }
    if (!is_in_pod()) {
        log()->error(
            "kubernetes: pods are not known: kubernetes.api is in-cluster, and KUBERNETES_SERVICE_HOST is not set, as "
            "it is in a pod: set kubernetes.api to the API server's URL");
    }
    const std::string host = environment("KUBERNETES_SERVICE_HOST"), port = environment("KUBERNETES_SERVICE_PORT");
    return "https://" + (host.find(':') != std::string::npos ? "[" + host + "]" : host) + ":" +
           (port.empty() ? "443" : port);
}

// In a pod, kubelet mounts these files (Kubernetes: "Service accounts").
std::string file_of(const Config::Kubernetes& config, const std::string& chosen, const char* name) {
    return chosen.empty() && config.api == "in-cluster"
               ? std::string("/var/run/secrets/kubernetes.io/serviceaccount/") + name
               : chosen;
}

}  // namespace

bool is_in_pod() {
    return !environment("KUBERNETES_SERVICE_HOST").empty();
}

NodePods::NodePods(asio::io_context& io, const Config::Kubernetes& config, std::set<std::string> keys,
                   std::function<void()> on_change)
    : pods_(std::move(keys)), soon_(io, [this, changed = std::move(on_change)] {
          pending_ = false;
          changed();
      }) {
    const Access access{url_of(config), file_of(config, config.token_file, "token"),
                        file_of(config, config.ca_file, "ca.crt")};
    const std::string node = config.node.empty() ? environment("NODE_NAME") : config.node;
    log()->info("kubernetes: pods of {} are read from {}", node.empty() ? "every node" : "node " + node, access.url);
    watches_[0] = std::make_unique<ApiWatch>(io, access, "/api/v1/pods",
                                             node.empty() ? "" : "fieldSelector=spec.nodeName%3D" + node,
                                             callbacks(Pods::Kind::kPods));
    watches_[1] = std::make_unique<ApiWatch>(io, access, "/api/v1/namespaces", "", callbacks(Pods::Kind::kNamespaces));
}

// Ends both requests before the destructors wait for their threads.
NodePods::~NodePods() {
    for (const auto& watch : watches_) {
        watch->stop();
    }
}

ApiWatch::Callbacks NodePods::callbacks(Pods::Kind kind) {
    const auto soon = [this] {
        if (!std::exchange(pending_, true)) {
            soon_.set_in(kSoon);
        }
    };
    return {[this, kind, soon](const nlohmann::json& items) {
                lists_++;
                pods_.replace(kind, items);
                soon();
            },
            [this, kind, soon](const std::string& type, const nlohmann::json& object) {
                changes_++;
                pods_.change(kind, type, object);
                soon();
            },
            [this, kind](const std::string& problem) {
                std::string& kept = problems_[kind == Pods::Kind::kPods ? 0 : 1];
                if (!problem.empty()) {
                    log()->warn("kubernetes: rules apply to pods as they were last reported: {}", problem);
                } else if (!kept.empty()) {
                    log()->info("kubernetes: the API server reports {}",
                                kind == Pods::Kind::kPods ? "pods" : "namespaces");
                }
                kept = problem;
            }};
}

std::string NodePods::problem() const {
    return problems_[0].empty() ? problems_[1] : problems_[0];
}

}  // namespace smc::kubernetes
