/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Receives and their flags: they show how much of the stream is consumed, and the application's habits. */
#ifndef SMC_BYPASS_RECEIVE_H
#define SMC_BYPASS_RECEIVE_H

static __always_inline __u32 smc_habits_of_receive(int flags)
{
	__u32 habits = 0;

	if (!(flags & SMC_MSG_DONTWAIT))
		habits |= SMC_HABIT_WAITS;
	if (flags & SMC_MSG_PEEK)
		habits |= SMC_HABIT_PEEKS;
	if (flags & SMC_MSG_WAITALL)
		habits |= SMC_HABIT_WAITALL;
	if (flags & SMC_MSG_OOB)
		habits |= SMC_HABIT_URGENT;
	if (flags & SMC_MSG_TRUNC)
		habits |= SMC_HABIT_TRUNCATES;
	return habits;
}

struct pt_regs {
	unsigned long dx, orig_ax; /* x86 */
} __attribute__((preserve_access_index));

#define SMC_READ_64 0
#define SMC_RECVFROM_64 45

/* Bytes that fit into the buffer of the read() or recvfrom() that is running. 0: that is not known. */
static __always_inline __u64 smc_room_of_receive(void)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());
	long call;

	if (!bpf_core_field_exists(regs->orig_ax))
		return 0;
	call = BPF_CORE_READ(regs, orig_ax);
	return call == SMC_READ_64 || call == SMC_RECVFROM_64 ? BPF_CORE_READ(regs, dx) : 0;
}

static __always_inline void smc_count_receive(struct smc_member *member, int ret)
{
	member->found_nothing += ret == -SMC_EAGAIN && member->was_short;
	member->was_short = ret > 0 && (__u64)ret < smc_room_of_receive();
	member->short_reads += member->was_short;
	member->received++;
}

/* Runs at each receive of the node. */
SEC("tp_btf/sock_recv_length")
int BPF_PROG(smc_bypass_received, struct sock *sk, int ret, int flags)
{
	struct smc_member *member;

	if (sk->sk_protocol != IPPROTO_TCP)
		return 0;
	member = smc_member_of(sk);
	if (!member || (flags & SMC_MSG_ERRQUEUE))
		return 0;
	smc_add_habit(member, smc_habits_of_receive(flags));
	if (ret > 0 && !(flags & (SMC_MSG_PEEK | SMC_MSG_OOB)))
		__sync_fetch_and_add(&member->consumed, ret);
	if (member->received < SMC_PROOF) {
		smc_count_receive(member, ret);
	}
	return 0;
}

SEC("tp_btf/sock_send_length")
int BPF_PROG(smc_bypass_sent, struct sock *sk, int ret, int flags)
{
	struct smc_member *member;

	bool failed = ret == -SMC_ENOMEM || ret == -SMC_ENOBUFS;

	if ((!failed && !(flags & (SMC_MSG_OOB | SMC_MSG_ZEROCOPY))) || sk->sk_protocol != IPPROTO_TCP)
		return 0;
	member = smc_member_of(sk);
	if (member && failed)
		member->failed = 1;
	if (member && (flags & (SMC_MSG_OOB | SMC_MSG_ZEROCOPY)))
		smc_add_habit(member, flags & SMC_MSG_OOB ? SMC_HABIT_URGENT : SMC_HABIT_ZEROCOPY);
	return 0;
}

#endif
