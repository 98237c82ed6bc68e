/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* A TCP packet at tc: how it is parsed and changed. Offsets count from its first byte, link header included. */
#ifndef SMC_PACKET_H
#define SMC_PACKET_H

#define TCPOPT_END 0
#define TCPOPT_NOP 1
#define TCPOPT_SIGNATURE 19 /* TCP-MD5 */
#define TCPOPT_AO 29
#define TCPOPT_MPTCP 30
#define TCPOPT_FAST_OPEN 34

#define SMC_TCP_CHECKSUM 16 /* in the TCP header */
#define SMC_IP4_CHECKSUM 10 /* in the IPv4 header */

struct smc_packet {
	struct smc_tuple tuple; /* as this end of the connection sees it */
	__u32 mac_len;
	__u32 tcp_at;
	__u32 tcp_len; /* length of the TCP header */
	__u32 payload;
	__be32 seq, ack;
	__u8 flags;
	__u8 ttl, tos;
	bool v6;
	bool ip_options;
	bool encrypts; /* its device may encrypt packets (struct smc_device); not set by smc_parse() */
};

/* TCP options that matter here. */
struct smc_tcp_options {
	bool smc, mptcp, signed_segments, fast_open;
	bool own; /* our own option is present, with these values: */
	__u32 own_tag;
	__u16 own_port;
	__u16 own_detail; /* the socket's ID for smc_pairs.h, or SMC_OWN_ANNOUNCES */
};

struct smc_own_option {
	__u8 kind;
	__u8 len;
	__be32 exid;
	__be32 tag;
	__be16 detail;
	__be16 port;
} __attribute__((packed));

struct smc_tcpopt {
	__u8 kind;
	__u8 len;
	__be32 exid;
} __attribute__((packed));

/* The beginning of a TCP header. */
struct smc_tcp_head {
	__be16 source, dest;
	__be32 seq, ack;
	__u8 offset, flags;
} __attribute__((packed));

static __always_inline void smc_map_v6(__u8 *ip, const struct in6_addr *address)
{
	__builtin_memcpy(ip, address, 16);
}

#define SMC_MOST_HEADERS 4 /* IPv6 extension headers that are followed */

/*
 * The offset of the TCP header of an IPv6 packet with extension headers: hop-by-hop options, a routing header,
 * destination options. An application may add these after it has connected, and BIG TCP adds them. 0: no TCP header.
 */
static __always_inline __u32 smc_tcp_behind(struct __sk_buff *skb, __u32 mac_len)
{
	__u32 at = mac_len + sizeof(struct ipv6hdr);
	struct {
		__u8 next, len;
	} header;

	if (bpf_skb_load_bytes(skb, mac_len + offsetof(struct ipv6hdr, nexthdr), &header.next, 1))
		return 0;
	for (int i = 0; i < SMC_MOST_HEADERS && header.next != IPPROTO_TCP; i++) {
		if (header.next != IPPROTO_HOPOPTS && header.next != IPPROTO_ROUTING && header.next != IPPROTO_DSTOPTS)
			return 0;
		if (bpf_skb_load_bytes(skb, at, &header, sizeof(header)))
			return 0;
		at += (header.len + 1) * 8;
	}
	return header.next == IPPROTO_TCP ? at : 0;
}

/* False: no TCP packet, a fragment, IPv6 with extension headers, or broken headers. */
static __always_inline bool smc_parse(struct __sk_buff *skb, __u32 slot, __u32 mac_len, bool outgoing,
				      struct smc_packet *packet)
{
	__u8 *source = outgoing ? packet->tuple.local_ip : packet->tuple.remote_ip;
	__u8 *destination = outgoing ? packet->tuple.remote_ip : packet->tuple.local_ip;
	struct tcphdr tcp;
	__u32 ip_len, total, end = skb->len;

	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		struct iphdr ip;

		if (bpf_skb_load_bytes(skb, mac_len, &ip, sizeof(ip)) || ip.version != 4 ||
		    ip.protocol != IPPROTO_TCP || (ip.frag_off & bpf_htons(0x3fff)))
			return false;
		smc_map_v4(source, ip.saddr);
		smc_map_v4(destination, ip.daddr);
		ip_len = ip.ihl * 4;
		total = bpf_ntohs(ip.tot_len);
		packet->ip_options = ip.ihl != 5;
		packet->ttl = ip.ttl;
		packet->tos = ip.tos;
		packet->v6 = false;
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr ip;

