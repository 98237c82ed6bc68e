/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Applications' sockets whose leg is gone without a word. A leg's packets leave by the device of its application, so a
 * reset is lost where the neighbour table has given the peer up: then nothing would ever tell the application, all of
 * whose data the leg has acknowledged. User space ends them.
 */
#ifndef SMC_STRANDED_H
#define SMC_STRANDED_H

/* Behind a leg's FIN a socket is in another state, and may stay there for as long as its application likes. */
static __always_inline bool smc_waits_for_leg(const struct smc_socket *which)
{
	const struct sock *sk = (const struct sock *)which->sk;
	__u8 state = smc_reads_kernel ? BPF_CORE_READ(sk, __sk_common.skc_state) : 0;

	return (state == BPF_TCP_ESTABLISHED || state == BPF_TCP_FIN_WAIT1 || state == BPF_TCP_FIN_WAIT2) &&
	       smc_lives(which);
}

#define SMC_OFTEN_TOLD 5 /* it is not found then: its addresses are translated, perhaps */

/* An application's socket that was disconnected, and connects or listens now: its hairpin is none of its any more. */
static __always_inline void smc_leave_hairpin(const struct smc_sock *state, __u64 cookie)
{
	struct smc_hairpin *hairpin = bpf_map_lookup_elem(&smc_hairpins, &state->front);

	if (hairpin && hairpin->sender.cookie == cookie)
		hairpin->sender.cookie = 0;
}

/* The leg of this entry is gone. True: its application waits for it, and user space is told, if there is room. */
static __always_inline bool smc_tell_stranded(const struct smc_tuple *front, const struct smc_hairpin *hairpin)
{
	const struct sock *sk = (const struct sock *)hairpin->sender.sk;
	struct smc_stranded_socket found = {.front = *front};
	__u64 cookie = hairpin->sender.cookie;

	if (hairpin->of_leg || !smc_waits_for_leg(&hairpin->sender))
		return false;
	if (smc_reads_kernel)
		found.bound_device = BPF_CORE_READ(sk, __sk_common.skc_bound_dev_if);
	bpf_map_update_elem(&smc_stranded, &cookie, &found, BPF_ANY);
	return true;
}

#endif
