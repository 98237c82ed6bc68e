/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Client side: an application's own SYN asks whether its server speaks SMC.
 *
 *	no entry    --SYN-->                    ASKED, or HELD if the server is known to speak SMC
 *	ASKED       --SYN again-->              ASKED_BARE: something on the path may drop unknown options
 *	ASKED*      --SYN-ACK, no option-->     no entry: an ordinary TCP connection, left untouched
 *	ASKED*      --SYN-ACK, option 254-->    HELD (LET_GO if no agent serves): the answer is reset, unseen by TCP
 *	ASKED       --RST, ICMP error-->        HELD, and the agent lets it go at once: a firewall may refuse the option
 *	                                        (no entry, and the RST counts, if no agent serves)
 *	HELD        --the agent's leg-->        ANSWERED
 *	HELD        --the agent, or timeout-->  LET_GO: the SYN goes out without options, as without an agent
 *
 * If no kind of SMC could be negotiated, the SYN has our own option alone, and only if connections within this node are
 * tuned or bypassed (smc_pairs.h).
 *
 * The options are written here and not by sockops, because the answer must be caught, too: a SYN that leaves by a
 * device without our programs must not ask.
 */
#ifndef SMC_ASK_H
#define SMC_ASK_H

static __always_inline enum smc_decision smc_decide_outbound(struct smc_subject *subject)
{
	SMC_OUTBOUND_CHECKS(SMC_RETURN_IF_FAILED)
	return SMC_OUT_ASKED;
}

/* Reports a cgroup that the agent does not know yet, so that the next connection from it may ask. */
static __always_inline void smc_tell_unknown(const struct smc_subject *subject, enum smc_decision decision,
					     __u64 cgroup_id)
{
	struct smc_event *event;

	if (decision != SMC_OUT_NOT_ENROLLED || subject->cgroup)
		return;
	event = smc_event_new(SMC_EVENT_CGROUP_UNKNOWN);
	if (!event)
		return;
	event->cgroup = cgroup_id;
	bpf_ringbuf_submit(event, 0);
}

static __always_inline bool smc_tell_request(enum smc_event_type type, const struct smc_tuple *tuple,
					     const struct smc_request *request)
{
	struct smc_event *event = bpf_ringbuf_reserve(&smc_events, sizeof(*event), 0);

	if (!event)
		return false;
	event->type = type;
	event->tuple = *tuple;
	event->request = *request;
	bpf_ringbuf_submit(event, 0);
	return true;
}

/* A retransmission of a SYN that has an entry in smc_requests. True: it must not leave. */
static __always_inline bool smc_ask_again(struct smc_request *request, const struct smc_config *config, __u32 slot,
					  bool v6)
{
	if (request->state == SMC_REQUEST_ASKED || request->state == SMC_REQUEST_ASKED_BARE) {
		request->state = SMC_REQUEST_ASKED_BARE;
		smc_count(SMC_SYN_AGAIN);
		return false;
	}
	if (request->state == SMC_REQUEST_HELD && config && smc_agent(config) != SMC_AGENT_STALE &&
	    smc_agent_listens(slot, v6) && bpf_ktime_get_ns() - request->since_ns < config->budget_ns) {
		smc_count(SMC_SYN_HELD);
		return true;
	}
	request->state = SMC_REQUEST_LET_GO;
	smc_count(SMC_SYN_LET_GO);
	return false;
}

static __always_inline void smc_describe(struct __sk_buff *skb, const struct smc_packet *packet, struct bpf_sock *sk,
					 struct tcp_sock *tcp, struct smc_request *request)
{
	struct sock *full = (struct sock *)tcp;
	const struct file *file = full->sk_socket->file;
	const struct cred *owner = file ? file->f_cred : 0;

	request->ifindex = skb->ifindex;
	request->asked_ns = request->since_ns = bpf_ktime_get_ns();
	if (packet->v6) {
		__u32 *ip = (__u32 *)request->local.ip;

		ip[0] = sk->src_ip6[0];
		ip[1] = sk->src_ip6[1];
		ip[2] = sk->src_ip6[2];
		ip[3] = sk->src_ip6[3];
	} else {
		smc_map_v4(request->local.ip, sk->src_ip4);
	}
	request->local.port = sk->src_port;
	if (owner) {
		request->uid = owner->fsuid.val;
		request->gid = owner->fsgid.val;
	}
	/* the current process is the application only if the SYN leaves within connect() itself */
	if (smc_pid_is_open && full->sk_lock.owned)
		request->pid = bpf_get_current_pid_tgid() >> 32;
	request->mark = sk->mark;
	request->bound_device = sk->bound_dev_if;
	smc_read_buffers(full, &request->buffers);
	request->isn = packet->seq;
	request->mac_len = packet->mac_len;
	request->ttl = packet->ttl;
	request->tos = packet->tos;
}

