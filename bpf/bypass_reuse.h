/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A socket that was disconnected, and connects or listens again, leaves the bypass: otherwise it would read what was
 * queued for its earlier connection. This program runs as long as there are members, with an agent or without.
 */
#ifndef SMC_BYPASS_REUSE_H
#define SMC_BYPASS_REUSE_H

SEC("sockops")
int smc_bypass_reused(struct bpf_sock_ops *ctx)
{
	struct bpf_sock *sk = ctx->sk;
	const struct smc_member *member;
	const __u64 *paired;
	__u64 cookie;

	if ((ctx->op != BPF_SOCK_OPS_TCP_LISTEN_CB && ctx->op != BPF_SOCK_OPS_TCP_CONNECT_CB) || !sk)
		return 1;
	paired = bpf_sk_storage_get(&smc_paired, sk, 0, 0);
	cookie = paired ? *paired : 0;
	if (!cookie)
		return 1;
	bpf_map_delete_elem(&smc_members, &cookie);
	member = bpf_map_lookup_elem(&smc_bypass, &cookie);
	if (member)
		smc_forget_member(member, cookie);
	bpf_sk_storage_delete(&smc_paired, sk);
	return 1;
}

#endif
