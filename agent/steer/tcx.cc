// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/steer/tcx.h"

#include <bpf/bpf.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>

namespace smc::bpf::tcx {

namespace {

constexpr __u32 kIngress = 46, kEgress = 47;  // BPF_TCX_INGRESS, BPF_TCX_EGRESS
constexpr __u32 kFirst = 1U << 3;             // BPF_F_BEFORE without a relative program

// Whether it is the same program of another agent: of one that leaves, or takes over.
bool is_namesake(__u32 id, const bpf_prog_info& own) {
    const UniqueFd program(bpf_prog_get_fd_by_id(id));
    bpf_prog_info info{};
    __u32 size = sizeof info;
    return program && bpf_obj_get_info_by_fd(program.get(), &info, &size) == 0 &&
           std::strncmp(info.name, own.name, sizeof info.name) == 0;
}

}  // namespace

UniqueFd attach(int program_fd, unsigned device, bool egress) {
    struct {
        __u32 prog_fd;
        __u32 target_ifindex;
        __u32 attach_type;
        __u32 flags;
        __u8 rest[48];  // relative position and expected revision: none
    } attributes{};
    attributes.prog_fd = static_cast<__u32>(program_fd);
    attributes.target_ifindex = device;
    attributes.attach_type = egress ? kEgress : kIngress;
    attributes.flags = egress ? 0 : kFirst;
    return UniqueFd(static_cast<int>(::syscall(SYS_bpf, BPF_LINK_CREATE, &attributes, sizeof attributes)));
}

std::optional<Position> position(int program_fd, unsigned device, bool egress) {
    bpf_prog_info info{};
    __u32 size = sizeof info;
    std::array<__u32, 64> programs{};  // as many as there can be
    struct {
        __u32 target_ifindex;
        __u32 attach_type;
        __u32 query_flags;
        __u32 attach_flags;
        __u64 prog_ids;
        __u32 prog_cnt;
        __u8 rest[36];
    } attributes{};
    attributes.target_ifindex = device;
    attributes.attach_type = egress ? kEgress : kIngress;
    attributes.prog_ids = reinterpret_cast<__u64>(programs.data());
    attributes.prog_cnt = programs.size();
    if (bpf_obj_get_info_by_fd(program_fd, &info, &size) != 0) {
        return std::nullopt;
    }
    if (::syscall(SYS_bpf, BPF_PROG_QUERY, &attributes, sizeof attributes) != 0) {
        return errno == ENOENT ? std::optional(Position{}) : std::nullopt;  // ENOENT: no program at all
    }
    const auto end = programs.begin() + std::min<std::ptrdiff_t>(attributes.prog_cnt, programs.size());
    const auto ours = std::find(programs.begin(), end, info.id);
    return Position{ours != end,
                    ours == end || std::all_of(ours + 1, end, [&](__u32 id) { return is_namesake(id, info); })};
}

}  // namespace smc::bpf::tcx
