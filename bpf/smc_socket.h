/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Reads the sockets that map entries refer to, without a reference: in the sweeps of user space, and when a new SYN
 * meets an old entry. So this costs nothing where there are no entries, and sockets themselves are never walked.
 *
 * The memory of a socket that is gone may belong to another socket by now, or to anything else; reading it causes no
 * fault. No other connection's socket has the same cookie. A socket that was freed, and whose memory is not in use
 * again yet, still has its cookie, but no reference.
 */
#ifndef SMC_SOCKET_H
#define SMC_SOCKET_H

/*
 * 0 if the kernel lets no program read its memory (lockdown=confidentiality). Then smc_ends.h clears the cookie of an
 * entry whose socket ends, and values that can only be read are not known.
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

/* Whether the sender is a leg that can still send. A leg that was reset cannot, though the agent may still have it. */
static __always_inline bool smc_leg_lives(const struct smc_hairpin *hairpin)
{
	const struct sock *sk = (const struct sock *)hairpin->sender.sk;
	__u8 state = smc_reads_kernel ? BPF_CORE_READ(sk, __sk_common.skc_state) : 0;

	return hairpin->of_leg && state != BPF_TCP_CLOSE && smc_lives(&hairpin->sender);
}

/* Whether TCP has ended a socket, which its program may still hold. False if the kernel lets no program look. */
static __always_inline bool smc_has_ended(const struct smc_socket *which)
{
	const struct sock *sk = (const struct sock *)which->sk;

	return smc_reads_kernel && which->cookie &&
	       (!smc_lives(which) || BPF_CORE_READ(sk, __sk_common.skc_state) == BPF_TCP_CLOSE);
}

static __always_inline void smc_note_sender(struct smc_hairpin *hairpin, struct tcp_sock *sk, __u64 cookie)
{
	if (!sk)
		return;
	hairpin->sender.sk = (__u64)(unsigned long)sk;
	hairpin->sender.cookie = cookie;
}

#endif
