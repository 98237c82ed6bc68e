/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Decides whether a member's message goes by TCP or into its peer's queue. The kernel reads a member's queue before
 * TCP's queue:
 *
 *	redirect -> TCP    is in order at any time
 *	TCP -> redirect    is in order only after the peer has consumed all that went by TCP
 *
 * The backlog is the number of bytes that were sent, by either way, and are not consumed. The number sent is exact,
 * because the sender's socket is locked here. The backlog can only be too large: by the bytes that the peer is reading
 * now. If the peer reads bytes unnoticed, it stays too large, and from then on everything goes by TCP.
 */
#ifndef SMC_BYPASS_SEND_H
#define SMC_BYPASS_SEND_H

/* After this time without TCP a member sends by TCP, as soon as its peer has read everything. */
#define SMC_BY_TCP_NS 10000000000ULL

/* Whether the peer's socket still has no habit. Options may have been set since it became a member. */
static __always_inline bool smc_peer_is_plain(struct smc_member *peer, __u64 cookie)
{
	struct tcp_sock *tcp = (struct tcp_sock *)peer->sk;
	struct sock *sk = (struct sock *)tcp;
	struct inet_connection_sock *connection = (struct inet_connection_sock *)tcp;

	/* the socket may be freed, or another connection's by now: reading it causes no fault */
	if (BPF_CORE_READ(sk, __sk_common.skc_cookie.counter) != (__s64)cookie)
		return false;
	if (BPF_CORE_READ(sk, sk_rcvlowat) > 1)
		smc_add_habit(peer, SMC_HABIT_LOWAT);
	if (BPF_CORE_READ(sk, sk_peek_off) >= 0)
		smc_add_habit(peer, SMC_HABIT_PEEKS);
	if (BPF_CORE_READ(connection, icsk_ulp_ops))
		smc_add_habit(peer, SMC_HABIT_ULP);
	if (BPF_CORE_READ(sk, sk_shutdown) & SMC_RCV_SHUTDOWN)
		smc_add_habit(peer, SMC_HABIT_SHUTS_DOWN);
	if (smc_wants_control(tcp))
		smc_add_habit(peer, SMC_HABIT_CONTROL);
	smc_add_habit(peer, smc_habits_of_file(peer, sk));
	return !peer->habits;
}

/* The same for the sender's own socket. */
static __always_inline bool smc_sends_plainly(struct smc_member *own, struct tcp_sock *tcp)
{
	struct sock *sk = (struct sock *)tcp;

	if (((struct inet_connection_sock *)tcp)->icsk_ulp_ops)
		smc_add_habit(own, SMC_HABIT_ULP); /* with kTLS TCP sends other bytes than these */
	if (sk->__sk_common.skc_flags & smc_zerocopy_bit())
		smc_add_habit(own, SMC_HABIT_ZEROCOPY);
	if (smc_wants_control(tcp))
		smc_add_habit(own, SMC_HABIT_CONTROL);
	if (smc_is_paced(sk))
		smc_add_habit(own, SMC_HABIT_PACED);
	return !own->habits;
}

static __always_inline bool smc_may_redirect(const struct smc_bypass_config *config, struct tcp_sock *tcp,
					     struct smc_member *own, struct smc_member *peer, __u32 size)
{
	__u64 consumed = *(volatile __u64 *)&peer->consumed;
	__u32 backlog = (__u32)own->redirected + (tcp->write_seq - own->first_seq) - (__u32)consumed;
	__u64 now = bpf_ktime_get_coarse_ns();

	if (!backlog) {
		/* by TCP now and then, for connection tracking and for filters that were added later */
		own->by_tcp = (__s64)(now - own->tcp_sent_ns) > (__s64)SMC_BY_TCP_NS;
		own->in_a_row = 0;
	}
	if (own->by_tcp) {
		own->tcp_sent_ns = now;
		return false;
	}
	if (backlog + size > config->limit || own->in_a_row >= config->messages) {
		own->by_tcp = 1;
		return false;
	}
	own->last = consumed + backlog + size;
	return true;
}

static __always_inline void smc_send(struct sk_msg_md *message, struct tcp_sock *tcp, struct smc_member *own)
{
	const struct smc_bypass_config *config = smc_bypass_get_config();
	struct sock *sk = (struct sock *)tcp, *other;
	__u64 cookie = own->peer;
	struct smc_member *peer = smc_peer_of(own, sk->__sk_common.skc_cookie.counter);
	__u32 size = message->size;

	if (!config || config->identity.off || !peer || smc_is_revoked(own))
		return;
	if (own->state != SMC_MEMBER_MEMBER || peer->state != SMC_MEMBER_MEMBER || own->habits)
		return;
	if (sk->__sk_common.skc_state != BPF_TCP_ESTABLISHED)
		return; /* after a FIN TCP decides what a send returns */
	if (!smc_sends_plainly(own, tcp) || !smc_peer_is_plain(peer, cookie))
		return;
	other = (struct sock *)peer->sk;
	if (!smc_has_memory_for(other, size) || smc_fills_buffer(other, size)) {
		own->by_tcp = 1;
		return;
	}
	/*
	 * The redirect takes the lock of the peer's socket, and a receiver keeps it while its memory is paged in. A
	 * message by TCP does not wait for it.
	 */
	if (BPF_CORE_READ(other, sk_lock.owned)) {
		own->by_tcp = 1;
		return;
	}
	if (!smc_may_redirect(config, tcp, own, peer, size))
		return;
	if (bpf_msg_redirect_hash(message, &smc_members, &cookie, BPF_F_INGRESS) != SK_PASS) {
		own->by_tcp = 1; /* the peer's socket is closed */
		return;
	}
	own->redirected += size;
	own->messages++;
	own->in_a_row++;
}

/* SK_PASS carries out a redirect; after a failed one the message goes by TCP. SK_DROP would make send() fail. */
SEC("sk_msg")
int smc_bypass_send(struct sk_msg_md *message)
{
	struct tcp_sock *tcp = message->sk ? bpf_skc_to_tcp_sock(message->sk) : 0;
	struct smc_member *own = tcp ? smc_member_of((struct sock *)tcp) : 0;

	if (!own)
		return SK_PASS;
	/* set before the state is read here; smc_bypass_step changes the state before it reads this */
	__sync_fetch_and_add(&own->deciding, 1);
	smc_send(message, tcp, own);
	__sync_fetch_and_add(&own->deciding, -1);
	return SK_PASS;
}

#endif
