// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "smc/wire/llc.h"
#include "check.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const smc::wire::Bytes input(data, size);
    using namespace smc::llc;
    smc::fuzz::check(
        decode(input), [](Bytes bytes) { return decode(bytes); }, [](const AnyMessage& m) { return encode(m); });
    smc::describe_llc(input);
    return 0;
}
