/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The questions of bpf/eligibility.h, a function each: true means that it is in the way. */
#ifndef SMC_QUESTIONS_H
#define SMC_QUESTIONS_H

#include "bpf/eligibility.h"

/*
 * The connection that is asked about. What costs a lookup is looked up by the question that needs it, because most
 * connections of a node are none of ours and leave at the first one.
 */
struct smc_subject {
	const struct smc_config *config;
	const struct smc_cgroup *cgroup; /* of the application; 0: not known */
	const struct smc_netns *netns;   /* 0: not known, or not asked for yet */
	__u64 netns_cookie;
	struct smc_addr remote;
	__u16 port; /* the server's */
	enum smc_direction direction;
	__s32 rule; /* that denied() found; -1: none */
	/* the application's socket, its listener for a SYN; 0 in an explanation */
	struct tcp_sock *tcp;
	struct bpf_sock_addr *connect; /* 0: no connect() */
	__u32 bound_port, bound_device;
	bool mptcp;
	bool listener; /* for a SYN */
};

static __always_inline bool smc_q_not_enrolled(struct smc_subject *s)
{
	return !s->cgroup || !s->cgroup->enrolled;
}

static __always_inline bool smc_q_special(struct smc_subject *s)
{
	return smc_is_special(s->remote.ip);
}

static __always_inline bool smc_q_denied(struct smc_subject *s)
{
	return !s->cgroup || !smc_allowed(s->config, s->cgroup->rules, &s->remote, s->port, s->direction, &s->rule);
}

static __always_inline bool smc_q_agent_stale(struct smc_subject *s)
{
	return smc_agent(s->config) == SMC_AGENT_STALE;
}

static __always_inline bool smc_q_agent_full(struct smc_subject *s)
{
	return smc_agent(s->config) == SMC_AGENT_FULL;
}

static __always_inline bool smc_q_netns_unknown(struct smc_subject *s)
{
	s->netns = bpf_map_lookup_elem(&smc_netns, &s->netns_cookie);
	return !s->netns || !(smc_is_v4(s->remote.ip) ? s->netns->leg4_port : s->netns->leg6_port);
}

static __always_inline bool smc_q_bound_port(struct smc_subject *s)
{
	return s->bound_port;
}

static __always_inline bool smc_q_bound_device(struct smc_subject *s)
{
	return s->bound_device;
}

static __always_inline bool smc_q_mptcp(struct smc_subject *s)
{
	struct tcp_sock *tcp = s->tcp;

	if (s->direction == SMC_INBOUND)
		return s->mptcp;
	return !tcp || (bpf_core_field_exists(tcp->is_mptcp) && BPF_CORE_READ_BITFIELD_PROBED(tcp, is_mptcp));
}

static __always_inline bool smc_q_tcp_signed(struct smc_subject *s)
{
	return !s->tcp || smc_is_signed(s->tcp);
}

static __always_inline bool smc_q_ipsec(struct smc_subject *s)
{
	return !s->tcp || smc_has_ipsec(s->tcp);
}

static __always_inline bool smc_q_incapable(struct smc_subject *s)
{
	const struct smc_incapable *incapable;
	struct smc_dest dest = {};

	dest.netns = s->netns_cookie;
	dest.remote = s->remote;
	incapable = bpf_map_lookup_elem(&smc_incapable, &dest);
	return incapable && incapable->expires_ns > bpf_ktime_get_ns();
}

/* An agent that was killed left its heartbeat behind; its listener is gone at once. */
static __always_inline bool smc_q_agent_gone(struct smc_subject *s)
{
	struct bpf_sock_tuple tuple = {};
	struct bpf_sock *sk;
	bool listens;

	if (!s->netns || !s->connect)
		return true;
	if (smc_is_v4(s->remote.ip)) {
		tuple.ipv4.daddr = bpf_htonl(0x7f000001);
		tuple.ipv4.dport = bpf_htons(s->netns->leg4_port);
		sk = bpf_skc_lookup_tcp(s->connect, &tuple, sizeof(tuple.ipv4), BPF_F_CURRENT_NETNS, 0);
	} else {
		tuple.ipv6.daddr[3] = bpf_htonl(1);
		tuple.ipv6.dport = bpf_htons(s->netns->leg6_port);
		sk = bpf_skc_lookup_tcp(s->connect, &tuple, sizeof(tuple.ipv6), BPF_F_CURRENT_NETNS, 0);
	}
	if (!sk)
		return true;
	listens = sk->state == BPF_TCP_LISTEN;
	bpf_sk_release(sk);
	return !listens;
}

static __always_inline bool smc_q_no_listener(struct smc_subject *s)
{
	return !s->listener;
}

#define SMC_ASK(decision, whom, function, text)                                                                        \
	if (smc_q_##function(subject))                                                                                 \
		return decision;

#endif
