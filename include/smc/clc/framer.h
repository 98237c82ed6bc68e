// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Cuts CLC messages out of a TCP stream: exactly one message is read, never a byte behind it, because after a Decline
// those bytes are the application's.
#pragma once

#include <optional>
#include <utility>

#include "smc/wire/clc.h"

namespace smc::clc {

class Framer {
 public:
    // Where the next bytes go: at least one, and nowhere behind a fault.
    [[nodiscard]] wire::MutableBytes space() {
        return wire::MutableBytes(message_.bytes).subspan(message_.size, wanted_ - message_.size);
    }
    // `bytes` of space() were filled. A whole message, or what is wrong with its first 8 bytes; nothing: there is more
    // to read.
    [[nodiscard]] std::optional<Decoded<Message>> filled(std::size_t bytes) {
        message_.size += bytes;
        if (message_.size == kHeaderBytes && wanted_ == kHeaderBytes) {
            const auto header = decode_header(message_.view());
            if (const auto* fault = std::get_if<Fault>(&header)) {
                return Decoded<Message>(*fault);
            }
            wanted_ = std::get<Header>(header).length;
        }
        if (message_.size < wanted_) {
            return std::nullopt;
        }
        Decoded<Message> whole(std::exchange(message_, Message{}));
        wanted_ = kHeaderBytes;
        return whole;
    }

 private:
    Message message_;
    std::size_t wanted_ = kHeaderBytes;
};

}  // namespace smc::clc
