// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A capture file, pcap or pcapng, plain or compressed by gzip.
#pragma once

#include <cstdio>
#include <functional>
#include <optional>
#include <string>

#include "ctl/capture/dissector.h"

namespace smc::capture {

// Calls `frame` for every frame that can be read, whatever its link type. What ended it before the end of the file, if
// anything did: a file that is no capture, or is cut off. `file` is closed.
std::optional<std::string> read_capture(std::FILE* file, const std::function<void(const Frame&)>& frame);

}  // namespace smc::capture