/*
 * Whether an upper device has passed this packet on to this one: the port of a bridge or bond, or the device below a
 * VLAN. It is no retransmission, because TCP increments total_retrans before it sends again.
 */
static __always_inline bool smc_is_further_down(const struct __sk_buff *skb, const struct smc_packet *packet,
						const struct smc_request *request, const struct tcp_sock *tcp)
{
	return request->isn == packet->seq && request->ifindex != skb->ifindex && tcp && !tcp->total_retrans;
}

/*
 * Whether this SYN was left alone on an upper device. Then it is left alone here, too, because a request belongs to the
 * first device. `cookie`: of the socket.
 */
static __always_inline bool smc_was_judged(const struct __sk_buff *skb, const struct smc_packet *packet,
					   const struct tcp_sock *tcp, __u64 cookie)
{
	__u32 zero = 0;
	struct smc_judged *last = bpf_map_lookup_elem(&smc_judged, &zero);

	if (!last)
		return false;
	if (last->cookie == cookie && last->isn == packet->seq && last->ifindex != skb->ifindex && !tcp->total_retrans)
		return true;
	last->cookie = cookie;
	last->isn = packet->seq;
	last->ifindex = skb->ifindex;
	return false;
}

/* Whether the socket belongs to another namespace than the device by which its packet leaves, a bridge's port say. */
static __always_inline bool smc_is_foreign(const struct smc_packet *packet, const struct smc_subject *subject)
{
	const struct smc_netns *netns = bpf_map_lookup_elem(&smc_netns, &subject->netns_cookie);

	return netns && netns->slot != packet->tuple.slot;
}

/* Fills in the connection that the checks look at. */
static __always_inline void smc_describe_subject(struct __sk_buff *skb, const struct smc_packet *packet,
						 const struct smc_config *config, const struct smc_device *device,
						 struct tcp_sock *tcp, struct smc_subject *subject)
{
	struct sock *sk = (struct sock *)tcp;
	struct smc_tcp_options options = {};

	smc_parse_options(skb, packet, &options);
	subject->cgroup_id = sk->sk_cgrp_data.cgroup->kn->id;
	subject->config = config;
	subject->cgroup = bpf_map_lookup_elem(&smc_cgroups, &subject->cgroup_id);
	subject->netns_cookie = sk->__sk_common.skc_net.net->net_cookie;
	__builtin_memcpy(subject->remote.ip, packet->tuple.remote_ip, 16);
	subject->remote.port = packet->tuple.remote_port;
	subject->port = packet->tuple.remote_port;
	subject->direction = SMC_OUTBOUND;
	subject->tcp = tcp;
	subject->encrypts = device->encrypts;
	subject->headers = packet->ip_options;
	subject->mptcp = options.mptcp;
	subject->signed_segments = options.signed_segments;
	subject->fast_open = options.fast_open || packet->payload;
	subject->no_room = packet->tcp_len + SMC_TCPOPT_LEN + SMC_OWN_LEN > 60 || options.smc || options.own;
}

/* The request of this SYN, in smc_scratch. Null: it cannot be made. */
static __always_inline struct smc_request *smc_new_request(struct __sk_buff *skb, const struct smc_packet *packet,
							   struct bpf_sock *sk, const struct smc_subject *subject,
							   __u64 cookie)
{
	__u32 zero = 0;
	struct smc_request *request = bpf_map_lookup_elem(&smc_scratch, &zero);

	if (!request)
		return 0;
	__builtin_memset(request, 0, sizeof(*request));
	request->cookie = cookie;
	request->netns = subject->netns_cookie;
	request->cgroup = subject->cgroup_id;
	request->smcd = subject->smcd;
	smc_describe(skb, packet, sk, subject->tcp, request);
	if (!smc_save(skb, request)) {
		smc_count(SMC_OUT_NO_ROOM);
		return 0;
	}
	return request;
}

/*
 * Sends the SYN with its options, or keeps it if its server is known to speak SMC. Where that is not possible, the SYN
 * leaves as it is, and the connection is plain TCP.
 */
