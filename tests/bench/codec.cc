// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Time and allocations of the codec. Prints "case<TAB>nanoseconds<TAB>allocations" per operation, the median of rounds.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <vector>

#include "smc/wire/cdc.h"
#include "smc/wire/clc.h"
#include "smc/wire/llc.h"

namespace {

std::size_t allocations = 0;

}  // namespace

void* operator new(std::size_t size) {
    allocations++;
    if (void* p = std::malloc(size)) {
        return p;
    }
    throw std::bad_alloc();
}
void operator delete(void* p) noexcept {
    std::free(p);
}
void operator delete(void* p, std::size_t) noexcept {
    std::free(p);
}

namespace {

using namespace smc;

constexpr int kRounds = 31;
constexpr int kEach = 20000;

// Keeps the compiler from leaving out the code that is measured.
template <class T>
void use(const T& value) {
    asm volatile("" : : "r"(&value) : "memory");
}

template <class Work>
void measure(const char* name, Work work) {
    std::vector<double> rounds;
    rounds.reserve(kRounds);
    const std::size_t before = allocations;
    for (int round = 0; round < kRounds; round++) {
        const auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < kEach; i++) {
            work();
        }
        const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
        rounds.push_back(took.count() / kEach);
    }
    const std::size_t allocated = allocations - before;
    std::nth_element(rounds.begin(), rounds.begin() + kRounds / 2, rounds.end());
    std::printf("%s\t%.1f\t%zu\n", name, rounds[kRounds / 2], allocated);
}

// Messages as Linux sends them, and a Proposal with every area full.
clc::Proposal plain() {
    clc::Proposal p;
    p.v2_offer = clc::Offer::kSmcR;
    auto& v2 = p.v2.emplace();
    v2.roce_gid = RoceGid::from_ipv4({10, 9, 0, 2});
    v2.eids = {*Eid::parse("TESTEID")};
    return p;
}

clc::Proposal full() {
    clc::Proposal p = plain();
    p.v1_offer = p.v2_offer = clc::Offer::kBoth;
    auto& subnet = p.subnet.emplace();
    auto& smcd = p.v2->smcd.emplace();
    for (int i = 0; i < 8; i++) {
        p.v2->eids.push_back(*Eid::parse("EID"));
        subnet.prefixes.push_back({});
        smcd.gids.push_back({});
    }
    return p;
}

}  // namespace

int main() {
    const auto linux_proposal = encode(plain());
    const auto full_proposal = encode(full());
    clc::AcceptR accept;
    accept.first_contact = true;
    accept.fce.emplace();
    const auto accept_bytes = encode(accept);
    const auto cdc_bytes = encode(cdc::Message{});
    const auto test_link = llc::encode(llc::TestLink{});
    const clc::Proposal proposal = full();
    cdc::Message cdc;

    measure("decode Proposal (Linux)", [&] { use(clc::decode_proposal(linux_proposal.view())); });
    measure("decode Proposal (full)", [&] { use(clc::decode_proposal(full_proposal.view())); });
    measure("decode Accept", [&] { use(clc::decode_acceptance(accept_bytes.view(), clc::Type::kAccept)); });
    measure("decode TEST LINK", [&] { use(llc::decode(test_link.view())); });
    measure("decode CDC", [&] { use(cdc::decode(cdc_bytes.view())); });
    measure("encode Proposal (full)", [&] { use(encode(proposal)); });
    measure("encode CDC", [&] {
        cdc.sequence++;
        use(encode(cdc));
    });
    return 0;
}
