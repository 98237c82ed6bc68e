// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Cuts CLC messages out of a TCP stream. Exactly one message is read, never a byte beyond it, because after a Decline
// the next bytes belong to the application. Of a message that is longer than any known one, only the beginning and the
// last four bytes are kept.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "smc/wire/clc.h"
#include "smc/wire/ebcdic.h"

namespace smc::clc {

// True if the bytes are not CLC at all; false if they are a CLC message with a fault.
[[nodiscard]] inline bool is_no_clc(const Fault& fault) {
    return std::string_view(fault.field) == "eye_catcher" && fault.offset == 0;
}

class Framer {
 public:
    // Space for the next bytes: at least one byte, unless filled() has returned a fault.
    [[nodiscard]] wire::MutableBytes free_space() {
        const std::size_t left = wanted_ - read_;
        return message_.size < kMaxMessage
                   ? wire::MutableBytes(message_.bytes).subspan(message_.size).first(std::min(left, unused()))
                   : wire::MutableBytes(behind_).first(std::min(left, behind_.size()));
    }
    // The bytes that were read of an incomplete message, or of data that is no message.
    [[nodiscard]] wire::Bytes begun() const { return message_.view(); }
    // `bytes` of free_space() were filled. Returns a whole message, or a fault in its first 8 bytes, which the very
    // first byte may show; nothing: there is more to read.
    [[nodiscard]] std::optional<Decoded<Message>> filled(std::size_t bytes) {
        read_ += bytes;
        if (message_.size < kMaxMessage) {
            message_.size += bytes;
        } else {
            keep_end(bytes);
        }
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
        if (read_ < wanted_) {
            return std::nullopt;
        }
        Decoded<Message> whole(std::exchange(message_, Message{}));
        read_ = 0;
        wanted_ = kHeaderBytes;
        return whole;
    }

 private:
    [[nodiscard]] std::size_t unused() const { return kMaxMessage - message_.size; }

    // Keeps the last four bytes of all that was read at the end of message_.
    void keep_end(std::size_t bytes) {
        const auto end = message_.bytes.end() - kTrailerBytes;
        const std::size_t newer = std::min(bytes, kTrailerBytes);
        std::copy(end + static_cast<std::ptrdiff_t>(newer), message_.bytes.end(), end);
        const auto from = behind_.begin() + static_cast<std::ptrdiff_t>(bytes);
        std::copy(from - static_cast<std::ptrdiff_t>(newer), from,
                  message_.bytes.end() - static_cast<std::ptrdiff_t>(newer));
    }

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
    std::array<std::uint8_t, 512> behind_{};  // space for bytes that are not kept
    std::size_t read_ = 0, wanted_ = kHeaderBytes;
};

}  // namespace smc::clc
