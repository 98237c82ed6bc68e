/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Server side: tc ingress recognises SYNs that carry option 254 and have a real listener behind them; sk_lookup hands
 * exactly those to the agent's listener for CLC sockets.
 */
#ifndef SMC_ACCEPT_H
#define SMC_ACCEPT_H

/* A SYN reaches the devices of a stack one after the other within this time; TCP sends it again later. */
#define SMC_STACK_NS 100000000ull

static __always_inline enum smc_decision smc_decide_inbound(struct smc_subject *subject)
{
	SMC_INBOUND_CHECKS(SMC_RETURN_IF_FAILED)
	return SMC_IN_STEERED;
}

static __always_inline struct bpf_sock *smc_listener(struct __sk_buff *skb, const struct smc_packet *packet)
{
	struct bpf_sock_tuple tuple = {};

	/* without a remote address this finds only the listener, not a TIME_WAIT socket of an earlier connection */
	if (packet->v6) {
		__builtin_memcpy(tuple.ipv6.daddr, packet->tuple.local_ip, 16);
		tuple.ipv6.dport = bpf_htons(packet->tuple.local_port);
		return bpf_skc_lookup_tcp(skb, &tuple, sizeof(tuple.ipv6), BPF_F_CURRENT_NETNS, 0);
	}
	__builtin_memcpy(&tuple.ipv4.daddr, packet->tuple.local_ip + 12, 4);
	tuple.ipv4.dport = bpf_htons(packet->tuple.local_port);
	return bpf_skc_lookup_tcp(skb, &tuple, sizeof(tuple.ipv4), BPF_F_CURRENT_NETNS, 0);
}

/*
 * Whether this namespace forwards the SYN: then its request is answered at its destination. The route decides, because
 * a listener on all addresses is found for any address. (If the device does not forward, the packet is for this
 * namespace or is dropped.)
 */
static __always_inline bool smc_is_forwarded(struct __sk_buff *skb, const struct smc_packet *packet)
{
	struct bpf_fib_lookup route = {
		.l4_protocol = IPPROTO_TCP,
		.sport = bpf_htons(packet->tuple.remote_port),
		.dport = bpf_htons(packet->tuple.local_port),
		.ifindex = skb->ifindex,
	};
	long found;

	if (packet->v6) {
		route.family = AF_INET6;
		__builtin_memcpy(route.ipv6_src, packet->tuple.remote_ip, 16);
		__builtin_memcpy(route.ipv6_dst, packet->tuple.local_ip, 16);
	} else {
		route.family = AF_INET;
		__builtin_memcpy(&route.ipv4_src, packet->tuple.remote_ip + 12, 4);
		__builtin_memcpy(&route.ipv4_dst, packet->tuple.local_ip + 12, 4);
	}
	found = bpf_fib_lookup(skb, &route, sizeof(route), 0);
	return found == BPF_FIB_LKUP_RET_SUCCESS || found == BPF_FIB_LKUP_RET_NO_NEIGH ||
	       found == BPF_FIB_LKUP_RET_UNSUPP_LWT || found == BPF_FIB_LKUP_RET_FRAG_NEEDED;
}

/*
 * A SYN without a listener must get its RST from the kernel, so the listener is looked up before steering. A
 * steered SYN is counted where it was heard first (inbound->ifindex).
 */
static __always_inline enum smc_decision smc_decide_syn(struct __sk_buff *skb, const struct smc_packet *packet,
							const struct smc_tcp_options *options,
							struct smc_inbound *inbound)
{
	struct smc_subject subject = {};
	enum smc_decision decision;
	struct bpf_sock *skc, *sk;
	struct tcp_sock *tcp;

