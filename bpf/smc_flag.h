/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The callback flag of the agent's own sockets (BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG): only sockets that have it are
 * asked for the options of their packets (smc_option.h). A socket has one set of flags for all programs of sockops, so
 * another program that sets its own flags without those of others takes it away. For a CLC socket that is the end of
 * one attempt. A listener would stay without it, so user space is told, and listens anew.
 */
#ifndef SMC_FLAG_H
#define SMC_FLAG_H

/* The SYN of a CLC socket leaves. */
static __always_inline void smc_check_syn(struct smc_sock *clc)
{
	if (clc->option == SMC_OPTION_ASKING || clc->option == SMC_OPTION_TAKEN)
		return;
	clc->option = SMC_OPTION_TAKEN;
	smc_count(SMC_OPTION_SYN_TAKEN);
}

/* Whether a SYN-ACK is of the agent's listener. A SYN cookie has no socket; then its entry in smc_inbound decides. */
static __always_inline bool smc_is_of_clc_listener(struct __sk_buff *skb, const struct smc_packet *packet)
{
	struct bpf_sock *sk = skb->sk;
	const struct smc_sock *state;

	if (!sk)
		return smc_agent_listens(packet->tuple.slot, packet->v6);
	sk = bpf_get_listener_sock(sk);
	state = sk ? bpf_sk_storage_get(&smc_socks, sk, 0, 0) : 0;
	return state && state->role == SMC_ROLE_AGENT_CLC;
}

/* A SYN-ACK of this namespace leaves. */
static __always_inline void smc_check_synack(struct __sk_buff *skb, const struct smc_packet *packet)
{
	const struct smc_inbound *inbound = bpf_map_lookup_elem(&smc_inbound, &packet->tuple);
	struct smc_event *event;

	if (!inbound || inbound->bare || inbound->asking || !smc_is_of_clc_listener(skb, packet))
		return;
	smc_count(SMC_OPTION_SYNACK_TAKEN);
	event = smc_event_new(SMC_EVENT_CALLBACK_TAKEN);
	if (!event)
		return;
	event->tuple = packet->tuple;
	bpf_ringbuf_submit(event, 0);
}

#endif
