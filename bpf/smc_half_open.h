/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Half-open hairpins (RFC 9293 section 3.5.1): one of the two sockets is gone, and its FIN or reset did not reach the
 * other one. The packets of both pass the application's device, so they are lost if that device was deleted, or if the
 * neighbour table has given the peer up. The socket that is left would never notice: its data has been acknowledged,
 * and it retransmits nothing. User space ends it.
 */
#ifndef SMC_HALF_OPEN_H
#define SMC_HALF_OPEN_H

/*
 * Whether a socket still waits for the other end. After the other end's FIN it is in another state, in which it may
 * stay for as long as its application likes.
 */
static __always_inline bool smc_awaits_the_other_end(const struct smc_socket *which)
{
	const struct sock *sk = (const struct sock *)which->sk;
	__u8 state = smc_reads_kernel ? BPF_CORE_READ(sk, __sk_common.skc_state) : 0;

	return (state == BPF_TCP_ESTABLISHED || state == BPF_TCP_FIN_WAIT1 || state == BPF_TCP_FIN_WAIT2) &&
	       smc_lives(which);
}

#define SMC_MOST_REPORTS 5 /* then user space cannot find the socket, perhaps because addresses are translated */

/* An application's socket that was disconnected, and connects or listens again: it has left its hairpin. */
static __always_inline void smc_leave_hairpin(const struct smc_sock *state, __u64 cookie)
{
	struct smc_hairpin *hairpin = bpf_map_lookup_elem(&smc_hairpins, &state->app);

	if (hairpin && hairpin->sender.cookie == cookie)
		hairpin->sender.cookie = 0;
}

/* Tells user space to end this sender. False: the map has no free entry. */
static __always_inline bool smc_report_half_open(const struct smc_tuple *sender, const struct smc_hairpin *hairpin)
{
	const struct sock *sk = (const struct sock *)hairpin->sender.sk;
	struct smc_half_open found = {.sender = *sender, .of_leg = hairpin->of_leg};
	__u64 cookie = hairpin->sender.cookie;

	if (smc_reads_kernel)
		found.bound_device = BPF_CORE_READ(sk, __sk_common.skc_bound_dev_if);
	return !bpf_map_update_elem(&smc_half_open, &cookie, &found, BPF_ANY);
}

/* Whether user space has not taken yet what it was told about this sender. */
static __always_inline bool smc_is_reported(const struct smc_hairpin *hairpin)
{
	__u64 cookie = hairpin->sender.cookie;

	return bpf_map_lookup_elem(&smc_half_open, &cookie);
}

/* Whether this sender waits for the other end, which is gone. A leg first reads what the application had written. */
static __always_inline bool smc_is_half_open(const struct smc_hairpin *hairpin)
{
	const struct tcp_sock *tcp = (const struct tcp_sock *)hairpin->sender.sk;

	return smc_awaits_the_other_end(&hairpin->sender) &&
	       !(hairpin->of_leg && smc_reads_kernel && BPF_CORE_READ(tcp, rcv_nxt) != BPF_CORE_READ(tcp, copied_seq));
}

#endif
