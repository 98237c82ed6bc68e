/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The programs on devices. Loaded once; the two small ones at the end are loaded for each network namespace. */
#ifndef SMC_DEVICE_H
#define SMC_DEVICE_H

/*
 * Whether this is a packet of the agent's own with this sequence number: device->probe if it probes a hairpin, one more
 * if smc_suppress() made it. TCP never sends a segment without flags.
 */
static __always_inline bool smc_is_probe(const struct smc_packet *packet, __u32 seq)
{
	return !packet->flags && packet->tuple.local_port == SMC_PROBE_PORT &&
	       packet->tuple.remote_port == SMC_PROBE_PORT && packet->seq == bpf_htonl(seq);
}

/* The state of a socket whose packet leaves. Null: it has none, or none any more. */
static __always_inline struct smc_sock *smc_state_of_sender(struct __sk_buff *skb, struct bpf_sock *sk)
{
	struct smc_sock *state = bpf_sk_storage_get(&smc_socks, sk, 0, 0);

	/* an application's socket may be disconnected, and connect() again */
	if (state && (state->role == SMC_ROLE_APP || smc_is_tuned(state)) && sk->state == BPF_TCP_SYN_SENT) {
		smc_leave_hairpin(state, bpf_get_socket_cookie(skb));
		bpf_sk_storage_delete(&smc_socks, sk);
		return 0;
	}
	if (state && state->role == SMC_ROLE_APP)
		smc_tell_chosen(state, sk);
	return state;
}

/*
 * Whether this packet of a TCP socket is wrapped in another one by now: it left an upper device as it was, a tunnel for
 * example, and it leaves by the device below.
 */
static __always_inline bool smc_is_wrapped(struct __sk_buff *skb)
{
	__u8 protocol;
	__u32 at = skb->protocol == bpf_htons(ETH_P_IP) ? offsetof(struct iphdr, protocol)
							: offsetof(struct ipv6hdr, nexthdr);

	return (skb->protocol != bpf_htons(ETH_P_IP) && skb->protocol != bpf_htons(ETH_P_IPV6)) ||
	       bpf_skb_load_bytes_relative(skb, at, &protocol, sizeof(protocol), BPF_HDR_START_NET) ||
	       protocol == IPPROTO_IPIP || protocol == IPPROTO_IPV6 || protocol == IPPROTO_GRE ||
	       protocol == IPPROTO_UDP || protocol == SMC_IPPROTO_L2TP;
}

/* A packet of a leg that is not held back, or of the application at its other end. */
static __always_inline int smc_redirect_of(struct __sk_buff *skb, const struct smc_device_key *device,
					   struct smc_sock *state, const struct bpf_sock *sk)
{
	if (smc_is_wrapped(skb) || smc_lets_challenge_pass(skb, device, state))
		return TC_ACT_UNSPEC;
	if (state->role == SMC_ROLE_APP && (sk->state == BPF_TCP_CLOSE_WAIT || sk->state == BPF_TCP_LAST_ACK))
		return smc_redirect_behind_fin(skb, device->slot, state, sk->state == BPF_TCP_LAST_ACK);
	return smc_redirect(skb, state->mac_len, state->to_port);
}

/* A SYN of a socket: `state` is null for an application's. */
static __always_inline int smc_send_syn(struct __sk_buff *skb, struct smc_packet *packet, struct smc_device *device,
					struct bpf_sock *sk, struct smc_sock *state)
{
	enum smc_decision joined;

	if (!state)
		return smc_ask(skb, packet, device, sk);
	if (!smc_is_leg(state)) {
		smc_ask_for_clc(skb, packet, state);
		return TC_ACT_UNSPEC;
	}
	joined = smc_join_leg(skb, packet, sk, state);
	smc_count(joined);
	if (joined != SMC_LEG_JOINED && joined != SMC_LEG_TRANSLATED)
		state->paws = joined == SMC_LEG_PAWS ? SMC_PAWS_REFUSED : SMC_SYN_REFUSED;
	return joined == SMC_LEG_JOINED ? smc_redirect(skb, packet->mac_len, state->to_port)
					: smc_refuse_leg(skb, packet);
}

