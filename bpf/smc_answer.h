/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Client side: answers from the network to the requests of smc_ask.h. */
#ifndef SMC_ANSWER_H
#define SMC_ANSWER_H

/*
 * Turns the SYN-ACK of a server that does not speak SMC into a RST for the CLC socket: otherwise the server's
 * application would accept a connection that is never used. connect() of the CLC socket fails, the socket's `option`
 * tells the agent why, and the server's half-open connection is reset when it sends its SYN-ACK again.
 */
static __always_inline void smc_refuse_clc(struct __sk_buff *skb, const struct smc_packet *packet,
					   enum smc_option_seen seen)
{
	struct bpf_sock *skc = smc_socket_of(skb, &packet->tuple, packet->v6);
	struct bpf_sock *sk = skc ? bpf_sk_fullsock(skc) : 0;
	struct smc_sock *clc = sk ? bpf_sk_storage_get(&smc_socks, sk, 0, 0) : 0;
	__be16 before, after;

	if (clc && clc->option != SMC_OPTION_CALLBACK_LOST)
		clc->option = seen;
	if (skc)
		bpf_sk_release(skc);
	if (bpf_skb_load_bytes(skb, packet->tcp_at + 12, &before, sizeof(before)))
		return;
	after = (before & bpf_htons(0xff00)) | bpf_htons(SMC_TCP_RST | SMC_TCP_ACK);
	bpf_l4_csum_replace(skb, packet->tcp_at + SMC_TCP_CHECKSUM, before, after, 2);
	bpf_skb_store_bytes(skb, packet->tcp_at + 12, &after, sizeof(after), 0);
}

/* Pauses the server of this request, unless it is known to speak SMC or its present pause is longer. */
static __always_inline void smc_pause_server(const struct smc_request *request, const struct smc_tuple *tuple,
					     __u32 reason, __u64 time_ns)
{
	struct smc_dest dest = {.netns = request->netns};
	struct smc_server server = {.knowledge = SMC_SERVER_NOT_NOW, .reason = reason}, *known;

	__builtin_memcpy(dest.remote.ip, tuple->remote_ip, 16);
	dest.remote.port = tuple->remote_port;
	server.expires_ns = bpf_ktime_get_ns() + time_ns;
	known = smc_server_of(dest.netns, &dest.remote);
	if (known && (known->knowledge == SMC_SERVER_CAPABLE || known->expires_ns >= server.expires_ns))
		return;
	bpf_map_update_elem(&smc_servers, &dest, &server, BPF_ANY);
}

/*
 * A RST or an ICMP error from the network, which `packet` describes. If it answers a request, a firewall may have
 * refused our options: the packet is hidden from TCP, and the agent sends the SYN without options. That SYN's answer
 * counts. A closed port answers it in the same way, so the server is paused for a moment: programs that connect in a
 * loop pay for that only once. If half of the ring is used, the packet goes to TCP: any program can cause such events.
 */
static __always_inline int smc_rcv_refusal(const struct smc_packet *packet)
{
	struct smc_request *request = bpf_map_lookup_elem(&smc_requests, &packet->tuple);
	const struct smc_config *config = smc_get_config();

	if (!request || bpf_ntohl(packet->ack) != bpf_ntohl(request->isn) + 1)
		return TC_ACT_UNSPEC;
	if (request->state == SMC_REQUEST_HELD && request->reset)
		return TC_ACT_SHOT; /* another one of that firewall */
	if (request->state >= SMC_REQUEST_HELD && !(request->state == SMC_REQUEST_LET_GO && request->reset))
		return TC_ACT_UNSPEC;
	if (request->state == SMC_REQUEST_ASKED && config && smc_agent(config) != SMC_AGENT_STALE &&
	    smc_agent_listens(packet->tuple.slot, packet->v6) &&
	    bpf_ringbuf_query(&smc_events, BPF_RB_AVAIL_DATA) <= SMC_EVENT_BYTES / 2) {
		request->state = SMC_REQUEST_HELD;
		request->since_ns = bpf_ktime_get_ns();
		request->reset = 1;
		if (smc_tell_request(SMC_EVENT_RESET, &packet->tuple, request)) {
			smc_pause_server(request, &packet->tuple, SMC_REASON_CONNECT_FAILED, SMC_RESET_PAUSE_NS);
			smc_count(SMC_ANSWER_RESET);
			return TC_ACT_SHOT;
		}
	}
	/*
	 * The SYN without options is refused, too. Hosts limit the rate of ICMP errors (icmp_ratelimit), so the next
	 * connect() should cause only one.
	 */
	if (config && request->reset && request->state == SMC_REQUEST_LET_GO && !(packet->flags & SMC_TCP_RST))
		smc_pause_server(request, &packet->tuple, SMC_REASON_CONNECT_FAILED, config->not_now_ns);
	smc_end_request(&packet->tuple, request);
	return TC_ACT_UNSPEC;
}

static __always_inline int smc_rcv_reset(const struct smc_packet *packet)
{
	struct smc_inbound *inbound = bpf_map_lookup_elem(&smc_inbound, &packet->tuple);

	/* the client resets a request that was answered by a SYN cookie: no other packet follows */
	if (inbound && inbound->syncookie && bpf_ntohl(packet->seq) == bpf_ntohl(inbound->isn) + 1)
		bpf_map_delete_elem(&smc_inbound, &packet->tuple);
	return smc_rcv_refusal(packet);
}

