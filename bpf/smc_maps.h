/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Every map except those of the bypass (bypass_maps.h, bypass_common.h). */
#ifndef SMC_MAPS_H
#define SMC_MAPS_H

#define SMC_MAP(map_name, map_type, key_type, value_type, entries)                                                     \
	struct {                                                                                                       \
		__uint(type, map_type);                                                                                \
		__type(key, key_type);                                                                                 \
		__type(value, value_type);                                                                             \
		__uint(max_entries, entries);                                                                          \
	} map_name SEC(".maps")

/* Memory is allocated as entries come, because most nodes use only a small part of what is allowed. */
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
/* cgroup ID -> which rule groups match it; the agent has not seen a cgroup that is absent */
SMC_GROWING_MAP(smc_cgroups, __u64, struct smc_cgroup, SMC_MAX_CGROUPS);
/* network namespace cookie -> what is served there */
SMC_GROWING_MAP(smc_netns, __u64, struct smc_netns, SMC_MAX_NETNS);
SMC_GROWING_MAP(smc_devices, struct smc_device_key, struct smc_device, SMC_MAX_DEVICES);
/* what was learnt about servers */
SMC_MAP(smc_servers, BPF_MAP_TYPE_LRU_HASH, struct smc_dest, struct smc_server, SMC_MAX_SERVERS);
/* which connections end too early to be worth SMC */
SMC_MAP(smc_short, BPF_MAP_TYPE_LRU_HASH, struct smc_short_key, struct smc_short, SMC_MAX_SHORT);
/*
 * SYNs that asked, and that wait for an answer of the server or of the agent. Without its entry the answer to a request
 * would not be recognized, so nothing is evicted: as long as the table is full, no SYN asks.
 */
SMC_GROWING_MAP(smc_requests, struct smc_tuple, struct smc_request, SMC_MAX_REQUESTS);
/* cgroup ID -> how many entries of smc_requests it has */
SMC_GROWING_MAP(smc_req_counts, __u64, struct smc_req_counts, SMC_MAX_CGROUPS);
/* both directions of every leg; see smc_hairpin.h */
SMC_GROWING_MAP(smc_hairpins, struct smc_tuple, struct smc_hairpin, SMC_MAX_HAIRPINS);
/*
 * Keepalive settings that applications behind a leg have changed, found by the sweep; and sockets whose other end is
 * gone, found by the sweep or by a new SYN. User space takes the entries out. Not queues: before 6.9 a program of type
 * syscall may not use one.
 */
SMC_GROWING_MAP(smc_keepalives, struct smc_tuple, struct smc_keepalive, SMC_MAX_REPORTS);
SMC_GROWING_MAP(smc_half_open, __u64, struct smc_half_open, SMC_MAX_REPORTS);
/* cookie -> a socket that was tuned, for `smcctl ss` */
SMC_GROWING_MAP(smc_tuned, __u64, struct smc_tuned_socket, SMC_MAX_TUNED);
/* connections within this node that are being established; the key is the sequence number of the SYN */
SMC_MAP(smc_pairs, BPF_MAP_TYPE_LRU_HASH, __be32, struct smc_pair, SMC_MAX_PAIRS);
/* SYNs that tc marks for sk_lookup; an entry that is too old is ignored */
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

/* choices of the application behind a leg; user space maps it into memory */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct smc_chosen);
	__uint(max_entries, SMC_MAX_CHOSEN);
} smc_chosen SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, SMC_EVENT_BYTES);
} smc_events SEC(".maps");

/* smc_egress and smc_ingress, for tail calls from smc_out and smc_in, which know their namespace's slot */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, 2);
} smc_programs SEC(".maps");

SMC_MAP(smc_judged, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, struct smc_judged, 1);

/* too large for the stack */
SMC_MAP(smc_scratch, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, struct smc_request, 1);

#endif
