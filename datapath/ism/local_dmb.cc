// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/ism/local_dmb.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "os/clock.h"
#include "os/mapping.h"

namespace smc::ism {

namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr std::size_t kProviderBytes = 4096;
// The provider's page: a word that says whether the owner sleeps, the time of the first ring since the owner took the
// news (CLOCK_MONOTONIC, in nanoseconds; 0: there was none), and the lease.
constexpr std::size_t kArmedOffset = 0, kTimeOffset = 8, kLeaseOffset = 64;
// So many rings fit into a socket, whatever net.core.wmem_default is.
constexpr int kMostUnread = 4;

// The bell is rung only if the owner sleeps. Each ring is another event of the socket for the owner's epoll, which is
// edge-triggered, so the owner need not read rings; it does so before they might fill the socket.
class LocalDoorbell final : public smcd::Doorbell {
 public:
    LocalDoorbell(UniqueFd bell, std::uint8_t* page) : bell_(std::move(bell)), page_(page) {}

    [[nodiscard]] int fd() const override { return bell_.get(); }
    void arm() override {
        if (armed().load() != 0) {
            return;
        }
        if (unread_ == kMostUnread) {
            read_rings();
        }
        unread_++;
        armed().store(1);
    }
    void disarm() override {
        if (armed().exchange(0) != 0) {
            unread_--;
        }
    }
    void heard() override {}
    void ring() override {
        if (time().load() == 0) {
            time().store(static_cast<std::uint64_t>(os::now().time_since_epoch().count()));
        }
        if (armed().load() != 0 && armed().exchange(0) != 0) {
            // EAGAIN: the owner is of an earlier version, and has not read rings that fill the socket; one of them is
            // enough. After another error, as a lack of memory, the next ring tries again.
            if (::send(bell_.get(), "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 && errno != EAGAIN) {
                armed().store(1);
            }
        }
    }

    [[nodiscard]] TimePoint noted() const override {
        const std::uint64_t at = time().load();
        return at == 0 ? kNever : TimePoint(TimePoint::duration(static_cast<std::int64_t>(at & INT64_MAX)));
    }
    void forget() override {
        if (time().load() != 0) {
            time().store(0);
        }
    }

 private:
    template <class Word>
    [[nodiscard]] std::atomic_ref<Word> word(std::size_t offset) const {
        return std::atomic_ref<Word>(*reinterpret_cast<Word*>(page_ + offset));
    }
    [[nodiscard]] std::atomic_ref<std::uint32_t> armed() const { return word<std::uint32_t>(kArmedOffset); }
    [[nodiscard]] std::atomic_ref<std::uint64_t> time() const { return word<std::uint64_t>(kTimeOffset); }

    void read_rings() {
        char rings[256];
        while (::recv(bell_.get(), rings, sizeof rings, MSG_DONTWAIT) == sizeof rings) {
        }
        unread_ = 0;
    }

    UniqueFd bell_;
    std::uint8_t* page_;
    int unread_ = 0;  // rings that may lie in the socket, or may come while it is armed
};

smcd::Dmb make_dmb(Mapping mapping, UniqueFd bell, std::uint32_t bytes) {
    const auto memory = std::make_shared<Mapping>(std::move(mapping));
    std::uint8_t* page = memory->bytes().data();
    return {memory, page + kProviderBytes, bytes, std::make_unique<LocalDoorbell>(std::move(bell), page),
            smcd::Lease(reinterpret_cast<std::uint32_t*>(page + kLeaseOffset))};
}

int option(int fd, int which) {
    int value = -1;
    socklen_t length = sizeof value;
    return ::getsockopt(fd, SOL_SOCKET, which, &value, &length) == 0 ? value : -1;
}

// A doorbell must be a UNIX stream socket: to ring anything else might block.
bool is_bell(int fd) {
    return option(fd, SO_DOMAIN) == AF_UNIX && option(fd, SO_TYPE) == SOCK_STREAM;
}

// Memory of huge pages would fault (SIGBUS) when it is touched and there is no free huge page.
bool has_ordinary_pages(int fd) {
    struct statfs where {};
    return ::fstatfs(fd, &where) == 0 && where.f_type == TMPFS_MAGIC;
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
    int bell[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, bell) != 0) {
        return last_error("creating a doorbell");
    }
    UniqueFd own(bell[0]), peers(bell[1]);
    auto mapping = Mapping::shared(memory.get(), kProviderBytes + bytes);
    if (!mapping) {
        return mapping.error();
    }
    return CreatedDmb{std::make_shared<smcd::Dmb>(make_dmb(std::move(*mapping), std::move(own), bytes)),
                      std::move(memory), std::move(peers)};
}

Result<smcd::Dmb> attach_dmb(const UniqueFd& memory, UniqueFd bell, std::uint32_t bytes) {
    // D2: checks the seals before the size, which then cannot shrink any more.
    const int seals = ::fcntl(memory.get(), F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
        return Error{EPROTO, "attaching a DMB that is not sealed"};
    }
    struct stat status {};
    if (::fstat(memory.get(), &status) != 0 || static_cast<std::uint64_t>(status.st_size) < kProviderBytes + bytes) {
        return Error{EPROTO, "attaching a DMB that is shorter than announced"};
    }
    if (!has_ordinary_pages(memory.get())) {
        return Error{EPROTO, "attaching a DMB that is not of ordinary pages"};
    }
    if (!is_bell(bell.get())) {
        return Error{EPROTO, "attaching a DMB whose doorbell is no socket"};
    }
    auto mapping = Mapping::shared(memory.get(), kProviderBytes + bytes);
    if (!mapping) {
        return mapping.error();
    }
    return make_dmb(std::move(*mapping), std::move(bell), bytes);
}

}  // namespace smc::ism
