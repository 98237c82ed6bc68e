// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Numbers of legs, and the map entries in which BPF programs note the buffer sizes that applications chose.
#include "agent/steer/chosen_buffers.h"

#include <sys/mman.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "bpf/abi.h"
#include "os/unique_fd.h"

using namespace smc;
using bpf::ChosenBuffers;

TEST_CASE("chosen_buffers__a_leg_has_a_number_of_its_own_until_it_goes") {
    const UniqueFd map(::memfd_create("map", MFD_CLOEXEC));  // its entries are laid out like those of an array map
    REQUIRE(::ftruncate(map.get(), 4 * 8) == 0);
    const auto opened = ChosenBuffers::open(map.get(), 4);
    REQUIRE(opened);
    ChosenBuffers& buffers = **opened;
    auto first = buffers.take(0), second = buffers.take(8192), third = buffers.take(0);
    REQUIRE((first && second && third));
    CHECK((first->number() == 1 && second->number() == 2 && third->number() == 3));  // no leg has number 0
    CHECK(buffers.take(0) == nullptr);
    CHECK(second->send() == 8192);

    const smc_chosen chosen{4608, 1};  // as a BPF program writes it, at that place of the map
    REQUIRE(::pwrite(map.get(), &chosen, sizeof chosen, 3 * 8) == 8);
    CHECK((third->send() == 4608 && first->send() == 0));
    CHECK((third->urgent() == 1 && first->urgent() == 0));

    third.reset();
    first.reset();
    third = buffers.take(7);
    CHECK((third->number() == 3 && third->send() == 7 && third->urgent() == 0));  // it has been free for longest
}
