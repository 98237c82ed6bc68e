// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "ctl/capture/capture_file.h"

#include <memory>

#include "ctl/capture/gzip_stream.h"
#include "ctl/capture/pcap_file.h"
#include "ctl/capture/pcapng_file.h"

namespace smc::capture {

namespace {

struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, Close>;

// The first byte tells the formats apart. One byte can be put back, also in a pipe.
int first_byte(std::FILE* file) {
    const int first = std::getc(file);
    if (first != EOF) {
        std::ungetc(first, file);
    }
    return first;
}

std::optional<std::string> read_plain(File file, const std::function<void(const Frame&)>& frame) {
    if (first_byte(file.get()) == kPcapngFirstByte) {
        return read_pcapng(file.get(), frame);
    }
    return read_pcap(file.release(), frame);
}

}  // namespace

std::optional<std::string> read_capture(std::FILE* file, const std::function<void(const Frame&)>& frame) {
    File owned(file);
    if (first_byte(file) != GzipStream::kFirstByte) {
        return read_plain(std::move(owned), frame);
    }
    GzipStream gzip(file);
    File plain(gzip.open());
    if (!plain) {
        return "no memory to decompress it";
    }
    auto broken = read_plain(std::move(plain), frame);
    return gzip.problem().empty() ? broken : gzip.problem();
}

}  // namespace smc::capture
