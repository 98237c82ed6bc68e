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

inline Result<void> run_program(const bpf_program* program) {
    const std::string name = bpf_program__name(program);
    std::array<char, 64> packet{};  // sched_cls needs a packet
    bpf_test_run_opts options{};
    options.sz = sizeof options;
    if (bpf_program__type(program) == BPF_PROG_TYPE_SCHED_CLS) {
        options.data_in = packet.data();
        options.data_size_in = packet.size();
    }
    return bpf_prog_test_run_opts(bpf_program__fd(program), &options) == 0
               ? Result<void>()
               : Result<void>(last_error("running " + name));
}

}  // namespace smc::bpf
