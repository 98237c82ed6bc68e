/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Client side: an application's own SYN asks whether its server speaks SMC.
 *
 *	no entry    --SYN-->                    ASKED, or HELD where the server is known to
 *	ASKED       --SYN again-->              ASKED_BARE: something on the way may drop what it does not know
 *	ASKED*      --SYN-ACK, no option-->     no entry: an ordinary connection that nobody has touched
 *	ASKED*      --SYN-ACK, option 254-->    HELD: the answer is kept from the application, and reset
 *	HELD        --the agent's leg-->        TAKEN
 *	HELD        --the agent, or time-->     LET_GO: the SYN without options decides, as if we were not there
 *
 * The options are written here and not by sockops, because whoever asks must also catch the answer: what leaves by
 * another device does not ask.
 */
#ifndef SMC_ASK_H
#define SMC_ASK_H

static __always_inline enum smc_decision smc_decide_outbound(struct smc_subject *subject)
{
	SMC_OUTBOUND_QUESTIONS(SMC_ASK)
	return SMC_OUT_ASKED;
}

/* What the agent has not heard of yet it should look at; the next connection may be asked about. */
static __always_inline void smc_tell_unknown(const struct smc_subject *subject, enum smc_decision decision,
					     __u64 cgroup_id)
{
	struct smc_event *event;

	if (decision != SMC_OUT_NOT_ENROLLED || subject->cgroup)
		return;
	event = smc_event_new(SMC_EVENT_CGROUP_WANTED);
	if (!event)
		return;
	event->cgroup = cgroup_id;
	bpf_ringbuf_submit(event, 0);
}

static __always_inline bool smc_tell_question(const struct smc_tuple *tuple, const struct smc_question *question)
{
	struct smc_event *event = bpf_ringbuf_reserve(&smc_events, sizeof(*event), 0);

	if (!event)
		return false;
	event->type = SMC_EVENT_QUESTION;
	event->tuple = *tuple;
	event->question = *question;
	bpf_ringbuf_submit(event, 0);
	return true;
}

/* True: the SYN stays here. */
static __always_inline bool smc_ask_again(struct smc_question *question, const struct smc_config *config, __u32 slot,
					  bool v6)
{
	if (question->state == SMC_QUESTION_ASKED || question->state == SMC_QUESTION_ASKED_BARE) {
		question->state = SMC_QUESTION_ASKED_BARE;
		smc_count(SMC_SYN_AGAIN);
		return false;
	}
	if (question->state == SMC_QUESTION_HELD && config && smc_agent(config) != SMC_AGENT_STALE &&
	    smc_agent_listens(slot, v6) && bpf_ktime_get_ns() - question->since_ns < config->budget_ns) {
		smc_count(SMC_SYN_KEPT);
		return true;
	}
	question->state = SMC_QUESTION_LET_GO;
	smc_count(SMC_SYN_LET_GO);
	return false;
}

static __always_inline void smc_describe(struct __sk_buff *skb, const struct smc_packet *packet, struct bpf_sock *sk,
					 struct tcp_sock *tcp, struct smc_question *question)
{
	struct sock *full = (struct sock *)tcp;
	const struct file *file = full->sk_socket->file;
	const struct cred *owner = file ? file->f_cred : 0;

	question->ifindex = skb->ifindex;
	question->since_ns = bpf_ktime_get_ns();
	if (packet->v6) {
		__u32 *ip = (__u32 *)question->local.ip;

		ip[0] = sk->src_ip6[0];
		ip[1] = sk->src_ip6[1];
		ip[2] = sk->src_ip6[2];
		ip[3] = sk->src_ip6[3];
	} else {
		smc_map_v4(question->local.ip, sk->src_ip4);
	}
	question->local.port = sk->src_port;
	if (owner) {
		question->uid = owner->fsuid.val;
		question->gid = owner->fsgid.val;
	}
	/* only where the SYN leaves in connect() itself is the current process its application */
	if (smc_pid_is_open && full->sk_lock.owned)
		question->pid = bpf_get_current_pid_tgid() >> 32;
	question->mark = sk->mark;
	question->bound_device = sk->bound_dev_if;
	smc_read_buffers(full, &question->buffers);
	question->isn = packet->seq;
	question->mac_len = packet->mac_len;
	question->ttl = packet->ttl;
	question->tos = packet->tos;
}

