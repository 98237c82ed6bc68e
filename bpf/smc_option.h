/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The agent's own sockets: TCP option 254 on the wire, and the client's name for server-side legs. */
#ifndef SMC_OPTION_H
#define SMC_OPTION_H

struct smc_tcpopt {
	__u8 kind;
	__u8 len;
	__be32 exid;
	__be32 nonce;
} __attribute__((packed));

static __always_inline void smc_set_flags(struct bpf_sock_ops *ctx, bool write)
{
	__u32 flags = ctx->bpf_sock_ops_cb_flags & ~BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG;

	bpf_sock_ops_cb_flags_set(ctx, write ? flags | BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG : flags);
}

/* Only a SYN of a CLC socket and a SYN-ACK of a CLC socket's listener get here: nobody else sets the flag. */
static __always_inline void smc_reserve_option(struct bpf_sock_ops *ctx)
{
	if (!(ctx->skb_tcp_flags & SMC_TCP_SYN))
		return;
	/* two went unanswered: perhaps something on the way drops what it does not know */
	if (!(ctx->skb_tcp_flags & SMC_TCP_ACK) && ctx->total_retrans >= 2)
		return;
	bpf_reserve_hdr_opt(ctx, SMC_TCPOPT_LEN, 0);
	/* separately: with TCP Fast Open the canary does not fit, the option itself does */
	if (!(ctx->skb_tcp_flags & SMC_TCP_ACK))
		bpf_reserve_hdr_opt(ctx, SMC_CANARY_LEN, 0);
}

static __always_inline void smc_write_option(struct bpf_sock_ops *ctx)
{
	bool synack = ctx->skb_tcp_flags & SMC_TCP_ACK;
	struct smc_tcpopt option = {
		.kind = SMC_TCPOPT_KIND,
		.len = SMC_TCPOPT_LEN,
		.exid = bpf_htonl(SMC_TCPOPT_EXID),
	};
	struct smc_tcpopt canary = {
		.kind = SMC_TCPOPT_KIND,
		.len = SMC_CANARY_LEN,
		.exid = bpf_htonl(SMC_CANARY_EXID),
		.nonce = bpf_get_prandom_u32(),
	};

	if (!(ctx->skb_tcp_flags & SMC_TCP_SYN) || (!synack && ctx->total_retrans >= 2))
		return;
	if (bpf_store_hdr_opt(ctx, &option, SMC_TCPOPT_LEN, 0))
		smc_count(synack ? SMC_OPTION_SYNACK_FAILED : SMC_OPTION_SYN_FAILED);
	else
		smc_count(synack ? SMC_OPTION_SYNACK : SMC_OPTION_SYN);
	if (!synack)
		bpf_store_hdr_opt(ctx, &canary, SMC_CANARY_LEN, 0);
}

static __always_inline bool smc_peer_sent(struct bpf_sock_ops *ctx, __u32 exid)
{
	/* len 6 means: search by the 4 bytes after it (RFC 6994); the buffer takes the whole option */
	struct smc_tcpopt found = {
		.kind = SMC_TCPOPT_KIND,
		.len = SMC_TCPOPT_LEN,
		.exid = bpf_htonl(exid),
	};

	return bpf_load_hdr_opt(ctx, &found, sizeof(found), 0) > 0;
}

static __always_inline void smc_read_synack(struct bpf_sock_ops *ctx, struct smc_sock *state)
{
	if (smc_peer_sent(ctx, SMC_CANARY_EXID)) {
		state->option = SMC_OPTION_ECHOED;
		smc_count(SMC_PEER_OPTION_ECHOED);
	} else if (smc_peer_sent(ctx, SMC_TCPOPT_EXID)) {
		state->option = SMC_OPTION_PRESENT;
		smc_count(SMC_PEER_OPTION_PRESENT);
	} else {
		state->option = SMC_OPTION_ABSENT;
		smc_count(SMC_PEER_OPTION_ABSENT);
	}
}

/*
 * Announced before the leg's SYN leaves, so that the accepting socket always finds the entry; taken back
 * when the leg closes, so that nobody else who gets its port is given the client's name.
 */
static __always_inline void smc_name_leg(struct bpf_sock_ops *ctx, const struct smc_sock *state)
{
	struct smc_leg leg = {};
	struct smc_addr client = state->remote;

	leg.netns = bpf_get_netns_cookie(ctx);
	smc_local_of(ctx, leg.client.ip);
	leg.client.port = ctx->local_port;
	leg.server_port = bpf_ntohl(ctx->remote_port);
	if (ctx->op == BPF_SOCK_OPS_TCP_CONNECT_CB) {
		bpf_map_update_elem(&smc_peernames, &leg, &client, BPF_ANY);
		bpf_sock_ops_cb_flags_set(ctx, ctx->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_STATE_CB_FLAG);
	} else if (ctx->op == BPF_SOCK_OPS_STATE_CB && ctx->args[1] == BPF_TCP_CLOSE) {
		bpf_map_delete_elem(&smc_peernames, &leg);
	}
}

SEC("sockops")
int smc_clc_ops(struct bpf_sock_ops *ctx)
{
	struct bpf_sock *sk;
	struct smc_sock *state;

	/* for a SYN-ACK the socket is a request without storage: the callback flag alone decides */
	if (ctx->op == BPF_SOCK_OPS_HDR_OPT_LEN_CB) {
		smc_reserve_option(ctx);
		return 1;
	}
	if (ctx->op == BPF_SOCK_OPS_WRITE_HDR_OPT_CB) {
		smc_write_option(ctx);
		return 1;
	}
	if (ctx->op != BPF_SOCK_OPS_TCP_CONNECT_CB && ctx->op != BPF_SOCK_OPS_TCP_LISTEN_CB &&
	    ctx->op != BPF_SOCK_OPS_STATE_CB && ctx->op != BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB &&
	    ctx->op != BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB)
		return 1;
	sk = ctx->sk;
	if (!sk)
		return 1;
	state = bpf_sk_storage_get(&smc_socks, sk, 0, 0);
	if (!state)
		return 1;
	if (state->role == SMC_ROLE_AGENT_LEG) {
		smc_name_leg(ctx, state);
		return 1;
	}
	if (state->role != SMC_ROLE_AGENT_CLC || ctx->op == BPF_SOCK_OPS_STATE_CB)
		return 1;
	if (ctx->op == BPF_SOCK_OPS_TCP_CONNECT_CB || ctx->op == BPF_SOCK_OPS_TCP_LISTEN_CB) {
		smc_set_flags(ctx, true);
	} else {
		if (ctx->op == BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB)
			smc_read_synack(ctx, state);
		smc_set_flags(ctx, false);
	}
	return 1;
}

#endif
