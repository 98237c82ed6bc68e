/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* How a TCP packet at tc is changed: options, length, header, and a SYN-ACK that becomes a RST. */
#ifndef SMC_CHANGE_H
#define SMC_CHANGE_H

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

#endif
