/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Applications' sockets: reports unknown namespaces, marks sockets behind a leg, tunes and watches the others. */
#ifndef SMC_APP_H
#define SMC_APP_H

static __always_inline void smc_report_netns(struct bpf_sock_ops *ctx)
{
	const struct smc_config *config = smc_get_config();
	__u64 cookie = bpf_get_netns_cookie(ctx);
	struct bpf_sock *sk = ctx->sk;
	struct smc_event *event;
	struct tcp_sock *tcp;

	if (bpf_map_lookup_elem(&smc_netns, &cookie) || (sk && bpf_sk_storage_get(&smc_socks, sk, 0, 0)))
		return; /* known, or a listener of the agent */
	if (!config || smc_agent(config) == SMC_AGENT_STALE)
		return; /* it has left, or looks by itself when it goes on */
	event = smc_event_new(SMC_EVENT_NETNS_UNKNOWN);
	if (!event)
		return;
	tcp = sk ? bpf_skc_to_tcp_sock(sk) : 0;
	event->cgroup = tcp ? ((struct sock *)tcp)->sk_cgrp_data.cgroup->kn->id : 0;
	bpf_ringbuf_submit(event, 0);
}

/*
 * A leg ends on this host, so congestion control has no network to learn about, and pacing (bbr) would only delay it.
 * Reno is built into every kernel. A congestion control that the application chose itself stays; another one comes back
 * when the socket is used again (smc_untune()).
 */
static __always_inline void smc_never_pace(struct bpf_sock_ops *ctx, struct bpf_sock *sk, struct smc_sock *state)
{
	struct inet_connection_sock *connection = (struct inet_connection_sock *)bpf_skc_to_tcp_sock(sk);
	char reno[] = "reno";

	if (!connection || !state || BPF_CORE_READ_BITFIELD(connection, icsk_ca_setsockopt))
		return;
	smc_read_congestion(connection, state->saved_congestion);
	bpf_setsockopt(ctx, SMC_SOL_TCP, SMC_TCP_CONGESTION, reno, sizeof(reno));
}

/* Marks the socket of a client or server that is connected to a leg: its packets take the hairpin. False: no leg. */
static __always_inline bool smc_begin_behind_leg(struct bpf_sock_ops *ctx)
{
	struct smc_hairpin *hairpin;
	struct smc_tuple tuple = {};
	struct smc_sock *state;
	struct bpf_sock *sk = ctx->sk;

	if (!sk || !smc_tuple_of(ctx, &tuple))
		return false;
	hairpin = bpf_map_lookup_elem(&smc_hairpins, &tuple);
	if (!hairpin || hairpin->closed_ns)
		return false;
	state = bpf_sk_storage_get(&smc_socks, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (state) {
		state->role = SMC_ROLE_APP;
		state->mac_len = hairpin->mac_len;
		state->to_port = hairpin->to_port;
		state->chosen = hairpin->chosen;
		state->app = tuple;
	}
	smc_note_sender(hairpin, bpf_skc_to_tcp_sock(sk), bpf_get_socket_cookie(ctx));
	smc_never_pace(ctx, sk, state);
	return true;
}

SEC("sockops")
int smc_app_sockops(struct bpf_sock_ops *ctx)
{
	if (ctx->op == BPF_SOCK_OPS_TCP_LISTEN_CB || ctx->op == BPF_SOCK_OPS_TCP_CONNECT_CB) {
		smc_report_netns(ctx);
		smc_untune(ctx);
	} else if (ctx->op == BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB) { /* also a client's: the SYNs crossed */
		if (!smc_begin_behind_leg(ctx))
			smc_tune_or_watch(ctx, false);
	} else if (ctx->op == BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB) {
		smc_tune_or_watch(ctx, true);
	}
	return 1;
}

#endif
