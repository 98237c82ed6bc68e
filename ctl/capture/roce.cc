// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "ctl/capture/roce.h"

#include <algorithm>
#include <array>

#include "smc/wire/qp_end.h"

namespace smc::capture {

namespace {

constexpr std::size_t kBthBytes = 12;
constexpr std::size_t kRethBytes = 16;
constexpr std::size_t kImmediateBytes = 4;
constexpr std::size_t kCrcBytes = 4;
constexpr std::size_t kAethBytes = 4;
constexpr std::uint8_t kAcknowledge = 0x11;
constexpr std::uint32_t kHalfOfPsns = 0x800000;

struct Opcode {
    RcRequest::Operation operation;
    bool first, last;
    std::size_t extension;  // bytes of headers after the BTH
};

// The upper three bits are 000 for a reliable connection.
std::optional<Opcode> opcode(std::uint8_t code) {
    using enum RcRequest::Operation;
    switch (code) {
        case 0x00:
            return Opcode{kSend, true, false, 0};
        case 0x01:
            return Opcode{kSend, false, false, 0};
        case 0x02:
            return Opcode{kSend, false, true, 0};
        case 0x03:
            return Opcode{kSend, false, true, kImmediateBytes};
        case 0x04:
            return Opcode{kSend, true, true, 0};
        case 0x05:
            return Opcode{kSend, true, true, kImmediateBytes};
        case 0x06:
            return Opcode{kWrite, true, false, kRethBytes};
        case 0x07:
            return Opcode{kWrite, false, false, 0};
        case 0x08:
            return Opcode{kWrite, false, true, 0};
        case 0x09:
            return Opcode{kWrite, false, true, kImmediateBytes};
        case 0x0a:
            return Opcode{kWrite, true, true, kRethBytes};
        case 0x0b:
            return Opcode{kWrite, true, true, kRethBytes + kImmediateBytes};
        default:
            return std::nullopt;
    }
}

}  // namespace

std::optional<RcRequest> parse_rc_request(wire::Bytes packet, std::size_t length) {
    if (packet.size() < kBthBytes) {
        return std::nullopt;
    }
    const auto op = opcode(packet[0]);
    const std::size_t padding = packet[1] >> 4 & 3;
    if (!op || length < kBthBytes + op->extension + padding + kCrcBytes || packet.size() < kBthBytes + op->extension) {
        return std::nullopt;
    }
    RcRequest request;
    request.operation = op->operation;
    request.first = op->first;
    request.last = op->last;
    request.destination = Qpn{static_cast<std::uint32_t>(wire::load_be(&packet[5], 3))};
    request.psn = Psn{static_cast<std::uint32_t>(wire::load_be(&packet[9], 3))};
    const std::size_t headers = kBthBytes + op->extension;
    const std::size_t bytes = length - headers - padding - kCrcBytes;
    request.payload = packet.subspan(headers);
    request.cut = request.payload.size() < bytes;
    request.payload = request.payload.first(std::min(request.payload.size(), bytes));
    if (op->operation == RcRequest::Operation::kWrite && op->first) {
        request.address = VirtualAddress{wire::load_be(&packet[kBthBytes], 8)};
        request.rkey = RKey{static_cast<std::uint32_t>(wire::load_be(&packet[kBthBytes + 8], 4))};
        request.bytes = static_cast<std::uint32_t>(wire::load_be(&packet[kBthBytes + 12], 4));
    }
    return request;
}

std::optional<RcAck> parse_rc_answer(wire::Bytes packet, std::size_t length) {
    constexpr std::size_t kWhole = kBthBytes + kAethBytes;
    if (packet.size() < kWhole || length < kWhole + kCrcBytes || packet[0] != kAcknowledge) {
        return std::nullopt;
    }
    const std::uint8_t syndrome = packet[kBthBytes];
    RcAck answer;
    switch (syndrome >> 5 & 3) {
        case 0:
            answer.kind = RcAck::Kind::kAcked;
            break;
        case 1:
            answer.kind = RcAck::Kind::kRnrNak;
            break;
        case 3:
            answer.kind = RcAck::Kind::kNak;
            break;
        default:
            return std::nullopt;
    }
    answer.code = syndrome & 0x1f;
    answer.destination = Qpn{static_cast<std::uint32_t>(wire::load_be(&packet[5], 3))};
    answer.psn = Psn{static_cast<std::uint32_t>(wire::load_be(&packet[9], 3))};
    return answer;
}

namespace {

Field psn_field(Psn psn) {
    return {"psn", "Packet sequence number", std::uint64_t{static_cast<std::uint32_t>(psn)}};
}

const char* nak_text(std::uint8_t code) {
    constexpr std::array<const char*, 5> kTexts{"PSN sequence error", "invalid request", "remote access error",
                                                "remote operational error", "invalid RD request"};
    return code < kTexts.size() ? kTexts.at(code) : "reserved";
}

}  // namespace

Description describe(const RcRequest& write, bool again) {
    return {.layer = "RDMA",
            .type = "WRITE",
            .fields = {psn_field(write.psn),
                       {"remote_address", "Remote address", text(write.address)},
                       {"rkey", "RKey", text(write.rkey)},
                       {"bytes", "Bytes", std::uint64_t{write.bytes}},
                       {"seen_again", "Seen before", again}},
            .fault = {}};
}

Description describe(const RcAck& answer) {
    Description out{.layer = "RDMA", .type = "ACK", .fields = {psn_field(answer.psn)}, .fault = {}};
    if (answer.kind == RcAck::Kind::kRnrNak) {
        out.type = "RNR NAK";
        out.fields.push_back({"timer", "Timer", std::uint64_t{answer.code}});
    } else if (answer.kind == RcAck::Kind::kNak) {
        out.type = "NAK";
        out.fields.push_back({"code", "Code", std::uint64_t{answer.code}, nak_text(answer.code)});
    }
    return out;
}

SendReassembly::Seen SendReassembly::classify(std::uint32_t psn) {
    const std::uint32_t ahead = next_ ? (psn - *next_) & kPsnMask : 0;
    const std::uint32_t behind = (kPsnMask + 1 - ahead) & kPsnMask;
    if (ahead >= kHalfOfPsns && behind <= kRemembered) {
        const bool again = seen_[psn % kRemembered];
        seen_.set(psn % kRemembered);
        return again ? Seen::kAgain : Seen::kLate;
    }
    // The PSN is ahead, or so far back that the remembered PSNs do not apply any more.
    if (ahead > kRemembered) {
        seen_.reset();
    }
    for (std::uint32_t skipped = 0; skipped < std::min(ahead, kRemembered); skipped++) {
        seen_.reset((psn - 1 - skipped) % kRemembered);
    }
    seen_.set(psn % kRemembered);
    next_ = (psn + 1) & kPsnMask;
    return ahead == 0 ? Seen::kNew : Seen::kAfterGap;
}

SendReassembly::Seen SendReassembly::accept(const RcRequest& request) {
    const auto psn = static_cast<std::uint32_t>(request.psn);
    const Seen seen = classify(psn);
    const bool single = request.first && request.last;
    complete_ = false;
    if (request.operation != RcRequest::Operation::kSend || (single && seen == Seen::kAgain)) {
        return seen;
    }
    if (request.first) {
        bytes_.clear();
        first_ = psn;
        whole_ = true;
    } else if (psn != assembly_next_) {
        const std::uint32_t back = (assembly_next_ - 1 - psn) & kPsnMask;
        if (whole_ && back < ((assembly_next_ - first_) & kPsnMask)) {
            return seen;  // the packet is in the message already
        }
        whole_ = false;
    }
    assembly_next_ = (psn + 1) & kPsnMask;
    whole_ = whole_ && !request.cut && bytes_.size() + request.payload.size() <= kLongest;
    if (whole_) {
        bytes_.insert(bytes_.end(), request.payload.begin(), request.payload.end());
    }
    if (!request.last || !whole_) {
        return seen;
    }
    whole_ = false;
    if (single) {
        complete_ = true;
        return seen;
    }
    // The last packet may have been seen before, while other packets of the message were missing.
    complete_ = finished_ != first_;
    finished_ = first_;
    return complete_ && seen == Seen::kAgain ? Seen::kLate : seen;
}

std::optional<wire::Bytes> SendReassembly::message() const {
    return complete_ ? std::optional<wire::Bytes>(bytes_) : std::nullopt;
}

}  // namespace smc::capture
