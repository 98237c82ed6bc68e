// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A whole capture file: pcap, pcapng, gzip; packets, streams, messages, histories.
#include <sstream>

#include "check.h"
#include "ctl/capture/capture_file.h"
#include "ctl/capture/summary.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) {
        return 0;
    }
    std::FILE* file = ::fmemopen(const_cast<std::uint8_t*>(data), size, "rb");
    smc::fuzz::require(file != nullptr);
    std::uint64_t last = 0;
    smc::capture::Dissector dissector([&](const smc::capture::Event& event) {
        smc::fuzz::require(event.frame >= last && !event.from.empty() && !event.message.layer.empty());
        last = event.frame;
    });
    smc::capture::read_capture(file, [&](const smc::capture::Frame& frame) { dissector.add(frame); });
    std::ostringstream text;
    smc::capture::print_summary(text, dissector);
    smc::capture::summary_json(dissector, [](const nlohmann::ordered_json& line) {
        smc::fuzz::require(!line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).empty());
    });
    return 0;
}
