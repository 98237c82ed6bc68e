// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The page for a browser: files that are part of the program.
#pragma once

#include <optional>
#include <string>

#include "agent/web/web_server.h"

namespace smc {

// "/", "/page.js", ...; nothing: it is none of them.
[[nodiscard]] std::optional<WebServer::Answer> page_file(const std::string& path);

}  // namespace smc
