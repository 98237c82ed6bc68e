// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "smc/wire/tcp_option.h"

#include <catch2/catch.hpp>
#include <vector>

using namespace smc;
using namespace smc::tcp;
using clc::EyeCatcher;

TEST_CASE("encode__is_the_figure_of_the_rfc") {
    CHECK(encode({}) == std::array<std::uint8_t, 6>{254, 6, 0xe2, 0xd4, 0xc3, 0xd9});
    CHECK(encode({254, 6, EyeCatcher::kSmcd}) == std::array<std::uint8_t, 6>{254, 6, 0xe2, 0xd4, 0xc3, 0xc4});
}

TEST_CASE("find__sees_it_among_others") {
    using Raw = std::vector<std::uint8_t>;
    const auto found = [](const Raw& options) {
        const auto option = find_smc_option(options);
        return option ? text(option->exid) : "none";
    };
    // the options of a SYN of Linux 6.12: MSS, SACK permitted, timestamps, NOP, window scale, NOP, NOP, SMC
    const Raw linux{2, 4, 5, 0xb4, 4, 2, 8, 10, 0xbc, 0x3a, 0xf4, 0x6f, 0,    0,
                    0, 0, 1, 3,    3, 7, 1, 1,  254,  6,    0xe2, 0xd4, 0xc3, 0xd9};
    CHECK(found(linux) == "SMCR");
    CHECK(found({254, 6, 0xe2, 0xd4, 0xc3, 0xc4}) == "SMCD");
    CHECK(found({}) == "none");
    CHECK(found({254, 6, 0xe2, 0xd4, 0xc3, 0xd8}) == "none");  // another experiment
    CHECK(found({254, 10, 'S', 'M', 'C', 'A', 0, 0, 0, 0, 254, 6, 0xe2, 0xd4, 0xc3, 0xd9}) == "SMCR");
    CHECK(found({254, 4, 0xe2, 0xd4, 254, 6, 0xe2, 0xd4, 0xc3, 0xd9}) == "SMCR");  // a short ExID
    CHECK(found({253, 6, 0xe2, 0xd4, 0xc3, 0xd9}) == "none");                      // another kind
    CHECK(found({0, 254, 6, 0xe2, 0xd4, 0xc3, 0xd9}) == "none");                   // after the end
    CHECK(found({254}) == "none");
    CHECK(found({254, 6, 0xe2, 0xd4}) == "none");
    CHECK(found({254, 0, 0xe2, 0xd4, 0xc3, 0xd9}) == "none");
    CHECK(found({2, 1, 254, 6, 0xe2, 0xd4, 0xc3, 0xd9}) == "none");  // an impossible length
}
