/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* How a leg and its application are joined: the SYN of a leg, and the hairpin that it gets. */
#ifndef SMC_JOIN_H
#define SMC_JOIN_H

/*
 * Deletes a hairpin whose ports a new connection uses, if its leg is gone. It cannot wait for the sweep, because the
 * agent that runs the sweep may be gone, too.
 */
static __always_inline void smc_forget_hairpin(const struct smc_packet *packet)
{
	struct smc_hairpin *hairpin = bpf_map_lookup_elem(&smc_hairpins, &packet->tuple), *back;
	struct smc_tuple other = packet->tuple;

	if (!hairpin || hairpin->isn == packet->seq)
		return; /* no hairpin, or this is the leg's own SYN, coming through it */
	other.local_port = hairpin->to_port;
	back = bpf_map_lookup_elem(&smc_hairpins, &other);
	if (back && (back->to_port != packet->tuple.local_port || back->of_leg == hairpin->of_leg))
		back = 0;
	if (smc_leg_lives(hairpin) || (back && smc_leg_lives(back)))
		return;
	if (!hairpin->of_leg && smc_is_half_open(hairpin))
		smc_report_half_open(&packet->tuple, hairpin);
	bpf_map_delete_elem(&smc_hairpins, &packet->tuple);
	if (!back)
		return;
	if (!back->of_leg && smc_is_half_open(back))
		smc_report_half_open(&other, back);
	bpf_map_delete_elem(&smc_hairpins, &other);
}

/* Reads the time stamp of a leg's SYN. Linux puts it after MSS and SACK-permitted or padding. False: there is none. */
static __always_inline bool smc_time_of_syn(struct __sk_buff *skb, const struct smc_packet *packet, __u32 *time)
{
	__be32 words[3];

	if (packet->tcp_len < sizeof(struct tcphdr) + sizeof(words) ||
	    bpf_skb_load_bytes(skb, packet->tcp_at + sizeof(struct tcphdr), words, sizeof(words)) ||
	    (words[1] & bpf_htonl(0xffff)) != bpf_htonl(0x080a))
		return false;
	*time = bpf_ntohl(words[2]);
	return true;
}

/*
 * Whether the application's kernel would drop this leg's SYN because of its time stamp (PAWS, RFC 7323 section 5): the
 * same ports had another connection before, and Linux derives the time stamps of a connection from its ports. The
 * comparison is at least as strict as the kernel's, for a socket that connects again and for one in TIME_WAIT.
 */
static __always_inline bool smc_is_too_old(struct __sk_buff *skb, const struct smc_packet *packet, struct bpf_sock *sk)
{
	const struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);
	const struct tcp_timewait_sock *ended = tcp ? 0 : bpf_skc_to_tcp_timewait_sock(sk);
	__u32 time, recent = tcp ? tcp->rx_opt.ts_recent : ended ? ended->tw_ts_recent : 0;

	return recent && smc_time_of_syn(skb, packet, &time) && (__s32)(recent - time) >= (tcp ? 1 : 0);
}

/*
 * Whether the application has closed its socket, so that a listener of its port would get the leg's SYN. (If addresses
 * are translated, the tuple is not the socket's own, and a listener found by it says nothing about the application.)
 */
static __always_inline bool smc_leg_meets_listener(const struct smc_tuple *app, const struct smc_request *request,
						   struct bpf_sock *sk)
{
	const __u64 *own = (const __u64 *)request->local.ip, *seen = (const __u64 *)app->local_ip;

	return sk->state == BPF_TCP_LISTEN && request->local.port == app->local_port && own[0] == seen[0] &&
	       own[1] == seen[1];
}

/*
 * Whether a leg can reach its application. `request`: the client's request; 0 for a server's leg, which may take over
 * another connection's tuple only if that connection is in TIME_WAIT or half open.
 */
static __always_inline enum smc_decision smc_leg_reaches_app(struct __sk_buff *skb, const struct smc_packet *packet,
							     const struct smc_sock *leg,
							     const struct smc_request *request)
{
	struct bpf_sock *sk = smc_socket_of(skb, &leg->app, packet->v6);
	enum smc_decision found = SMC_LEG_JOINED;

	if (!sk)
		return SMC_LEG_JOINED;
	if (leg->role == SMC_ROLE_LEG_SERVER && sk->state != BPF_TCP_LISTEN && sk->state != BPF_TCP_TIME_WAIT &&
	    sk->state != BPF_TCP_NEW_SYN_RECV)
		found = SMC_LEG_CONFLICT;
	else if (request && smc_leg_meets_listener(&leg->app, request, sk))
		found = SMC_LEG_LATE;
	else if (leg->paws == SMC_PAWS_REFUSE && smc_is_too_old(skb, packet, sk))
		found = SMC_LEG_PAWS;
	bpf_sk_release(sk);
	return found;
}

