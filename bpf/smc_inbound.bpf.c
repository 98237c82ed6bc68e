// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Server side, one instance per network namespace: tc ingress recognises SYNs that carry option 254 and
 * have a real listener behind them, sk_lookup hands exactly those to the agent's listener for CLC sockets.
 */
#include "bpf/kernel_types.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "bpf/abi.h"
#include "bpf/smc_maps.h"
#include "bpf/smc_common.h"
#include "bpf/smc_questions.h"

#define TCPOPT_END 0
#define TCPOPT_NOP 1
#define TCPOPT_MPTCP 30

/* sk_lookup cannot ask in which namespace it runs */
const volatile __u32 smc_slot;

struct smc_syn {
	struct smc_tuple tuple;
	bool v6;
	bool smc;
	bool mptcp;
};

static __always_inline int smc_load(struct __sk_buff *skb, __u32 offset, void *to, __u32 len)
{
	return bpf_skb_load_bytes_relative(skb, offset, to, len, BPF_HDR_START_NET);
}

/* Returns the offset of the TCP header, 0 if the packet is not ours to look at. */
static __always_inline __u32 smc_parse_ip(struct __sk_buff *skb, struct smc_syn *syn)
{
	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		struct iphdr ip;

		if (smc_load(skb, 0, &ip, sizeof(ip)) || ip.protocol != IPPROTO_TCP ||
		    (ip.frag_off & bpf_htons(0x1fff)))
			return 0;
		smc_map_v4(syn->tuple.remote_ip, ip.saddr);
		smc_map_v4(syn->tuple.local_ip, ip.daddr);
		return ip.ihl * 4;
	}
	if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr ip;

		if (smc_load(skb, 0, &ip, sizeof(ip)) || ip.nexthdr != IPPROTO_TCP)
			return 0;
		__builtin_memcpy(syn->tuple.remote_ip, &ip.saddr, 16);
		__builtin_memcpy(syn->tuple.local_ip, &ip.daddr, 16);
		syn->v6 = true;
		return sizeof(ip);
	}
	return 0;
}

static __always_inline void smc_parse_options(struct __sk_buff *skb, __u32 offset, __u32 end, struct smc_syn *syn)
{
	for (int i = 0; i < 40; i++) {
		struct {
			__u8 kind;
			__u8 len;
		} head = {};
		__be32 exid;

		if (offset >= end || smc_load(skb, offset, &head.kind, 1) || head.kind == TCPOPT_END)
			return;
		if (head.kind == TCPOPT_NOP) {
			offset++;
			continue;
		}
		if (smc_load(skb, offset + 1, &head.len, 1) || head.len < 2)
			return;
		if (head.kind == TCPOPT_MPTCP)
			syn->mptcp = true;
		if (head.kind == SMC_TCPOPT_KIND && head.len == SMC_TCPOPT_LEN && offset + head.len <= end &&
		    !smc_load(skb, offset + 2, &exid, sizeof(exid)) && exid == bpf_htonl(SMC_TCPOPT_EXID))
			syn->smc = true;
		offset += head.len;
	}
}

static __always_inline enum smc_decision smc_decide_inbound(struct smc_subject *subject)
{
	SMC_INBOUND_QUESTIONS(SMC_ASK)
	return SMC_IN_STEERED;
}

