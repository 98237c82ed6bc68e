/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Connections that end before they have earned the set-up of SMC, which takes several times as long as that of TCP.
 * Nobody knows in advance how long a connection will live, but those of one application to one server, and those to one
 * listener, resemble each other. User space counts how they end (agent/gateway/short_lived.h). If nearly all of them
 * were short-lived lately, new ones are TCP, and now and then one is tried. A trial costs what many connections of TCP
 * cost, so trials are limited by number and by time. An application that seldom connects is tried each
 * time.
 */
#ifndef SMC_SHORT_LIVED_H
#define SMC_SHORT_LIVED_H

/* Whether SMC is wanted for short-lived connections, too. */
static __always_inline bool smc_wants_short_lived(const struct smc_config *config, __s32 rule_index)
{
	const struct smc_rule *rule = smc_rule_at(rule_index);

	return rule ? rule->short_lived : config->short_lived;
}

static __always_inline struct smc_short *smc_short_of(__u64 netns, __u64 cgroup, enum smc_direction direction,
						      const struct smc_addr *remote, __u16 port)
{
	struct smc_short_key key = {.netns = netns, .cgroup = cgroup, .direction = direction};

	if (direction == SMC_OUTBOUND)
		__builtin_memcpy(key.server.ip, remote->ip, sizeof(key.server.ip));
	key.server.port = port;
	return bpf_map_lookup_elem(&smc_short, &key);
}

/* Whether a new connection is left to TCP. */
static __always_inline bool smc_is_left_to_tcp(const struct smc_short *known)
{
	__u64 since = bpf_ktime_get_ns() - known->tried_ns;

	return known->score >= SMC_SHORT_MANY && since < SMC_SHORT_TRIAL_LATEST_NS &&
	       (since < SMC_SHORT_TRIAL_NS || known->left < SMC_SHORT_TRIAL_EVERY);
}

/* A connection was left to TCP, or it is tried. */
static __always_inline void smc_note_short_lived(struct smc_short *known, bool left)
{
	if (!known || known->score < SMC_SHORT_MANY)
		return;
	if (left) {
		__sync_fetch_and_add(&known->left, 1);
	} else {
		known->left = 0;
		known->tried_ns = bpf_ktime_get_ns();
	}
}

#endif
