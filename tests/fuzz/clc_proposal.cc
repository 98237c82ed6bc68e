// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "check.h"
#include "smc/wire/clc.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const smc::wire::Bytes input(data, size);
    using namespace smc::clc;
    smc::fuzz::check(
        decode_proposal(input), [](Bytes bytes) { return decode_proposal(bytes); },
        [](const Proposal& p) { return encode(p); });
    smc::describe_clc(input);
    return 0;
}
