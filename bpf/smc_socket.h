/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Sockets that an entry of a map is about, looked at while nobody holds them: by the sweeps of user space, and where a
 * new SYN meets an old entry. So what has to be known of our sockets costs nothing where there are none, and sockets
 * themselves are never walked.
 *
 * Memory of a socket that is gone may be another one's by now, or anything. A read of it faults nowhere. No other
 * connection's socket has the same cookie; one that was freed, and is nobody's yet, has it still, but no reference.
 */
#ifndef SMC_SOCKET_H
#define SMC_SOCKET_H

/*
 * 0 where the kernel lets no program read its memory (lockdown=confidentiality). There smc_ends.h clears the cookie of
 * an entry whose socket ends, and what only a read would tell is not known.
 */
const volatile __u32 smc_reads_kernel = 1;

static __always_inline bool smc_is_still(__u64 address, __u64 cookie)
{
	const struct sock *sk = (const struct sock *)address;

	if (!smc_reads_kernel)
		return cookie;
	return cookie && BPF_CORE_READ(sk, __sk_common.skc_cookie.counter) == (__s64)cookie &&
	       BPF_CORE_READ(sk, __sk_common.skc_refcnt.refs.counter) > 0;
}

static __always_inline bool smc_lives(const struct smc_socket *which)
{
	return smc_is_still(which->sk, which->cookie);
}

/* One that was reset speaks no more, though the agent may have it still. */
static __always_inline bool smc_leg_lives(const struct smc_hairpin *hairpin)
{
	const struct sock *sk = (const struct sock *)hairpin->sender.sk;
	__u8 state = smc_reads_kernel ? BPF_CORE_READ(sk, __sk_common.skc_state) : 0;

	return hairpin->of_leg && state != BPF_TCP_CLOSE && smc_lives(&hairpin->sender);
}

static __always_inline void smc_note_sender(struct smc_hairpin *hairpin, struct tcp_sock *sk, __u64 cookie)
{
	if (!sk)
		return;
	hairpin->sender.sk = (__u64)(unsigned long)sk;
	hairpin->sender.cookie = cookie;
}

#endif
