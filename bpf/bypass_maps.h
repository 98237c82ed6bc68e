/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The maps of the bypass: pinned by themselves, because they outlive an agent with the pairs in them. The gateway's
 * programs use these, too; user space gives them the very maps.
 */
#ifndef SMC_BYPASS_MAPS_H
#define SMC_BYPASS_MAPS_H

/* socket's cookie -> what is known of it */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64);
	__type(value, struct smc_member);
	__uint(max_entries, SMC_MAX_MEMBERS);
} smc_bypass SEC(".maps");

/* the sockets themselves; their key is their cookie */
struct {
	__uint(type, BPF_MAP_TYPE_SOCKHASH);
	__type(key, __u64);
	__type(value, __u64);
	__uint(max_entries, SMC_MAX_MEMBERS);
} smc_members SEC(".maps");

/* of members that are paired now; those of an earlier one leave */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, 1);
} smc_bypass_generation SEC(".maps");

/* sockets that have an entry there, for smc_bypass_census: storage goes with its socket */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, __u64);
} smc_paired SEC(".maps");

#endif
