// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The properties of a pod that rules can ask for.
#pragma once

#include <map>
#include <string>

namespace smc {

struct Pod {
    using Words = std::map<std::string, std::string>;
    std::string kubernetes_namespace, name;  // its Kubernetes namespace, and its name there
    Words labels, annotations, namespace_labels, namespace_annotations;
    bool namespace_known = false;  // the API server has reported the namespace

    // Annotations that CNI's bandwidth plugins and Cilium's bandwidth manager obey.
    static constexpr const char *kIngressBandwidth = "kubernetes.io/ingress-bandwidth",
                                *kEgressBandwidth = "kubernetes.io/egress-bandwidth";

    [[nodiscard]] bool has_bandwidth() const {
        return annotations.contains(kIngressBandwidth) || annotations.contains(kEgressBandwidth);
    }
    [[nodiscard]] std::string text() const { return kubernetes_namespace + "/" + name; }
};

}  // namespace smc
