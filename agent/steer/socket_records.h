// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a BPF iterator over the sockets' storage says: a record of one type for each socket that it speaks of.
#pragma once

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <unistd.h>

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

    // Walks all sockets; stops behind `most` records.
    template <class Record>
    [[nodiscard]] std::vector<Record> read(std::size_t most) const {
        std::vector<Record> found;
        const UniqueFd records(link_ != nullptr ? bpf_iter_create(bpf_link__fd(link_)) : -1);
        Record one{};
        while (records && found.size() < most && ::read(records.get(), &one, sizeof one) == sizeof one) {
            found.push_back(one);
        }
        return found;
    }

 private:
    bpf_link* link_ = nullptr;
};

}  // namespace smc::bpf
