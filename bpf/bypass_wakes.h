/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * How an application is woken. One that is woken by edges (EPOLLET, SIGIO) may take a read that does not fill its
 * buffer for the end of what there is (epoll(7)). A member's read never crosses from what came past TCP into TCP's
 * queue, and for what lies there no edge comes any more. So a socket is a member only if its application reads until
 * there is nothing, or if all that waits for it is known to look again: epoll without EPOLLET, poll() and select().
 * Whatever else is in its wait queue (io_uring, another part of the kernel) is not known, and means TCP.
 */
#ifndef SMC_BYPASS_WAKES_H
#define SMC_BYPASS_WAKES_H

#define SMC_EPOLLET (1U << 31)
#define SMC_MOST_WAITERS 16

extern const void ep_poll_callback __ksym __weak;
extern const void pollwake __ksym __weak; /* of poll() and select() */

/* A kernel that does not say where these functions are knows no waiter that is harmless. */
static __always_inline bool smc_looks_again(struct wait_queue_entry *waiter)
{
	const void *function = BPF_CORE_READ(waiter, func);
	struct eppoll_entry *polled = (void *)waiter - bpf_core_field_offset(struct eppoll_entry, wait);

	if (!function)
		return false;
	if (function == &ep_poll_callback)
		return !(BPF_CORE_READ(polled, base, event.events) & SMC_EPOLLET);
	return function == &pollwake;
}

static __always_inline bool smc_waits_for_edges(struct sock *sk)
{
	struct socket_wq *wq = BPF_CORE_READ(sk, sk_wq);
	struct list_head *head = &wq->wait.head, *entry = BPF_CORE_READ(wq, wait.head.next);
	int i;

	if (BPF_CORE_READ(wq, fasync_list))
		return true;
	for (i = 0; i < SMC_MOST_WAITERS; i++) {
		if (!entry || entry == head)
			return false;
		if (!smc_looks_again((void *)entry - bpf_core_field_offset(struct wait_queue_entry, entry)))
			return true;
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
	return !smc_reads_all(member) && smc_waits_for_edges(sk);
}

/*
 * What it has become since it was enrolled: a receive may wait, or a signal tells of what comes. Both are flags of the
 * open file, so each send can look.
 */
static __always_inline __u32 smc_habits_of_file(const struct smc_member *member, struct sock *sk)
{
	struct file *file = BPF_CORE_READ(sk, sk_socket, file);
	__u32 flags, habits = 0;

	if (!file)
		return 0; /* it is closed */
	flags = BPF_CORE_READ(file, f_flags);
	if (!(flags & SMC_O_NONBLOCK))
		habits |= SMC_HABIT_WAITS;
	if ((flags & SMC_FASYNC) && !smc_reads_all(member))
		habits |= SMC_HABIT_EDGES;
	return habits;
}

#endif
