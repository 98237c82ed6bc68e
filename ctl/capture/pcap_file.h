// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A capture file, pcap or pcapng, read by libpcap.
#pragma once

#include <cstdio>
#include <functional>
#include <optional>
#include <string>

#include "ctl/capture/dissector.h"

namespace smc::capture {

// Calls `frame` for every frame that can be read. What ended it before the end of the file, if anything did: a
// file that is no capture, is cut off, or has a link layer that is not known. `file` is closed.
std::optional<std::string> read_capture(std::FILE* file, const std::function<void(const Frame&)>& frame);

}  // namespace smc::capture
