// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/ism/dmb.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <string>
#include <string_view>
#include <utility>

namespace smc::ism {

namespace {
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
}

Result<Mapping> Mapping::map(int fd, std::size_t bytes) {
    void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) {
        return last_error("mapping a DMB");
    }
    Mapping mapping;
    mapping.data_ = static_cast<std::uint8_t*>(data);
    mapping.bytes_ = bytes;
    return mapping;
}

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
}

Mapping::~Mapping() {
    if (data_ != nullptr) {
        ::munmap(data_, bytes_);
    }
}

Result<Dmb> Dmb::create(std::uint32_t bytes) {
    Dmb dmb;
    dmb.bytes_ = bytes;
    dmb.memory_.reset(::memfd_create("smc-dmb", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!dmb.memory_) {
        return last_error("creating a DMB");
    }
    if (::ftruncate(dmb.memory_.get(), static_cast<off_t>(kProviderBytes + bytes)) != 0 ||
        ::fcntl(dmb.memory_.get(), F_ADD_SEALS, kSeals) != 0) {
        return last_error("sizing a DMB");
    }
    dmb.doorbell_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!dmb.doorbell_) {
        return last_error("creating a doorbell");
    }
    auto mapping = Mapping::map(dmb.memory_.get(), kProviderBytes + bytes);
    if (!mapping) {
        return mapping.error();
    }
    dmb.mapping_ = std::move(*mapping);
    return dmb;
}

Result<Dmb> Dmb::attach(UniqueFd memory, UniqueFd doorbell, std::uint32_t bytes) {
    struct stat status {};
    if (::fstat(memory.get(), &status) != 0 || static_cast<std::uint64_t>(status.st_size) < kProviderBytes + bytes) {
        return Error{EPROTO, "attaching a DMB that is shorter than announced"};
    }
    const int seals = ::fcntl(memory.get(), F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
        return Error{EPROTO, "attaching a DMB that is not sealed"};
    }
    // Anything else might block the one who rings it.
    char target[64] = "";
    const std::string link = "/proc/self/fd/" + std::to_string(doorbell.get());
    if (::readlink(link.c_str(), target, sizeof target - 1) < 0 || std::string_view(target) != "anon_inode:[eventfd]" ||
        (::fcntl(doorbell.get(), F_GETFL) & O_NONBLOCK) == 0) {
        return Error{EPROTO, "attaching a DMB whose doorbell is no eventfd"};
    }
    Dmb dmb;
    dmb.bytes_ = bytes;
    auto mapping = Mapping::map(memory.get(), kProviderBytes + bytes);
    if (!mapping) {
        return mapping.error();
    }
    dmb.mapping_ = std::move(*mapping);
    dmb.doorbell_ = std::move(doorbell);
    return dmb;
}

void Dmb::ring_doorbell() const {
    if (doorbell().exchange(0) != 0) {
        const std::uint64_t one = 1;
        // EAGAIN would mean 2^64 unread rings: the owner is awake then
        [[maybe_unused]] const ssize_t written = ::write(doorbell_.get(), &one, sizeof one);
    }
}

}  // namespace smc::ism
