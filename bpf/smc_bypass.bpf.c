// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * The bypass: pairs of sockets of this node; what one of a pair sends is put into the other's queue, past TCP. These
 * programs are an object of their own, because they outlive the agent, and kernels before 6.3 lack what they need.
 */
#include "bpf/kernel_types.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "bpf/bypass_abi.h"
#include "bpf/bypass_maps.h"
#include "bpf/smc_socket.h"
#include "bpf/bypass_common.h"
#include "bpf/bypass_wakes.h"
#include "bpf/bypass_memory.h"
#include "bpf/bypass_send.h"
#include "bpf/bypass_receive.h"
#include "bpf/bypass_enrol.h"
#include "bpf/bypass_step.h"
#include "bpf/bypass_reuse.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";
