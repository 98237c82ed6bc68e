// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "ctl/capture/pcap_file.h"

#include <pcap/pcap.h>

#include <algorithm>
#include <cstdint>
#include <memory>

#include "ctl/capture/capture_time.h"

namespace smc::capture {

namespace {

std::int64_t microseconds(const pcap_pkthdr& header) {
    constexpr std::int64_t kLastMicrosecond = 999'999;
    std::int64_t seconds = header.ts.tv_sec;
    if (seconds < 0 && seconds >= INT32_MIN) {
        seconds = static_cast<std::uint32_t>(seconds);  // after 2038: libpcap reads pcap's 32 bits as signed
    }
    return capture_time(static_cast<std::uint64_t>(seconds), 0,
                        std::clamp<std::int64_t>(header.ts.tv_usec, 0, kLastMicrosecond));
}

}  // namespace

std::optional<std::string> read_pcap(std::FILE* file, const std::function<void(const Frame&)>& frame) {
    char error[PCAP_ERRBUF_SIZE] = "";
    pcap_t* opened = ::pcap_fopen_offline(file, error);
    if (opened == nullptr) {
        std::fclose(file);
        return error;
    }
    const std::unique_ptr<pcap_t, decltype(&::pcap_close)> capture(opened, ::pcap_close);
    const int link_type = ::pcap_datalink(opened);
    pcap_pkthdr* header = nullptr;
    const std::uint8_t* bytes = nullptr;
    for (std::uint64_t number = 1;; number++) {
        const int status = ::pcap_next_ex(opened, &header, &bytes);
        if (status == PCAP_ERROR_BREAK) {
            return std::nullopt;  // the end of the file
        }
        if (status != 1) {
            return ::pcap_geterr(opened);
        }
        frame({number, microseconds(*header), link_type, Bytes(bytes, header->caplen)});
    }
}

}  // namespace smc::capture
