/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A member of the bypass may be closed before its application has read everything. With TCP the kernel would send a
 * RST, but it does not count bytes that came past TCP as unread, and sends a FIN. Here the FIN becomes a RST.
 */
#ifndef SMC_UNREAD_H
#define SMC_UNREAD_H

/*
 * Whether this FIN is sent by close(), with bytes past TCP unread. close() takes a socket out of smc_members;
 * shutdown() does not, nor does the agent while there are unread bytes.
 */
static __always_inline bool smc_closes_unread(struct bpf_sock *sk)
{
	const __u64 *paired = bpf_sk_storage_get(&smc_paired, sk, 0, 0);
	const struct smc_member *member, *peer;
	__u64 cookie = paired ? *paired : 0;
	struct bpf_sock *still;

	member = cookie ? bpf_map_lookup_elem(&smc_bypass, &cookie) : 0;
	if (!member || (member->state != SMC_MEMBER_MEMBER && member->state != SMC_MEMBER_LEAVING))
		return false;
	peer = bpf_map_lookup_elem(&smc_bypass, &member->peer);
	if (!peer || peer->peer != cookie || peer->failed || !peer->redirected ||
	    (__s64)(member->consumed - peer->last) >= 0)
		return false;
	still = bpf_map_lookup_elem(&smc_members, &cookie);
	if (still)
		bpf_sk_release(still);
	return !still;
}

static __always_inline void smc_make_fin_rst(struct __sk_buff *skb, const struct smc_packet *packet)
{
	__u32 flags_at = packet->tcp_at + 12; /* after the data offset */
	__be16 before, after;

	if (bpf_skb_load_bytes(skb, flags_at, &before, 2))
		return;
	after = (before & ~bpf_htons(SMC_TCP_FIN)) | bpf_htons(SMC_TCP_RST);
	bpf_l4_csum_replace(skb, packet->tcp_at + SMC_TCP_CHECKSUM, before, after, 2);
	bpf_skb_store_bytes(skb, flags_at, &after, 2, 0);
}

#endif
