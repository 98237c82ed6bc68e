/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The hairpin: how an application and a leg of the agent speak to each other, each as if to the network.
 *
 *	client   A  (own:pa -> server:ps)           L  (own:pl -> server:ps)
 *	server   A' (own:ps -> client:pa)           L' (own:pl -> client:pa)
 *
 * Both ends have the same addresses and the same remote port. A packet of either end is redirected to the ingress of
 * its own device. Its addresses are swapped; its source port becomes the remote port, and its destination port the
 * local port of the other end (to_port). It arrives on that device as if the remote had sent it.
 */
#ifndef SMC_HAIRPIN_H
#define SMC_HAIRPIN_H

static __always_inline void smc_to_own_mac(struct __sk_buff *skb, __u32 mac_len)
{
	__u8 own[6];

	if (!mac_len)
		return;
	/* the kernel drops packets for another MAC address */
	bpf_skb_load_bytes(skb, 6, own, sizeof(own));
	bpf_skb_store_bytes(skb, 0, own, sizeof(own), 0);
}

/*
 * Rewrites a packet for the other end of the hairpin: swaps addresses, sets ports and the MAC address. False: it is no
 * TCP.
 */
static __always_inline bool smc_rewrite(struct __sk_buff *skb, __u32 mac_len, __u16 to_port)
{
	bool v6 = skb->protocol == bpf_htons(ETH_P_IPV6);
	__u32 tcp_at;
	struct {
		__be16 source, dest;
	} ports, turned;

	if (!v6) {
		__u8 head[10]; /* up to the protocol */

		if (bpf_skb_load_bytes(skb, mac_len, head, sizeof(head)) || head[9] != IPPROTO_TCP)
			return false;
		if ((head[6] & 0x1f) || head[7]) { /* a fragment behind the first one: it has no ports */
			smc_swap_addresses(skb, mac_len, false);
			smc_to_own_mac(skb, mac_len);
			return true;
		}
		tcp_at = mac_len + (head[0] & 15) * 4;
	} else {
		tcp_at = smc_tcp_behind(skb, mac_len);
	}
	if (!tcp_at || bpf_skb_load_bytes(skb, tcp_at, &ports, sizeof(ports)))
		return false;
	smc_swap_addresses(skb, mac_len, v6);
	turned.source = ports.dest;
	turned.dest = bpf_htons(to_port);
	bpf_l4_csum_replace(skb, tcp_at + SMC_TCP_CHECKSUM, ports.source, turned.dest, 2);
	bpf_skb_store_bytes(skb, tcp_at, &turned, sizeof(turned), 0);
	smc_to_own_mac(skb, mac_len);
	return true;
}

static __always_inline int smc_redirect(struct __sk_buff *skb, __u32 mac_len, __u16 to_port)
{
	return smc_rewrite(skb, mac_len, to_port) ? bpf_redirect(skb->ifindex, BPF_F_INGRESS) : TC_ACT_SHOT;
}

/* Turns an outgoing packet without payload into a RST that answers its sender. */
static __always_inline int smc_reset_sender(struct __sk_buff *skb, const struct smc_packet *packet, __be32 seq,
					    __be32 ack, __u8 flags)
{
	smc_swap_addresses(skb, packet->mac_len, packet->v6);
	if (!smc_set_tcp(skb, packet, seq, ack, flags, true))
		return TC_ACT_SHOT;
	smc_to_own_mac(skb, packet->mac_len);
	return bpf_redirect(skb->ifindex, BPF_F_INGRESS);
}

/*
 * The same for a packet whose payload was cut. Its checksum may have been complete (NFQUEUE does that), with the
 * payload in it. So it is made anew. If the kernel has not completed it yet, the helper leaves it as it is, which is
 * right then.
 */
