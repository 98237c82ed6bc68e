// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/ism/local_dmb.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/stat.h>

#include <string>
#include <string_view>

#include "os/mapping.h"

namespace smc::ism {

namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr std::size_t kProviderBytes = 4096;

// The word in the provider's page says whether the owner sleeps: an eventfd is written only then.
class LocalDoorbell final : public smcd::Doorbell {
 public:
    LocalDoorbell(UniqueFd event, std::uint8_t* word) : event_(std::move(event)), word_(word) {}

    [[nodiscard]] int fd() const override { return event_.get(); }
    void arm() override { word().store(1); }
    void ring() override {
        if (word().exchange(0) != 0) {
            const std::uint64_t one = 1;
            // EAGAIN would mean 2^64 unread rings: the owner is awake then
            [[maybe_unused]] const ssize_t written = ::write(event_.get(), &one, sizeof one);
        }
    }

 private:
    [[nodiscard]] std::atomic_ref<std::uint32_t> word() const {
        return std::atomic_ref<std::uint32_t>(*reinterpret_cast<std::uint32_t*>(word_));
    }
    UniqueFd event_;
    std::uint8_t* word_;
};

smcd::Dmb make_dmb(Mapping mapping, UniqueFd event, std::uint32_t bytes) {
    const auto memory = std::make_shared<Mapping>(std::move(mapping));
    std::uint8_t* page = memory->bytes().data();
    return {memory, page + kProviderBytes, bytes, std::make_unique<LocalDoorbell>(std::move(event), page)};
}

// Anything but a non-blocking eventfd might block the one who rings it.
bool is_doorbell(int fd) {
    char target[64] = "";
    const std::string link = "/proc/self/fd/" + std::to_string(fd);
    return ::readlink(link.c_str(), target, sizeof target - 1) >= 0 &&
           std::string_view(target) == "anon_inode:[eventfd]" && (::fcntl(fd, F_GETFL) & O_NONBLOCK) != 0;
}

}  // namespace

Result<CreatedDmb> create_dmb(std::uint32_t bytes) {
    UniqueFd memory(::memfd_create("smc-dmb", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!memory) {
        return last_error("creating a DMB");
    }
    if (::ftruncate(memory.get(), static_cast<off_t>(kProviderBytes + bytes)) != 0 ||
        ::fcntl(memory.get(), F_ADD_SEALS, kSeals) != 0) {
        return last_error("sizing a DMB");
    }
    UniqueFd event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!event) {
        return last_error("creating a doorbell");
    }
    auto mapping = Mapping::shared(memory.get(), kProviderBytes + bytes);
    if (!mapping) {
        return mapping.error();
    }
    return CreatedDmb{std::make_shared<smcd::Dmb>(make_dmb(std::move(*mapping), std::move(event), bytes)),
                      std::move(memory)};
}

Result<smcd::Dmb> attach_dmb(const UniqueFd& memory, UniqueFd doorbell, std::uint32_t bytes) {
    // D2: first that it cannot become shorter, then how long it is.
    const int seals = ::fcntl(memory.get(), F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
        return Error{EPROTO, "attaching a DMB that is not sealed"};
    }
    struct stat status {};
    if (::fstat(memory.get(), &status) != 0 || static_cast<std::uint64_t>(status.st_size) < kProviderBytes + bytes) {
        return Error{EPROTO, "attaching a DMB that is shorter than announced"};
    }
    if (!is_doorbell(doorbell.get())) {
        return Error{EPROTO, "attaching a DMB whose doorbell is no eventfd"};
    }
    auto mapping = Mapping::shared(memory.get(), kProviderBytes + bytes);
    if (!mapping) {
        return mapping.error();
    }
    return make_dmb(std::move(*mapping), std::move(doorbell), bytes);
}

}  // namespace smc::ism
