// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* Experiment: everything that member 0 receives is redirected to the send side of member 1. */
#include <bpf/bpf_helpers.h>
#include "vmlinux.h"

struct {
    __uint(type, BPF_MAP_TYPE_SOCKMAP);
    __type(key, __u32);
    __type(value, __u64);
    __uint(max_entries, 2);
} pair SEC(".maps");

SEC("sk_skb/stream_verdict")
int verdict(struct __sk_buff* skb) {
    return bpf_sk_redirect_map(skb, &pair, 1, 0);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