		if (bpf_skb_load_bytes(skb, mac_len, &ip, sizeof(ip)) || ip.version != 6 || ip.nexthdr != IPPROTO_TCP)
			return false;
		smc_map_v6(source, &ip.saddr);
		smc_map_v6(destination, &ip.daddr);
		ip_len = sizeof(ip);
		total = ip.payload_len ? sizeof(ip) + bpf_ntohs(ip.payload_len) : 0;
		packet->ip_options = false;
		packet->ttl = ip.hop_limit;
		packet->tos = ip.priority << 4 | ip.flow_lbl[0] >> 4;
		packet->v6 = true;
	} else {
		return false;
	}
	packet->mac_len = mac_len;
	packet->tcp_at = mac_len + ip_len;
	if (bpf_skb_load_bytes(skb, packet->tcp_at, &tcp, sizeof(tcp)))
		return false;
	packet->tcp_len = tcp.doff * 4;
	/* a short frame arrives with padding; BIG TCP has no length */
	if (!outgoing && total && mac_len + total < end)
		end = mac_len + total;
	if (packet->tcp_len < sizeof(tcp) || packet->tcp_at + packet->tcp_len > end)
		return false;
	packet->payload = end - packet->tcp_at - packet->tcp_len;
	packet->tuple.local_port = bpf_ntohs(outgoing ? tcp.source : tcp.dest);
	packet->tuple.remote_port = bpf_ntohs(outgoing ? tcp.dest : tcp.source);
	packet->tuple.slot = slot;
	packet->seq = tcp.seq;
	packet->ack = tcp.ack_seq;
	packet->flags = ((const __u8 *)&tcp)[13];
	return true;
}

struct smc_option_walk {
	struct __sk_buff *skb;
	__u32 offset, end;
	struct smc_tcp_options found;
};

/* Callback of bpf_loop(). Returns 1 to stop: there are no more options. */
static long smc_parse_option(__u32 index, struct smc_option_walk *walk)
{
	struct __sk_buff *skb = walk->skb;
	__u32 offset = walk->offset;
	struct smc_own_option own = {};
	struct {
		__u8 kind;
		__u8 len;
	} head = {};

	if (offset >= walk->end || bpf_skb_load_bytes(skb, offset, &head.kind, 1) || head.kind == TCPOPT_END)
		return 1;
	if (head.kind == TCPOPT_NOP) {
		walk->offset = offset + 1;
		return 0;
	}
	if (bpf_skb_load_bytes(skb, offset + 1, &head.len, 1) || head.len < 2 || offset + head.len > walk->end)
		return 1;
	walk->offset = offset + head.len;
	if (head.kind == TCPOPT_MPTCP)
		walk->found.mptcp = true;
	if (head.kind == TCPOPT_FAST_OPEN)
		walk->found.fast_open = true;
	if (head.kind == TCPOPT_SIGNATURE || head.kind == TCPOPT_AO)
		walk->found.signed_segments = true;
	if (head.kind != SMC_TCPOPT_KIND)
		return 0;
	if (head.len == SMC_TCPOPT_LEN && !bpf_skb_load_bytes(skb, offset, &own, SMC_TCPOPT_LEN) &&
	    own.exid == bpf_htonl(SMC_TCPOPT_EXID))
		walk->found.smc = true;
	if (head.len == SMC_OWN_LEN && !bpf_skb_load_bytes(skb, offset, &own, SMC_OWN_LEN) &&
	    own.exid == bpf_htonl(SMC_OWN_EXID)) {
		walk->found.own = true;
		walk->found.own_tag = bpf_ntohl(own.tag);
		walk->found.own_port = bpf_ntohs(own.port);
		walk->found.own_detail = bpf_ntohs(own.detail);
	}
	return 0;
}

/*
 * Whether a SYN has exactly the options of most SYNs, those of Linux: MSS, SACK permitted, time stamps, window scale.
 */
static __always_inline bool smc_has_usual_options(struct __sk_buff *skb, const struct smc_packet *packet)
{
	__be32 words[5];

	return packet->tcp_len == sizeof(struct tcphdr) + sizeof(words) &&
	       !bpf_skb_load_bytes(skb, packet->tcp_at + sizeof(struct tcphdr), words, sizeof(words)) &&
	       (words[0] & bpf_htonl(0xffff0000)) == bpf_htonl(0x02040000) && words[1] == bpf_htonl(0x0402080a) &&
	       (words[4] & bpf_htonl(0xffffff00)) == bpf_htonl(0x01030300);
}

static __always_inline void smc_parse_options(struct __sk_buff *skb, const struct smc_packet *packet,
					      struct smc_tcp_options *options)
{
	struct smc_option_walk walk = {
		.skb = skb,
		.offset = packet->tcp_at + sizeof(struct tcphdr),
		.end = packet->tcp_at + packet->tcp_len,
	};

	if (smc_has_usual_options(skb, packet))
		return;
	bpf_loop(40, smc_parse_option, &walk, 0);
	*options = walk.found;
}

