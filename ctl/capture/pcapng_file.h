// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// pcapng (draft-ietf-opsawg-pcapng). Read here and not by libpcap, which refuses a file whose interfaces have different
// link types; `tcpdump -i any` beside a device, or two merged captures, make one.
#pragma once

#include <cstdio>
#include <functional>
#include <optional>
#include <string>

#include "ctl/capture/dissector.h"

namespace smc::capture {

// What every pcapng file begins with: the type of a Section Header Block reads the same in both byte orders.
inline constexpr int kPcapngFirstByte = 0x0a;

// As read_capture(); `file` stays the caller's.
std::optional<std::string> read_pcapng(std::FILE* file, const std::function<void(const Frame&)>& frame);

}  // namespace smc::capture