/* The SYN of an application: it asks, waits, or is left alone. */
static __always_inline int smc_ask(struct __sk_buff *skb, const struct smc_packet *packet,
				   const struct smc_device *device, struct bpf_sock *sk)
{
	const struct smc_config *config = smc_get_config();
	__u64 cookie = bpf_get_socket_cookie(skb);
	struct smc_tcp_options options = {};
	struct smc_subject subject = {};
	struct smc_question *question;
	const struct smc_server *server;
	enum smc_decision decision;
	struct tcp_sock *tcp;
	__u64 cgroup_id;
	__u32 zero = 0;

	smc_forget_hairpin(&packet->tuple);
	question = bpf_map_lookup_elem(&smc_questions, &packet->tuple);
	if (question) {
		if (question->cookie == cookie)
			return smc_ask_again(question, config, packet->tuple.slot, packet->v6)
				       ? smc_keep(skb, packet, device)
				       : TC_ACT_UNSPEC;
		bpf_map_delete_elem(&smc_questions, &packet->tuple);
	}
	tcp = bpf_skc_to_tcp_sock(sk);
	if (!config || !tcp)
		return TC_ACT_UNSPEC;
	smc_parse_options(skb, packet, &options);
	cgroup_id = ((struct sock *)tcp)->sk_cgrp_data.cgroup->kn->id;
	subject.config = config;
	subject.cgroup = bpf_map_lookup_elem(&smc_cgroups, &cgroup_id);
	subject.netns_cookie = ((struct sock *)tcp)->__sk_common.skc_net.net->net_cookie;
	__builtin_memcpy(subject.remote.ip, packet->tuple.remote_ip, 16);
	subject.remote.port = packet->tuple.remote_port;
	subject.port = packet->tuple.remote_port;
	subject.direction = SMC_OUTBOUND;
	subject.tcp = tcp;
	subject.headers = packet->ip_options;
	subject.mptcp = options.mptcp;
	subject.signed_segments = options.signed_segments;
	subject.fast_open = options.fast_open || packet->payload;
	subject.no_room = packet->tcp_len + SMC_TCPOPT_LEN + SMC_OWN_LEN > 60 || options.smc || options.own;
	decision = smc_decide_outbound(&subject);
	if (decision != SMC_OUT_ASKED) {
		smc_tell_unknown(&subject, decision, cgroup_id);
		smc_count(decision);
		return TC_ACT_UNSPEC;
	}

	question = bpf_map_lookup_elem(&smc_scratch, &zero);
	if (!question)
		return TC_ACT_UNSPEC;
	__builtin_memset(question, 0, sizeof(*question));
	question->cookie = cookie;
	question->netns = subject.netns_cookie;
	question->cgroup = cgroup_id;
	smc_describe(skb, packet, sk, tcp, question);
	if (!smc_save(skb, question)) {
		smc_count(SMC_OUT_NO_ROOM);
		return TC_ACT_UNSPEC;
	}

	server = smc_server_of(subject.netns_cookie, &subject.remote);
	if (server && server->knowledge == SMC_SERVER_CAPABLE) {
		question->state = SMC_QUESTION_HELD;
		question->answer_ttl = server->ttl;
	}
	if (bpf_map_update_elem(&smc_questions, &packet->tuple, question, BPF_ANY)) {
		smc_count(SMC_OUT_TABLE_FULL);
		return TC_ACT_UNSPEC;
	}
	if (question->state == SMC_QUESTION_HELD && smc_tell_question(&packet->tuple, question)) {
		smc_count(SMC_OUT_HELD);
		return smc_keep(skb, packet, device);
	}
	if (question->state == SMC_QUESTION_HELD ||
	    !smc_add_options(skb, packet, config->tag, smc_may_tune(config, subject.rule) ? smc_pair_id(cookie) : 0)) {
		bpf_map_delete_elem(&smc_questions, &packet->tuple);
		smc_count(SMC_OUT_TABLE_FULL);
		return TC_ACT_UNSPEC;
	}
	smc_count(SMC_OUT_ASKED);
	return TC_ACT_UNSPEC;
}

/* The SYN of a CLC socket, whose options sockops has written: here only its answer is waited for. */
static __always_inline void smc_ask_for_clc(struct __sk_buff *skb, const struct smc_packet *packet)
{
	__u32 zero = 0;
	struct smc_question *question = bpf_map_lookup_elem(&smc_scratch, &zero);

	smc_forget_hairpin(&packet->tuple);
	if (!question)
		return;
	__builtin_memset(question, 0, sizeof(*question));
	question->state = SMC_QUESTION_CLC;
	question->isn = packet->seq;
	question->cookie = bpf_get_socket_cookie(skb);
	question->since_ns = bpf_ktime_get_ns();
	if (bpf_map_update_elem(&smc_questions, &packet->tuple, question, BPF_ANY))
		smc_count(SMC_OUT_TABLE_FULL);
}

/*
 * A server that does not speak SMC would have its application accept what nobody uses. So the CLC socket is refused
 * instead, which tells the agent why, and the server's half-open connection ends with its next SYN-ACK.
 */
static __always_inline void smc_refuse_clc(struct __sk_buff *skb, const struct smc_packet *packet,
					   enum smc_option_seen seen)
{
	struct bpf_sock *skc = smc_socket_of(skb, &packet->tuple, packet->v6);
	struct bpf_sock *sk = skc ? bpf_sk_fullsock(skc) : 0;
	struct smc_sock *clc = sk ? bpf_sk_storage_get(&smc_socks, sk, 0, 0) : 0;
	__be16 before, after;