/* Whether another leg that its application has not seen yet has this tuple: the client used its port again at once. */
static __always_inline bool smc_is_held_by_another(const struct smc_tuple *app, __be32 isn)
{
	struct smc_request *held = bpf_map_lookup_elem(&smc_requests, app);
	struct smc_hairpin *hairpin, *leg;
	struct smc_tuple other = *app;

	if (!held || held->state != SMC_REQUEST_LEG || held->isn == isn)
		return false;
	hairpin = bpf_map_lookup_elem(&smc_hairpins, app);
	if (!hairpin)
		return false;
	other.local_port = hairpin->to_port;
	leg = bpf_map_lookup_elem(&smc_hairpins, &other);
	return leg && smc_leg_lives(leg);
}

/* Whether this host translates the leg's addresses, so that its application would see another client or server. */
static __always_inline bool smc_is_translated(const struct smc_packet *packet, const struct smc_tuple *app)
{
	const __u64 *local = (const __u64 *)packet->tuple.local_ip, *own = (const __u64 *)app->local_ip;
	const __u64 *remote = (const __u64 *)packet->tuple.remote_ip, *client = (const __u64 *)app->remote_ip;

	return local[0] != own[0] || local[1] != own[1] || remote[0] != client[0] || remote[1] != client[1] ||
	       packet->tuple.remote_port != app->remote_port;
}

/* The first SYN of a leg makes the hairpin: only here are both ends known as the device sees them. */
static __always_inline enum smc_decision smc_join_leg(struct __sk_buff *skb, const struct smc_packet *packet,
						      struct bpf_sock *sk, struct smc_sock *leg)
{
	const struct smc_tuple *app = &leg->app;
	struct smc_hairpin to_app = {}, to_leg = {};
	struct smc_request *held = 0, *request;
	enum smc_decision reached;

	if (leg->role == SMC_ROLE_LEG_SERVER && smc_is_translated(packet, app))
		return SMC_LEG_TRANSLATED;
	if (packet->tuple.remote_port != app->remote_port || packet->tuple.slot != app->slot)
		return SMC_LEG_LATE;
	if (leg->role == SMC_ROLE_LEG_CLIENT) {
		held = bpf_map_lookup_elem(&smc_requests, app);
		if (!held || held->state != SMC_REQUEST_HELD || held->isn != leg->isn)
			return SMC_LEG_LATE;
	} else if (smc_is_held_by_another(app, packet->seq)) {
		return SMC_LEG_CONFLICT;
	}
	reached = smc_leg_reaches_app(skb, packet, leg, held);
	if (held && reached == SMC_LEG_LATE)
		smc_end_request(app, held);
	if (reached != SMC_LEG_JOINED)
		return reached;
	if (!held) {
		leg->isn = packet->seq;
		request = smc_begin_leg(skb, packet);
		if (!request || bpf_map_update_elem(&smc_requests, app, request, BPF_ANY))
			return SMC_LEG_FULL;
	}
	to_app.to_port = app->local_port;
	to_app.mac_len = packet->mac_len;
	to_app.of_leg = 1;
	to_app.isn = to_leg.isn = packet->seq;
	smc_note_sender(&to_app, bpf_skc_to_tcp_sock(sk), bpf_get_socket_cookie(skb));
	to_leg.to_port = packet->tuple.local_port;
	to_leg.mac_len = packet->mac_len;
	to_leg.chosen = leg->chosen;
	leg->mac_len = packet->mac_len;
	leg->port = packet->tuple.local_port;
	leg->to_port = app->local_port;
	if (bpf_map_update_elem(&smc_hairpins, &packet->tuple, &to_app, BPF_ANY) ||
	    bpf_map_update_elem(&smc_hairpins, app, &to_leg, BPF_ANY)) {
		leg->to_port = 0;
		bpf_map_delete_elem(&smc_hairpins, &packet->tuple);
		if (!held)
			bpf_map_delete_elem(&smc_requests, app);
		return SMC_LEG_FULL;
	}
	if (held) {
		held->state = SMC_REQUEST_ANSWERED;
		held->since_ns = bpf_ktime_get_ns();
	}
	return SMC_LEG_JOINED;
}

#endif
