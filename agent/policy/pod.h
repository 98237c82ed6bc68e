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

    // Whether the pod has an annotation that CNI's bandwidth plugins and Cilium's bandwidth manager obey.
    [[nodiscard]] bool has_bandwidth() const {
        return annotations.contains("kubernetes.io/ingress-bandwidth") ||
               annotations.contains("kubernetes.io/egress-bandwidth");
    }
    [[nodiscard]] std::string text() const { return kubernetes_namespace + "/" + name; }
};

}  // namespace smc
