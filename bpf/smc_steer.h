/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Client side: connect() of an eligible application socket goes to the agent, its SYN waits there. */
#ifndef SMC_STEER_H
#define SMC_STEER_H

static __always_inline enum smc_decision smc_decide_outbound(struct smc_subject *subject)
{
	SMC_OUTBOUND_QUESTIONS(SMC_ASK)
	return SMC_OUT_STEERED;
}

/* What the agent has not heard of yet it should look at; the next connection may be steered. */
static __always_inline void smc_tell_unknown(const struct smc_subject *subject, enum smc_decision decision,
					     __u64 cgroup_id)
{
	struct smc_event *event;

	if (decision == SMC_OUT_NOT_ENROLLED && !subject->cgroup)
		event = smc_event_new(SMC_EVENT_CGROUP_WANTED);
	else if (decision == SMC_OUT_NETNS_UNKNOWN && !subject->netns)
		event = smc_event_new(SMC_EVENT_NETNS_WANTED);
	else
		return;
	if (!event)
		return;
	event->cgroup = cgroup_id;
	event->netns = subject->netns_cookie;
	event->pid = bpf_get_current_pid_tgid() >> 32;
	bpf_ringbuf_submit(event, 0);
}

/* Returns the port of the agent's listener to rewrite to, 0 to leave the connection alone. */
static __always_inline __u16 smc_steer(struct bpf_sock_addr *ctx, const struct smc_addr *remote)
{
	struct smc_subject subject = {};
	enum smc_decision decision;
	struct smc_sock *state;
	struct smc_flow flow = {};
	__u64 cookie, cgroup_id, owner;

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
	cgroup_id = bpf_get_current_cgroup_id();
	subject.config = smc_get_config();
	if (!subject.config)
		return 0;
	subject.cgroup = bpf_map_lookup_elem(&smc_cgroups, &cgroup_id);
	subject.netns_cookie = bpf_get_netns_cookie(ctx);
	subject.remote = *remote;
	subject.port = remote->port;
	subject.direction = SMC_OUTBOUND;
	subject.connect = ctx;
	subject.bound_port = ctx->sk->src_port;
	subject.bound_device = ctx->sk->bound_dev_if;
	subject.tcp = bpf_skc_to_tcp_sock(ctx->sk);
	decision = smc_decide_outbound(&subject);
	if (decision != SMC_OUT_STEERED) {
		smc_tell_unknown(&subject, decision, cgroup_id);
		smc_count(decision);
		return 0;
	}
	flow.state = SMC_FLOW_STEERED;
	flow.pid = bpf_get_current_pid_tgid() >> 32;
	owner = bpf_get_current_uid_gid();
	flow.uid = owner;
	flow.gid = owner >> 32;
	flow.since_ns = bpf_ktime_get_ns();
	flow.netns = subject.netns_cookie;
	flow.cgroup = cgroup_id;
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
	if (!subject.netns)
		return 0; /* for the verifier: netns_unknown() was asked */
	return smc_is_v4(remote->ip) ? subject.netns->leg4_port : subject.netns->leg6_port;
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
