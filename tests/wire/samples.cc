// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Prints random messages, one per line: "clc <hex>", "llc <hex>", "cdc <hex>". For tests that let another program
// read what this library writes. Arguments: seed, how many of each.
#include <cstdio>
#include <cstdlib>

#include "messages.h"

namespace {

template <class M>
void print(const char* layer, const M& message) {
    std::printf("%s ", layer);
    for (const std::uint8_t byte : message.view()) {
        std::printf("%02x", byte);
    }
    std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) {
        std::fprintf(stderr, "usage: %s SEED COUNT\n", argv[0]);
        return 2;
    }
    smc::test::Generator generator(static_cast<std::uint32_t>(std::strtoul(argv[1], nullptr, 10)));
    for (long n = std::strtol(argv[2], nullptr, 10); n > 0; n--) {
        print("clc", encode(generator.clc()));
        print("llc", encode(generator.llc()));
        print("cdc", encode(generator.cdc()));
    }
    return 0;
}
