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

/* a socket -> its key there, while it has an entry: storage goes with its socket */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, __u64);
} smc_paired SEC(".maps");

/* Its entry, unless that socket is another connection's by now. */
static __always_inline struct smc_member *smc_peer_of(const struct smc_member *member, __u64 cookie)
{
	struct smc_member *peer = bpf_map_lookup_elem(&smc_bypass, &member->peer);

	return peer && peer->peer == cookie ? peer : 0;
}

/* Its socket is gone, or another connection's. Its peer may still have to read what it has sent. */
static __always_inline void smc_forget_member(const struct smc_member *member, __u64 cookie)
{
	struct smc_member *peer = smc_peer_of(member, cookie);

	if (peer) {
		peer->came_last = member->redirected ? member->last : 0;
		peer->alone = 1;
	}
	bpf_map_delete_elem(&smc_bypass, &cookie);
}

#endif
