// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a BPF iterator over the sockets' storage says: a record of one type for each socket that it speaks of.
#pragma once

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>
#include <vector>

#include "os/unique_fd.h"

namespace smc::bpf {

class SocketRecords {
 public:
    SocketRecords() = default;
    SocketRecords(const SocketRecords&) = delete;
    SocketRecords& operator=(const SocketRecords&) = delete;
    ~SocketRecords() { bpf_link__destroy(link_); }

    // False, with errno: this kernel has no such iterator. Then read() finds nothing.
    bool attach(const bpf_program* program, int map_fd) {
        bpf_iter_link_info which{};
        which.map.map_fd = static_cast<__u32>(map_fd);
        bpf_iter_attach_opts options{};
        options.sz = sizeof options;
        options.link_info = &which;
        options.link_info_len = sizeof which;
        link_ = bpf_program__attach_iter(program, &options);
        return link_ != nullptr;
    }

    // Walks all sockets; no more than `most` records. Nothing: it did not come to the end. Many at once: the kernel
    // begins each read() with counting off those that it has told, and sockets that come or go meanwhile make it
    // miscount.
    template <class Record>
    [[nodiscard]] std::optional<std::vector<Record>> read(std::size_t most) const {
        constexpr std::size_t kAtOnce = kKernelBuffer / sizeof(Record);
        std::vector<Record> found;
        const UniqueFd records(link_ != nullptr ? bpf_iter_create(bpf_link__fd(link_)) : -1);
        ssize_t got = records ? 1 : -1;
        while (got > 0 && found.size() < most) {
            const std::size_t before = found.size();
            found.resize(before + kAtOnce);
            do {
                got = ::read(records.get(), &found[before], kAtOnce * sizeof(Record));
            } while (got < 0 && (errno == EAGAIN || errno == EINTR));  // EAGAIN: a million had nothing to tell
            found.resize(before + static_cast<std::size_t>(std::max<ssize_t>(got, 0)) / sizeof(Record));
        }
        found.resize(std::min(found.size(), most));
        return got >= 0 ? std::optional(std::move(found)) : std::nullopt;
    }

 private:
    static constexpr std::size_t kKernelBuffer = 32768;  // of an iterator's sequence: eight pages
    bpf_link* link_ = nullptr;
};

}  // namespace smc::bpf
