/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Pairs: connections between two namespaces of this node whose two ends this agent serves, so that they stay TCP.
 * Our own option in the SYN makes them known:
 *
 *	the SYN arrives at a device of this node, with this agent's tag	-> noted in smc_pairs under its sequence number
 *	the namespace where it arrived sends the SYN-ACK for it		-> the SYN-ACK's sequence number is noted, too
 *	the client is established, by that very SYN-ACK			-> the client belongs to the pair: proven
 *	the server is established, and that was its SYN-ACK		-> the server is the other end
 *
 * Address translation on the path changes none of these numbers. A SYN that this node only forwards, or that is
 * replayed to it, proves nothing, because the client has received another SYN-ACK.
 */
#ifndef SMC_PAIRS_H
#define SMC_PAIRS_H

#define SMC_PAIR_NS 10000000000ULL

/* Until this time smc_pairs may have an entry that is needed. On most nodes it never has, and the lookup is saved. */
static volatile __u64 smc_pairs_until;

static __always_inline bool smc_are_pairs(void)
{
	return smc_pairs_until > bpf_ktime_get_coarse_ns();
}

/*
 * The ID of a socket in our own option; never 0. In the option, 0 means that connections within this node are left
 * alone.
 */
static __always_inline __u16 smc_pair_id(__u64 cookie)
{
	return (__u16)cookie | 1;
}

/* A SYN with this agent's own tag has arrived at a device of this node. */
static __always_inline void smc_rcv_tagged_syn(const struct smc_packet *packet, const struct smc_tcp_options *options)
{
	struct smc_pair pair = {.server = packet->tuple, .id = options->own_detail};

	if (!options->own_detail || options->own_port)
		return; /* no ID, or the SYN of a CLC socket */
	if (!bpf_map_update_elem(&smc_pairs, &packet->seq, &pair, BPF_ANY))
		smc_pairs_until = bpf_ktime_get_coarse_ns() + SMC_PAIR_NS;
}

/* A SYN-ACK of a socket of this node, perhaps in answer to such a SYN. */
static __always_inline void smc_note_answer(const struct smc_packet *packet)
{
	__be32 isn = bpf_htonl(bpf_ntohl(packet->ack) - 1);
	const __u64 *seen, *now;
	struct smc_pair *pair;

	pair = smc_are_pairs() ? bpf_map_lookup_elem(&smc_pairs, &isn) : 0;
	if (!pair)
		return;
	seen = (const __u64 *)&pair->server;
	now = (const __u64 *)&packet->tuple;
	if (seen[0] != now[0] || seen[1] != now[1] || seen[2] != now[2] || seen[3] != now[3] || seen[4] != now[4])
		return; /* the SYN went on to another namespace of this node */
	if (!pair->answer)
		smc_count(SMC_LOCAL_PAIR);
	pair->answer = packet->seq;
}

/* The entry of an established connection, if this end is proven to belong to it. */
static __always_inline struct smc_pair *smc_pair_of(struct bpf_sock_ops *ctx, bool client)
{
	__be32 isn = bpf_htonl((client ? ctx->snd_una : ctx->rcv_nxt) - 1);
	const struct smc_tuple *tuple;
	struct smc_pair *pair;
	const __u64 *seen;
	__u64 ip[2];

	pair = smc_are_pairs() ? bpf_map_lookup_elem(&smc_pairs, &isn) : 0;
	if (!pair)
		return 0;
	if (client) {
		if (pair->id != smc_pair_id(bpf_get_socket_cookie(ctx)) || pair->answer != bpf_htonl(ctx->rcv_nxt - 1))
			return 0;
		pair->proven = true;
		return pair;
	}
	tuple = &pair->server;
	seen = (const __u64 *)tuple->remote_ip;
	smc_address_of(ctx, true, (__u8 *)ip);
	if (!pair->proven || pair->answer != bpf_htonl(ctx->snd_una - 1) || tuple->local_port != ctx->local_port)
		return 0;
	return tuple->remote_port == bpf_ntohl(ctx->remote_port) && seen[0] == ip[0] && seen[1] == ip[1] ? pair : 0;
}

#endif
