/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Used by all programs of the gateway: counters, addresses, heartbeat, policy. */
#ifndef SMC_COMMON_H
#define SMC_COMMON_H

/* 1: the kernel lets tc programs ask for the current process (6.10 on); user space has tried it */
const volatile __u32 smc_pid_is_open;

/* Inline assembly, so that the compiler cannot fold the constant: user space looks for this instruction. */
#define SMC_OWN_SLOT(slot) asm volatile("%0 = %1" : "=r"(slot) : "i"(SMC_SLOT_PLACEHOLDER))

static __always_inline void smc_count(enum smc_decision decision)
{
	__u64 *counter = bpf_map_lookup_elem(&smc_counters, &decision);

	if (counter)
		(*counter)++;
}

static __always_inline void smc_map_v4(__u8 *ip, __be32 v4)
{
	__u32 *word = (__u32 *)ip;

	word[0] = 0;
	word[1] = 0;
	word[2] = bpf_htonl(0xffff);
	word[3] = v4;
}

static __always_inline bool smc_is_v4(const __u8 *ip)
{
	const __u32 *word = (const __u32 *)ip;

	return word[0] == 0 && word[1] == 0 && word[2] == bpf_htonl(0xffff);
}

/*
 * Never eligible: fe80::/10 needs a scope id, which no table here carries; the unspecified address stands for another
 * address, which only the kernel's routing knows.
 */
static __always_inline bool smc_is_special(const __u8 *ip)
{
	const __u32 *word = (const __u32 *)ip;

	return (ip[0] == 0xfe && (ip[1] & 0xc0) == 0x80) ||
	       (word[0] == 0 && word[1] == 0 && word[3] == 0 && (word[2] == 0 || word[2] == bpf_htonl(0xffff)));
}

static __always_inline bool smc_is_loopback(const __u8 *ip)
{
	const __u32 *word = (const __u32 *)ip;

	return smc_is_v4(ip) ? ip[12] == 127 : word[0] == 0 && word[1] == 0 && word[2] == 0 && word[3] == bpf_htonl(1);
}

static __always_inline void smc_address_of(struct bpf_sock_ops *ctx, bool remote, __u8 *ip)
{
	__u32 *word = (__u32 *)ip;
	__be32 v4;

	if (ctx->family == AF_INET) {
		v4 = remote ? ctx->remote_ip4 : ctx->local_ip4;
		asm volatile("" : "+r"(v4)); /* or clang merges both families' loads into one */
		smc_map_v4(ip, v4);
	} else if (remote) {
		word[0] = ctx->remote_ip6[0];
		word[1] = ctx->remote_ip6[1];
		word[2] = ctx->remote_ip6[2];
		word[3] = ctx->remote_ip6[3];
	} else {
		word[0] = ctx->local_ip6[0];
		word[1] = ctx->local_ip6[1];
		word[2] = ctx->local_ip6[2];
		word[3] = ctx->local_ip6[3];
	}
}

/* False: its namespace is not in smc_netns. */
static __always_inline bool smc_tuple_of(struct bpf_sock_ops *ctx, struct smc_tuple *tuple)
{
	__u64 cookie = bpf_get_netns_cookie(ctx);
	struct smc_netns *netns = bpf_map_lookup_elem(&smc_netns, &cookie);

	if (!netns)
		return false;
	smc_address_of(ctx, true, tuple->remote_ip);
	smc_address_of(ctx, false, tuple->local_ip);
	tuple->remote_port = bpf_ntohl(ctx->remote_port);
	tuple->local_port = ctx->local_port;
	tuple->slot = netns->slot;
	return true;
}

/* How long an entry of smc_inbound stays valid for the packets that follow the SYN. */
static __always_inline __u64 smc_inbound_life(const struct smc_inbound *inbound)
{
	return inbound->syncookie ? SMC_COOKIE_NS : inbound->again ? SMC_ANSWER_LOST_NS : SMC_INBOUND_NS;
}

static __always_inline bool smc_is_leg(const struct smc_sock *state)
{
	return state->role == SMC_ROLE_LEG_CLIENT || state->role == SMC_ROLE_LEG_SERVER;
}

static __always_inline bool smc_is_tuned(const struct smc_sock *state)
{
	return state->role == SMC_ROLE_TUNED_CLIENT || state->role == SMC_ROLE_TUNED_SERVER;
}

static __always_inline const struct smc_config *smc_get_config(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&smc_config, &zero);
}

enum smc_agent_state { SMC_AGENT_STALE, SMC_AGENT_NOT_ACCEPTING, SMC_AGENT_SERVES };

