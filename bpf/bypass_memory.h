/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Whether the kernel will find memory for a message in its receiver's queue. Where it does not, send() fails with
 * ENOMEM, where TCP would have its receiver drop, and wait.
 */
#ifndef SMC_BYPASS_MEMORY_H
#define SMC_BYPASS_MEMORY_H

#define SMC_PAGE_SHIFT 12
#define SMC_SLACK_PAGES 128 /* what the kernel charges ahead, and others meanwhile */
#define SMC_MOST_LEVELS 8   /* of control groups that are looked at */

static __always_inline bool smc_counter_has_room(const struct page_counter *counter, unsigned long pages)
{
	int i;

	for (i = 0; i < SMC_MOST_LEVELS && counter; i++) {
		unsigned long used = BPF_CORE_READ(counter, usage.counter);

		if (used + pages > BPF_CORE_READ(counter, max))
			return false;
		counter = BPF_CORE_READ(counter, parent);
	}
	return true;
}

static __always_inline bool smc_has_memory_for(struct sock *sk, __u32 size)
{
	const unsigned long pages = (size >> SMC_PAGE_SHIFT) + 1 + SMC_SLACK_PAGES;
	const unsigned long *pressure;
	unsigned long pressed = 0;
	struct mem_cgroup *group = 0;

	if (BPF_CORE_READ(sk, sk_forward_alloc) >= (int)size)
		return true; /* it has it already */
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
	if (bpf_core_field_exists(group->tcpmem) && !smc_counter_has_room(&group->tcpmem, pages))
		return false;
	return smc_counter_has_room(&group->memory, pages);
}

/*
 * Beyond an SO_RCVBUF that the application has chosen: what came by TCP behind it would be dropped until the reader has
 * come so far, and sent again much later. (Where nothing is chosen TCP lets the buffer grow.)
 */
static __always_inline bool smc_fills_buffer(struct sock *sk, __u32 size)
{
	return (BPF_CORE_READ_BITFIELD_PROBED(sk, sk_userlocks) & SMC_RCVBUF_LOCK) &&
	       BPF_CORE_READ(sk, sk_backlog.rmem_alloc.counter) + (int)size > BPF_CORE_READ(sk, sk_rcvbuf);
}

#endif
