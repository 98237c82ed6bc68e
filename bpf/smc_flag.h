/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The callback flag of the agent's own sockets (BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG): the kernel asks the agent's
 * program for the options of a packet (smc_option.h) only if the packet's socket has it. A socket has one set of flags
 * for all sockops programs, so another program that sets its own flags without keeping those of others clears this one.
 * A CLC socket then fails, which ends one attempt. A listener would stay without the flag, so user space is told, and
 * listens anew.
 */
#ifndef SMC_FLAG_H
#define SMC_FLAG_H

/* To be called when the SYN of a CLC socket leaves: notes if the kernel has not asked for its options. */
static __always_inline void smc_check_syn(struct smc_sock *clc)
{
	if (clc->option == SMC_OPTION_ASKING || clc->option == SMC_OPTION_CALLBACK_LOST)
		return;
	clc->option = SMC_OPTION_CALLBACK_LOST;
	smc_count(SMC_OPTION_SYN_LOST);
}

/* Whether the agent's listener sends this SYN-ACK, whose SYN is in smc_inbound. One with a SYN cookie has no socket. */
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

/* To be called when a SYN-ACK leaves: reports one of the agent's for whose options the kernel has not asked. */
static __always_inline void smc_check_synack(struct __sk_buff *skb, const struct smc_packet *packet)
{
	const struct smc_inbound *inbound = bpf_map_lookup_elem(&smc_inbound, &packet->tuple);
	struct smc_event *event;

	if (!inbound || !inbound->assigned || inbound->bare || inbound->callback_ran ||
	    !smc_is_of_clc_listener(skb, packet))
		return;
	smc_count(SMC_OPTION_SYNACK_LOST);
	event = smc_event_new(SMC_EVENT_CALLBACK_LOST);
	if (!event)
		return;
	event->tuple = packet->tuple;
	bpf_ringbuf_submit(event, 0);
}

#endif
