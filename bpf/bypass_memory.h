/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Whether the kernel will find memory for a message in the receiver's queue. If not, a redirect makes send() fail with
 * ENOMEM, where with TCP the receiver would drop the segment and the sender wait.
 */
#ifndef SMC_BYPASS_MEMORY_H
#define SMC_BYPASS_MEMORY_H

#define SMC_PAGE_SHIFT 12
#define SMC_SLACK_PAGES 128 /* margin: the kernel charges ahead, and other sockets charge meanwhile */
#define SMC_MOST_LEVELS 8   /* levels of control groups that are checked */

static __always_inline bool smc_counter_allows(const struct page_counter *counter, unsigned long pages)
{
	int i;

	for (i = 0; i < SMC_MOST_LEVELS && counter; i++) {
		unsigned long used = BPF_CORE_READ(counter, usage.counter);

		if (used + pages > BPF_CORE_READ(counter, max))
			return false;
		counter = BPF_CORE_READ(counter, parent);
	}
	return !counter; /* the limits of higher levels are not known */
}

static __always_inline bool smc_has_memory_for(struct sock *sk, __u32 size)
{
	const unsigned long pages = (size >> SMC_PAGE_SHIFT) + 1 + SMC_SLACK_PAGES;
	const unsigned long *pressure;
	unsigned long pressed = 0;
	struct mem_cgroup *group = 0;

	if (BPF_CORE_READ(sk, sk_forward_alloc) >= (int)size)
		return true; /* the socket has reserved it already */
	pressure = BPF_CORE_READ(sk, __sk_common.skc_prot, memory_pressure);
	if (pressure)
		bpf_probe_read_kernel(&pressed, sizeof(pressed), pressure);
	if (pressed)
		return false;
	if (!bpf_core_field_exists(sk->sk_memcg) || !bpf_core_field_exists(group->memory))
		return true;
	group = BPF_CORE_READ(sk, sk_memcg);
	if (!group)
		return true;
	if (bpf_core_field_exists(group->tcpmem) && !smc_counter_allows(&group->tcpmem, pages))
		return false;
	return smc_counter_allows(&group->memory, pages);
}

/*
 * Whether a message would exceed an SO_RCVBUF that the application has set: TCP segments after it would be dropped
 * until the reader has caught up, and sent again much later. (Without SO_RCVBUF TCP lets the buffer grow.)
 */
static __always_inline bool smc_fills_buffer(struct sock *sk, __u32 size)
{
	return (BPF_CORE_READ_BITFIELD_PROBED(sk, sk_userlocks) & SMC_RCVBUF_LOCK) &&
	       BPF_CORE_READ(sk, sk_backlog.rmem_alloc.counter) + (int)size > BPF_CORE_READ(sk, sk_rcvbuf);
}

#endif
