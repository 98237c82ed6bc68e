/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* What all program families need: counters, addresses, heartbeat, policy. */
#ifndef SMC_COMMON_H
#define SMC_COMMON_H

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
 * Never eligible: fe80::/10 needs a scope id, which no table here carries; the unspecified address means
 * another one, which only the kernel's routing knows.
 */
static __always_inline bool smc_is_special(const __u8 *ip)
{
	const __u32 *word = (const __u32 *)ip;

	return (ip[0] == 0xfe && (ip[1] & 0xc0) == 0x80) ||
	       (word[0] == 0 && word[1] == 0 && word[3] == 0 && (word[2] == 0 || word[2] == bpf_htonl(0xffff)));
}

static __always_inline const struct smc_config *smc_get_config(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&smc_config, &zero);
}

enum smc_agent_state { SMC_AGENT_STALE, SMC_AGENT_FULL, SMC_AGENT_SERVES };

static __always_inline enum smc_agent_state smc_agent(const struct smc_config *config)
{
	__u32 zero = 0;
	const struct smc_heartbeat *beat = bpf_map_lookup_elem(&smc_heartbeat, &zero);
	__u64 last;

	if (!beat)
		return SMC_AGENT_STALE;
	/* once, and before the clock: a beat in between must not make it look old */
	last = *(const volatile __u64 *)&beat->ktime_ns;
	if (bpf_ktime_get_ns() - last >= config->heartbeat_max_age_ns)
		return SMC_AGENT_STALE;
	return beat->steer ? SMC_AGENT_SERVES : SMC_AGENT_FULL;
}

/*
 * First match decides. `rules` says which configured rules' cgroup globs match the socket's cgroup. *matched is the
 * rule's index, -1 for the default.
 */
static __always_inline bool smc_allowed(const struct smc_config *config, __u64 rules, const struct smc_addr *remote,
					__u16 port, enum smc_direction direction, __s32 *matched)
{
	const __u32 *ip = (const __u32 *)remote->ip;
	bool v4 = smc_is_v4(remote->ip);

	*matched = -1;
	for (__u32 i = 0; i < SMC_MAX_RULES; i++) {
		__u32 key = i;
		const struct smc_rule *rule;
		const __u32 *prefix, *mask;

		if (i >= config->rule_count)
			break;
		rule = bpf_map_lookup_elem(&smc_rules, &key);
		if (!rule)
			break;
		if (!(rule->directions & direction) || !(rules >> (rule->group & 63) & 1))
			continue;
		if (port < rule->port_first || port > rule->port_last || v4 != !!rule->v4)
			continue;
		prefix = (const __u32 *)rule->prefix;
		mask = (const __u32 *)rule->mask;
		if (((ip[0] ^ prefix[0]) & mask[0]) | ((ip[1] ^ prefix[1]) & mask[1]) |
		    ((ip[2] ^ prefix[2]) & mask[2]) | ((ip[3] ^ prefix[3]) & mask[3]))
			continue;
		*matched = i;
		return rule->allow;
	}
	return config->default_allow;
}

/* Either exists only in kernels built with it. */
static __always_inline bool smc_is_signed(struct tcp_sock *tcp)
{
	if (bpf_core_field_exists(tcp->md5sig_info) && BPF_CORE_READ(tcp, md5sig_info))
		return true;
	return bpf_core_field_exists(tcp->ao_info) && BPF_CORE_READ(tcp, ao_info);
}

/*
 * A policy on the socket or anywhere in its namespace: selectors are not evaluated here, because a
 * wrong "no policy" would send protected payload outside IPsec.
 */
static __always_inline bool smc_has_ipsec(struct tcp_sock *tcp)
{
	struct sock *sk = (struct sock *)tcp;

	if (!bpf_core_field_exists(sk->sk_policy))
		return false;
	return BPF_CORE_READ(sk, sk_policy[0]) || BPF_CORE_READ(sk, sk_policy[1]) ||
	       BPF_CORE_READ(sk, __sk_common.skc_net.net, xfrm.policy_count[XFRM_POLICY_OUT_DIR]) ||
	       BPF_CORE_READ(sk, __sk_common.skc_net.net, xfrm.policy_count[XFRM_POLICY_IN_DIR]);
}

static __always_inline struct smc_event *smc_event_new(enum smc_event_type type)
{
	struct smc_event *event = bpf_ringbuf_reserve(&smc_events, sizeof(*event), 0);

	if (event) {
		__builtin_memset(event, 0, sizeof(*event));
		event->type = type;
	}
	return event;
}

#endif
