/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Applications' keepalive and user timeout. User space sets them on the CLC socket, which stands for the connection on
 * the network, because the application's own socket only speaks to a leg. The application may change them at any time.
 */
#ifndef SMC_KEEPALIVE_H
#define SMC_KEEPALIVE_H

#define SMC_SOCK_KEEPOPEN 3 /* a bit of skc_flags */

static __always_inline void smc_read_keepalive(const struct smc_socket *which, struct smc_keepalive *terms)
{
	const struct sock *sk = (const struct sock *)which->sk;
	const struct tcp_sock *tcp = (const struct tcp_sock *)sk;

	terms->on = BPF_CORE_READ(sk, __sk_common.skc_flags) >> SMC_SOCK_KEEPOPEN & 1;
	terms->user_timeout_ms = BPF_CORE_READ(tcp, inet_conn.icsk_user_timeout);
	if (!terms->on && !terms->user_timeout_ms)
		return;
	terms->idle_ticks = BPF_CORE_READ(tcp, keepalive_time);
	terms->interval_ticks = BPF_CORE_READ(tcp, keepalive_intvl);
	terms->probes = BPF_CORE_READ(tcp, keepalive_probes);
}

/* Tells user space if the settings have changed. If smc_keepalives is full, the next sweep tries again. */
static __always_inline void smc_tell_keepalive(const struct smc_tuple *app, struct smc_hairpin *hairpin)
{
	struct smc_keepalive *told = &hairpin->keepalive;
	struct smc_keepalive now = {};

	if (!smc_reads_kernel)
		return;
	smc_read_keepalive(&hairpin->sender, &now);
	if (!smc_lives(&hairpin->sender))
		return; /* the socket is gone, and other memory was read in its place */
	if (now.on == told->on && now.idle_ticks == told->idle_ticks && now.interval_ticks == told->interval_ticks &&
	    now.probes == told->probes && now.user_timeout_ms == told->user_timeout_ms)
		return;
	if (!bpf_map_update_elem(&smc_keepalives, app, &now, BPF_ANY))
		*told = now;
}

#endif
