// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Runs a program of type "syscall" (BPF_PROG_TEST_RUN).
#pragma once

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "os/result.h"

namespace smc::bpf {

// `context`: what it is told, and then what it makes of it.
template <class Context>
Result<void> run_program(const bpf_program* program, Context& context) {
    bpf_test_run_opts options{};
    options.sz = sizeof options;
    options.ctx_in = &context;
    options.ctx_size_in = sizeof context;
    return bpf_prog_test_run_opts(bpf_program__fd(program), &options) == 0
               ? Result<void>()
               : Result<void>(last_error(std::string("running ") + bpf_program__name(program)));
}

}  // namespace smc::bpf