/*
 * Whether this SYN-ACK, for which there is no entry, answers a request of an agent that was killed. If it were let
 * through, it would connect an application of this node to the server's agent, which expects CLC. (A socket of net/smc
 * sends its own requests.)
 */
static __always_inline bool smc_is_unasked(struct __sk_buff *skb, const struct smc_packet *packet)
{
	struct tcp_sock *tcp;
	struct bpf_sock *skc, *sk;
	bool unasked = false;

	if (!smc_agent_listens(packet->tuple.slot, packet->v6))
		return false;
	skc = smc_socket_of(skb, &packet->tuple, packet->v6);
	if (!skc)
		return false;
	sk = bpf_sk_fullsock(skc);
	tcp = sk && sk->state == BPF_TCP_SYN_SENT && !bpf_sk_storage_get(&smc_socks, sk, 0, 0) ? bpf_skc_to_tcp_sock(sk)
											       : 0;
	if (tcp)
		unasked = !bpf_core_field_exists(tcp->syn_smc) || !BPF_CORE_READ_BITFIELD(tcp, syn_smc);
	bpf_sk_release(skc);
	return unasked;
}

/* A SYN-ACK from the network. */
static __always_inline int smc_rcv_answer(struct __sk_buff *skb, const struct smc_packet *packet)
{
	struct smc_request *request = bpf_map_lookup_elem(&smc_requests, &packet->tuple);
	const struct smc_config *config = smc_get_config();
	struct smc_tcp_options options = {};
	bool echoed;

	/* an answer to another SYN is left to TCP */
	if (!config || (request && bpf_ntohl(packet->ack) != bpf_ntohl(request->isn) + 1))
		return TC_ACT_UNSPEC;
	smc_parse_options(skb, packet, &options);
	echoed = options.own && options.own_tag == config->tag;
	if (!request) {
		/* an echo has met its request on the device below, the port of a bridge for example */
		if (!options.smc || echoed || !smc_is_unasked(skb, packet))
			return TC_ACT_UNSPEC;
		smc_count(SMC_ANSWER_UNASKED);
		return smc_make_rst(skb, packet);
	}
	if (request->state == SMC_REQUEST_CLC) {
		smc_end_request(&packet->tuple, request);
		if (!options.smc || echoed) {
			smc_count(echoed ? SMC_PEER_OPTION_ECHOED : SMC_PEER_OPTION_ABSENT);
			smc_refuse_clc(skb, packet, echoed ? SMC_OPTION_ECHOED : SMC_OPTION_ABSENT);
		}
		return TC_ACT_UNSPEC;
	}
	if (!options.smc || echoed) {
		if (echoed) {
			smc_count(SMC_ANSWER_ECHOED);
		} else if ((request->state == SMC_REQUEST_ASKED_BARE &&
			    bpf_ktime_get_ns() - request->asked_ns >= SMC_SYN_LOST_NS) ||
			   (request->state == SMC_REQUEST_LET_GO && request->reset)) {
			/*
			 * The server has answered only the SYN without options. After a RST, that may have another
			 * cause (the port was opened meanwhile, or another server of an address translation answers),
			 * and to ask again costs a round trip only.
			 */
			smc_pause_server(request, &packet->tuple, SMC_REASON_OPTION_LOST,
					 request->reset ? SMC_OPTION_RESET_PAUSE_NS : config->not_now_ns);
			smc_count(SMC_ANSWER_LOST);
		} else if (request->state == SMC_REQUEST_ASKED) {
			smc_count(SMC_ANSWER_PLAIN);
		}
		if (request->state != SMC_REQUEST_ANSWERED)
			smc_end_request(&packet->tuple, request);
		return TC_ACT_UNSPEC;
	}
	/* The application must not see the answer to a request: the program has asked for SMC, not the application. */
	if (request->state == SMC_REQUEST_ASKED || request->state == SMC_REQUEST_ASKED_BARE) {
		request->state = SMC_REQUEST_HELD;
		request->since_ns = bpf_ktime_get_ns();
		request->seen_port = options.own ? options.own_port : 0;
		request->answer_ttl = packet->ttl;
		request->answer_isn = packet->seq;
		/* an agent that takes no new connections sends the SYN that the request has saved at once */
		if (smc_agent(config) != SMC_AGENT_STALE && smc_agent_listens(packet->tuple.slot, packet->v6) &&
		    smc_tell_request(SMC_EVENT_REQUEST, &packet->tuple, request)) {
			smc_count(SMC_ANSWER_SMC);
		} else {
			request->state = SMC_REQUEST_LET_GO;
			smc_count(SMC_ANSWER_REFUSED);
		}
	} else if (request->answer_isn == packet->seq || request->state == SMC_REQUEST_ANSWERED || request->reset) {
		smc_count(SMC_ANSWER_AGAIN);
	} else {
		/* another half-open connection: the server sends option 254 also in answer to a SYN without options */
		smc_end_request(&packet->tuple, request);
		return TC_ACT_UNSPEC;
	}
	return smc_make_rst(skb, packet);
}

#endif
