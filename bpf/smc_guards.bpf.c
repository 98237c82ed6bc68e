// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Guards of the bypass: they see what an application does with a TCP socket before the kernel carries it out. The
 * tracepoints of smc_bypass.bpf.c see it afterwards or not at all. An object of its own, because not every kernel takes
 * these programs.
 */
#include "bpf/kernel_types.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "bpf/bypass_abi.h"
#include "bpf/bypass_maps.h"
#include "bpf/bypass_common.h"

#define SMC_FIONREAD 0x541b

/* The number of the task's current system call, on x86_64. */
struct pt_regs {
	unsigned long orig_ax;
} __attribute__((preserve_access_index));
#define smc_system_call(regs) ((long)BPF_CORE_READ(regs, orig_ax))

/*
 * Notes a habit, also of a socket that is not watched: what an application does with one of its sockets it may do with
 * the next. So no other socket of its cgroup becomes a member.
 */
static __always_inline void smc_note_habit(struct sock *sk, __u32 habit)
{
	struct smc_bypass_cgroup fresh = {.habits = habit}, *cgroup;
	struct smc_member *member;
	__u64 id;

	if (!sk || sk->sk_protocol != IPPROTO_TCP)
		return;
	member = smc_member_of(sk);
	if (member)
		smc_add_habit(member, habit);
	id = sk->sk_cgrp_data.cgroup->kn->id;
	cgroup = bpf_map_lookup_elem(&smc_bypass_cgroups, &id);
	if (!cgroup)
		bpf_map_update_elem(&smc_bypass_cgroups, &id, &fresh, BPF_NOEXIST);
	else if (!(cgroup->habits & habit))
		__sync_fetch_and_or(&cgroup->habits, habit);
}

SEC("fentry/tcp_splice_read")
int BPF_PROG(smc_guard_splice, struct socket *socket)
{
	smc_note_habit(socket->sk, SMC_HABIT_SPLICES);
	return 0;
}

SEC("fentry/tcp_ioctl")
int BPF_PROG(smc_guard_ioctl, struct sock *sk, int command)
{
	if (command == SMC_FIONREAD)
		smc_note_habit(sk, SMC_HABIT_ASKS_INQ);
	return 0;
}

/* Some kernels have a separate ioctl function for members. */
SEC("?fentry/tcp_bpf_ioctl")
int BPF_PROG(smc_guard_member_ioctl, struct sock *sk, int command)
{
	if (command == SMC_FIONREAD)
		smc_note_habit(sk, SMC_HABIT_ASKS_INQ);
	return 0;
}

/* A member's send, before smc_bypass_send decides about it. */
SEC("fentry/tcp_bpf_sendmsg")
int BPF_PROG(smc_guard_send, struct sock *sk, struct msghdr *message)
{
	__u32 flags = BPF_CORE_READ(message, msg_flags);
	struct smc_member *member;

	if (!(flags & (SMC_MSG_OOB | SMC_MSG_ZEROCOPY)))
		return 0;
	member = smc_member_of(sk);
	if (member)
		smc_add_habit(member, flags & SMC_MSG_OOB ? SMC_HABIT_URGENT : SMC_HABIT_ZEROCOPY);
	return 0;
}

/*
 * splice() reads TCP's queue only: it would never find redirected bytes, while poll() reports them. So it is refused as
 * long as there are any, with EINVAL, which programs know from files that cannot be spliced. They call recv() instead,
 * and the socket leaves the bypass. Only this hook can refuse splice(), and every read() passes it.
 */
#define SMC_X32_SYSCALL 0x40000000L

static __always_inline bool smc_is_splicing(void)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());
	long call = smc_system_call(regs);

	call &= ~SMC_X32_SYSCALL;
	/* splice() and sendfile(); behind them splice(), sendfile() and sendfile64() of programs of 32 bits */
	return call == 275 || call == 40 || call == 313 || call == 187 || call == 239;
}

SEC("?lsm/file_permission")
int BPF_PROG(smc_guard_permission, struct file *file, int mask, int before)
{
	struct smc_member *member, *peer;
	struct socket *socket;
	struct sock *sk;
	__u64 cookie;

	if (before || !(mask & SMC_MAY_READ) || !smc_is_splicing() ||
	    (file->f_inode->i_mode & SMC_S_IFMT) != SMC_S_IFSOCK)
		return before;
	socket = file->private_data;
	sk = BPF_CORE_READ(socket, sk);
	if (!sk || BPF_CORE_READ(sk, sk_protocol) != IPPROTO_TCP)
		return 0;
	cookie = BPF_CORE_READ(sk, __sk_common.skc_cookie.counter);
	member = smc_member_at(cookie);
	if (!member || member->state < SMC_MEMBER_ENROLLED || member->state > SMC_MEMBER_LEAVING)
		return 0;
	__sync_fetch_and_or(&member->habits, SMC_HABIT_SPLICES); /* first: so nothing more is redirected to it */
	peer = smc_peer_of(member, cookie);
	return smc_is_drained(member, peer) ? 0 : -SMC_EINVAL;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
