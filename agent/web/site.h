// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What is at each path: probes, metrics, and the page with what it shows. Control thread only.
#pragma once

#include <functional>
#include <optional>

#include "agent/web/kept.h"
#include "agent/web/web_server.h"

namespace smc {

class Introspection;

class Site {
 public:
    // `page`: there is one. `stands`: the data path stands still. What is told of outlives this.
    Site(const Introspection& introspection, bool page, std::function<bool()> stands)
        : introspection_(introspection), page_(page), stands_(std::move(stands)) {}

    // Who is told of no obstacle may count on programs that are attached and a data path that moves.
    [[nodiscard]] std::optional<WebServer::Answer> answer(const WebServer::Request& request);

 private:
    const Introspection& introspection_;
    bool page_;
    std::function<bool()> stands_;
    Kept<> metrics_, overview_;
};

}  // namespace smc
