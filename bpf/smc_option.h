/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The agent's own sockets: the TCP options in the packets of CLC sockets, and the options of all these sockets. */
#ifndef SMC_OPTION_H
#define SMC_OPTION_H

static __always_inline void smc_set_flags(struct bpf_sock_ops *ctx, bool write)
{
	__u32 flags = ctx->bpf_sock_ops_cb_flags & ~BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG;

	bpf_sock_ops_cb_flags_set(ctx, write ? flags | BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG : flags);
}

static __always_inline struct smc_inbound *smc_inbound_of(struct bpf_sock_ops *ctx)
{
	struct smc_tuple tuple = {};

	return smc_tuple_of(ctx, &tuple) ? bpf_map_lookup_elem(&smc_inbound, &tuple) : 0;
}

/*
 * Whether this is the SYN of a CLC socket, or a SYN-ACK of the listener for CLC sockets. Other sockets of this cgroup
 * may have the callback flag, too: those of a program that has set it, and the CLC sockets and listeners of another
 * agent that shares the cgroup, as in a login session.
 */
static __always_inline bool smc_writes_options(struct bpf_sock_ops *ctx)
{
	const struct smc_inbound *inbound;
	const struct smc_sock *state;
	struct bpf_sock *sk = ctx->sk;

	if (!(ctx->skb_tcp_flags & SMC_TCP_SYN))
		return false;
	/* something on the path may drop unknown options: stop after two unanswered SYNs, ours or the client's */
	if (!(ctx->skb_tcp_flags & SMC_TCP_ACK)) {
		state = sk ? bpf_sk_storage_get(&smc_socks, sk, 0, 0) : 0;
		return state && state->role == SMC_ROLE_AGENT_CLC && ctx->total_retrans < 2;
	}
	/* a request socket has no storage; each SYN of the client makes its entry anew */
	inbound = smc_inbound_of(ctx);
	return inbound && inbound->again < SMC_ANSWER_LOST_SYNS;
}

/*
 * The answer is a SYN cookie, so the listener keeps no state. The client may end the handshake late, and CLC follows.
 */
static __always_inline void smc_note_cookie(struct bpf_sock_ops *ctx)
{
	struct smc_inbound *inbound = smc_inbound_of(ctx);

	if (inbound)
		inbound->syncookie = 1;
}

/* Notes that the kernel asks for the options of this SYN or SYN-ACK: the socket has its callback flag (smc_flag.h). */
static __always_inline void smc_note_callback(struct bpf_sock_ops *ctx)
{
	struct smc_inbound *inbound;
	struct smc_sock *state;
	struct bpf_sock *sk = ctx->sk;

	if (!(ctx->skb_tcp_flags & SMC_TCP_SYN))
		return;
	if (ctx->skb_tcp_flags & SMC_TCP_ACK) {
		inbound = smc_inbound_of(ctx);
		if (inbound)
			inbound->callback_ran = 1;
		return;
	}
	state = sk ? bpf_sk_storage_get(&smc_socks, sk, 0, 0) : 0;
	if (state && state->role == SMC_ROLE_AGENT_CLC)
		state->option = SMC_OPTION_ASKING;
}

static __always_inline void smc_reserve_options(struct bpf_sock_ops *ctx)
{
	smc_note_callback(ctx);
	if (!smc_writes_options(ctx))
		return;
	if ((ctx->skb_tcp_flags & SMC_TCP_ACK) && ctx->args[0] == BPF_WRITE_HDR_TCP_SYNACK_COOKIE)
		smc_note_cookie(ctx);
	/* separately: if our own option does not fit, option 254 may */
	bpf_reserve_hdr_opt(ctx, SMC_TCPOPT_LEN, 0);
	bpf_reserve_hdr_opt(ctx, SMC_OWN_LEN, 0);
}

static __always_inline void smc_write_options(struct bpf_sock_ops *ctx)
{
	bool synack = ctx->skb_tcp_flags & SMC_TCP_ACK;
	const struct smc_config *config = smc_get_config();
	struct smc_tcpopt option = {SMC_TCPOPT_KIND, SMC_TCPOPT_LEN, bpf_htonl(SMC_TCPOPT_EXID)};
	struct smc_own_option own = {SMC_TCPOPT_KIND, SMC_OWN_LEN, bpf_htonl(SMC_OWN_EXID)};
	const struct smc_sock *state;
	struct bpf_sock *sk = ctx->sk;

	if (!config || !smc_writes_options(ctx))
		return;
	if (bpf_store_hdr_opt(ctx, &option, sizeof(option), 0))
		smc_count(synack ? SMC_OPTION_SYNACK_FAILED : SMC_OPTION_SYN_FAILED);
	else
		smc_count(synack ? SMC_OPTION_SYNACK : SMC_OPTION_SYN);
	own.tag = bpf_htonl(config->tag);
	if (synack) {
		own.port = bpf_htons((__u16)bpf_ntohl(ctx->remote_port));
	} else {
		state = sk ? bpf_sk_storage_get(&smc_socks, sk, 0, 0) : 0;
		own.port = state ? bpf_htons(state->port) : 0;
		own.detail = bpf_htons(SMC_OWN_ANNOUNCES);
	}
	bpf_store_hdr_opt(ctx, &own, sizeof(own), 0);
}

