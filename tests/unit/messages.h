// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Random messages of every kind, with all contents that a peer may send. They follow from a seed, so that a failure can
// be repeated.
#pragma once

#include <random>
#include <vector>

#include "smc/wire/cdc.h"
#include "smc/wire/clc.h"
#include "smc/wire/llc.h"

namespace smc::test {

template <class M>
std::vector<std::uint8_t> bytes(const M& message) {
    return {message.bytes.begin(), message.bytes.begin() + static_cast<std::ptrdiff_t>(message.size)};
}

class Generator {
 public:
    explicit Generator(std::uint32_t seed) : random_(seed) {}

    std::uint64_t number(unsigned bits) {
        return bits == 64 ? random_() : random_() & ((std::uint64_t{1} << bits) - 1);
    }
    std::uint64_t below(std::uint64_t n) { return random_() % n; }
    bool coin() { return (random_() & 1) != 0; }
    clc::Proposal proposal();
    clc::AcceptR accept_r();
    clc::AcceptD accept_d();
    clc::Decline decline();
    clc::AnyMessage clc();
    llc::AnyMessage llc();
    cdc::Message cdc();

 private:
    template <class E>
    E word(unsigned bits) {
        return static_cast<E>(number(bits));
    }
    template <std::size_t N>
    std::array<std::uint8_t, N> array() {
        std::array<std::uint8_t, N> out;
        for (auto& byte : out) {
            byte = word<std::uint8_t>(8);
        }
        return out;
    }
    RoceGid gid() { return RoceGid{array<16>()}; }
    Eid eid() { return *Eid::parse("EID." + std::to_string(below(1000))); }
    clc::FirstContact first_contact(bool smcr);
    std::mt19937_64 random_;
};

}  // namespace smc::test
