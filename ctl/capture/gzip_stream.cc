// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "ctl/capture/gzip_stream.h"

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace smc::capture {

GzipStream::~GzipStream() {
    if (ready_) {
        ::inflateEnd(&z_);
    }
}

std::FILE* GzipStream::open() {
    constexpr int kGzipOnly = 16;
    ready_ = ::inflateInit2(&z_, kGzipOnly + MAX_WBITS) == Z_OK;
    if (!ready_) {
        return nullptr;
    }
    cookie_io_functions_t functions{};
    functions.read = [](void* self, char* to, std::size_t bytes) {
        return static_cast<GzipStream*>(self)->read(to, bytes);
    };
    return ::fopencookie(this, "rb", functions);
}

ssize_t GzipStream::fail(const char* problem) {
    problem_ = problem;
    errno = EIO;
    return -1;
}

// False at the end of the file.
bool GzipStream::fill() {
    z_.next_in = input_.data();
    z_.avail_in = static_cast<uInt>(std::fread(input_.data(), 1, input_.size(), compressed_));
    return z_.avail_in != 0;
}

ssize_t GzipStream::read(char* to, std::size_t bytes) {
    constexpr std::size_t kMost = std::size_t{1} << 30;  // zlib counts in 32 bits
    bytes = std::min(bytes, kMost);
    z_.next_out = reinterpret_cast<Bytef*>(to);
    z_.avail_out = static_cast<uInt>(bytes);
    while (z_.avail_out == bytes && bytes != 0) {
        if (z_.avail_in == 0 && !fill()) {
            if (std::ferror(compressed_) != 0) {
                return fail(std::generic_category().message(errno).c_str());
            }
            return inside_ ? fail("the compressed file is cut off: truncated") : 0;
        }
        if (!inside_ && *z_.next_in != kFirstByte) {
            return 0;  // padding, which tapes and block devices add to a file
        }
        if (!inside_) {
            ::inflateReset(&z_);
            inside_ = true;
        }
        const int status = ::inflate(&z_, Z_NO_FLUSH);
        inside_ = status != Z_STREAM_END;
        if (status != Z_OK && status != Z_STREAM_END) {
            return fail("the compressed data is damaged");
        }
    }
    return static_cast<ssize_t>(bytes - z_.avail_out);
}

}  // namespace smc::capture