static __always_inline int smc_send_request(struct __sk_buff *skb, const struct smc_packet *packet,
					    const struct smc_device *device, const struct smc_subject *subject,
					    struct smc_request *request, enum smc_decision decision, __u16 pair)
{
	const struct smc_server *server = smc_server_of(subject->netns_cookie, &subject->remote);
	bool asks = decision == SMC_OUT_ASKED;

	if (asks && server && server->knowledge == SMC_SERVER_CAPABLE) {
		request->state = SMC_REQUEST_HELD;
		request->answer_ttl = server->ttl;
	}
	if (!smc_may_ask(subject->config, subject->cgroup_id)) {
		smc_count(SMC_OUT_REQUESTS_FULL);
		return TC_ACT_UNSPEC;
	}
	if (bpf_map_update_elem(&smc_requests, &packet->tuple, request, BPF_ANY)) {
		smc_count(SMC_OUT_TABLE_FULL);
		return TC_ACT_UNSPEC;
	}
	smc_begin_request(subject->cgroup_id);
	if (request->state == SMC_REQUEST_HELD && smc_tell_request(SMC_EVENT_REQUEST, &packet->tuple, request)) {
		smc_count(SMC_OUT_HELD);
		return smc_suppress(skb, packet, device);
	}
	if (request->state == SMC_REQUEST_HELD || !smc_add_options(skb, packet, asks, subject->config->tag, pair)) {
		smc_end_request(&packet->tuple, request);
		smc_count(SMC_OUT_TABLE_FULL);
		return TC_ACT_UNSPEC;
	}
	smc_count(decision);
	return TC_ACT_UNSPEC;
}

/* The SYN of an application: it asks, is held, or is left alone. */
static __always_inline int smc_ask(struct __sk_buff *skb, const struct smc_packet *packet,
				   const struct smc_device *device, struct bpf_sock *sk)
{
	const struct smc_config *config = smc_get_config();
	__u64 cookie = bpf_get_socket_cookie(skb);
	struct smc_subject subject = {};
	struct smc_request *request;
	enum smc_decision decision;
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);
	__u16 pair;
	bool asks;

	smc_forget_hairpin(packet);
	request = bpf_map_lookup_elem(&smc_requests, &packet->tuple);
	if (request) {
		if (request->cookie == cookie && smc_is_further_down(skb, packet, request, tcp))
			return TC_ACT_UNSPEC;
		if (request->cookie == cookie)
			return smc_ask_again(request, config, packet->tuple.slot, packet->v6)
				       ? smc_suppress(skb, packet, device)
				       : TC_ACT_UNSPEC;
		smc_end_request(&packet->tuple, request);
	}
	if (!config || !tcp || smc_was_judged(skb, packet, tcp, cookie))
		return TC_ACT_UNSPEC;
	smc_describe_subject(skb, packet, config, device, tcp, &subject);
	if (smc_is_foreign(packet, &subject))
		return TC_ACT_UNSPEC;
	decision = smc_decide_outbound(&subject);
	pair = smc_local_of(config, subject.rule) ? smc_pair_id(cookie) : 0;
	asks = decision == SMC_OUT_ASKED;
	if (asks || decision == SMC_OUT_SHORT_LIVED)
		smc_note_short_lived(subject.known, !asks);
	/* SMC_OUT_NO_DEVICE is the last check, so no other one is in the way */
	if (!asks && (decision != SMC_OUT_NO_DEVICE || !pair)) {
		smc_tell_unknown(&subject, decision, subject.cgroup_id);
		smc_count(decision);
		return TC_ACT_UNSPEC;
	}
	request = smc_new_request(skb, packet, sk, &subject, cookie);
	return request ? smc_send_request(skb, packet, device, &subject, request, decision, pair) : TC_ACT_UNSPEC;
}

/* The SYN of a CLC socket. sockops has written its options; here only an entry is made by which to know the answer. */
static __always_inline void smc_ask_for_clc(struct __sk_buff *skb, const struct smc_packet *packet,
					    struct smc_sock *clc)
{
	__u32 zero = 0;
	struct smc_request *request = bpf_map_lookup_elem(&smc_scratch, &zero);

	smc_forget_hairpin(packet);
	smc_check_syn(clc);
	if (!request)
		return;
	__builtin_memset(request, 0, sizeof(*request));
	request->state = SMC_REQUEST_CLC;
	request->isn = packet->seq;
	request->cookie = bpf_get_socket_cookie(skb);
	request->since_ns = bpf_ktime_get_ns();
	if (bpf_map_update_elem(&smc_requests, &packet->tuple, request, BPF_ANY))
		smc_count(SMC_OUT_TABLE_FULL);
}

#endif
