// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "lib/wire/row_reader.h"

#include <cstdio>

namespace smc {

std::string text(Reason reason) {
    char code[12];
    std::snprintf(code, sizeof code, "0x%08x", static_cast<unsigned>(reason));
    return code;
}

}  // namespace smc

namespace smc::wire {

namespace {

constexpr std::size_t kMostShown = 64;  // bytes of a run

Value run_of(std::size_t offset, Bytes bytes) {
    std::string shown = hex(bytes.first(std::min(bytes.size(), kMostShown)));
    if (bytes.size() > kMostShown) {
        shown += " and " + std::to_string(bytes.size() - kMostShown) + " more";
    }
    return smc::Fields{{"offset", "Bytes from the start of the message", std::uint64_t{offset}},
                       {"bytes", "What stands there", std::move(shown)}};
}

bool mark(smc::Fields& fields, const Fault& fault) {
    for (smc::Field& field : fields) {
        if (field.offset == fault.offset && field.name.ends_with(fault.field)) {
            field.wrong = fault.expected;
            return true;
        }
        if (auto* group = std::get_if<smc::Fields>(&field.value); group != nullptr && mark(*group, fault)) {
            return true;
        }
        if (auto* list = std::get_if<Values>(&field.value)) {
            for (Value& item : *list) {
                if (auto* group = std::get_if<smc::Fields>(&item); group != nullptr && mark(*group, fault)) {
                    return true;
                }
            }
        }
    }
    return false;
}

}  // namespace

std::string hex(Bytes bytes) {
    std::string out = "0x";
    for (const std::uint8_t byte : bytes) {
        out += "0123456789abcdef"[byte >> 4];
        out += "0123456789abcdef"[byte & 15];
    }
    return out;
}

Values RowReader::untold() const {
    Values runs;
    const auto left = [&](std::size_t i) { return static_cast<std::uint8_t>(message_[i] & ~told_[i]); };
    for (std::size_t i = 0; i < message_.size(); i++) {
        if (left(i) == 0) {
            continue;
        }
        if (told_[i] != 0) {
            runs.push_back(run_of(i, std::array{left(i)}));
            continue;
        }
        std::size_t end = i + 1;  // after the run's last byte that is not zero
        for (std::size_t k = end; k < message_.size() && told_[k] == 0; k++) {
            end = message_[k] != 0 ? k + 1 : end;
        }
        runs.push_back(run_of(i, message_.subspan(i, end - i)));
        i = end - 1;
    }
    return runs;
}

void finish(Description& out, const RowReader& reader, const std::optional<Fault>& fault) {
    if (Values untold = reader.untold(); !untold.empty()) {
        out.fields.push_back({"unknown_bytes", "Bytes for which no field is known", std::move(untold)});
    }
    if (fault) {
        out.fault = fault;
        mark(out.fields, *fault);
    }
}

}  // namespace smc::wire