	if (clc)
		clc->option = seen;
	if (skc)
		bpf_sk_release(skc);
	if (bpf_skb_load_bytes(skb, packet->tcp_at + 12, &before, sizeof(before)))
		return;
	after = (before & bpf_htons(0xff00)) | bpf_htons(SMC_TCP_RST | SMC_TCP_ACK);
	bpf_l4_csum_replace(skb, packet->tcp_at + SMC_TCP_CHECKSUM, before, after, 2);
	bpf_skb_store_bytes(skb, packet->tcp_at + 12, &after, sizeof(after), 0);
}

/* Only a SYN without options was answered: perhaps something on the way drops what it does not know. */
static __always_inline void smc_option_lost(const struct smc_config *config, const struct smc_question *question,
					    const struct smc_tuple *tuple)
{
	struct smc_dest dest = {.netns = question->netns};
	struct smc_server server = {.knowledge = SMC_SERVER_NOT_NOW, .reason = SMC_REASON_OPTION_LOST};

	__builtin_memcpy(dest.remote.ip, tuple->remote_ip, 16);
	dest.remote.port = tuple->remote_port;
	server.expires_ns = bpf_ktime_get_ns() + config->not_now_ns;
	bpf_map_update_elem(&smc_servers, &dest, &server, BPF_ANY);
}

/* A RST from the network: nobody listens, and the question is answered. */
static __always_inline void smc_hear_refusal(const struct smc_packet *packet)
{
	struct smc_question *question = bpf_map_lookup_elem(&smc_questions, &packet->tuple);

	if (question && question->state < SMC_QUESTION_HELD && bpf_ntohl(packet->ack) == bpf_ntohl(question->isn) + 1)
		bpf_map_delete_elem(&smc_questions, &packet->tuple);
}

/*
 * True: an application here would be connected with the server's agent by an answer to what it never asked. The agent
 * that asked for it was killed, and this one does not know of it. A socket of net/smc has asked by itself.
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
static __always_inline int smc_hear_answer(struct __sk_buff *skb, const struct smc_packet *packet)
{
	struct smc_question *question = bpf_map_lookup_elem(&smc_questions, &packet->tuple);
	const struct smc_config *config = smc_get_config();
	struct smc_tcp_options options = {};
	bool echoed;

	/* what does not answer this very SYN is TCP's own business */
	if (!config || (question && bpf_ntohl(packet->ack) != bpf_ntohl(question->isn) + 1))
		return TC_ACT_UNSPEC;
	smc_parse_options(skb, packet, &options);
	if (!question) {
		if (!options.smc || !smc_is_unasked(skb, packet))
			return TC_ACT_UNSPEC;
		smc_count(SMC_ANSWER_UNASKED);
		return smc_turn_into_rst(skb, packet);
	}
	echoed = options.own && options.own_tag == config->tag;
	if (question->state == SMC_QUESTION_CLC) {
		bpf_map_delete_elem(&smc_questions, &packet->tuple);
		if (!options.smc || echoed) {
			smc_count(echoed ? SMC_PEER_OPTION_ECHOED : SMC_PEER_OPTION_ABSENT);
			smc_refuse_clc(skb, packet, echoed ? SMC_OPTION_ECHOED : SMC_OPTION_ABSENT);
		}
		return TC_ACT_UNSPEC;
	}
	if (!options.smc || echoed) {
		if (echoed) {
			smc_count(SMC_ANSWER_ECHOED);
		} else if (question->state == SMC_QUESTION_ASKED_BARE) {
			smc_option_lost(config, question, &packet->tuple);
			smc_count(SMC_ANSWER_LOST);
		} else if (question->state == SMC_QUESTION_ASKED) {
			smc_count(SMC_ANSWER_PLAIN);
		}
		if (question->state != SMC_QUESTION_TAKEN)
			bpf_map_delete_elem(&smc_questions, &packet->tuple);
		return TC_ACT_UNSPEC;
	}
	/* Whatever becomes of the connection, the application must not see an answer to a question that it never put.
	 */
	if (question->state == SMC_QUESTION_ASKED || question->state == SMC_QUESTION_ASKED_BARE) {
		question->state = SMC_QUESTION_HELD;
		question->since_ns = bpf_ktime_get_ns();
		question->seen_port = options.own ? options.own_port : 0;
		question->answer_ttl = packet->ttl;
		question->answer_isn = packet->seq;
		if (smc_agent(config) == SMC_AGENT_SERVES && smc_agent_listens(packet->tuple.slot, packet->v6) &&
		    smc_tell_question(&packet->tuple, question)) {
			smc_count(SMC_ANSWER_SMC);
		} else {
			question->state = SMC_QUESTION_LET_GO;
			smc_count(SMC_ANSWER_REFUSED);
		}
	} else if (question->answer_isn == packet->seq || question->state == SMC_QUESTION_TAKEN) {
		smc_count(SMC_ANSWER_AGAIN);
	} else {
		/* not the half-open connection of the question: it answers the SYN without options so, too */
		bpf_map_delete_elem(&smc_questions, &packet->tuple);
		return TC_ACT_UNSPEC;
	}
	return smc_turn_into_rst(skb, packet);
}

#endif
