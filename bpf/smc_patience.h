/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Applications' keepalive and user timeout: user space reads this now and then, and sets them on the CLC socket, which
 * stands for the connection on the wire. The application's own socket only ever speaks to a leg.
 */
#ifndef SMC_PATIENCE_H
#define SMC_PATIENCE_H

#define SMC_SOCK_KEEPOPEN 3 /* a bit of skc_flags */

SEC("iter/bpf_sk_storage_map")
int smc_patience(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	struct sock *sk = ctx->sk;
	struct smc_sock *state = ctx->value;
	struct tcp_sock *tcp = (struct tcp_sock *)sk;
	struct smc_app_patience patience = {};

	if (!sk || !state || state->role != SMC_ROLE_APP)
		return 0;
	patience.keepalive = BPF_CORE_READ(sk, __sk_common.skc_flags) >> SMC_SOCK_KEEPOPEN & 1;
	patience.user_timeout_ms = BPF_CORE_READ(tcp, inet_conn.icsk_user_timeout);
	if (!patience.keepalive && !patience.user_timeout_ms)
		return 0;
	patience.idle_ticks = BPF_CORE_READ(tcp, keepalive_time);
	patience.interval_ticks = BPF_CORE_READ(tcp, keepalive_intvl);
	patience.probes = BPF_CORE_READ(tcp, keepalive_probes);
	__builtin_memcpy(&patience.front, &state->front, sizeof(patience.front));
	bpf_seq_write(ctx->meta->seq, &patience, sizeof(patience));
	return 0;
}

#endif
