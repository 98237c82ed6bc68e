// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A capture file, pcap or pcapng, plain or compressed by gzip.
#pragma once

#include <cstdio>
#include <functional>
#include <optional>
#include <string>

#include "ctl/capture/dissector.h"

namespace smc::capture {

// Calls `frame` for every frame that can be read, whatever its link type. Returns why it stopped before the end of the
// file, if it did: the file is no capture, or is cut off. Closes `file`.
std::optional<std::string> read_capture(std::FILE* file, const std::function<void(const Frame&)>& frame);

}  // namespace smc::capture
