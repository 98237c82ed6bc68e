// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "check.h"
#include "smc/wire/clc.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const smc::wire::Bytes input(data, size);
    using namespace smc::clc;
    for (const Type type : {Type::kAccept, Type::kConfirm}) {
        smc::fuzz::check(
            decode_acceptance(input, type), [=](Bytes bytes) { return decode_acceptance(bytes, type); },
            [](const Acceptance& a) { return std::visit([](const auto& half) { return encode(half); }, a); });
    }
    smc::describe_clc(input);
    return 0;
}