static __always_inline int smc_reset_sender_of_payload(struct __sk_buff *skb, const struct smc_packet *packet)
{
	int verdict = smc_reset_sender(skb, packet, packet->ack, 0, SMC_TCP_RST);
	__u32 bytes = packet->tcp_len, sum;
	struct {
		__be32 addresses[8];
		__u8 tcp[60]; /* zeros behind its end */
	} summed = {};
	__be16 checksum, before;

	if (bytes < sizeof(struct tcphdr) || bytes > sizeof(summed.tcp) ||
	    bpf_skb_load_bytes(skb, packet->tcp_at, summed.tcp, bytes))
		return TC_ACT_SHOT;
	if (packet->v6)
		bpf_skb_load_bytes(skb, packet->mac_len + offsetof(struct ipv6hdr, saddr), summed.addresses, 32);
	else
		bpf_skb_load_bytes(skb, packet->mac_len + offsetof(struct iphdr, saddr), summed.addresses, 8);
	__builtin_memcpy(&before, summed.tcp + SMC_TCP_CHECKSUM, sizeof(before));
	summed.tcp[SMC_TCP_CHECKSUM] = summed.tcp[SMC_TCP_CHECKSUM + 1] = 0;
	sum = bpf_csum_diff(0, 0, (__be32 *)&summed, sizeof(summed), bpf_htonl(IPPROTO_TCP + bytes));
	sum = (sum & 0xffff) + (sum >> 16);
	checksum = ~((sum & 0xffff) + (sum >> 16));
	bpf_l4_csum_replace(skb, packet->tcp_at + SMC_TCP_CHECKSUM, (__be16)~before, (__be16)~checksum, 2);
	return verdict;
}

/* Answers a leg's SYN that must not reach the application. */
static __always_inline int smc_refuse_leg(struct __sk_buff *skb, const struct smc_packet *packet)
{
	return smc_reset_sender(skb, packet, 0, bpf_htonl(bpf_ntohl(packet->seq) + 1), SMC_TCP_RST | SMC_TCP_ACK);
}

/* Whether this FIN is the next segment that the leg expects, and acknowledges the leg's own FIN. */
static __always_inline bool smc_leg_is_done(struct __sk_buff *skb, const struct smc_packet *packet, __u16 to_port)
{
	struct smc_tuple leg = packet->tuple;
	struct bpf_tcp_sock *tcp;
	struct bpf_sock *skc, *sk;
	bool done = false;

	leg.local_port = to_port;
	skc = smc_socket_of(skb, &leg, packet->v6);
	if (!skc)
		return false;
	sk = bpf_sk_fullsock(skc);
	if (sk && (sk->state == BPF_TCP_FIN_WAIT1 || sk->state == BPF_TCP_FIN_WAIT2)) {
		tcp = bpf_tcp_sock(sk);
		done = tcp && tcp->rcv_nxt == bpf_ntohl(packet->seq) && tcp->snd_nxt == bpf_ntohl(packet->ack);
	}
	bpf_sk_release(skc);
	return done;
}

/*
 * Redirects the FIN of an application that closes after its peer, and then a RST. The leg has closed first and would
 * stay in TIME_WAIT for a minute, but with plain TCP only the peer has a TIME_WAIT. The RST is safe, because no packet
 * of this connection has left the host: none can arrive late.
 */
static __always_inline int smc_redirect_last(struct __sk_buff *skb, const struct smc_packet *packet,
					     const struct smc_sock *app)
{
	__be32 seq = bpf_htonl(bpf_ntohl(packet->seq) + 1);

	if (packet->payload || !(packet->flags & SMC_TCP_FIN) || !smc_leg_is_done(skb, packet, app->to_port))
		return smc_redirect(skb, app->mac_len, app->to_port);
	if (!smc_rewrite(skb, app->mac_len, app->to_port))
		return TC_ACT_SHOT;
	if (bpf_clone_redirect(skb, skb->ifindex, BPF_F_INGRESS) ||
	    !smc_set_tcp(skb, packet, seq, packet->ack, SMC_TCP_RST, false))
		return TC_ACT_SHOT;
	return bpf_redirect(skb->ifindex, BPF_F_INGRESS);
}

/*
 * Redirects a packet of an application that has received a FIN from its leg. When the SMC connection is over, the agent
 * closes the leg, which the kernel keeps in FIN-WAIT-2 for tcp_fin_timeout only. The sweep deletes the hairpin when the
 * leg's socket has been gone for SMC_HAIRPIN_NS; until then the hairpin carries the kernel's RST. After that nothing
 * would answer data or a FIN, and the application would retransmit for a quarter of an hour, so this program sends a
 * RST. A bare ACK leaves for the peer's host, as with TCP. If it is a keepalive probe or a challenge ACK, that host
 * resets the connection. (Packets with IPv6 extension headers, which smc_parse() refuses, are redirected without this
 * check.)
 */
