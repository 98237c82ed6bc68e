/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* A TCP packet at tc, and how it is parsed. Offsets count from its first byte, link header included. */
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

/* An ACK that carries nothing. */
static __always_inline bool smc_is_bare_ack(const struct smc_packet *packet)
{
	return !packet->payload &&
	       (packet->flags & (SMC_TCP_SYN | SMC_TCP_FIN | SMC_TCP_RST | SMC_TCP_ACK)) == SMC_TCP_ACK;
}

#endif
