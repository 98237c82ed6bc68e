/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A client uses a port again while the server's application still has its socket of the connection before. TCP answers
 * the new SYN from that socket by a challenge ACK, and the client's kernel answers that by a reset.
 */
#ifndef SMC_PORT_AGAIN_H
#define SMC_PORT_AGAIN_H

#define SMC_CHALLENGE_NS 1000000         /* the kernel answers a SYN at once */
#define SMC_CHALLENGE_EVERY_NS 500000000 /* and at most so often for one socket (net.ipv4.tcp_invalid_ratelimit) */

/*
 * Whether this is the challenge ACK for a SYN from the network (RFC 9293 section 3.10.7.4, RFC 5961): the client uses
 * its port again while the server's application still has the socket of the connection before. A challenge must reach
 * the client, whose reset then ends that socket. If this is another bare ACK, the leg gets the next one, or repeats
 * what it has sent.
 */
static __always_inline bool smc_is_challenge(struct __sk_buff *skb, __u32 slot, struct smc_sock *app)
{
	struct smc_packet packet = {};

	app->awaits_challenge = 0;
	return bpf_ktime_get_ns() - app->challenge_ns < SMC_CHALLENGE_NS &&
	       smc_parse(skb, slot, app->mac_len, true, &packet) && smc_is_bare_ack(&packet);
}

/* A SYN from the network may be for a connection that an application behind a leg still has: see smc_is_challenge(). */
static __always_inline void smc_expect_challenge(struct __sk_buff *skb, const struct smc_packet *packet)
{
	const struct smc_hairpin *hairpin = bpf_map_lookup_elem(&smc_hairpins, &packet->tuple);
	__u64 now = bpf_ktime_get_ns();
	struct bpf_sock *skc, *sk;
	struct smc_sock *state;

	if (!hairpin || hairpin->of_leg || hairpin->isn == packet->seq)
		return;
	skc = smc_socket_of(skb, &packet->tuple, packet->v6);
	if (!skc)
		return;
	sk = bpf_sk_fullsock(skc);
	state = sk ? bpf_sk_storage_get(&smc_socks, sk, 0, 0) : 0;
	if (state && state->role == SMC_ROLE_APP && now - state->challenge_ns > SMC_CHALLENGE_EVERY_NS) {
		state->challenge_ns = now;
		state->awaits_challenge = 1;
	}
	bpf_sk_release(skc);
}

/*
 * The client uses its port again, and TCP has ended the application's socket of the connection before: by the reset
 * that a challenge ACK drew, for instance. Its leg makes way, unless it still has bytes that the application wrote:
 * those are for the peer, however late it reads.
 */
static __always_inline void smc_forget_ended(const struct smc_packet *packet)
{
	struct smc_hairpin *hairpin = bpf_map_lookup_elem(&smc_hairpins, &packet->tuple), *leg;
	struct smc_tuple other = packet->tuple;

	if (!hairpin || hairpin->of_leg || hairpin->isn == packet->seq || !smc_has_ended(&hairpin->sender))
		return;
	other.local_port = hairpin->to_port;
	leg = bpf_map_lookup_elem(&smc_hairpins, &other);
	if (leg && leg->of_leg && leg->to_port == packet->tuple.local_port) {
		if (smc_leg_lives(leg) && !(smc_is_half_open(leg) && smc_tell_to_end(&other, leg)))
			return;
		bpf_map_delete_elem(&smc_hairpins, &other);
	}
	bpf_map_delete_elem(&smc_hairpins, &packet->tuple);
}

#endif
