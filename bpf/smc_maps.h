/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Every map of the project. */
#ifndef SMC_MAPS_H
#define SMC_MAPS_H

#define SMC_MAP(map_name, map_type, key_type, value_type, entries)                                                     \
	struct {                                                                                                       \
		__uint(type, map_type);                                                                                \
		__type(key, key_type);                                                                                 \
		__type(value, value_type);                                                                             \
		__uint(max_entries, entries);                                                                          \
	} map_name SEC(".maps")

/* Memory is taken as entries come: most nodes use a small part of what is allowed. */
#define SMC_GROWING_MAP(map_name, key_type, value_type, entries)                                                       \
	struct {                                                                                                       \
		__uint(type, BPF_MAP_TYPE_HASH);                                                                       \
		__uint(map_flags, BPF_F_NO_PREALLOC);                                                                  \
		__type(key, key_type);                                                                                 \
		__type(value, value_type);                                                                             \
		__uint(max_entries, entries);                                                                          \
	} map_name SEC(".maps")

SMC_MAP(smc_config, BPF_MAP_TYPE_ARRAY, __u32, struct smc_config, 1);
SMC_MAP(smc_heartbeat, BPF_MAP_TYPE_ARRAY, __u32, struct smc_heartbeat, 1);
SMC_MAP(smc_rules, BPF_MAP_TYPE_ARRAY, __u32, struct smc_rule, SMC_MAX_RULES);
/* cgroup id -> which rules' globs match; a cgroup that is absent has not been seen by the agent */
SMC_GROWING_MAP(smc_cgroups, __u64, struct smc_cgroup, SMC_MAX_CGROUPS);
/* network namespace cookie -> what is served there */
SMC_GROWING_MAP(smc_netns, __u64, struct smc_netns, SMC_MAX_NETNS);
SMC_GROWING_MAP(smc_devices, struct smc_device_key, struct smc_device, SMC_MAX_DEVICES);
/* what was learnt of servers */
SMC_MAP(smc_servers, BPF_MAP_TYPE_LRU_HASH, struct smc_dest, struct smc_server, SMC_MAX_SERVERS);
/*
 * Connections that asked, and that wait for an answer of the server or of the agent. An entry that is lost is a
 * request whose answer would not be recognized, so nothing is evicted: a full table means that nobody asks.
 */
SMC_GROWING_MAP(smc_requests, struct smc_tuple, struct smc_request, SMC_MAX_REQUESTS);
/* cgroup id -> how many of them it has */
SMC_GROWING_MAP(smc_asking, __u64, struct smc_asking, SMC_MAX_CGROUPS);
/* both directions of every leg; see smc_hairpin.h */
SMC_GROWING_MAP(smc_hairpins, struct smc_tuple, struct smc_hairpin, SMC_MAX_HAIRPINS);
/*
 * Of applications' sockets behind a leg: keepalive that changed, and those whose leg is gone. User space takes the
 * entries out. No queues: before 6.9 a program that user space runs may not have one.
 */
SMC_GROWING_MAP(smc_keepalives, struct smc_tuple, struct smc_keepalive, SMC_MAX_TOLD);
SMC_GROWING_MAP(smc_half_open, __u64, struct smc_half_open, SMC_MAX_TOLD);
/* cookie -> a socket that was tuned, for `smcctl ss` */
SMC_GROWING_MAP(smc_tuned, __u64, struct smc_tuned_socket, SMC_MAX_TUNED);
/* connections within this node that are being established: sequence number of the SYN -> what is known of them */
SMC_MAP(smc_pairs, BPF_MAP_TYPE_LRU_HASH, __be32, struct smc_pair, SMC_MAX_PAIRS);
/* SYNs that tc hands to sk_lookup; too old an entry means nothing */
SMC_GROWING_MAP(smc_inbound, struct smc_tuple, struct smc_inbound, SMC_MAX_INBOUND);
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
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct smc_sock);
} smc_socks SEC(".maps");

/* SO_SNDBUF that the application behind a leg has now, as struct smc_buffers has it; user space maps it */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, __u64); /* 8 bytes lie between two entries anyway */
	__uint(max_entries, SMC_MAX_CHOSEN);
} smc_chosen SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, SMC_EVENT_BYTES);
} smc_events SEC(".maps");

/* the programs of smc_device.h, for those that know their namespace's slot */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, 2);
} smc_programs SEC(".maps");

/* too large for the stack */
SMC_MAP(smc_scratch, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, struct smc_request, 1);

#endif
