/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The maps of the bypass that the gateway's programs use, too: user space gives them the same maps. They are pinned
 * apart from the gateway's, because they and their pairs outlive an agent.
 */
#ifndef SMC_BYPASS_MAPS_H
#define SMC_BYPASS_MAPS_H

/* socket's cookie -> its member */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64);
	__type(value, struct smc_member);
	__uint(max_entries, SMC_MAX_MEMBERS);
} smc_bypass SEC(".maps");

/* the sockets themselves; the key is the cookie */
struct {
	__uint(type, BPF_MAP_TYPE_SOCKHASH);
	__type(key, __u64);
	__type(value, __u64);
	__uint(max_entries, SMC_MAX_MEMBERS);
} smc_members SEC(".maps");

/* generation of pairs that are made now; members of an earlier one leave */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, 1);
} smc_bypass_generation SEC(".maps");

/* socket -> its key in smc_bypass, if it has or had an entry; storage goes with its socket */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, __u64);
} smc_paired SEC(".maps");

/* The peer's entry; 0: it is gone, or belongs to another connection by now. */
static __always_inline struct smc_member *smc_peer_of(const struct smc_member *member, __u64 cookie)
{
	struct smc_member *peer = bpf_map_lookup_elem(&smc_bypass, &member->peer);

	return peer && peer->peer == cookie ? peer : 0;
}

/* The member's socket is gone, or has another connection. Its peer may still have to read what it has sent. */
static __always_inline void smc_forget_member(const struct smc_member *member, __u64 cookie)
{
	struct smc_member *peer = smc_peer_of(member, cookie);

	if (peer) {
		peer->peer_last = member->redirected ? member->last : 0;
		peer->alone = 1;
	}
	bpf_map_delete_elem(&smc_bypass, &cookie);
}

#endif