static __always_inline void smc_swap_addresses(struct __sk_buff *skb, __u32 mac_len, bool v6)
{
	/* a sum does not depend on the order of its terms: no checksum changes */
	if (v6) {
		struct in6_addr address[2], swapped[2];

		bpf_skb_load_bytes(skb, mac_len + 8, address, sizeof(address));
		swapped[0] = address[1];
		swapped[1] = address[0];
		bpf_skb_store_bytes(skb, mac_len + 8, swapped, sizeof(swapped), 0);
	} else {
		__be32 address[2], swapped[2];

		bpf_skb_load_bytes(skb, mac_len + 12, address, sizeof(address));
		swapped[0] = address[1];
		swapped[1] = address[0];
		bpf_skb_store_bytes(skb, mac_len + 12, swapped, sizeof(swapped), 0);
	}
}

/* Appends option 254 (or NOPs, if it does not ask) and our own option to an outgoing SYN without data. */
static __always_inline bool smc_add_options(struct __sk_buff *skb, const struct smc_packet *packet, bool asks,
					    __u32 tag, __u16 pair)
{
	struct {
		struct smc_tcpopt smc;
		struct smc_own_option own;
	} __attribute__((packed)) options = {
		.smc = {SMC_TCPOPT_KIND, SMC_TCPOPT_LEN, bpf_htonl(SMC_TCPOPT_EXID)},
		.own = {SMC_TCPOPT_KIND, SMC_OWN_LEN, bpf_htonl(SMC_OWN_EXID), bpf_htonl(tag), bpf_htons(pair), 0},
	};
	__u32 checksum_at = packet->tcp_at + SMC_TCP_CHECKSUM;
	__u32 words[sizeof(options) / 4];
	__be16 before, after;
	__u16 bytes;
	__s64 sum;

	_Static_assert(sizeof(options) == 20, "whole words");
	if (!asks)
		__builtin_memset(&options.smc, TCPOPT_NOP, sizeof(options.smc));
	__builtin_memcpy(words, &options, sizeof(words));
	if (bpf_skb_change_tail(skb, skb->len + sizeof(options), 0))
		return false;
	bpf_skb_store_bytes(skb, packet->tcp_at + packet->tcp_len, words, sizeof(words), 0);
	sum = bpf_csum_diff(0, 0, words, sizeof(words), 0);
	bpf_l4_csum_replace(skb, checksum_at, 0, sum, 0);

	bpf_skb_load_bytes(skb, packet->tcp_at + 12, &before, 2); /* data offset and flags */
	after = bpf_htons(bpf_ntohs(before) + (sizeof(options) / 4 << 12));
	bpf_skb_store_bytes(skb, packet->tcp_at + 12, &after, 2, 0);
	bpf_l4_csum_replace(skb, checksum_at, before, after, 2);

	bytes = packet->tcp_len; /* in the pseudo header */
	bpf_l4_csum_replace(skb, checksum_at, bpf_htons(bytes), bpf_htons(bytes + sizeof(options)),
			    BPF_F_PSEUDO_HDR | 2);
	if (packet->v6) {
		bpf_skb_load_bytes(skb, packet->mac_len + 4, &before, 2);
		after = bpf_htons(bpf_ntohs(before) + sizeof(options));
		bpf_skb_store_bytes(skb, packet->mac_len + 4, &after, 2, 0);
	} else {
		bpf_skb_load_bytes(skb, packet->mac_len + 2, &before, 2);
		after = bpf_htons(bpf_ntohs(before) + sizeof(options));
		bpf_skb_store_bytes(skb, packet->mac_len + 2, &after, 2, 0);
		bpf_l3_csum_replace(skb, packet->mac_len + SMC_IP4_CHECKSUM, before, after, 2);
	}
	return true;
}

/* Makes the packet end after this many bytes of TCP. False: it cannot be changed. */
static __always_inline bool smc_shorten(struct __sk_buff *skb, const struct smc_packet *packet, __u32 tcp_bytes)
{
	__u32 length_at = packet->mac_len + (packet->v6 ? 4 : 2);
	__be16 before = bpf_htons(packet->tcp_len + packet->payload), after = bpf_htons(tcp_bytes);

	bpf_l4_csum_replace(skb, packet->tcp_at + SMC_TCP_CHECKSUM, before, after, BPF_F_PSEUDO_HDR | 2);
	bpf_skb_load_bytes(skb, length_at, &before, 2);
	if (!packet->v6) {
		after = bpf_htons(packet->tcp_at - packet->mac_len + tcp_bytes);
		bpf_l3_csum_replace(skb, packet->mac_len + SMC_IP4_CHECKSUM, before, after, 2);
	}
	bpf_skb_store_bytes(skb, length_at, &after, 2, 0);
	return !bpf_skb_change_tail(skb, packet->tcp_at + tcp_bytes, 0);
}

/* Removes the payload of an outgoing packet. Its checksum is wrong afterwards, if it was complete. False: it cannot. */
static __always_inline bool smc_cut_payload(struct __sk_buff *skb, const struct smc_packet *packet)
{
	return !packet->payload || smc_shorten(skb, packet, packet->tcp_len);
}