static __always_inline enum smc_agent_state smc_agent(const struct smc_config *config)
{
	__u32 zero = 0;
	const struct smc_heartbeat *beat = bpf_map_lookup_elem(&smc_heartbeat, &zero);
	__u64 last;

	if (!beat)
		return SMC_AGENT_STALE;
	/* read once, and before the clock: a heartbeat in between would make the difference negative */
	last = *(const volatile __u64 *)&beat->ktime_ns;
	if (bpf_ktime_get_ns() - last >= config->heartbeat_max_age_ns)
		return SMC_AGENT_STALE;
	return beat->accepting ? SMC_AGENT_SERVES : SMC_AGENT_NOT_ACCEPTING;
}

/* The heartbeat of an agent that was killed stays valid for a while, but its listeners are gone at once. */
static __always_inline bool smc_agent_listens(__u32 slot, bool v6)
{
	__u32 key = slot * 2 + v6;
	struct bpf_sock *sk = bpf_map_lookup_elem(&smc_clc, &key);

	if (!sk)
		return false;
	bpf_sk_release(sk);
	return true;
}

/* The socket that has this connection, or listens for it, in the packet's namespace. The caller must release it. */
static __always_inline struct bpf_sock *smc_socket_of(struct __sk_buff *skb, const struct smc_tuple *of, bool v6)
{
	struct bpf_sock_tuple tuple = {};

	if (v6) {
		__builtin_memcpy(tuple.ipv6.saddr, of->remote_ip, 16);
		__builtin_memcpy(tuple.ipv6.daddr, of->local_ip, 16);
		tuple.ipv6.sport = bpf_htons(of->remote_port);
		tuple.ipv6.dport = bpf_htons(of->local_port);
		return bpf_skc_lookup_tcp(skb, &tuple, sizeof(tuple.ipv6), BPF_F_CURRENT_NETNS, 0);
	}
	__builtin_memcpy(&tuple.ipv4.saddr, of->remote_ip + 12, 4);
	__builtin_memcpy(&tuple.ipv4.daddr, of->local_ip + 12, 4);
	tuple.ipv4.sport = bpf_htons(of->remote_port);
	tuple.ipv4.dport = bpf_htons(of->local_port);
	return bpf_skc_lookup_tcp(skb, &tuple, sizeof(tuple.ipv4), BPF_F_CURRENT_NETNS, 0);
}

static __always_inline bool smc_may_ask(const struct smc_config *config, __u64 cgroup)
{
	const struct smc_req_counts *counts = bpf_map_lookup_elem(&smc_req_counts, &cgroup);

	return !counts || counts->now < (__s32)config->most_requests;
}

static __always_inline void smc_begin_request(__u64 cgroup)
{
	struct smc_req_counts *counts = bpf_map_lookup_elem(&smc_req_counts, &cgroup), first = {};

	if (!counts) {
		bpf_map_update_elem(&smc_req_counts, &cgroup, &first, BPF_NOEXIST);
		counts = bpf_map_lookup_elem(&smc_req_counts, &cgroup);
	}
	if (counts)
		__sync_fetch_and_add(&counts->now, 1);
}

/* Entries of CLC sockets and of legs belong to no cgroup and are not counted. */
static __always_inline void smc_end_request(const struct smc_tuple *tuple, const struct smc_request *request)
{
	__u64 cgroup = request->cgroup;
	struct smc_req_counts *counts;

	if (bpf_map_delete_elem(&smc_requests, tuple) || !cgroup)
		return;
	counts = bpf_map_lookup_elem(&smc_req_counts, &cgroup);
	if (counts)
		__sync_fetch_and_add(&counts->now, -1);
}

struct smc_match {
	__u64 rules; /* bit n: rule group n matches the socket's cgroup */
	__u32 ip[4];
	__u16 port;
	__u8 direction; /* enum smc_direction */
	__u8 v4;
	__s32 rule; /* index of the first rule that matches; -1: none */
	bool allow;
};

/* Callback of bpf_loop(). Returns 1 to stop: this rule matches, or there are no more. */
static long smc_match_rule(__u32 index, struct smc_match *match)
{
	const struct smc_rule *rule = bpf_map_lookup_elem(&smc_rules, &index);
	const __u32 *prefix, *mask;

	if (!rule)
		return 1;
	if (!(rule->directions & match->direction) || !(match->rules >> (rule->group & 63) & 1))
		return 0;
	if (match->port < rule->port_first || match->port > rule->port_last || match->v4 != !!rule->v4)
		return 0;
	prefix = (const __u32 *)rule->prefix;
	mask = (const __u32 *)rule->mask;
	if (((match->ip[0] ^ prefix[0]) & mask[0]) | ((match->ip[1] ^ prefix[1]) & mask[1]) |
	    ((match->ip[2] ^ prefix[2]) & mask[2]) | ((match->ip[3] ^ prefix[3]) & mask[3]))
		return 0;
	match->rule = index;
	match->allow = rule->allow;
	return 1;
}