static __always_inline void smc_read_synack(struct bpf_sock_ops *ctx, struct smc_sock *state)
{
	const struct smc_config *config = smc_get_config();
	/* len 6 means: search by the 4 bytes after it (RFC 6994); the buffer takes the whole option */
	struct smc_own_option own = {SMC_TCPOPT_KIND, SMC_TCPOPT_LEN, bpf_htonl(SMC_OWN_EXID)};
	struct smc_tcpopt option = {SMC_TCPOPT_KIND, SMC_TCPOPT_LEN, bpf_htonl(SMC_TCPOPT_EXID)};

	bool has_own = bpf_load_hdr_opt(ctx, &own, sizeof(own), 0) > 0;

	if (has_own && config && own.tag == bpf_htonl(config->tag)) {
		state->option = SMC_OPTION_ECHOED;
		smc_count(SMC_PEER_OPTION_ECHOED);
	} else if (bpf_load_hdr_opt(ctx, &option, sizeof(option), 0) > 0) {
		state->option = has_own ? SMC_OPTION_AGENT : SMC_OPTION_PRESENT;
		smc_count(SMC_PEER_OPTION_PRESENT);
	} else {
		state->option = SMC_OPTION_ABSENT;
		smc_count(SMC_PEER_OPTION_ABSENT);
	}
}

static __always_inline void smc_set_option(struct bpf_sock_ops *ctx, int level, int option, int value)
{
	bpf_setsockopt(ctx, level, option, &value, sizeof(value));
}

/*
 * Sets the options of a socket of the agent in its connect() or listen(), where user space would need a system call for
 * each. Accepted sockets inherit those of their listener.
 */
static __always_inline void smc_set_own_options(struct bpf_sock_ops *ctx, const struct smc_sock *state)
{
	const struct smc_config *config = smc_get_config();
	char reno[] = "reno";

	smc_set_option(ctx, SMC_SOL_TCP, SMC_TCP_NODELAY, 1);
	if (!config || !smc_is_leg(state))
		return;
	/* the callback precedes the SYN: the receive buffer determines the window scale */
	smc_set_option(ctx, SMC_SOL_SOCKET, SMC_SO_RCVBUF, state->receive_buffer);
	smc_set_option(ctx, SMC_SOL_SOCKET, SMC_SO_SNDBUF, state->send_buffer);
	smc_set_option(ctx, SMC_SOL_TCP, SMC_TCP_NOTSENT_LOWAT, config->leg_unsent);
	bpf_setsockopt(ctx, SMC_SOL_TCP, SMC_TCP_CONGESTION, reno, sizeof(reno)); /* see smc_never_pace() */
}

SEC("sockops")
int smc_clc_ops(struct bpf_sock_ops *ctx)
{
	struct bpf_sock *sk;
	struct smc_sock *state;

	if (ctx->op == BPF_SOCK_OPS_HDR_OPT_LEN_CB) {
		smc_reserve_options(ctx);
		return 1;
	}
	if (ctx->op == BPF_SOCK_OPS_WRITE_HDR_OPT_CB) {
		smc_write_options(ctx);
		return 1;
	}
	if (ctx->op != BPF_SOCK_OPS_TCP_CONNECT_CB && ctx->op != BPF_SOCK_OPS_TCP_LISTEN_CB &&
	    ctx->op != BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB && ctx->op != BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB)
		return 1;
	sk = ctx->sk;
	state = sk ? bpf_sk_storage_get(&smc_socks, sk, 0, 0) : 0;
	if (!state) {
		/* accepted on the listener for CLC sockets: the SYN-ACK had its options */
		if (ctx->op == BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB && smc_inbound_of(ctx))
			smc_set_flags(ctx, false);
		return 1;
	}
	if (ctx->op == BPF_SOCK_OPS_TCP_CONNECT_CB || ctx->op == BPF_SOCK_OPS_TCP_LISTEN_CB)
		smc_set_own_options(ctx, state);
	if (smc_is_leg(state))
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
