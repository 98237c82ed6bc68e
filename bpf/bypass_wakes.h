/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * How an application is woken. Who waits for edges (EPOLLET) may take a read that does not fill its buffer for the end
 * of what there is (epoll(7)). A member's read never crosses from what came past TCP into TCP's queue, and for what
 * lies there no edge comes any more. So of those only who reads until there is nothing is fit for the bypass.
 */
#ifndef SMC_BYPASS_WAKES_H
#define SMC_BYPASS_WAKES_H

#define SMC_EPOLLET (1U << 31)
#define SMC_MOST_WAITERS 16

extern const void ep_poll_callback __ksym __weak;

static __always_inline bool smc_waits_for_edges(struct sock *sk)
{
	struct socket_wq *wq = BPF_CORE_READ(sk, sk_wq);
	struct list_head *head = &wq->wait.head, *entry = BPF_CORE_READ(wq, wait.head.next);
	struct wait_queue_entry *waiter;
	struct eppoll_entry *polled;
	int i;

	for (i = 0; i < SMC_MOST_WAITERS; i++) {
		if (!entry || entry == head)
			return false;
		waiter = (void *)entry - bpf_core_field_offset(struct wait_queue_entry, entry);
		if (BPF_CORE_READ(waiter, func) == &ep_poll_callback) {
			polled = (void *)waiter - bpf_core_field_offset(struct eppoll_entry, wait);
			if (BPF_CORE_READ(polled, base, event.events) & SMC_EPOLLET)
				return true;
		}
		entry = BPF_CORE_READ(entry, next);
	}
	return true; /* more than anybody has: who knows */
}

/* Whether a third of its receives found nothing: it reads on until that comes, or tries before it waits. */
static __always_inline bool smc_reads_all(const struct smc_member *member)
{
	return member->found_nothing * 3 >= SMC_PROOF;
}

static __always_inline bool smc_may_miss_an_edge(const struct smc_member *member, struct sock *sk)
{
	if (smc_reads_all(member))
		return false;
	/* a kernel that does not say who waits how */
	return !&ep_poll_callback || smc_waits_for_edges(sk);
}

#endif
