// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The page for a browser: files that are part of the program.
#pragma once

#include <optional>
#include <string>

#include "agent/web/web_server.h"

namespace smc {

// Whether a browser that asks by this name is where this node is meant: an address, the node's own name, localhost, or
// no name at all. A page from elsewhere whose name has come to be this node's address has its own name still (DNS
// rebinding).
[[nodiscard]] bool is_own_name(const std::string& host);

// "/", "/page.js", ...; nothing: it is none of them.
[[nodiscard]] std::optional<WebServer::Answer> page_file(const std::string& path);

}  // namespace smc
