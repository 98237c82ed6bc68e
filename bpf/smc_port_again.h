/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A client uses a port again while the server's application still has its socket of the connection before. TCP answers
 * the new SYN from that socket by a challenge ACK, and the client's kernel answers that by a reset.
 */
#ifndef SMC_PORT_AGAIN_H
#define SMC_PORT_AGAIN_H

#define SMC_CHALLENGE_NS 1000000         /* how long it is awaited: the kernel answers a SYN at once */
#define SMC_CHALLENGE_EVERY_NS 500000000 /* least time between two of a socket (net.ipv4.tcp_invalid_ratelimit) */

/*
 * Whether this is the challenge ACK for a SYN from the network (RFC 9293 section 3.10.7.4, RFC 5961). It must reach the
 * client, whose reset then ends the application's socket. Another bare ACK that is taken for it is no loss: the leg
 * receives a later ACK, or retransmits. The same packet leaves by each device of a stack, a bridge and its port for
 * example.
 */
static __always_inline bool smc_lets_challenge_pass(struct __sk_buff *skb, const struct smc_device_key *device,
						    struct smc_sock *app)
{
	struct smc_packet packet = {};

	if (!app->awaits_challenge && (!app->challenge_by || app->challenge_by == device->ifindex))
		return false;
	app->awaits_challenge = 0;
	if (bpf_ktime_get_ns() - app->challenge_ns >= SMC_CHALLENGE_NS ||
	    !smc_parse(skb, device->slot, app->mac_len, true, &packet) || !smc_is_bare_ack(&packet))
		return false;
	app->challenge_by = device->ifindex;
	return true;
}

/* Expects a challenge ACK if this SYN from the network is for a connection that an application behind a leg has. */
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
		state->challenge_by = 0;
	}
	bpf_sk_release(skc);
}

/*
 * Deletes the hairpin of the connection before, if the client uses its port again and TCP has ended the application's
 * socket: by the reset that answered a challenge ACK, for instance. The leg is ended, too. Both stay while the leg has
 * bytes that the application wrote and the agent has not read: they are for the peer, however late the peer reads.
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
		if (smc_leg_lives(leg) && !(smc_is_half_open(leg) && smc_report_half_open(&other, leg)))
			return;
		bpf_map_delete_elem(&smc_hairpins, &other);
	}
	bpf_map_delete_elem(&smc_hairpins, &packet->tuple);
}

#endif