	subject.config = smc_get_config();
	if (!subject.config)
		return SMC_IN_AGENT_STALE;
	__builtin_memcpy(subject.remote.ip, packet->tuple.remote_ip, 16);
	subject.remote.port = packet->tuple.remote_port;
	subject.port = packet->tuple.local_port;
	subject.direction = SMC_INBOUND;
	subject.mptcp = options->mptcp;
	subject.signed_segments = options->signed_segments;
	subject.fast_open = options->fast_open || packet->payload;
	subject.own_tag = options->own && options->own_tag == subject.config->tag;
	subject.forwarded = smc_is_forwarded(skb, packet);
	subject.encrypts = packet->encrypts;
	skc = smc_listener(skb, packet);
	sk = skc ? bpf_sk_fullsock(skc) : 0;
	tcp = sk && sk->state == BPF_TCP_LISTEN ? bpf_skc_to_tcp_sock(sk) : 0;
	if (tcp) {
		subject.tcp = tcp;
		subject.listener = true;
		subject.netns_cookie = ((struct sock *)tcp)->__sk_common.skc_net.net->net_cookie;
		/* tc programs may not call the helper that returns a socket's cgroup */
		subject.cgroup_id = ((struct sock *)tcp)->sk_cgrp_data.cgroup->kn->id;
		subject.cgroup = bpf_map_lookup_elem(&smc_cgroups, &subject.cgroup_id);
		inbound->cgroup = subject.cgroup_id;
		smc_read_buffers((struct sock *)tcp, &inbound->buffers);
	}
	decision = smc_decide_inbound(&subject);
	/* a trial (smc_short_lived.h) begins with a CLC socket's SYN; a request of an agent (port 0) may precede it */
	if (inbound->ifindex == skb->ifindex &&
	    (decision == SMC_IN_SHORT_LIVED || (decision == SMC_IN_STEERED && (!options->own || options->own_port))))
		smc_note_short_lived(subject.known, decision == SMC_IN_SHORT_LIVED);
	inbound->smcd = subject.smcd;
	if (skc)
		bpf_sk_release(skc);
	return decision;
}

/*
 * The client's application sends its own SYN while the half-open connection of our leg still has its tuple. That
 * connection must end first: this packet becomes the RST for it, and a copy of the SYN follows.
 */
static __always_inline bool smc_free_tuple(struct __sk_buff *skb, const struct smc_packet *packet)
{
	struct smc_request *held = bpf_map_lookup_elem(&smc_requests, &packet->tuple);
	struct smc_hairpin *hairpin;
	struct smc_tuple leg = packet->tuple;
	__be32 seq;

	if (!held || held->state != SMC_REQUEST_LEG || held->isn == packet->seq)
		return false; /* no leg, or this is the leg's own SYN, coming through the hairpin */
	seq = bpf_htonl(bpf_ntohl(held->isn) + 1);
	bpf_map_delete_elem(&smc_requests, &packet->tuple);
	hairpin = bpf_map_lookup_elem(&smc_hairpins, &packet->tuple);
	if (hairpin) {
		leg.local_port = hairpin->to_port;
		bpf_map_delete_elem(&smc_hairpins, &packet->tuple);
		bpf_map_delete_elem(&smc_hairpins, &leg);
	}
	if (bpf_clone_redirect(skb, skb->ifindex, BPF_F_INGRESS) || !smc_cut_options(skb, packet) ||
	    !smc_set_tcp(skb, packet, seq, packet->ack, SMC_TCP_RST, false))
		return false;
	smc_count(SMC_IN_TUPLE_REUSED);
	return true;
}

/*
 * A SYN from the network: notes it in smc_inbound if sk_lookup shall hand it to the agent. A SYN passes each device of
 * a stack, the port of a bridge and the bridge for example, from the lowest one up. If its sequence number is known,
 * it is a retransmission only there, or after SMC_STACK_NS. The last device decides: only there is it known which
 * listener the SYN is for.
 */
