/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * How an application is woken. An application that is woken by edges (EPOLLET, SIGIO) may conclude from a short read
 * that no more data is there (epoll(7)). But a member's read never continues from the bytes that came past TCP into
 * TCP's queue, so it may be short although TCP's queue has bytes, for which no further edge comes. So a socket is a
 * member only if its application seems to read on after short reads, or if every waiter in its wait queue is known to
 * look again: epoll without EPOLLET, poll() and select(). A socket with any other waiter (io_uring, another part of the
 * kernel) is left to TCP.
 */
#ifndef SMC_BYPASS_WAKES_H
#define SMC_BYPASS_WAKES_H

#define SMC_EPOLLET (1U << 31)
#define SMC_MOST_WAITERS 16

extern const void ep_poll_callback __ksym __weak;
extern const void pollwake __ksym __weak; /* of poll() and select() */

static __always_inline bool smc_knows_waiters(void)
{
	return &ep_poll_callback && &pollwake;
}

/* If the kernel does not tell the addresses of these functions, no waiter counts as harmless. */
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
	return true; /* more waiters than are checked */
}

/*
 * Whether the application receives again after a short read, before it waits: that receive finds nothing. (After a read
 * that filled its buffer this proves nothing: every program reads on then.) Seen after a third of the short reads is
 * enough, because more data may have come after the others. It is a sign, not a proof: a program may read on only where
 * it expects a new message.
 */
static __always_inline bool smc_reads_all(const struct smc_member *member)
{
	return member->found_nothing >= SMC_PROOF / 8 && member->found_nothing * 3 >= member->short_reads;
}

static __always_inline bool smc_may_miss_an_edge(const struct smc_member *member, struct sock *sk)
{
	return !smc_reads_all(member) && smc_waits_for_edges(sk);
}

/*
 * Habits that show in the flags of the open file, and may have come since enrolment: receives that wait, and SIGIO.
 * They are cheap enough to be read at each send.
 */
static __always_inline __u32 smc_habits_of_file(const struct smc_member *member, struct sock *sk)
{
	struct file *file = BPF_CORE_READ(sk, sk_socket, file);
	__u32 flags, habits = 0;

	if (!file)
		return 0; /* the socket is closed */
	flags = BPF_CORE_READ(file, f_flags);
	if (!(flags & SMC_O_NONBLOCK))
		habits |= SMC_HABIT_WAITS;
	if ((flags & SMC_FASYNC) && !smc_reads_all(member))
		habits |= SMC_HABIT_EDGES;
	return habits;
}

#endif
