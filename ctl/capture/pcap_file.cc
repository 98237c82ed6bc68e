// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "ctl/capture/pcap_file.h"

#include <pcap/pcap.h>

#include <algorithm>
#include <cstdint>
#include <memory>

namespace smc::capture {

namespace {

// 0 for a time that is none: pcapng can say the year half a million.
std::int64_t microseconds(const pcap_pkthdr& header) {
    constexpr std::int64_t kLatest = 253'402'300'799;  // the end of 9999
    constexpr std::int64_t kLastMicrosecond = 999'999;
    std::int64_t seconds = header.ts.tv_sec;
    if (seconds < 0 && seconds >= INT32_MIN) {
        seconds = static_cast<std::uint32_t>(seconds);  // libpcap takes pcap's 32 bits for signed: after 2038
    }
    if (seconds < 0 || seconds > kLatest) {
        return 0;
    }
    return seconds * 1'000'000 + std::clamp<std::int64_t>(header.ts.tv_usec, 0, kLastMicrosecond);
}

}  // namespace

std::optional<std::string> read_capture(std::FILE* file, const std::function<void(const Frame&)>& frame) {
    char error[PCAP_ERRBUF_SIZE] = "";
    pcap_t* opened = ::pcap_fopen_offline(file, error);
    if (opened == nullptr) {
        std::fclose(file);
        return error;
    }
    const std::unique_ptr<pcap_t, decltype(&::pcap_close)> capture(opened, ::pcap_close);
    const int link_type = ::pcap_datalink(opened);
    if (!is_known_link_type(link_type)) {
        const char* name = ::pcap_datalink_val_to_name(link_type);
        return "link layer " + (name != nullptr ? std::string(name) : std::to_string(link_type)) +
               " is not one of Ethernet, Linux cooked, raw IP, loopback";
    }
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
