// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The web page: files that are embedded in the program.
#pragma once

#include <optional>
#include <string>

#include "agent/web/web_server.h"

namespace smc {

// Whether requests with this host name are answered: any IP address, the node's own name, localhost, or no name. With
// DNS rebinding, a foreign page's name resolves to this node's address, but the browser still sends that name.
[[nodiscard]] bool is_answered_host(const std::string& host);

// The file at "/", "/page.js", ...; nothing: there is no file at this path.
[[nodiscard]] std::optional<WebServer::Answer> page_file(const std::string& path);

}  // namespace smc
