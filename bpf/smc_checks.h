/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The checks of bpf/eligibility.h, one function each. True: the connection is not eligible. */
#ifndef SMC_CHECKS_H
#define SMC_CHECKS_H

#include "bpf/eligibility.h"

/*
 * The connection that is checked. Lookups are left to the check that needs them, because most connections of a node are
 * not enrolled and fail the first check.
 */
struct smc_subject {
	const struct smc_config *config;
	const struct smc_cgroup *cgroup; /* of the application; 0: not known */
	const struct smc_netns *netns;   /* 0: not known, or not looked up yet */
	__u64 netns_cookie, cgroup_id;
	enum smc_agent_state agent; /* set by smc_check_agent_stale() */
	struct smc_addr remote;
	__u16 port; /* the server's */
	enum smc_direction direction;
	__s32 rule;              /* set by smc_check_denied(): the rule that decides; -1: none */
	bool smcd;               /* set by smc_check_no_device(): SMC-D with another agent of this kernel is wanted */
	struct smc_short *known; /* set by smc_check_short_lived(): how such connections ended; 0: nothing is known */
	struct tcp_sock *tcp; /* the application's socket, or its listener for a SYN that arrives; 0 in smc_explain */
	/* properties of the SYN; all false in smc_explain */
	bool encrypts; /* the device of the SYN may encrypt packets; false in smc_explain */
	bool headers, mptcp, signed_segments, fast_open, no_room;
	bool own_tag;   /* the SYN carries this agent's own tag */
	bool forwarded; /* this namespace only forwards the SYN */
	bool listener;  /* a socket listens on its port */
};

static __always_inline bool smc_check_not_enrolled(struct smc_subject *s)
{
	return !s->cgroup || !s->cgroup->enrolled;
}

static __always_inline bool smc_check_special(struct smc_subject *s)
{
	return smc_is_special(s->remote.ip);
}

static __always_inline bool smc_check_loopback(struct smc_subject *s)
{
	return smc_is_loopback(s->remote.ip);
}

static __always_inline bool smc_check_denied(struct smc_subject *s)
{
	return !s->cgroup || !smc_allowed(s->config, s->cgroup->rules, &s->remote, s->port, s->direction, &s->rule);
}

static __always_inline bool smc_check_agent_stale(struct smc_subject *s)
{
	s->agent = smc_agent(s->config);
	return s->agent == SMC_AGENT_STALE;
}

static __always_inline bool smc_check_agent_full(struct smc_subject *s)
{
	return s->agent == SMC_AGENT_NOT_ACCEPTING;
}

static __always_inline bool smc_check_netns_unknown(struct smc_subject *s)
{
	s->netns = bpf_map_lookup_elem(&smc_netns, &s->netns_cookie);
	return !s->netns;
}

static __always_inline bool smc_check_not_served(struct smc_subject *s)
{
	if (!s->netns)
		s->netns = bpf_map_lookup_elem(&smc_netns, &s->netns_cookie);
	return !s->netns || !(smc_is_v4(s->remote.ip) ? s->netns->serves4 : s->netns->serves6);
}

/* The agent pauses a listener by its port, without an address, when a leg to it was lost (ServerRunner). */
static __always_inline bool smc_check_no_leg(struct smc_subject *s)
{
	struct smc_addr listener = {.port = s->port};
	const struct smc_server *known = smc_server_of(s->netns_cookie, &listener);

	return known && known->knowledge == SMC_SERVER_NOT_NOW;
}

/* smc_check_denied() has set the rule before. */
static __always_inline bool smc_check_limited(struct smc_subject *s)
{
	return (s->encrypts || smc_is_limited(s->cgroup, s->netns)) && !smc_goes_past_limits(s->config, s->rule);
}

static __always_inline bool smc_check_netns_full(struct smc_subject *s)
{
	return s->netns && s->netns->full;
}

static __always_inline bool smc_check_cgroup_full(struct smc_subject *s)
{
	return s->cgroup && s->cgroup->full;
}

static __always_inline bool smc_check_agent_gone(struct smc_subject *s)
{
	return s->netns && !smc_agent_listens(s->netns->slot, !smc_is_v4(s->remote.ip));
}

static __always_inline bool smc_check_headers(struct smc_subject *s)
{
	return s->headers;
}

/*
 * TCP increments total_retrans before it sends. A retransmission without an entry may have asked before: a killed
 * agent's maps are not taken over.
 */
static __always_inline bool smc_check_later_syn(struct smc_subject *s)
{
	struct tcp_sock *tcp = s->tcp; /* a separate variable, or CO-RE would relocate s->tcp as well */

	return !tcp || tcp->total_retrans;
}

static __always_inline bool smc_check_mptcp(struct smc_subject *s)
{
	return s->mptcp;
}

/* A socket of net/smc asks or answers by itself. */
static __always_inline bool smc_check_net_smc(struct smc_subject *s)
{
	return s->tcp && bpf_core_field_exists(s->tcp->syn_smc) && BPF_CORE_READ_BITFIELD(s->tcp, syn_smc);
}

