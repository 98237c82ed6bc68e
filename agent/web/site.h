// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The answer for each path: probes, metrics, and the page with its data. Control thread only.
#pragma once

#include <functional>
#include <optional>

#include "agent/web/kept.h"
#include "agent/web/web_server.h"

namespace smc {

class Introspection;

class Site {
 public:
    // `page`: whether the page is served. `stands`: whether the data path stands still. `introspection` outlives this
    // object.
    Site(const Introspection& introspection, bool page, std::function<bool()> stands)
        : introspection_(introspection), page_(page), stands_still_(std::move(stands)) {}

    // Status 200 at /readyz means that the BPF programs are attached and the data path moves.
    [[nodiscard]] std::optional<WebServer::Answer> answer(const WebServer::Request& request);

 private:
    const Introspection& introspection_;
    bool page_;
    std::function<bool()> stands_still_;
    Kept<> metrics_, overview_;
};

}  // namespace smc