/* First match decides. *matched is the rule's index, -1 for the default. */
static __always_inline bool smc_allowed(const struct smc_config *config, __u64 rules, const struct smc_addr *remote,
					__u16 port, enum smc_direction direction, __s32 *matched)
{
	struct smc_match match = {
		.rules = rules,
		.port = port,
		.direction = direction,
		.v4 = smc_is_v4(remote->ip),
		.rule = -1,
		.allow = config->default_allow,
	};

	__builtin_memcpy(match.ip, remote->ip, sizeof(match.ip));
	bpf_loop(config->rule_count, smc_match_rule, &match, 0);
	*matched = match.rule;
	return match.allow;
}

/* Whether something shapes or filters the connection's packets that a leg's packets would not meet. */
static __always_inline bool smc_is_limited(const struct smc_cgroup *cgroup, const struct smc_netns *netns)
{
	return (cgroup && cgroup->limited) || (netns && netns->limited);
}

/* The rule that decides; 0: no rule matches, so smc_config decides. */
static __always_inline const struct smc_rule *smc_rule_at(__s32 rule_index)
{
	__u32 key = rule_index;

	return rule_index < 0 ? 0 : bpf_map_lookup_elem(&smc_rules, &key);
}

/* Whether a connection for which smc_is_limited() is true has SMC all the same. */
static __always_inline bool smc_goes_past_limits(const struct smc_config *config, __s32 rule_index)
{
	const struct smc_rule *rule = smc_rule_at(rule_index);

	return rule ? rule->past_limits : config->past_limits;
}

/* Whether SMC-D with another agent of this kernel is wanted. */
static __always_inline bool smc_wants_smcd(const struct smc_config *config, __s32 rule_index)
{
	const struct smc_rule *rule = smc_rule_at(rule_index);

	return rule ? rule->smcd : config->smcd;
}

/* Either field exists only in kernels that are built with the feature. */
static __always_inline bool smc_is_signed(struct tcp_sock *tcp)
{
	if (bpf_core_field_exists(tcp->md5sig_info) && tcp->md5sig_info)
		return true;
	return bpf_core_field_exists(tcp->ao_info) && tcp->ao_info;
}

/*
 * Whether there is any IPsec policy on the socket or in its namespace. Selectors are not evaluated, because a wrong "no
 * policy" would send protected payload outside IPsec.
 */
static __always_inline bool smc_has_ipsec(struct tcp_sock *tcp)
{
	struct sock *sk = (struct sock *)tcp;

	if (!bpf_core_field_exists(sk->sk_policy))
		return false;
	return sk->sk_policy[0] || sk->sk_policy[1] ||
	       sk->__sk_common.skc_net.net->xfrm.policy_count[XFRM_POLICY_OUT_DIR] ||
	       sk->__sk_common.skc_net.net->xfrm.policy_count[XFRM_POLICY_IN_DIR];
}

static __always_inline void smc_read_buffers(struct sock *sk, struct smc_buffers *to)
{
	const __u8 locks = BPF_CORE_READ_BITFIELD(sk, sk_userlocks);

	to->send = locks & SMC_SNDBUF_LOCK ? sk->sk_sndbuf : 0;
	to->receive = locks & SMC_RCVBUF_LOCK ? sk->sk_rcvbuf : 0;
}

/*
 * An application may set SO_SNDBUF, and send urgent data, at any time. Each of its packets brings the entry in
 * smc_chosen up to date before the agent receives the packet.
 */
static __always_inline void smc_tell_chosen(const struct smc_sock *app, struct bpf_sock *sk)
{
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);
	__u32 key = app->chosen;
	struct smc_buffers now;
	struct smc_chosen *told;

	if (!key || !tcp)
		return;
	told = bpf_map_lookup_elem(&smc_chosen, &key);
	if (!told)
		return;
	smc_read_buffers((struct sock *)tcp, &now);
	if (told->send != now.send)
		told->send = now.send;
	if (tcp->snd_up != tcp->snd_una && !told->urgent)
		told->urgent = 1;
}

/* Knowledge about a server; 0: nothing, or it has expired. */
static __always_inline struct smc_server *smc_server_of(__u64 netns_cookie, const struct smc_addr *remote)
{
	struct smc_dest dest = {.netns = netns_cookie, .remote = *remote};
	struct smc_server *server = bpf_map_lookup_elem(&smc_servers, &dest);

	return server && server->expires_ns > bpf_ktime_get_ns() ? server : 0;
}

/* An event without a request. Any program may cause as many as it likes, so half of the ring is left to requests. */
static __always_inline struct smc_event *smc_event_new(enum smc_event_type type)
{
	struct smc_event *event;

	if (bpf_ringbuf_query(&smc_events, BPF_RB_AVAIL_DATA) > SMC_EVENT_BYTES / 2)
		return 0;
	event = bpf_ringbuf_reserve(&smc_events, sizeof(*event), 0);
	if (event) {
		__builtin_memset(event, 0, sizeof(*event));
		event->type = type;
	}
	return event;
}

#endif
