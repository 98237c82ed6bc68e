/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Tuning of TCP connections whose two ends are on this node. They cross no network, so they need not be paced (bbr
 * would). A congestion control that an application chose for its socket stays.
 *
 * Over lo the socket's route and the device of the first packet show that the other end is here; the route alone does
 * not, because its address may be translated to another host's. Between two namespaces smc_pairs.h shows it.
 */
#ifndef SMC_TUNE_H
#define SMC_TUNE_H

#define SMC_LO_IFINDEX 1 /* in every namespace */

/* Treatment of connections within this node that this rule decides about; -1: no rule. */
static __always_inline __u32 smc_local_of(const struct smc_config *config, __s32 rule_index)
{
	const struct smc_rule *rule = smc_rule_at(rule_index);

	return (rule ? rule->local : config->local) & config->local_mask;
}

static __always_inline bool smc_paces(struct inet_connection_sock *connection)
{
	const struct tcp_congestion_ops *control = connection->icsk_ca_ops;

	return control->name[0] == 'b' && control->name[1] == 'b' && control->name[2] == 'r';
}

static __always_inline bool smc_is_reno(struct inet_connection_sock *connection)
{
	const struct tcp_congestion_ops *control = connection->icsk_ca_ops;

	return control->name[0] == 'r' && control->name[1] == 'e' && control->name[2] == 'n';
}

static __always_inline void smc_read_congestion(struct inet_connection_sock *connection, char *name)
{
	const struct tcp_congestion_ops *control = connection->icsk_ca_ops;

#pragma unroll
	for (int i = 0; i < 16; i++)
		name[i] = control->name[i];
}

static __always_inline void smc_tune(struct bpf_sock_ops *ctx, struct tcp_sock *tcp, bool client)
{
	struct inet_connection_sock *connection = (struct inet_connection_sock *)tcp;
	char reno[] = "reno"; /* built into every kernel */
	char before[16] = {};
	__u64 cookie = bpf_get_socket_cookie(ctx);
	struct smc_tuned_socket listed = {};
	struct smc_sock *state;
	struct bpf_sock *sk;

	if (BPF_CORE_READ_BITFIELD(connection, icsk_ca_setsockopt) || !smc_paces(connection))
		return;
	smc_read_congestion(connection, before);
	if (bpf_setsockopt(ctx, SMC_SOL_TCP, SMC_TCP_CONGESTION, reno, sizeof(reno)))
		return;
	smc_count(SMC_TUNED);
	sk = ctx->sk;
	state = sk ? bpf_sk_storage_get(&smc_socks, sk, 0, BPF_SK_STORAGE_GET_F_CREATE) : 0;
	if (!state)
		return;
	state->role = client ? SMC_ROLE_TUNED_CLIENT : SMC_ROLE_TUNED_SERVER;
	__builtin_memcpy(state->saved_congestion, before, sizeof(state->saved_congestion));
	smc_address_of(ctx, true, state->app.remote_ip);
	smc_address_of(ctx, false, state->app.local_ip);
	state->app.remote_port = bpf_ntohl(ctx->remote_port);
	state->app.local_port = ctx->local_port;
	listed.sk = (__u64)(unsigned long)tcp;
	listed.cgroup = ((struct sock *)tcp)->sk_cgrp_data.cgroup->kn->id;
	listed.netns = ((struct sock *)tcp)->__sk_common.skc_net.net->ns.inum;
	listed.client = client;
	listed.app = state->app;
	bpf_map_update_elem(&smc_tuned, &cookie, &listed, BPF_ANY);
}

/* Undoes the tuning of a socket that was disconnected, and connects or listens again. What was chosen since stays. */
static __always_inline void smc_untune(struct bpf_sock_ops *ctx)
{
	struct bpf_sock *sk = ctx->sk;
	struct smc_sock *state = sk ? bpf_sk_storage_get(&smc_socks, sk, 0, 0) : 0;
	struct tcp_sock *tcp;
	char before[16];
	__u64 cookie;

	if (!state || (!smc_is_tuned(state) && state->role != SMC_ROLE_APP))
		return;
	cookie = bpf_get_socket_cookie(ctx);
	if (state->role == SMC_ROLE_APP)
		smc_leave_hairpin(state, cookie);
	bpf_map_delete_elem(&smc_tuned, &cookie);
	tcp = bpf_skc_to_tcp_sock(sk);
	if (tcp && state->saved_congestion[0] && smc_is_reno((struct inet_connection_sock *)tcp)) {
		__builtin_memcpy(before, state->saved_congestion, sizeof(before));
		bpf_setsockopt(ctx, SMC_SOL_TCP, SMC_TCP_CONGESTION, before, sizeof(before));
	}
	bpf_sk_storage_delete(&smc_socks, sk);
}

