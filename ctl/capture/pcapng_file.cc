// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "ctl/capture/pcapng_file.h"

#include <pcap/dlt.h>

#include <algorithm>
#include <vector>

#include "ctl/capture/capture_time.h"

namespace smc::capture {

namespace {

enum : std::uint32_t {
    kSectionHeader = 0x0a0d0d0a,
    kInterface = 1,
    kOldPacket = 2,
    kSimplePacket = 3,
    kEnhancedPacket = 6,
};
constexpr std::size_t kFrameOfBlock = 12;  // type and length before the body, the length again after it
constexpr std::size_t kLongestBlock = std::size_t{16} * 1024 * 1024;
constexpr std::size_t kMostInterfaces = 65536;
const char* const kTruncated = "truncated: the file ends inside a block";

struct Interface {
    int link_type = 0;  // DLT_
    std::uint32_t snap_length = 0;
    std::uint64_t units = 1'000'000;  // of time, per second
    std::int64_t offset = 0;          // seconds
};

// pcapng files number link types as LINKTYPE_. Of the link types known here, only raw IP has another number as DLT_.
int dlt_of(std::uint64_t link_type) {
    constexpr int kLinkTypeRaw = 101;
    return link_type == kLinkTypeRaw ? DLT_RAW : static_cast<int>(link_type);
}

class Reader {
 public:
    Reader(std::FILE* file, const std::function<void(const Frame&)>& frame) : file_(file), frame_(frame) {}

    std::optional<std::string> run() {
        while (!problem_ && next()) {
            switch (type_) {
                case kSectionHeader:
                    interfaces_.clear();
                    break;
                case kInterface:
                    add_interface();
                    break;
                case kEnhancedPacket:
                    add_frame(20, number(0, 4), number(4, 4) << 32 | number(8, 4), number(12, 4));
                    break;
                case kOldPacket:
                    add_frame(20, number(0, 2), number(4, 4) << 32 | number(8, 4), number(12, 4));
                    break;
                case kSimplePacket:
                    add_simple_frame();
                    break;
                default:
                    break;  // names, statistics, secrets, ...
            }
        }
        return problem_;
    }

 private:
    bool fail(const char* problem) {
        problem_ = problem;
        return false;
    }

    // A number in the body, in the byte order of the section; 0 beyond the end of the body.
    [[nodiscard]] std::uint64_t number(std::size_t offset, std::size_t bytes) const {
        std::uint64_t value = 0;
        for (std::size_t i = 0; i < bytes && offset + bytes <= body_.size(); i++) {
            value = value << 8 | body_[offset + (big_endian_ ? i : bytes - 1 - i)];
        }
        return value;
    }

    bool read(std::size_t bytes) {
        body_.resize(bytes);
        return std::fread(body_.data(), 1, bytes, file_) == bytes;
    }

    // Reads the type and the body of the next block. False at the end of the file, or when there is a problem.
    bool next() {
        const int first = std::getc(file_);
        if (first == EOF) {
            return std::ferror(file_) == 0 ? false : fail("cannot be read");
        }
        std::ungetc(first, file_);
        if (!read(8)) {
            return fail(kTruncated);
        }
        type_ = static_cast<std::uint32_t>(number(0, 4));
        const std::vector<std::uint8_t> head = body_;
        std::size_t taken = head.size();
        if (type_ == kSectionHeader) {  // its magic number tells the byte order, also that of its own length
            if (!read(4)) {
                return fail(kTruncated);
            }
            constexpr std::uint32_t kMagic = 0x1a2b3c4d;
            big_endian_ = body_[0] == kMagic >> 24;
            if (number(0, 4) != kMagic) {
                return fail("a pcapng section in no byte order");
            }
            taken += body_.size();
        }
        body_ = head;
        const std::size_t length = number(4, 4);
        if (length < std::max(kFrameOfBlock, taken + 4) || length % 4 != 0 || length > kLongestBlock) {
            return fail("a pcapng block of impossible length");
        }
        if (!read(length - taken)) {
            return fail(kTruncated);
        }
        if (number(body_.size() - 4, 4) != length) {
            return fail("a pcapng block with two lengths");
        }
        body_.resize(body_.size() - 4);
        return true;
    }

    void add_interface() {
        if (body_.size() < 8 || interfaces_.size() == kMostInterfaces) {
            fail(body_.size() < 8 ? "a pcapng interface without a description" : "too many pcapng interfaces");
            return;
        }
        Interface described;
        described.link_type = dlt_of(number(0, 2));
        described.snap_length = static_cast<std::uint32_t>(number(4, 4));
        constexpr std::uint64_t kResolution = 9, kOffset = 14;
        for (std::size_t at = 8; at + 4 <= body_.size();) {
            const std::uint64_t code = number(at, 2), length = number(at + 2, 2);
            if (code == kResolution && length == 1 && at + 5 <= body_.size()) {
                described.units = units_of(body_[at + 4]);
            } else if (code == kOffset && length == 8) {
                described.offset = static_cast<std::int64_t>(number(at + 4, 8));
            }
            at += 4 + (length + 3) / 4 * 4;
        }
        interfaces_.push_back(described);
    }

    // `resolution` is an exponent of 10, or of 2 if the upper bit is set. One that does not fit in 64 bits is ignored.
    static std::uint64_t units_of(std::uint8_t resolution) {
        const bool binary = (resolution & 0x80) != 0;
        const unsigned exponent = resolution & 0x7fU;
        if (exponent > (binary ? 63 : 19)) {
            return Interface{}.units;
        }
        std::uint64_t units = 1;
        for (unsigned i = 0; i < exponent; i++) {
            units *= binary ? 2 : 10;
        }
        return units;
    }

    void add_frame(std::size_t header, std::uint64_t interface, std::uint64_t time, std::uint64_t captured) {
        number_++;
        if (interface >= interfaces_.size()) {
            fail("a frame of a pcapng interface that is not described");
            return;
        }
        if (body_.size() < header || captured > body_.size() - header) {
            fail("a frame that is longer than its pcapng block");
            return;
        }
        const Interface& from = interfaces_[interface];
        const std::uint64_t seconds = time / from.units;
        using Wide = unsigned __int128;
        const auto microseconds = static_cast<std::int64_t>(Wide{time % from.units} * 1'000'000 / from.units);
        frame_({number_, capture_time(seconds, from.offset, microseconds), from.link_type,
                Bytes(body_).subspan(header, captured)});
    }

    // A simple frame belongs to the first interface, has no time, and is cut at the snap length of that interface.
    void add_simple_frame() {
        std::uint64_t captured =
            std::min<std::uint64_t>(number(0, 4), body_.size() - std::min<std::size_t>(4, body_.size()));
        if (!interfaces_.empty() && interfaces_.front().snap_length != 0) {
            captured = std::min<std::uint64_t>(captured, interfaces_.front().snap_length);
        }
        add_frame(4, 0, 0, captured);
    }

    std::FILE* file_;
    const std::function<void(const Frame&)>& frame_;
    bool big_endian_ = false;
    std::uint32_t type_ = 0;
    std::vector<std::uint8_t> body_;
    std::vector<Interface> interfaces_;
    std::uint64_t number_ = 0;
    std::optional<std::string> problem_;
};

}  // namespace

std::optional<std::string> read_pcapng(std::FILE* file, const std::function<void(const Frame&)>& frame) {
    return Reader(file, frame).run();
}

}  // namespace smc::capture
