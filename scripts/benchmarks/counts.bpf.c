// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Counts system calls and switches of all processes, for scripts/bench --counts.
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#define SWITCH (-1)

struct what {
    __u32 process;
    __s32 call;  // its number; SWITCH: a thread of the process left its processor
};

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 16384);
    __type(key, struct what);
    __type(value, __u64);
} counts SEC(".maps");

struct name {
    char text[16];
};

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 4096);
    __type(key, __u32);
    __type(value, struct name);
} names SEC(".maps");

static void count(__s32 call) {
    struct what what = {bpf_get_current_pid_tgid() >> 32, call};
    __u64 *found = bpf_map_lookup_elem(&counts, &what), one = 1;
    if (found) {
        __sync_fetch_and_add(found, 1);
        return;
    }
    bpf_map_update_elem(&counts, &what, &one, BPF_ANY);
    struct name name = {};
    bpf_get_current_comm(name.text, sizeof name.text);
    bpf_map_update_elem(&names, &what.process, &name, BPF_ANY);
}

SEC("raw_tp/sys_enter")
int count_call(struct bpf_raw_tracepoint_args* ctx) {
    count(ctx->args[1]);
    return 0;
}

SEC("raw_tp/sched_switch")
int count_switch(void* ctx) {
    (void)ctx;
    count(SWITCH);
    return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
