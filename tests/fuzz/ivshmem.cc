// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Memory that several machines share: one machine writes anything into it while another one works with it. The input is
// a list of steps: a byte for the kind of step, and its numbers.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "datapath/ivshmem/area.h"
#include "os/unique_fd.h"

namespace {

using namespace smc;
using namespace smc::ivshmem;

constexpr std::size_t kBytes = 2U << 20;

class Input {
 public:
    Input(const std::uint8_t* data, std::size_t size) : data_(data), left_(size) {}
    [[nodiscard]] bool over() const { return left_ == 0; }
    template <class Number>
    Number take() {
        Number value{};
        const std::size_t n = std::min(sizeof value, left_);
        std::memcpy(&value, data_, n);
        data_ += n;
        left_ -= n;
        return value;
    }

 private:
    const std::uint8_t* data_;
    std::size_t left_;
};

void require(bool truth) {
    if (!truth) {
        std::abort();
    }
}

// A4
void stays_inside(const Area& area, std::span<const std::uint8_t> whole, std::uint32_t first, std::uint32_t count) {
    const auto run = area.run(first, count);
    require(run.empty() || (run.data() >= whole.data() && run.data() + run.size() <= whole.data() + whole.size()));
    const auto* header = reinterpret_cast<const std::uint8_t*>(area.header(first));
    require(header == nullptr || (header >= whole.data() && header + sizeof(DmbHeader) <= whole.data() + whole.size()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const UniqueFd file(::memfd_create("area", MFD_CLOEXEC));
    require(file && ::ftruncate(file.get(), kBytes) == 0);
    auto theirs = Mapping::shared(file.get(), kBytes);
    auto ours = Mapping::shared(file.get(), kBytes);
    require(theirs && ours);
    const auto whole = ours->bytes();
    Gid own, other;
    own.bytes.fill(1);
    other.bytes.fill(2);
    Input input(data, size);
    // The initial contents of the area come from the input, too.
    for (auto stores = input.take<std::uint8_t>() % 4; stores > 0; stores--) {
        const auto at = input.take<std::uint32_t>() % (kBytes / 8) * 8;
        auto word = input.take<std::uint64_t>();
        if (at == offsetof(Superblock, state)) {
            word &= kReady;  // open() would wait two seconds for a peer that never finishes laying it out
        }
        std::memcpy(theirs->bytes().data() + at, &word, sizeof word);
    }
    auto opened = Area::open(std::move(*ours), own);
    if (!opened) {
        return 0;
    }
    Area& area = **opened;
    TimePoint now{};
    std::vector<Area::Held::iterator> held;
    while (!input.over()) {
        switch (input.take<std::uint8_t>() % 10) {
            case 0:
            case 1: {
                // mostly in the control structures: contents of blocks matter less
                const std::size_t most = input.take<std::uint8_t>() % 4 != 0 ? 16384 : kBytes;
                const auto at = input.take<std::uint32_t>() % (most / 8) * 8;
                const auto word = input.take<std::uint64_t>();
                std::memcpy(theirs->bytes().data() + at, &word, sizeof word);
                break;
            }
            case 2: {
                const std::uint32_t count = input.take<std::uint8_t>();
                if (const auto first = area.allocate(count)) {
                    require(*first + count <= area.blocks() && count != 0);
                    stays_inside(area, whole, *first, count);
                    for (std::uint32_t i = 0; i < count; i++) {
                        require(area.word_of(*first + i) == area.own_word());
                    }
                }
                break;
            }
            case 3:
                area.release(input.take<std::uint16_t>(), input.take<std::uint16_t>());
                break;
            case 4: {
                const auto first = input.take<std::uint32_t>();
                stays_inside(area, whole, first, input.take<std::uint32_t>());
                break;
            }
            case 5:
                if (const auto slot = area.find(other)) {
                    require(*slot < kPeers);
                    area.ring(*slot);
                }
                break;
            case 6: {
                const auto owner = area.owner_of(input.take<std::uint32_t>());
                require(!owner || *owner < kPeers);
                break;
            }
            case 7:
                area.say_alive();
                (void)area.look(now += std::chrono::milliseconds(input.take<std::uint16_t>()));
                if (!area.has_slot()) {
                    (void)area.take_slot();
                }
                break;
            case 8:
                held.push_back(area.hold(input.take<std::uint16_t>(), input.take<std::uint16_t>()));
                break;
            default:
                if (!held.empty()) {
                    area.drop(held.back());
                    held.pop_back();
                }
                require(area.used() <= area.blocks());
        }
    }
    return 0;
}