/* Removes all TCP options. False: the packet carries data, or cannot be changed. */
static __always_inline bool smc_cut_options(struct __sk_buff *skb, const struct smc_packet *packet)
{
	__u32 checksum_at = packet->tcp_at + SMC_TCP_CHECKSUM;
	__u64 last = packet->tcp_len - sizeof(struct tcphdr) - 1;
	__u16 cut = packet->tcp_len - sizeof(struct tcphdr) + packet->payload;
	__be32 options[10] = {};
	__be16 before, after;

	if (!cut)
		return true;
	if (packet->payload)
		return false;
	barrier_var(last);
	if (last >= sizeof(options) ||
	    bpf_skb_load_bytes(skb, packet->tcp_at + sizeof(struct tcphdr), options, last + 1))
		return false;
	bpf_l4_csum_replace(skb, checksum_at, 0, bpf_csum_diff(options, sizeof(options), 0, 0, 0), 0);
	bpf_skb_load_bytes(skb, packet->tcp_at + 12, &before, 2); /* data offset and flags */
	after = bpf_htons(bpf_ntohs(before) - (cut / 4 << 12));
	bpf_skb_store_bytes(skb, packet->tcp_at + 12, &after, 2, 0);
	bpf_l4_csum_replace(skb, checksum_at, before, after, 2);
	return smc_shorten(skb, packet, sizeof(struct tcphdr));
}

/* Changes the TCP header, and its checksum. `answers`: the ports, too, as in a packet that goes back. */
static __always_inline bool smc_set_tcp(struct __sk_buff *skb, const struct smc_packet *packet, __be32 seq, __be32 ack,
					__u8 flags, bool answers)
{
	__u32 checksum_at = packet->tcp_at + SMC_TCP_CHECKSUM;
	struct smc_tcp_head tcp;
	__be16 port;

	if (bpf_skb_load_bytes(skb, packet->tcp_at, &tcp, sizeof(tcp)))
		return false;
	bpf_l4_csum_replace(skb, checksum_at, tcp.seq, seq, 4);
	bpf_l4_csum_replace(skb, checksum_at, tcp.ack, ack, 4);
	bpf_l4_csum_replace(skb, checksum_at, bpf_htons(tcp.offset << 8 | tcp.flags),
			    bpf_htons(tcp.offset << 8 | flags), 2);
	if (answers) {
		port = tcp.source;
		tcp.source = tcp.dest;
		tcp.dest = port;
	}
	tcp.seq = seq;
	tcp.ack = ack;
	tcp.flags = flags;
	return !bpf_skb_store_bytes(skb, packet->tcp_at, &tcp, sizeof(tcp), 0);
}

/*
 * Sends an incoming SYN-ACK back where it came from, as the RST that ends the half-open connection. It has no options,
 * because its time stamps would be the server's own, which Linux does not accept in an answer.
 */
static __always_inline int smc_make_rst(struct __sk_buff *skb, const struct smc_packet *packet)
{
	__be16 before, after;

	if (!smc_cut_options(skb, packet))
		return TC_ACT_SHOT;
	if (packet->mac_len) {
		__u8 mac[12], swapped[12];

		bpf_skb_load_bytes(skb, 0, mac, sizeof(mac));
		__builtin_memcpy(swapped, mac + 6, 6);
		__builtin_memcpy(swapped + 6, mac, 6);
		bpf_skb_store_bytes(skb, 0, swapped, sizeof(swapped), 0);
	}
	if (!packet->v6) {
		/* the packet starts at this host now, so its time to live starts anew */
		before = bpf_htons(packet->ttl << 8 | IPPROTO_TCP);
		after = bpf_htons(64 << 8 | IPPROTO_TCP);
		bpf_l3_csum_replace(skb, packet->mac_len + SMC_IP4_CHECKSUM, before, after, 2);
		bpf_skb_store_bytes(skb, packet->mac_len + 8, &after, 2, 0);
	} else {
		__u8 hops = 64;

		bpf_skb_store_bytes(skb, packet->mac_len + 7, &hops, 1, 0);
	}
	smc_swap_addresses(skb, packet->mac_len, packet->v6);
	if (!smc_set_tcp(skb, packet, packet->ack, 0, SMC_TCP_RST, true))
		return TC_ACT_SHOT;
	return bpf_redirect(skb->ifindex, 0);
}

/* An ACK that carries nothing. */
static __always_inline bool smc_is_bare_ack(const struct smc_packet *packet)
{
	return !packet->payload &&
	       (packet->flags & (SMC_TCP_SYN | SMC_TCP_FIN | SMC_TCP_RST | SMC_TCP_ACK)) == SMC_TCP_ACK;
}

#endif
