// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "smc/wire/fault.h"

#include <cstdio>

namespace smc {

const char* text(Verdict verdict) {
    switch (verdict) {
        case Verdict::kTreatAsData:
            return "treat as data";
        case Verdict::kDecline:
            return "decline";
        case Verdict::kReset:
            return "reset";
        case Verdict::kReject:
            return "reject";
        case Verdict::kIgnore:
            return "ignore";
    }
    return "?";
}

std::string Fault::text() const {
    char buffer[192];
    std::snprintf(buffer, sizeof buffer, "%s at offset %zu is 0x%llx, expected %s", field, offset,
                  static_cast<unsigned long long>(found), expected);
    return buffer;
}

}  // namespace smc
