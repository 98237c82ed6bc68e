// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Cuts CLC messages out of a TCP stream: exactly one message is read, never a byte behind it, because after a Decline
// those bytes are the application's.
#pragma once

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "smc/wire/clc.h"
#include "smc/wire/ebcdic.h"

namespace smc::clc {

// The bytes are not of this protocol at all, rather than a message with something wrong in it.
[[nodiscard]] inline bool is_no_clc(const Fault& fault) {
    return std::string_view(fault.field) == "eye_catcher" && fault.offset == 0;
}

class Framer {
 public:
    // Where the next bytes go: at least one, and nowhere behind a fault.
    [[nodiscard]] wire::MutableBytes space() {
        return wire::MutableBytes(message_.bytes).subspan(message_.size, wanted_ - message_.size);
    }
    // What was read of a message that is not whole yet, or of what is none.
    [[nodiscard]] wire::Bytes begun() const { return message_.view(); }
    // `bytes` of space() were filled. A whole message, or what is wrong with its first 8 bytes, which the very first
    // one may show; nothing: there is more to read.
    [[nodiscard]] std::optional<Decoded<Message>> filled(std::size_t bytes) {
        message_.size += bytes;
        if (message_.size < kHeaderBytes && !may_be_message()) {
            std::fill(message_.bytes.begin() + message_.size, message_.bytes.begin() + kHeaderBytes, std::uint8_t{0});
            return Decoded<Message>(std::get<Fault>(decode_header(wire::Bytes(message_.bytes).first(kHeaderBytes))));
        }
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
    [[nodiscard]] bool may_be_message() const {
        const auto begins = [this](std::uint32_t eye_catcher) {
            for (std::size_t i = 0; i < std::min(message_.size, sizeof eye_catcher); i++) {
                if (message_.bytes[i] != static_cast<std::uint8_t>(eye_catcher >> (24 - 8 * i))) {
                    return false;
                }
            }
            return true;
        };
        return begins(kEyeCatcherR) || begins(kEyeCatcherD);
    }

    Message message_;
    std::size_t wanted_ = kHeaderBytes;
};

}  // namespace smc::clc
