// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* Every program except those of the bypass and its guards. Table of hooks, maps and counters: bpf/README.md */
#include "bpf/kernel_types.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "bpf/abi.h"
#include "bpf/bypass_abi.h"
#include "bpf/bypass_maps.h"
#include "bpf/smc_maps.h"
#include "bpf/smc_common.h"
#include "bpf/smc_socket.h"
#include "bpf/smc_half_open.h"
#include "bpf/smc_short_lived.h"
#include "bpf/smc_checks.h"
#include "bpf/smc_packet.h"
#include "bpf/smc_change.h"
#include "bpf/smc_hairpin.h"
#include "bpf/smc_join.h"
#include "bpf/smc_port_again.h"
#include "bpf/smc_pairs.h"
#include "bpf/smc_members.h"
#include "bpf/smc_tune.h"
#include "bpf/smc_flag.h"
#include "bpf/smc_ask.h"
#include "bpf/smc_answer.h"
#include "bpf/smc_icmp.h"
#include "bpf/smc_accept.h"
#include "bpf/smc_unread.h"
#include "bpf/smc_device.h"
#include "bpf/smc_app.h"
#include "bpf/smc_option.h"
#include "bpf/smc_explain.h"
#include "bpf/smc_keepalive.h"
#include "bpf/smc_sweep.h"
#include "bpf/smc_ends.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";
