// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "smc/wire/tcp_option.h"
#include "check.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const smc::wire::Bytes input(data, size);
    using namespace smc::tcp;
    if (const auto option = find_smc_option(input)) {
        const auto ours = encode(*option);
        const auto again = find_smc_option(ours);
        smc::fuzz::require(option->length != kOptionBytes || (again && again->exid == option->exid));
    }
    smc::describe_tcp_option(input);
    return 0;
}
