// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Runs a program that exists for user space (BPF_PROG_TEST_RUN; RUN_* in bpf/programs.h). Its input and output are
// global variables of its object.
#pragma once

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include <array>
#include <string>

#include "os/result.h"

namespace smc::bpf {

// False: errno says why it did not run.
inline bool run_program(int program_fd, bpf_prog_type type) {
    std::array<char, 64> packet{};  // sched_cls needs a packet
    bpf_test_run_opts options{};
    options.sz = sizeof options;
    if (type == BPF_PROG_TYPE_SCHED_CLS) {
        options.data_in = packet.data();
        options.data_size_in = packet.size();
    }
    return bpf_prog_test_run_opts(program_fd, &options) == 0;
}

inline Result<void> run_program(const bpf_program* program) {
    return run_program(bpf_program__fd(program), bpf_program__type(program))
               ? Result<void>()
               : Result<void>(last_error(std::string("running ") + bpf_program__name(program)));
}

}  // namespace smc::bpf
