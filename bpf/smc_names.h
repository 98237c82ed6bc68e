/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Both applications see the addresses that plain TCP would show them. accept4() runs these hooks too. */
#ifndef SMC_NAMES_H
#define SMC_NAMES_H

static __always_inline int smc_show4(struct bpf_sock_addr *ctx, bool peer)
{
	struct smc_sock *state = ctx->sk ? bpf_sk_storage_get(&smc_socks, ctx->sk, 0, 0) : 0;
	const struct smc_addr *shown;

	if (!state)
		return 1;
	shown = peer ? &state->remote : &state->local;
	if (shown->port) {
		ctx->user_ip4 = ((const __u32 *)shown->ip)[3];
		ctx->user_port = bpf_htons(shown->port);
	}
	return 1;
}

static __always_inline int smc_show6(struct bpf_sock_addr *ctx, bool peer)
{
	struct smc_sock *state = ctx->sk ? bpf_sk_storage_get(&smc_socks, ctx->sk, 0, 0) : 0;
	const struct smc_addr *shown;
	const __u32 *ip;

	if (!state)
		return 1;
	shown = peer ? &state->remote : &state->local;
	if (shown->port) {
		ip = (const __u32 *)shown->ip;
		ctx->user_ip6[0] = ip[0];
		ctx->user_ip6[1] = ip[1];
		ctx->user_ip6[2] = ip[2];
		ctx->user_ip6[3] = ip[3];
		ctx->user_port = bpf_htons(shown->port);
	}
	return 1;
}

SEC("cgroup/getpeername4")
int smc_peername4(struct bpf_sock_addr *ctx)
{
	return smc_show4(ctx, true);
}

SEC("cgroup/getpeername6")
int smc_peername6(struct bpf_sock_addr *ctx)
{
	return smc_show6(ctx, true);
}

SEC("cgroup/getsockname4")
int smc_sockname4(struct bpf_sock_addr *ctx)
{
	return smc_show4(ctx, false);
}

SEC("cgroup/getsockname6")
int smc_sockname6(struct bpf_sock_addr *ctx)
{
	return smc_show6(ctx, false);
}

static __always_inline void smc_remote_of(struct bpf_sock_ops *ctx, __u8 *ip)
{
	__u32 *word = (__u32 *)ip;

	if (ctx->family == AF_INET) {
		smc_map_v4(ip, ctx->remote_ip4);
	} else {
		word[0] = ctx->remote_ip6[0];
		word[1] = ctx->remote_ip6[1];
		word[2] = ctx->remote_ip6[2];
		word[3] = ctx->remote_ip6[3];
	}
}

static __always_inline void smc_local_of(struct bpf_sock_ops *ctx, __u8 *ip)
{
	__u32 *word = (__u32 *)ip;

	if (ctx->family == AF_INET) {
		smc_map_v4(ip, ctx->local_ip4);
	} else {
		word[0] = ctx->local_ip6[0];
		word[1] = ctx->local_ip6[1];
		word[2] = ctx->local_ip6[2];
		word[3] = ctx->local_ip6[3];
	}
}

/* The application's accepted socket: if its peer is a leg of the agent, remember who is behind it. */
static __always_inline void smc_name_accepted(struct bpf_sock_ops *ctx)
{
	struct smc_leg leg = {};
	struct smc_addr *client;
	struct smc_sock *state;
	struct bpf_sock *sk = ctx->sk;

	if (!sk)
		return;
	/* a socket that failed to connect and listens now hands its storage down */
	state = bpf_sk_storage_get(&smc_socks, sk, 0, 0);
	if (state && state->role == SMC_ROLE_APP_CLIENT)
		bpf_sk_storage_delete(&smc_socks, sk);
	leg.netns = bpf_get_netns_cookie(ctx);
	smc_remote_of(ctx, leg.client.ip);
	leg.client.port = bpf_ntohl(ctx->remote_port);
	leg.server_port = ctx->local_port;
	client = bpf_map_lookup_elem(&smc_peernames, &leg);
	if (!client)
		return;
	state = bpf_sk_storage_get(&smc_socks, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (state) {
		state->role = SMC_ROLE_APP_SERVER;
		state->remote = *client;
	}
	bpf_map_delete_elem(&smc_peernames, &leg);
}

static __always_inline void smc_netns_wanted(struct bpf_sock_ops *ctx)
{
	__u64 cookie = bpf_get_netns_cookie(ctx);
	struct bpf_sock *sk = ctx->sk;
	struct smc_event *event;

	if (bpf_map_lookup_elem(&smc_netns, &cookie) || (sk && bpf_sk_storage_get(&smc_socks, sk, 0, 0)))
		return; /* known, or a listener of the agent itself */
	event = smc_event_new(SMC_EVENT_NETNS_WANTED);
	if (event) {
		/* no pid: sockops programs may ask for it only from kernel 6.10 on */
		event->netns = cookie;
		bpf_ringbuf_submit(event, 0);
	}
}

/* Applications' sockets. State lives in socket storage, so each exit is cheap for everybody else. */
SEC("sockops")
int smc_app_sockops(struct bpf_sock_ops *ctx)
{
	struct bpf_sock *sk = ctx->sk;
	struct smc_sock *state;
	struct smc_flow *flow;
	struct smc_event *event;
	__u64 cookie;

	switch (ctx->op) {
	case BPF_SOCK_OPS_TCP_LISTEN_CB:
		smc_netns_wanted(ctx);
		return 1;
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
		smc_name_accepted(ctx);
		return 1;
	case BPF_SOCK_OPS_TCP_CONNECT_CB:
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
	case BPF_SOCK_OPS_STATE_CB:
		break;
	default:
		return 1;
	}
	if (!sk)
		return 1;
	state = bpf_sk_storage_get(&smc_socks, sk, 0, 0);
	if (!state || state->role != SMC_ROLE_APP_CLIENT)
		return 1;
	cookie = bpf_get_socket_cookie(ctx);
	flow = bpf_map_lookup_elem(&smc_flows, &cookie);
	if (!flow)
		return 1;
	if (ctx->op == BPF_SOCK_OPS_TCP_CONNECT_CB) {
		bpf_sock_ops_cb_flags_set(ctx, ctx->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_STATE_CB_FLAG);
	} else if (ctx->op == BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB) {
		state->local = flow->local;
		flow->state = SMC_FLOW_ESTABLISHED;
	} else if (ctx->args[1] == BPF_TCP_CLOSE) {
		event = flow->state != SMC_FLOW_ESTABLISHED ? smc_event_new(SMC_EVENT_CONNECT_ABORTED) : 0;
		if (event) {
			event->cookie = cookie;
			bpf_ringbuf_submit(event, 0);
		}
		bpf_map_delete_elem(&smc_flows, &cookie);
	}
	return 1;
}

#endif
