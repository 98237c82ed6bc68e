// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Reads pcapng (draft-ietf-opsawg-pcapng). libpcap is not used, because it refuses files whose interfaces have
// different link types, as `tcpdump -i any` beside a device, or merging two captures, makes them.
#pragma once

#include <cstdio>
#include <functional>
#include <optional>
#include <string>

#include "ctl/capture/dissector.h"

namespace smc::capture {

// The first byte of every pcapng file: the type of a Section Header Block is the same in both byte orders.
inline constexpr int kPcapngFirstByte = 0x0a;

// As read_capture(), but the caller closes `file`.
std::optional<std::string> read_pcapng(std::FILE* file, const std::function<void(const Frame&)>& frame);

}  // namespace smc::capture
