/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Pairs that may be bypassed (bypass_abi.h): both ends are established, through every filter on the path, and the
 * policies of both allow it. Their bytes are counted from the first one on. The programs of the bypass do the rest.
 */
#ifndef SMC_MEMBERS_H
#define SMC_MEMBERS_H

/* Adds a socket to smc_bypass. It is in no pair until another entry has its cookie as peer. False: it was not added. */
static __always_inline bool smc_watch(struct bpf_sock_ops *ctx, struct tcp_sock *tcp, __u64 peer, bool client)
{
	struct sock *sk = (struct sock *)tcp;
	__u64 cookie = bpf_get_socket_cookie(ctx), *marked;
	struct smc_member member = {.peer = peer, .client = client};
	__u32 zero = 0, *generation = bpf_map_lookup_elem(&smc_bypass_generation, &zero);
	const struct smc_cgroup *cgroup;

	if (!ctx->sk || !generation)
		return false;
	marked = bpf_sk_storage_get(&smc_paired, ctx->sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!marked)
		return false;
	*marked = cookie;
	member.generation = *generation;
	member.first_seq = ctx->snd_una;
	member.sk = (__u64)(unsigned long)tcp;
	member.cgroup = sk->sk_cgrp_data.cgroup->kn->id;
	cgroup = bpf_map_lookup_elem(&smc_cgroups, &member.cgroup);
	member.rules = cgroup ? cgroup->rules : 0;
	member.netns = bpf_get_netns_cookie(ctx);
	member.inode = sk->__sk_common.skc_net.net->ns.inum;
	smc_address_of(ctx, true, member.app.remote_ip);
	smc_address_of(ctx, false, member.app.local_ip);
	member.app.remote_port = bpf_ntohl(ctx->remote_port);
	member.app.local_port = ctx->local_port;
	return !bpf_map_update_elem(&smc_bypass, &cookie, &member, BPF_ANY);
}

/*
 * The client is established first. The server, if it is established too, finds the client's cookie in `pair`, which is
 * then deleted.
 */
static __always_inline void smc_pair_up(struct bpf_sock_ops *ctx, struct tcp_sock *tcp, struct smc_pair *pair,
					bool client, bool may)
{
	__be32 isn = bpf_htonl(ctx->rcv_nxt - 1);
	struct smc_member *peer;
	__u64 cookie;

	if (client) {
		if (may && smc_watch(ctx, tcp, 0, true))
			pair->bypass = bpf_get_socket_cookie(ctx);
		return;
	}
	cookie = pair->bypass;
	peer = cookie ? bpf_map_lookup_elem(&smc_bypass, &cookie) : 0;
	if (peer && may && smc_watch(ctx, tcp, cookie, false)) {
		peer->peer = bpf_get_socket_cookie(ctx);
		smc_count(SMC_BYPASS_WATCHED);
	} else if (peer) {
		bpf_map_delete_elem(&smc_bypass, &cookie);
	}
	bpf_map_delete_elem(&smc_pairs, &isn);
}

#endif