static __always_inline int smc_rcv_request(struct __sk_buff *skb, const struct smc_packet *packet)
{
	struct smc_tcp_options options = {};
	struct smc_inbound inbound = {}, before = {}, *known;
	enum smc_decision decision;

	if (smc_free_tuple(skb, packet))
		return TC_ACT_UNSPEC;
	smc_parse_options(skb, packet, &options);
	/* an entry of an earlier connection must go before smc_listener() runs sk_lookup */
	known = bpf_map_lookup_elem(&smc_inbound, &packet->tuple);
	if (known && known->isn == packet->seq && bpf_ktime_get_ns() - known->since_ns <= smc_inbound_life(known))
		before = *known;
	/* a retransmission may come by another device than the SYN before */
	inbound.ifindex =
		before.since_ns && bpf_ktime_get_ns() - before.since_ns < SMC_STACK_NS ? before.ifindex : skb->ifindex;
	bpf_map_delete_elem(&smc_inbound, &packet->tuple);
	smc_forget_ended(packet);
	smc_forget_hairpin(packet);
	smc_expect_challenge(skb, packet);
	if (!options.smc && !options.own) {
		/* the CLC listener's half-open connection still answers it: perhaps only its last SYN-ACK was lost */
		if (before.since_ns && !before.syncookie) {
			before.again += inbound.ifindex == skb->ifindex && before.again < SMC_ANSWER_LOST_SYNS;
			before.bare = 1;
			before.since_ns = bpf_ktime_get_ns();
			bpf_map_update_elem(&smc_inbound, &packet->tuple, &before, BPF_ANY);
		}
		return TC_ACT_UNSPEC;
	}
	decision = smc_decide_syn(skb, packet, &options, &inbound);
	if (!options.smc && decision != SMC_IN_SAME_AGENT)
		return TC_ACT_UNSPEC; /* without option 254 it is no request to another agent */
	/* the device below has found the listener and begun a trial of it (smc_short_lived.h) */
	if (decision == SMC_IN_SHORT_LIVED && inbound.ifindex != skb->ifindex && inbound.cgroup == before.cgroup) {
		bpf_map_update_elem(&smc_inbound, &packet->tuple, &before, BPF_ANY);
		return TC_ACT_UNSPEC;
	}
	if (before.since_ns && decision != SMC_IN_STEERED && inbound.ifindex == skb->ifindex) {
		/* a retransmission: the agent has answered the SYN already, and CLC follows */
		bpf_map_update_elem(&smc_inbound, &packet->tuple, &before, BPF_ANY);
	} else if (decision == SMC_IN_STEERED) {
		inbound.syncookie = before.syncookie;
		inbound.callback_ran = before.callback_ran;
		inbound.assigned = before.assigned;
		inbound.again = before.again + (before.since_ns && inbound.ifindex == skb->ifindex &&
						before.again < SMC_ANSWER_LOST_SYNS);
		inbound.since_ns = bpf_ktime_get_ns();
		inbound.isn = packet->seq;
		inbound.port = options.own ? options.own_port : 0;
		inbound.peer_agent = options.own;
		inbound.peer_announces = inbound.port && options.own_detail == SMC_OWN_ANNOUNCES;
		inbound.ttl = packet->ttl;
		inbound.tos = packet->tos;
		if (bpf_map_update_elem(&smc_inbound, &packet->tuple, &inbound, BPF_ANY))
			decision = SMC_IN_TABLE_FULL;
	} else if (decision == SMC_IN_SAME_AGENT) {
		smc_rcv_tagged_syn(packet, &options);
	}
	if (inbound.ifindex == skb->ifindex || decision != SMC_IN_STEERED)
		smc_count(decision);
	return TC_ACT_UNSPEC;
}

/* sk_lookup cannot ask in which namespace it runs, so this is loaded once for each, with the namespace's slot in it. */
SEC("sk_lookup")
int smc_lookup(struct bpf_sk_lookup *ctx)
{
	struct smc_inbound *inbound;
	struct smc_tuple tuple = {};
	struct bpf_sock *sk;
	bool v6 = ctx->family == AF_INET6;
	__u32 slot, key;

	SMC_OWN_SLOT(slot);
	if (ctx->protocol != IPPROTO_TCP)
		return SK_PASS;
	if (v6) {
		__u32 *remote = (__u32 *)tuple.remote_ip, *local = (__u32 *)tuple.local_ip;

		remote[0] = ctx->remote_ip6[0];
		remote[1] = ctx->remote_ip6[1];
		remote[2] = ctx->remote_ip6[2];
		remote[3] = ctx->remote_ip6[3];
		local[0] = ctx->local_ip6[0];
		local[1] = ctx->local_ip6[1];
		local[2] = ctx->local_ip6[2];
		local[3] = ctx->local_ip6[3];
	} else {
		smc_map_v4(tuple.remote_ip, ctx->remote_ip4);
		smc_map_v4(tuple.local_ip, ctx->local_ip4);
	}
	tuple.remote_port = bpf_ntohs(ctx->remote_port);
	tuple.local_port = ctx->local_port;
	tuple.slot = slot;
	inbound = bpf_map_lookup_elem(&smc_inbound, &tuple);
	/* With SYN cookies the handshake's last ACK comes here, too. An expired entry must not steer a later SYN. */
	if (!inbound || inbound->bare || bpf_ktime_get_ns() - inbound->since_ns > smc_inbound_life(inbound))
		return SK_PASS;
	key = slot * 2 + v6;
	sk = bpf_map_lookup_elem(&smc_clc, &key);
	/* The agent is gone. The application's listener gets a SYN, but not the ACK of a SYN cookie: CLC follows it. */
	if (!sk)
		return inbound->syncookie ? SK_DROP : SK_PASS;
	/* not another listener of its port: any process of its user could have opened one */
	inbound->assigned = !bpf_sk_assign(ctx, sk, BPF_SK_LOOKUP_F_NO_REUSEPORT);
	bpf_sk_release(sk);
	return SK_PASS;
}

#endif