/*
 * The treatment that the policy allows at this end of a connection within this node (enum smc_local). It is evaluated
 * here because nothing has done so for this end yet; a connection that it denies is left alone.
 */
static __always_inline __u32 smc_local_policy(struct bpf_sock_ops *ctx, const struct smc_config *config,
					      struct tcp_sock *tcp, bool client)
{
	__u64 cgroup_id = ((struct sock *)tcp)->sk_cgrp_data.cgroup->kn->id;
	const struct smc_cgroup *cgroup = bpf_map_lookup_elem(&smc_cgroups, &cgroup_id);
	const struct smc_netns *netns;
	struct smc_addr remote = {};
	__u64 cookie;
	__s32 rule;
	bool allowed;

	if (!cgroup || !cgroup->enrolled)
		return 0;
	smc_address_of(ctx, true, remote.ip);
	remote.port = bpf_ntohl(ctx->remote_port);
	allowed = smc_allowed(config, cgroup->rules, &remote, client ? remote.port : ctx->local_port,
			      client ? SMC_OUTBOUND : SMC_INBOUND, &rule);
	cookie = bpf_get_netns_cookie(ctx);
	netns = bpf_map_lookup_elem(&smc_netns, &cookie);
	/* tuned connections still pass everything that shapes and filters */
	if (allowed && smc_is_limited(cgroup, netns) && !smc_goes_past_limits(config, rule))
		return smc_local_of(config, rule) & SMC_LOCAL_TUNE;
	if (allowed)
		return smc_local_of(config, rule);
	/* a connection without a rule may be tuned, which changes nothing that a filter would see */
	return rule < 0 ? smc_local_of(config, rule) & SMC_LOCAL_TUNE : 0;
}

static __always_inline bool smc_is_over_lo(struct tcp_sock *tcp)
{
	struct sock *sk = (struct sock *)tcp;
	int arrived_by = sk->sk_rx_dst_ifindex;

	/* 0: established within connect(), so the packet has not left this host */
	return (!arrived_by || arrived_by == SMC_LO_IFINDEX) && sk->sk_dst_cache->dev->ifindex == SMC_LO_IFINDEX;
}

/* A connection without a leg is established now: tunes it, and watches it if it may be bypassed. */
static __always_inline void smc_tune_or_watch(struct bpf_sock_ops *ctx, bool client)
{
	const struct smc_config *config = smc_get_config();
	struct bpf_sock *sk = ctx->sk;
	struct tcp_sock *tcp = sk ? bpf_skc_to_tcp_sock(sk) : 0;
	struct smc_pair *pair = 0;
	__u32 local;
	bool lo;

	if (!config || !config->local_mask || !tcp || bpf_sk_storage_get(&smc_socks, sk, 0, 0))
		return; /* nothing to do, or a socket that has a role already */
	lo = smc_is_over_lo(tcp);
	if (!lo)
		pair = smc_pair_of(ctx, client);
	if (!lo && !pair)
		return;
	local = smc_local_policy(ctx, config, tcp, client);
	if (local & SMC_LOCAL_TUNE)
		smc_tune(ctx, tcp, client);
	if (pair)
		smc_pair_up(ctx, tcp, pair, client, local & (SMC_LOCAL_BYPASS | SMC_LOCAL_FORCE));
}

struct bpf_map;

static long smc_see_tuned_one(struct bpf_map *map, __u64 *cookie, struct smc_tuned_socket *tuned, void *unused)
{
	const struct sock *sk = (const struct sock *)tuned->sk;
	const struct tcp_sock *tcp = (const struct tcp_sock *)sk;

	if (!smc_reads_kernel)
		return 0;
	tuned->state = BPF_CORE_READ(sk, __sk_common.skc_state);
	tuned->sent = BPF_CORE_READ(tcp, bytes_acked);
	tuned->received = BPF_CORE_READ(tcp, bytes_received);
	if (!smc_is_still(tuned->sk, *cookie))
		tuned->state = BPF_TCP_CLOSE; /* the socket is gone, and other memory was read in its place */
	return 0;
}

/* For `smcctl ss`: brings the entries up to date before user space reads them. */
SEC("tc")
int smc_see_tuned(void *unused)
{
	bpf_for_each_map_elem(&smc_tuned, smc_see_tuned_one, 0, 0);
	return 0;
}

#endif
