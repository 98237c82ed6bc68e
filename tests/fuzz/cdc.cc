// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "smc/wire/cdc.h"
#include "check.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const smc::wire::Bytes input(data, size);
    using namespace smc::cdc;
    smc::fuzz::check(
        decode(input), [](Bytes bytes) { return decode(bytes); }, [](const Message& m) { return encode(m); });
    smc::fuzz::check(
        decode_smcd(input), [](Bytes bytes) { return decode_smcd(bytes); },
        [](const SmcdMessage& m) { return encode(m); });
    smc::describe_any(input);
    smc::describe_smcd_cdc(input);
    return 0;
}