/* The first packets of an application that has a hairpin: copies the hairpin into the socket's storage. */
static __always_inline void smc_mark_sender(struct __sk_buff *skb, const struct smc_packet *packet, struct bpf_sock *sk,
					    struct smc_hairpin *hairpin)
{
	struct smc_sock *state = bpf_sk_storage_get(&smc_socks, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);

	if (state) {
		state->role = SMC_ROLE_APP;
		state->mac_len = hairpin->mac_len;
		state->to_port = hairpin->to_port;
		state->chosen = hairpin->chosen;
		state->app = packet->tuple;
		smc_tell_chosen(state, sk);
	}
	if (!hairpin->of_leg)
		smc_note_sender(hairpin, bpf_skc_to_tcp_sock(sk), bpf_get_socket_cookie(skb));
}

SEC("tc")
int smc_egress(struct __sk_buff *skb)
{
	struct smc_device_key key = {.slot = skb->cb[0], .ifindex = skb->ifindex};
	struct smc_packet packet = {};
	struct bpf_sock *sk = skb->sk;
	struct smc_hairpin *hairpin;
	struct smc_device *device;
	struct smc_sock *state = 0;

	if (sk)
		sk = bpf_sk_fullsock(sk);
	if (sk && sk->type == SOCK_STREAM && sk->protocol == IPPROTO_TCP) {
		state = smc_state_of_sender(skb, sk);
		/* a packet of another namespace on a device of this one: it was handled on its own device */
		if (state && state->to_port && state->app.slot != key.slot)
			return TC_ACT_UNSPEC;
		if (state && state->to_port && !state->hold)
			return smc_redirect_of(skb, &key, state, sk);
	} else {
		sk = 0;
	}
	device = bpf_map_lookup_elem(&smc_devices, &key);
	if (!device)
		return TC_ACT_UNSPEC;
	if (!smc_parse(skb, key.slot, device->mac_len, true, &packet)) {
		if (state && state->to_port)
			return TC_ACT_SHOT; /* it must be held, but smc_parse() refuses its headers; TCP repeats it */
		if (sk && sk->state == BPF_TCP_SYN_SENT && skb->protocol == bpf_htons(ETH_P_IPV6) &&
		    smc_tcp_behind(skb, device->mac_len))
			smc_count(SMC_OUT_HEADERS);
		return TC_ACT_UNSPEC;
	}
	if (state && state->to_port)
		return smc_hold(skb, &packet, device, state);
	if (sk && sk->state == BPF_TCP_SYN_SENT && (packet.flags & (SMC_TCP_SYN | SMC_TCP_ACK)) == SMC_TCP_SYN)
		return smc_send_syn(skb, &packet, device, sk, state);
	if (sk && (packet.flags & SMC_TCP_FIN) && smc_closes_unread(sk)) {
		smc_make_fin_rst(skb, &packet);
		return TC_ACT_UNSPEC;
	}
	if ((packet.flags & (SMC_TCP_SYN | SMC_TCP_ACK)) == (SMC_TCP_SYN | SMC_TCP_ACK) && !skb->ingress_ifindex) {
		smc_note_answer(&packet);
		smc_check_synack(skb, &packet);
	}
	if (smc_is_probe(&packet, device->probe))
		return smc_redirect(skb, packet.mac_len, SMC_PROBE_PORT);
	hairpin = bpf_map_lookup_elem(&smc_hairpins, &packet.tuple);
	if (!hairpin)
		return TC_ACT_UNSPEC;
	/* from 6.13 on, a RST of a socket that connects names that socket, which is not behind this hairpin yet */
	if (sk && sk->state != BPF_TCP_LISTEN && sk->state != BPF_TCP_SYN_SENT)
		smc_mark_sender(skb, &packet, sk, hairpin);
	return smc_redirect(skb, packet.mac_len, hairpin->to_port);
}

