/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Every map of the project. The object that attaches first creates them; later objects reuse them. */
#ifndef SMC_MAPS_H
#define SMC_MAPS_H

#define SMC_MAP(map_name, map_type, key_type, value_type, entries)                                                     \
	struct {                                                                                                       \
		__uint(type, map_type);                                                                                \
		__type(key, key_type);                                                                                 \
		__type(value, value_type);                                                                             \
		__uint(max_entries, entries);                                                                          \
	} map_name SEC(".maps")

SMC_MAP(smc_config, BPF_MAP_TYPE_ARRAY, __u32, struct smc_config, 1);
SMC_MAP(smc_heartbeat, BPF_MAP_TYPE_ARRAY, __u32, struct smc_heartbeat, 1);
SMC_MAP(smc_rules, BPF_MAP_TYPE_ARRAY, __u32, struct smc_rule, SMC_MAX_RULES);
/* cgroup id -> which rules' globs match; a cgroup that is absent has not been seen by the agent */
SMC_MAP(smc_cgroups, BPF_MAP_TYPE_HASH, __u64, struct smc_cgroup, SMC_MAX_CGROUPS);
/* network namespace cookie -> the agent's listeners there */
SMC_MAP(smc_netns, BPF_MAP_TYPE_HASH, __u64, struct smc_netns, SMC_MAX_NETNS);
/* the negative cache: destinations that are not steered until the entry expires */
SMC_MAP(smc_incapable, BPF_MAP_TYPE_LRU_HASH, struct smc_dest, struct smc_incapable, SMC_MAX_INCAPABLE);
/* socket cookie -> an application's steered connection */
SMC_MAP(smc_flows, BPF_MAP_TYPE_HASH, __u64, struct smc_flow, SMC_MAX_FLOWS);
/* address of a server-side leg -> the client that the application must see */
SMC_MAP(smc_peernames, BPF_MAP_TYPE_LRU_HASH, struct smc_leg, struct smc_addr, SMC_MAX_PEERNAMES);
/* SYNs that tc handed to sk_lookup: value is the time, for the reader of a dump */
SMC_MAP(smc_inbound, BPF_MAP_TYPE_LRU_HASH, struct smc_tuple, __u64, SMC_MAX_INBOUND);
/* a hash, because an array's key cannot keep the names of the enumeration; the agent fills in every key */
SMC_MAP(smc_counters, BPF_MAP_TYPE_PERCPU_HASH, enum smc_decision, __u64, SMC_DECISIONS);

/* listeners for CLC sockets: slot * 2 for IPv4, slot * 2 + 1 for IPv6 */
struct {
	__uint(type, BPF_MAP_TYPE_SOCKMAP);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, SMC_MAX_NETNS * 2);
} smc_clc SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
	__type(key, int);
	__type(value, struct smc_sock);
} smc_socks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, SMC_EVENT_BYTES);
} smc_events SEC(".maps");

#endif
