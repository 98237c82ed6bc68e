// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Reads the uncompressed content of a gzip file. Wireshark and log rotation compress captures; libpcap reads no gzip.
#pragma once

#include <zlib.h>

#include <array>
#include <cstdio>
#include <string>

namespace smc::capture {

class GzipStream {
 public:
    static constexpr int kFirstByte = 0x1f;  // no other capture format begins with it

    // The caller closes `compressed`.
    explicit GzipStream(std::FILE* compressed) : compressed_(compressed) {}
    ~GzipStream();
    GzipStream(const GzipStream&) = delete;
    GzipStream& operator=(const GzipStream&) = delete;

    // To be called once. The file must be closed before this object goes. nullptr: no memory.
    std::FILE* open();
    // Why reading failed; empty if the file is whole as far as it was read.
    [[nodiscard]] const std::string& problem() const { return problem_; }

 private:
    ssize_t read(char* to, std::size_t bytes);
    bool fill();
    ssize_t fail(const char* problem);

    std::FILE* compressed_;
    z_stream z_{};
    bool ready_ = false;
    bool inside_ = true;  // in a gzip member; a file may have several, one after the other
    std::string problem_;
    std::array<Bytef, std::size_t{16} * 1024> input_{};
};

}  // namespace smc::capture
