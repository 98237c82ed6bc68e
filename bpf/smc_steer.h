/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Client side: connect() of an eligible application socket goes to the agent, its SYN waits there. */
#ifndef SMC_STEER_H
#define SMC_STEER_H

/* An agent that was killed left its heartbeat behind; its listener is gone at once. */
static __always_inline bool smc_listener_there(struct bpf_sock_addr *ctx, __u16 port, bool v6)
{
	struct bpf_sock_tuple tuple = {};
	struct bpf_sock *sk;
	bool there;

	if (v6) {
		tuple.ipv6.daddr[3] = bpf_htonl(1);
		tuple.ipv6.dport = bpf_htons(port);
		sk = bpf_skc_lookup_tcp(ctx, &tuple, sizeof(tuple.ipv6), BPF_F_CURRENT_NETNS, 0);
	} else {
		tuple.ipv4.daddr = bpf_htonl(0x7f000001);
		tuple.ipv4.dport = bpf_htons(port);
		sk = bpf_skc_lookup_tcp(ctx, &tuple, sizeof(tuple.ipv4), BPF_F_CURRENT_NETNS, 0);
	}
	if (!sk)
		return false;
	there = sk->state == BPF_TCP_LISTEN;
	bpf_sk_release(sk);
	return there;
}

/* Returns the decision; SMC_OUT_STEERED leaves the listener's port in *port. */
static __always_inline enum smc_decision smc_decide(struct bpf_sock_addr *ctx, const struct smc_addr *remote,
						    __u16 *port)
{
	bool v6 = !smc_is_v4(remote->ip);
	const struct smc_config *config;
	const struct smc_incapable *incapable;
	const struct smc_cgroup *cgroup;
	const struct smc_netns *netns;
	enum smc_agent_state agent;
	struct smc_dest dest = {};
	struct smc_event *event;
	struct tcp_sock *tcp;
	__u64 cgroup_id, cookie;

	cgroup_id = bpf_get_current_cgroup_id();
	cgroup = bpf_map_lookup_elem(&smc_cgroups, &cgroup_id);
	if (!cgroup) {
		event = smc_event_new(SMC_EVENT_CGROUP_WANTED);
		if (event) {
			event->cgroup = cgroup_id;
			event->pid = bpf_get_current_pid_tgid() >> 32;
			bpf_ringbuf_submit(event, 0);
		}
		return SMC_OUT_NOT_ENROLLED;
	}
	config = smc_get_config();
	if (!config || !cgroup->enrolled)
		return SMC_OUT_NOT_ENROLLED;
	if (!smc_allowed(config, cgroup->rules, remote, remote->port, SMC_OUTBOUND))
		return SMC_OUT_DENIED;
	agent = smc_agent(config);
	if (agent != SMC_AGENT_SERVES)
		return agent == SMC_AGENT_FULL ? SMC_OUT_AGENT_FULL : SMC_OUT_AGENT_STALE;

	cookie = bpf_get_netns_cookie(ctx);
	netns = bpf_map_lookup_elem(&smc_netns, &cookie);
	if (!netns) {
		event = smc_event_new(SMC_EVENT_NETNS_WANTED);
		if (event) {
			event->netns = cookie;
			event->pid = bpf_get_current_pid_tgid() >> 32;
			bpf_ringbuf_submit(event, 0);
		}
		return SMC_OUT_NETNS_UNKNOWN;
	}
	*port = v6 ? netns->leg6_port : netns->leg4_port;
	if (!*port)
		return SMC_OUT_NETNS_UNKNOWN;

	if (!ctx->sk)
		return SMC_OUT_DENIED;
	if (ctx->sk->src_port)
		return SMC_OUT_BOUND_PORT;
	if (ctx->sk->bound_dev_if)
		return SMC_OUT_BOUND_DEVICE;
	tcp = bpf_skc_to_tcp_sock(ctx->sk);
	if (!tcp || (bpf_core_field_exists(tcp->is_mptcp) && BPF_CORE_READ_BITFIELD_PROBED(tcp, is_mptcp)))
		return SMC_OUT_MPTCP;
	if (smc_is_signed(tcp))
		return SMC_OUT_TCP_SIGNED;
	if (smc_has_ipsec(tcp))
		return SMC_OUT_IPSEC;

	dest.netns = cookie;
	dest.remote = *remote;
	incapable = bpf_map_lookup_elem(&smc_incapable, &dest);
	if (incapable && incapable->expires_ns > bpf_ktime_get_ns())
		return SMC_OUT_INCAPABLE;
	return smc_listener_there(ctx, *port, v6) ? SMC_OUT_STEERED : SMC_OUT_AGENT_GONE;
}

