// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A pcap file, read by libpcap.
#pragma once

#include <cstdio>
#include <functional>
#include <optional>
#include <string>

#include "ctl/capture/dissector.h"

namespace smc::capture {

// As read_capture(). `file` is closed.
std::optional<std::string> read_pcap(std::FILE* file, const std::function<void(const Frame&)>& frame);

}  // namespace smc::capture