/* A SYN that nobody would answer must get its RST from the kernel, so the listener is looked up before steering. */
static __always_inline enum smc_decision smc_decide_syn(struct __sk_buff *skb, const struct smc_syn *syn)
{
	struct smc_subject subject = {};
	struct bpf_sock_tuple tuple = {};
	enum smc_decision decision;
	struct bpf_sock *skc, *sk;
	struct tcp_sock *tcp;
	__u64 cgroup_id;

	subject.config = smc_get_config();
	if (!subject.config)
		return SMC_IN_AGENT_STALE;
	__builtin_memcpy(subject.remote.ip, syn->tuple.remote_ip, 16);
	subject.remote.port = syn->tuple.remote_port;
	subject.port = syn->tuple.local_port;
	subject.direction = SMC_INBOUND;
	subject.mptcp = syn->mptcp;
	/* no remote address: only the listener is wanted, not what TIME_WAIT keeps of a port used before */
	if (syn->v6) {
		__builtin_memcpy(tuple.ipv6.daddr, syn->tuple.local_ip, 16);
		tuple.ipv6.dport = bpf_htons(syn->tuple.local_port);
		skc = bpf_skc_lookup_tcp(skb, &tuple, sizeof(tuple.ipv6), BPF_F_CURRENT_NETNS, 0);
	} else {
		__builtin_memcpy(&tuple.ipv4.daddr, syn->tuple.local_ip + 12, 4);
		tuple.ipv4.dport = bpf_htons(syn->tuple.local_port);
		skc = bpf_skc_lookup_tcp(skb, &tuple, sizeof(tuple.ipv4), BPF_F_CURRENT_NETNS, 0);
	}
	sk = skc ? bpf_sk_fullsock(skc) : 0;
	tcp = sk && sk->state == BPF_TCP_LISTEN ? bpf_skc_to_tcp_sock(sk) : 0;
	if (tcp) {
		subject.tcp = tcp;
		subject.listener = true;
		subject.bound_device = sk->bound_dev_if;
		/* the helper for this is not open to tc programs */
		cgroup_id = BPF_CORE_READ((struct sock *)tcp, sk_cgrp_data.cgroup, kn, id);
		subject.cgroup = bpf_map_lookup_elem(&smc_cgroups, &cgroup_id);
	}
	decision = smc_decide_inbound(&subject);
	if (skc)
		bpf_sk_release(skc);
	return decision;
}

SEC("tc")
int smc_ingress(struct __sk_buff *skb)
{
	struct smc_syn syn = {};
	enum smc_decision decision;
	struct tcphdr tcp;
	__u32 offset;
	__u64 now;

	offset = smc_parse_ip(skb, &syn);
	if (!offset || smc_load(skb, offset, &tcp, sizeof(tcp)) || !tcp.syn || tcp.ack || tcp.rst)
		return TC_ACT_UNSPEC;
	syn.tuple.remote_port = bpf_ntohs(tcp.source);
	syn.tuple.local_port = bpf_ntohs(tcp.dest);
	syn.tuple.slot = smc_slot;
	smc_parse_options(skb, offset + sizeof(tcp), offset + tcp.doff * 4, &syn);

	/* the port may have been used before; sk_lookup must not see the old verdict, not even from here */
	bpf_map_delete_elem(&smc_inbound, &syn.tuple);
	if (!syn.smc)
		return TC_ACT_UNSPEC;
	decision = smc_decide_syn(skb, &syn);
	smc_count(decision);
	if (decision == SMC_IN_STEERED) {
		now = bpf_ktime_get_ns();
		bpf_map_update_elem(&smc_inbound, &syn.tuple, &now, BPF_ANY);
	}
	return TC_ACT_UNSPEC;
}

SEC("sk_lookup")
int smc_lookup(struct bpf_sk_lookup *ctx)
{
	struct smc_tuple tuple = {};
	struct bpf_sock *sk;
	bool v6 = ctx->family == AF_INET6;
	__u32 key;

	if (ctx->protocol != IPPROTO_TCP)
		return SK_PASS;
	if (v6) {
		__u32 *remote = (__u32 *)tuple.remote_ip, *local = (__u32 *)tuple.local_ip;

		remote[0] = ctx->remote_ip6[0];
		remote[1] = ctx->remote_ip6[1];
		remote[2] = ctx->remote_ip6[2];
		remote[3] = ctx->remote_ip6[3];
		local[0] = ctx->local_ip6[0];
		local[1] = ctx->local_ip6[1];
		local[2] = ctx->local_ip6[2];
		local[3] = ctx->local_ip6[3];
	} else {
		smc_map_v4(tuple.remote_ip, ctx->remote_ip4);
		smc_map_v4(tuple.local_ip, ctx->local_ip4);
	}
	tuple.remote_port = bpf_ntohs(ctx->remote_port);
	tuple.local_port = ctx->local_port;
	tuple.slot = smc_slot;
	if (!bpf_map_lookup_elem(&smc_inbound, &tuple))
		return SK_PASS;
	key = smc_slot * 2 + v6;
	sk = bpf_map_lookup_elem(&smc_clc, &key);
	if (!sk)
		return SK_PASS; /* agent gone: the application's own listener answers */
	bpf_sk_assign(ctx, sk, 0);
	bpf_sk_release(sk);
	return SK_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
