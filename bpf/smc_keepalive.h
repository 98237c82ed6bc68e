/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Applications' keepalive and user timeout: user space reads this now and then, and sets them on the CLC socket, which
 * stands for the connection on the wire. The application's own socket only ever speaks to a leg.
 */
#ifndef SMC_KEEPALIVE_H
#define SMC_KEEPALIVE_H

#define SMC_SOCK_KEEPOPEN 3 /* a bit of skc_flags */

SEC("iter/bpf_sk_storage_map")
int smc_keepalive(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	struct sock *sk = ctx->sk;
	struct smc_sock *state = ctx->value;
	struct tcp_sock *tcp;
	struct smc_app_keepalive terms = {};

	if (!sk || !state || state->role != SMC_ROLE_APP)
		return 0;
	tcp = bpf_skc_to_tcp_sock(sk);
	if (!tcp)
		return 0;
	terms.keepalive = sk->__sk_common.skc_flags >> SMC_SOCK_KEEPOPEN & 1;
	terms.user_timeout_ms = tcp->inet_conn.icsk_user_timeout;
	if (!terms.keepalive && !terms.user_timeout_ms)
		return 0;
	terms.idle_ticks = tcp->keepalive_time;
	terms.interval_ticks = tcp->keepalive_intvl;
	terms.probes = tcp->keepalive_probes;
	__builtin_memcpy(&terms.front, &state->front, sizeof(terms.front));
	bpf_seq_write(ctx->meta->seq, &terms, sizeof(terms));
	return 0;
}

#endif