/*
 * Sockets that the kernel has made for itself: when memory is short, it may have to write by them before any program
 * can go on. (MPTCP and net/smc also use kernel sockets, but for applications. Those of MPTCP are eligible; those of
 * net/smc are refused here if net/smc has fallen back.)
 */
static __always_inline bool smc_check_kernel(struct smc_subject *s)
{
	struct tcp_sock *tcp = s->tcp;

	return tcp && BPF_CORE_READ_BITFIELD((struct sock *)tcp, sk_kern_sock) &&
	       !(bpf_core_field_exists(tcp->is_mptcp) && tcp->is_mptcp);
}

static __always_inline bool smc_check_tcp_signed(struct smc_subject *s)
{
	return s->signed_segments || !s->tcp || smc_is_signed(s->tcp);
}

/* The hairpin redirects the packets of a leg before a driver sees them, so none could stamp them. */
static __always_inline bool smc_check_timestamping(struct smc_subject *s)
{
	return !s->tcp || ((struct sock *)s->tcp)->sk_tsflags & SMC_STAMPS_OF_DEVICE;
}

/*
 * As soon as fq has seen a packet of the socket, such as its SYN, TCP leaves the rate to that qdisc, which never sees
 * the packets of a leg. (A server's sockets are turned to their legs from their first packet on, so TCP keeps to the
 * rate.)
 */
static __always_inline bool smc_check_paced(struct smc_subject *s)
{
	return !s->tcp || ((struct sock *)s->tcp)->sk_max_pacing_rate != ~0UL;
}

/* The agent's listener has neither the mark nor the device, so its SYN-ACK might take another route. */
static __always_inline bool smc_check_bound(struct smc_subject *s)
{
	struct sock *sk = (struct sock *)s->tcp;

	return !sk || sk->sk_mark || sk->__sk_common.skc_bound_dev_if;
}

/* The kernel gives a SYN to the listener of the processor that receives it; the leg's is received where it was sent. */
static __always_inline bool smc_check_incoming_cpu(struct smc_subject *s)
{
	return s->tcp && ((struct sock *)s->tcp)->__sk_common.skc_incoming_cpu >= 0;
}

static __always_inline bool smc_check_fast_open(struct smc_subject *s)
{
	return s->fast_open;
}

static __always_inline bool smc_check_no_room(struct smc_subject *s)
{
	return s->no_room;
}

static __always_inline bool smc_check_ipsec(struct smc_subject *s)
{
	return !s->tcp || smc_has_ipsec(s->tcp);
}

/* Answers with extension headers would leave unnoticed: smc_parse() takes them for another protocol's. */
static __always_inline bool smc_check_listener_headers(struct smc_subject *s)
{
	const struct ipv6_pinfo *six;

	if (!s->tcp || !bpf_core_field_exists(s->tcp->inet_conn.icsk_inet.pinet6))
		return false;
	six = s->tcp->inet_conn.icsk_inet.pinet6;
	return six && six->opt;
}

static __always_inline bool smc_check_not_now(struct smc_subject *s)
{
	const struct smc_server *server = smc_server_of(s->netns_cookie, &s->remote);

	return server && server->knowledge == SMC_SERVER_NOT_NOW;
}

static __always_inline bool smc_check_client_not_now(struct smc_subject *s)
{
	struct smc_addr client = s->remote;
	const struct smc_server *known;

	client.port = 0;
	known = smc_server_of(s->netns_cookie, &client);
	return known && known->knowledge == SMC_SERVER_NOT_NOW;
}

/* smc_check_denied() has set the rule before. */
static __always_inline bool smc_check_short_lived(struct smc_subject *s)
{
	if (smc_wants_short_lived(s->config, s->rule))
		return false;
	s->known = smc_short_of(s->netns_cookie, s->cgroup_id, s->direction, &s->remote, s->port);
	return s->known && smc_is_left_to_tcp(s->known);
}

/* Whether no kind of SMC could be negotiated. */
static __always_inline bool smc_check_no_device(struct smc_subject *s)
{
	const struct smc_heartbeat *beat;
	__u32 zero = 0;

	s->smcd = smc_wants_smcd(s->config, s->rule);
	beat = bpf_map_lookup_elem(&smc_heartbeat, &zero);
	return !s->smcd && (!beat || !beat->roce);
}

static __always_inline bool smc_check_same_agent(struct smc_subject *s)
{
	return s->own_tag;
}

static __always_inline bool smc_check_forwarded(struct smc_subject *s)
{
	return s->forwarded;
}

static __always_inline bool smc_check_no_listener(struct smc_subject *s)
{
	return !s->listener;
}

#define SMC_RETURN_IF_FAILED(decision, needs, function, text)                                                          \
	if (smc_check_##function(subject))                                                                             \
		return decision;

#endif
