// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/web/site.h"

#include <nlohmann/json.hpp>

#include "agent/control/introspection.h"
#include "agent/metrics/metrics.h"
#include "agent/web/page.h"

namespace smc {

std::optional<WebServer::Answer> Site::answer(const WebServer::Request& request) {
    const std::string& path = request.path;
    if (path == "/healthz") {
        return WebServer::Answer{.body = "alive\n"};
    }
    if (path == "/readyz") {
        const bool stands_still = stands_still_();
        return WebServer::Answer{.status = stands_still ? 503U : 200U,
                                 .body = stands_still ? "the data path stands still\n" : "programs are attached\n"};
    }
    if (path == "/metrics") {
        const auto& all = metrics_.get([this] { return metrics(introspection_.status()); });
        return WebServer::Answer{.type = kMetricsType, .body = all};
    }
    if (!page_) {
        return std::nullopt;
    }
    if (!is_answered_host(request.host)) {
        return WebServer::Answer{.status = 421,
                                 .body = "the page is not at " + request.host +
                                         ": ask by this node's address, its own name, or localhost\n"};
    }
    if (path == "/api/overview") {
        const auto& all = overview_.get([this] {
            return introspection_.overview().dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
        });
        return WebServer::Answer{.type = "application/json", .body = all};
    }
    return page_file(path);
}

}  // namespace smc
