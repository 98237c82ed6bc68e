// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Records who runs on each processor, system calls and softirqs of all processes, for scripts/bench --timeline. The
// last EVENTS events are kept.
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define EVENTS 65536

enum kind { CALL, RETURN, SWITCH, SOFTIRQ, SOFTIRQ_END };

struct event {
    __u64 ns;
    __u32 process, thread;  // that runs; SWITCH: that runs from now on (0: idle)
    __u32 processor;
    __u16 kind;
    __u16 value;  // CALL: its number; SOFTIRQ: which
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, EVENTS);
    __type(key, __u32);
    __type(value, struct event);
} events SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u64);
} recorded SEC(".maps");  // events so far, also those that are no longer kept

struct task_struct {
    int pid, tgid;
} __attribute__((preserve_access_index));

// `process_thread`: as bpf_get_current_pid_tgid() returns them.
static void record(enum kind kind, __u16 value, __u64 process_thread) {
    __u32 zero = 0;
    __u64* count = bpf_map_lookup_elem(&recorded, &zero);
    if (!count) {
        return;
    }
    __u32 at = __sync_fetch_and_add(count, 1) % EVENTS;
    struct event* event = bpf_map_lookup_elem(&events, &at);
    if (event) {
        event->ns = bpf_ktime_get_ns();
        event->process = process_thread >> 32;
        event->thread = process_thread;
        event->processor = bpf_get_smp_processor_id();
        event->kind = kind;
        event->value = value;
    }
}

SEC("raw_tp/sys_enter")
int record_call(struct bpf_raw_tracepoint_args* ctx) {
    record(CALL, ctx->args[1], bpf_get_current_pid_tgid());
    return 0;
}

SEC("raw_tp/sys_exit")
int record_return(void* ctx) {
    (void)ctx;
    record(RETURN, 0, bpf_get_current_pid_tgid());
    return 0;
}

SEC("raw_tp/softirq_entry")
int record_softirq(struct bpf_raw_tracepoint_args* ctx) {
    record(SOFTIRQ, ctx->args[0], bpf_get_current_pid_tgid());
    return 0;
}

SEC("raw_tp/softirq_exit")
int record_softirq_end(struct bpf_raw_tracepoint_args* ctx) {
    record(SOFTIRQ_END, ctx->args[0], bpf_get_current_pid_tgid());
    return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(record_switch, int preempt, struct task_struct* previous, struct task_struct* next) {
    record(SWITCH, 0, (__u64)next->tgid << 32 | (__u32)next->pid);
    return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
