/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The agent's legs, counted now and then by user space, which sweeps their hairpins then (smc_sweep.h). A callback at
 * their end would be cheaper, and is not to be relied on: any sockops program further up may switch it off.
 *
 * By the way, applications' sockets whose leg is gone without a word. A leg's packets leave by the device of its
 * application, so a reset is lost where the neighbour table has given the peer up: then nothing would ever tell the
 * application, all of whose data the leg has acknowledged. User space ends them.
 */
#ifndef SMC_LEGS_H
#define SMC_LEGS_H

/* Behind a leg's FIN a socket is in another state, and may stay there for as long as its application likes. */
static __always_inline bool smc_waits_for_leg(struct sock *sk)
{
	__u8 state = sk->__sk_common.skc_state;

	return state == BPF_TCP_ESTABLISHED || state == BPF_TCP_FIN_WAIT1 || state == BPF_TCP_FIN_WAIT2;
}

static __always_inline void smc_see_leg(__u16 own_port, struct smc_tuple *tuple)
{
	struct smc_hairpin *to_leg = bpf_map_lookup_elem(&smc_hairpins, tuple), *to_front;
	__u64 now = bpf_ktime_get_ns();

	if (!to_leg || to_leg->partner != own_port)
		return; /* it has made way */
	to_leg->seen_ns = now;
	tuple->local_port = own_port;
	to_front = bpf_map_lookup_elem(&smc_hairpins, tuple);
	if (to_front)
		to_front->seen_ns = now;
}

SEC("iter/bpf_sk_storage_map")
int smc_legs(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	struct sock *sk = ctx->sk;
	struct smc_sock *state = ctx->value;
	struct smc_stranded_socket found = {};
	struct smc_hairpin *hairpin;

	if (!sk || !state || !state->partner)
		return 0;
	__builtin_memcpy(&found.front, &state->front, sizeof(found.front));
	if (smc_is_leg(state)) {
		smc_see_leg(state->port, &found.front);
		return 0;
	}
	if (state->role != SMC_ROLE_APP || !smc_waits_for_leg(sk))
		return 0;
	hairpin = bpf_map_lookup_elem(&smc_hairpins, &found.front);
	if (hairpin && (!hairpin->closed_ns || bpf_ktime_get_ns() - hairpin->closed_ns < SMC_HAIRPIN_NS))
		return 0;
	found.cookie = bpf_get_socket_cookie(sk);
	found.bound_device = sk->__sk_common.skc_bound_dev_if;
	bpf_seq_write(ctx->meta->seq, &found, sizeof(found));
	return 0;
}

#endif