/* Returns the port of the agent's listener to rewrite to, 0 to leave the connection alone. */
static __always_inline __u16 smc_steer(struct bpf_sock_addr *ctx, const struct smc_addr *remote)
{
	enum smc_decision decision;
	struct smc_sock *state;
	struct smc_flow flow = {};
	__u64 cookie, owner;
	__u16 port = 0;

	if (ctx->type != SOCK_STREAM || ctx->protocol != IPPROTO_TCP || !ctx->sk)
		return 0;
	state = bpf_sk_storage_get(&smc_socks, ctx->sk, 0, 0);
	if (state && state->role != SMC_ROLE_APP_CLIENT)
		return 0;
	cookie = bpf_get_socket_cookie(ctx);
	if (state) {
		/* a second connect() after a failed one starts from nothing */
		bpf_map_delete_elem(&smc_flows, &cookie);
		bpf_sk_storage_delete(&smc_socks, ctx->sk);
	}
	decision = smc_decide(ctx, remote, &port);
	if (decision != SMC_OUT_STEERED) {
		smc_count(decision);
		return 0;
	}
	flow.state = SMC_FLOW_STEERED;
	flow.pid = bpf_get_current_pid_tgid() >> 32;
	owner = bpf_get_current_uid_gid();
	flow.uid = owner;
	flow.gid = owner >> 32;
	flow.since_ns = bpf_ktime_get_ns();
	flow.netns = bpf_get_netns_cookie(ctx);
	flow.cgroup = bpf_get_current_cgroup_id();
	flow.remote = *remote;
	state = bpf_sk_storage_get(&smc_socks, ctx->sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!state || bpf_map_update_elem(&smc_flows, &cookie, &flow, BPF_ANY)) {
		bpf_sk_storage_delete(&smc_socks, ctx->sk);
		smc_count(SMC_OUT_TABLE_FULL);
		return 0;
	}
	state->role = SMC_ROLE_APP_CLIENT;
	state->remote = *remote;
	smc_count(SMC_OUT_STEERED);
	return port;
}

SEC("cgroup/connect4")
int smc_connect4(struct bpf_sock_addr *ctx)
{
	struct smc_addr remote = {};
	__u16 port;

	smc_map_v4(remote.ip, ctx->user_ip4);
	remote.port = bpf_ntohs(ctx->user_port);
	port = smc_steer(ctx, &remote);
	if (port) {
		ctx->user_ip4 = bpf_htonl(0x7f000001);
		ctx->user_port = bpf_htons(port);
	}
	return 1;
}

SEC("cgroup/connect6")
int smc_connect6(struct bpf_sock_addr *ctx)
{
	struct smc_addr remote = {};
	__u32 *ip = (__u32 *)remote.ip;
	__u16 port;

	ip[0] = ctx->user_ip6[0];
	ip[1] = ctx->user_ip6[1];
	ip[2] = ctx->user_ip6[2];
	ip[3] = ctx->user_ip6[3];
	remote.port = bpf_ntohs(ctx->user_port);
	port = smc_steer(ctx, &remote);
	if (port) {
		bool v4 = smc_is_v4(remote.ip);

		ctx->user_ip6[0] = 0;
		ctx->user_ip6[1] = 0;
		ctx->user_ip6[2] = v4 ? bpf_htonl(0xffff) : 0;
		ctx->user_ip6[3] = v4 ? bpf_htonl(0x7f000001) : bpf_htonl(1);
		ctx->user_port = bpf_htons(port);
	}
	return 1;
}

/*
 * Holds the SYN of a steered socket. Dropping it here does not disturb the application's connect():
 * TCP goes on retransmitting until the agent answers, or until TCP itself gives up. It is never let go
 * without an answer: it would reach the agent's own listener, and connect() would succeed for nothing.
 * (When the agent dies the kernel detaches this program, and the listener is gone.)
 */
SEC("cgroup_skb/egress")
int smc_hold_syn(struct __sk_buff *skb)
{
	struct bpf_sock *sk = skb->sk;
	struct smc_sock *state;
	struct smc_flow *flow;
	struct smc_event *event;
	__u64 cookie, last;

	if (!sk || sk->state != BPF_TCP_SYN_SENT)
		return 1;
	sk = bpf_sk_fullsock(sk);
	if (!sk)
		return 1;
	state = bpf_sk_storage_get(&smc_socks, sk, 0, 0);
	if (!state || state->role != SMC_ROLE_APP_CLIENT)
		return 1;
	cookie = bpf_get_socket_cookie(skb);
	flow = bpf_map_lookup_elem(&smc_flows, &cookie);
	if (flow && flow->state >= SMC_FLOW_RELEASED)
		return 1;
	if (!flow || flow->state == SMC_FLOW_HELD) {
		smc_count(SMC_SYN_HELD_AGAIN);
		return 0;
	}
	event = smc_event_new(SMC_EVENT_SYN_HELD);
	if (!event) {
		smc_count(SMC_SYN_EVENT_LOST);
		return 0;
	}
	event->pid = flow->pid;
	event->cookie = cookie;
	event->netns = flow->netns;
	event->cgroup = flow->cgroup;
	event->remote = flow->remote;
	event->uid = flow->uid;
	event->gid = flow->gid;
	event->mark = sk->mark;
	/*
	 * The offset of the last byte, not the length: the verifier of 6.1 does not learn from len == 0 that len is 1
	 * or more. It wants the test on this very register, which clang would fold into the one above.
	 */
	last = skb->len > SMC_SYN_BYTES ? SMC_SYN_BYTES - 1 : skb->len - 1;
	barrier_var(last);
	if (last >= SMC_SYN_BYTES || bpf_skb_load_bytes(skb, 0, event->syn, last + 1)) {
		bpf_ringbuf_discard(event, 0);
		return 0;
	}
	event->syn_len = last + 1;
	flow->state = SMC_FLOW_HELD;
	bpf_ringbuf_submit(event, 0);
	smc_count(SMC_SYN_HELD);
	return 0;
}

#endif
