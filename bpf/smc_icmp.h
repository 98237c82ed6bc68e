/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Client side: a firewall's ICMP error in answer to a request of smc_ask.h. */
#ifndef SMC_ICMP_H
#define SMC_ICMP_H

#define SMC_ICMP_UNREACHABLE 3
#define SMC_ICMP6_UNREACHABLE 1

struct smc_icmp_head {
	__u8 type, code;
	__u16 checksum;
	__u32 unused;
};

/* The part of a TCP packet that each ICMP error quotes. */
struct smc_quoted_tcp {
	__be16 source, dest;
	__be32 seq;
};

/*
 * Whether a firewall may have sent this error: a protocol or port that is unreachable, or packets that are prohibited.
 * Routers send the other codes, with which a packet without options would not fare better.
 */
static __always_inline bool smc_is_refusal(const struct smc_icmp_head *icmp, bool v6)
{
	if (v6)
		return icmp->type == SMC_ICMP6_UNREACHABLE && icmp->code < 8 && (1 << icmp->code & 0x72);
	return icmp->type == SMC_ICMP_UNREACHABLE && icmp->code < 16 && (1 << icmp->code & 0x260c);
}

static __always_inline bool smc_is_icmp(struct __sk_buff *skb, __u32 mac_len)
{
	bool v6 = skb->protocol == bpf_htons(ETH_P_IPV6);
	__u8 protocol;

	return (v6 || skb->protocol == bpf_htons(ETH_P_IP)) &&
	       !bpf_skb_load_bytes(
		       skb, mac_len + (v6 ? offsetof(struct ipv6hdr, nexthdr) : offsetof(struct iphdr, protocol)),
		       &protocol, 1) &&
	       protocol == (v6 ? SMC_IPPROTO_ICMP6 : IPPROTO_ICMP);
}

/* A refusal of a SYN that this host has sent. `packet` gets the tuple, `v6`, and the `ack` of an answer to that SYN. */
static __always_inline bool smc_parse_refusal(struct __sk_buff *skb, __u32 slot, __u32 mac_len,
					      struct smc_packet *packet)
{
	struct smc_icmp_head icmp;
	struct smc_quoted_tcp tcp;
	__u32 at = mac_len;

	packet->v6 = skb->protocol == bpf_htons(ETH_P_IPV6);
	packet->tuple.slot = slot;
	if (packet->v6) {
		struct ipv6hdr ip;

		at += sizeof(ip);
		if (bpf_skb_load_bytes(skb, at, &icmp, sizeof(icmp)) || !smc_is_refusal(&icmp, true) ||
		    bpf_skb_load_bytes(skb, at + sizeof(icmp), &ip, sizeof(ip)) || ip.nexthdr != IPPROTO_TCP)
			return false;
		at += sizeof(icmp) + sizeof(ip);
		smc_map_v6(packet->tuple.local_ip, &ip.saddr);
		smc_map_v6(packet->tuple.remote_ip, &ip.daddr);
	} else {
		struct iphdr ip;

		if (bpf_skb_load_bytes(skb, at, &ip, sizeof(ip)) || (ip.frag_off & bpf_htons(0x1fff)))
			return false;
		at += ip.ihl * 4;
		if (bpf_skb_load_bytes(skb, at, &icmp, sizeof(icmp)) || !smc_is_refusal(&icmp, false) ||
		    bpf_skb_load_bytes(skb, at + sizeof(icmp), &ip, sizeof(ip)) || ip.protocol != IPPROTO_TCP)
			return false;
		at += sizeof(icmp) + ip.ihl * 4;
		smc_map_v4(packet->tuple.local_ip, ip.saddr);
		smc_map_v4(packet->tuple.remote_ip, ip.daddr);
	}
	if (bpf_skb_load_bytes(skb, at, &tcp, sizeof(tcp)))
		return false;
	packet->tuple.local_port = bpf_ntohs(tcp.source);
	packet->tuple.remote_port = bpf_ntohs(tcp.dest);
	packet->ack = bpf_htonl(bpf_ntohl(tcp.seq) + 1);
	return true;
}

#endif
