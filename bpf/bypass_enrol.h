/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Puts proven sockets into smc_members. The iterator visits all TCP sockets of a namespace, so user space runs it only
 * in namespaces that have a proven socket.
 */
#ifndef SMC_BYPASS_ENROL_H
#define SMC_BYPASS_ENROL_H

/*
 * An application may do with its next socket what it did with this one, so no other socket of its cgroup gets in.
 */
static __always_inline void smc_remember_habits(const struct smc_member *member)
{
	struct smc_bypass_cgroup *cgroup = bpf_map_lookup_elem(&smc_bypass_cgroups, &member->cgroup);

	if (cgroup)
		cgroup->habits |= member->habits & ~SMC_HABITS_OF_ONE;
}

/* Habits that the socket's state shows, before a system call has shown them. */
static __always_inline __u32 smc_habits_of_socket(const struct smc_member *member, struct tcp_sock *tcp)
{
	struct inet_connection_sock *connection = (struct inet_connection_sock *)tcp;
	struct sock *sk = (struct sock *)tcp;
	__u32 habits = smc_habits_of_file(member, sk);

	if (!BPF_CORE_READ(sk, sk_socket, file))
		habits |= SMC_HABIT_WAITS; /* a socket of the kernel: how it receives is not known */
	if (sk->sk_peek_off >= 0)
		habits |= SMC_HABIT_PEEKS;
	if (sk->sk_rcvlowat > 1)
		habits |= SMC_HABIT_LOWAT;
	if (tcp->urg_data)
		habits |= SMC_HABIT_URGENT;
	if (sk->__sk_common.skc_flags & smc_zerocopy_bit())
		habits |= SMC_HABIT_ZEROCOPY;
	if (connection->icsk_ulp_ops)
		habits |= SMC_HABIT_ULP;
	if (sk->sk_shutdown)
		habits |= SMC_HABIT_SHUTS_DOWN;
	if (smc_wants_control(tcp))
		habits |= SMC_HABIT_CONTROL;
	if (smc_is_paced(sk))
		habits |= SMC_HABIT_PACED;
	if (smc_may_miss_an_edge(member, sk))
		habits |= SMC_HABIT_EDGES;
	return habits;
}

/* The iterator holds the socket's lock, so no send or receive is under way when the queues change. */
SEC("iter/tcp")
int smc_bypass_enrol(struct bpf_iter__tcp *ctx)
{
	const struct smc_bypass_config *config = smc_bypass_get_config();
	struct sock_common *common = ctx->sk_common;
	struct smc_member *member;
	struct tcp_sock *tcp;
	__u64 cookie;

	if (!common)
		return 0;
	cookie = common->skc_cookie.counter;
	member = smc_member_at(cookie);
	if (!member || member->state != SMC_MEMBER_PROVEN || !config || config->identity.off)
		return 0;
	if (common->skc_state != BPF_TCP_ESTABLISHED) {
		smc_add_habit(member, SMC_HABIT_SHUTS_DOWN); /* the connection is half closed, and stays so */
		member->state = SMC_MEMBER_LEAVING;
		return 0;
	}
	tcp = bpf_skc_to_tcp_sock(common);
	if (!tcp)
		return 0;
	smc_add_habit(member, smc_habits_of_socket(member, tcp));
	if (member->habits) {
		member->state = SMC_MEMBER_LEAVING;
		smc_remember_habits(member);
		return 0;
	}
	member->sk = (__u64)(unsigned long)tcp;   /* not known earlier for the sockets of user space's probe */
	member->tcp_sent_ns = bpf_ktime_get_ns(); /* a little ahead of the coarse clock */
	member->by_tcp = 1;                       /* its peer may not have read yet what it sent by TCP */
	if (bpf_map_update_elem(&smc_members, &cookie, (void *)common, BPF_NOEXIST)) {
		smc_add_habit(member, SMC_HABIT_FOREIGN);
		member->state = SMC_MEMBER_LEAVING;
	} else {
		member->state = SMC_MEMBER_ENROLLED;
	}
	return 0;
}

#endif