static __always_inline int smc_redirect_behind_fin(struct __sk_buff *skb, __u32 slot, const struct smc_sock *app,
						   bool last)
{
	struct smc_packet packet = {};
	struct smc_hairpin *hairpin;

	if (!smc_parse(skb, slot, app->mac_len, true, &packet))
		return smc_redirect(skb, app->mac_len, app->to_port);
	hairpin = bpf_map_lookup_elem(&smc_hairpins, &packet.tuple);
	if ((!hairpin || hairpin->to_port != app->to_port) && !(packet.flags & SMC_TCP_RST)) {
		if (smc_is_bare_ack(&packet))
			return TC_ACT_UNSPEC;
		smc_count(SMC_LEG_GONE);
		return smc_cut_payload(skb, &packet) ? smc_reset_sender_of_payload(skb, &packet) : TC_ACT_SHOT;
	}
	return last ? smc_redirect_last(skb, &packet, app) : smc_redirect(skb, app->mac_len, app->to_port);
}

/*
 * Keeps an outgoing packet on this node. A drop at this hook would look like congestion to TCP. So the packet becomes a
 * packet of the agent's own, much like a probe, and is redirected: TCP takes it for sent, and smc_ingress drops it.
 */
static __always_inline int smc_suppress(struct __sk_buff *skb, const struct smc_packet *packet,
					const struct smc_device *device)
{
	struct smc_tcp_head tcp = {
		.source = bpf_htons(SMC_PROBE_PORT),
		.dest = bpf_htons(SMC_PROBE_PORT),
		.seq = bpf_htonl(device->probe + 1), /* so that it does not count as a probe that came back */
		.offset = packet->tcp_len << 2,
	};

	bpf_skb_store_bytes(skb, packet->tcp_at, &tcp, sizeof(tcp), 0);
	return bpf_redirect(skb->ifindex, BPF_F_INGRESS);
}

/* Copies the packet. False: it is too long. */
static __always_inline bool smc_save(struct __sk_buff *skb, struct smc_request *to)
{
	/*
	 * The offset of the last byte, not the length: the verifier of Linux 6.1 does not learn from a test of len == 0
	 * that len is 1 or more. The test must be on this very register; barrier_var() keeps clang from folding it into
	 * an earlier one.
	 */
	__u64 last = skb->len - 1;

	barrier_var(last);
	if (last >= SMC_PACKET_BYTES || bpf_skb_load_bytes(skb, 0, to->packet, last + 1))
		return false;
	to->packet_len = last + 1;
	return true;
}

/*
 * Fills in an entry of smc_requests for a server's leg; the caller inserts it. A leg has one from its SYN on, because
 * smc_free_tuple() must know the half-open connection that the leg makes at the listener.
 */
static __always_inline struct smc_request *smc_begin_leg(struct __sk_buff *skb, const struct smc_packet *packet)
{
	__u32 zero = 0;
	struct smc_request *leg = bpf_map_lookup_elem(&smc_scratch, &zero);

	if (!leg)
		return 0;
	__builtin_memset(leg, 0, sizeof(*leg));
	leg->state = SMC_REQUEST_LEG;
	leg->ifindex = skb->ifindex;
	leg->since_ns = bpf_ktime_get_ns();
	leg->mac_len = packet->mac_len;
	leg->isn = packet->seq;
	return leg;
}

/*
 * Holds back a server's leg whose application must not see it yet. A listener answers the SYN, but the application can
 * accept only after the ACK of that SYN-ACK. So the ACK is saved here until the agent sends it.
 */
static __always_inline int smc_hold(struct __sk_buff *skb, const struct smc_packet *packet,
				    const struct smc_device *device, const struct smc_sock *leg)
{
	struct smc_hairpin *hairpin = bpf_map_lookup_elem(&smc_hairpins, &leg->app);
	struct smc_request *held;

	/* smc_free_tuple() has deleted the hairpin: the tuple belongs to the client's own connection now. */
	if (!hairpin || hairpin->isn != leg->isn) {
		if (packet->flags & SMC_TCP_RST)
			return TC_ACT_SHOT;
		return packet->flags & SMC_TCP_SYN ? smc_refuse_leg(skb, packet) : smc_suppress(skb, packet, device);
	}
	if (packet->flags & (SMC_TCP_SYN | SMC_TCP_RST))
		return smc_redirect(skb, packet->mac_len, leg->to_port);
	held = smc_begin_leg(skb, packet);
	if (!held)
		return smc_redirect(skb, packet->mac_len, leg->to_port);
	held->isn = leg->isn;
	if (!smc_save(skb, held) || bpf_map_update_elem(&smc_requests, &leg->app, held, BPF_ANY))
		return smc_redirect(skb, packet->mac_len, leg->to_port);
	return smc_suppress(skb, packet, device);
}

#endif