SEC("tc")
int smc_ingress(struct __sk_buff *skb)
{
	struct smc_device_key key = {.slot = skb->cb[0], .ifindex = skb->ifindex};
	struct smc_device *device;
	struct smc_packet packet = {};

	device = bpf_map_lookup_elem(&smc_devices, &key);
	if (!device)
		return TC_ACT_UNSPEC;
	if (smc_is_icmp(skb, device->mac_len))
		return smc_parse_refusal(skb, key.slot, device->mac_len, &packet) ? smc_rcv_refusal(&packet)
										  : TC_ACT_UNSPEC;
	if (!smc_parse(skb, key.slot, device->mac_len, false, &packet))
		return TC_ACT_UNSPEC;
	if (smc_is_probe(&packet, device->probe)) {
		__sync_fetch_and_add(packet.v6 ? &device->looped6 : &device->looped4, 1);
		return TC_ACT_SHOT;
	}
	if (smc_is_probe(&packet, device->probe + 1))
		return TC_ACT_SHOT;
	if (packet.flags & SMC_TCP_RST)
		return smc_rcv_reset(&packet);
	if (!(packet.flags & SMC_TCP_SYN))
		return TC_ACT_UNSPEC;
	packet.encrypts = device->encrypts;
	return packet.flags & SMC_TCP_ACK ? smc_rcv_answer(skb, &packet) : smc_rcv_request(skb, &packet);
}

/* True for nearly all outgoing packets, which leave as they are: UDP, or an established connection without a leg. */
static __always_inline bool smc_skip_egress(struct __sk_buff *skb)
{
	struct bpf_sock *sk = skb->sk;
	struct smc_sock *state;

	if (sk)
		sk = bpf_sk_fullsock(sk);
	if (!sk)
		return false;
	if (sk->type != SOCK_STREAM || sk->protocol != IPPROTO_TCP)
		return sk->protocol == IPPROTO_UDP;
	if (sk->state == BPF_TCP_SYN_SENT || sk->state == BPF_TCP_SYN_RECV || sk->state == BPF_TCP_LISTEN)
		return false;
	state = bpf_sk_storage_get(&smc_socks, sk, 0, 0);
	if (state && !smc_is_tuned(state))
		return false;
	/* after a FIN only members of the bypass go on to smc_egress (smc_unread.h) */
	return (sk->state != BPF_TCP_FIN_WAIT1 && sk->state != BPF_TCP_LAST_ACK) ||
	       !bpf_sk_storage_get(&smc_paired, sk, 0, 0);
}

/* True for nearly all incoming packets: no ICMP, SYN or RST, and no segment without flags (a probe). */
static __always_inline bool smc_skip_ingress(struct __sk_buff *skb)
{
	__u32 tcp_at;
	__u8 head[10], flags; /* up to the protocol */

	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		if (bpf_skb_load_bytes_relative(skb, 0, head, sizeof(head), BPF_HDR_START_NET))
			return true;
		if (head[9] == IPPROTO_ICMP)
			return false;
		tcp_at = (head[0] & 15) * 4;
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		if (bpf_skb_load_bytes_relative(skb, 0, head, 7, BPF_HDR_START_NET))
			return true;
		if (head[6] == SMC_IPPROTO_ICMP6)
			return false;
		tcp_at = sizeof(struct ipv6hdr);
	} else {
		return true;
	}
	return bpf_skb_load_bytes_relative(skb, tcp_at + 13, &flags, 1, BPF_HDR_START_NET) ||
	       (flags && !(flags & (SMC_TCP_SYN | SMC_TCP_RST)));
}

SEC("tc")
int smc_out(struct __sk_buff *skb)
{
	__u32 slot;

	if (smc_skip_egress(skb))
		return TC_ACT_UNSPEC;
	SMC_OWN_SLOT(slot);
	skb->cb[0] = slot;
	bpf_tail_call(skb, &smc_programs, SMC_PROGRAM_EGRESS);
	return TC_ACT_UNSPEC;
}

SEC("tc")
int smc_in(struct __sk_buff *skb)
{
	__u32 slot;

	if (smc_skip_ingress(skb))
		return TC_ACT_UNSPEC;
	SMC_OWN_SLOT(slot);
	skb->cb[0] = slot;
	bpf_tail_call(skb, &smc_programs, SMC_PROGRAM_INGRESS);
	return TC_ACT_UNSPEC;
}

#endif
