/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Used by all programs of the bypass: its other maps, and the way from a socket to its entry. */
#ifndef SMC_BYPASS_COMMON_H
#define SMC_BYPASS_COMMON_H

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct smc_bypass_config);
	__uint(max_entries, 1);
} smc_bypass_config SEC(".maps");

/* the least recently used entry is evicted: at worst a habit must be learnt again */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__type(key, __u64);
	__type(value, struct smc_bypass_cgroup);
	__uint(max_entries, SMC_MAX_CGROUPS);
} smc_bypass_cgroups SEC(".maps");

/* cookies of namespaces in which sockets wait for smc_bypass_enrol; user space takes them out */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __u64);
	__type(value, __u32);
	__uint(max_entries, SMC_MAX_NETNS);
} smc_bypass_spaces SEC(".maps");

/* members that have to be taken out of smc_members, which only user space can do on every kernel */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__type(value, __u64);
	__uint(max_entries, SMC_MAX_MEMBERS);
} smc_bypass_gone SEC(".maps");

static __always_inline const struct smc_bypass_config *smc_bypass_get_config(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&smc_bypass_config, &zero);
}

static __always_inline bool smc_is_revoked(const struct smc_member *member)
{
	__u32 zero = 0, *generation = bpf_map_lookup_elem(&smc_bypass_generation, &zero);

	return !generation || *generation != member->generation;
}

static __always_inline struct smc_member *smc_member_at(__u64 cookie)
{
	/* 0: the socket has no cookie yet, so it is in no map */
	return cookie ? bpf_map_lookup_elem(&smc_bypass, &cookie) : 0;
}

static __always_inline struct smc_member *smc_member_of(struct sock *sk)
{
	return smc_member_at(sk->__sk_common.skc_cookie.counter);
}

/* Whether a member has consumed all that its peer sent past TCP, and no more is on the way. */
static __always_inline bool smc_is_drained(struct smc_member *member, struct smc_member *peer)
{
	if (!peer)
		return member->alone && (__s64)(*(volatile __u64 *)&member->consumed - member->peer_last) >= 0;
	if (*(volatile __u32 *)&peer->deciding)
		return false;
	return !peer->redirected || (__s64)(*(volatile __u64 *)&member->consumed - peer->last) >= 0;
}

static __always_inline unsigned long smc_zerocopy_bit(void)
{
	return 1UL << bpf_core_enum_value(enum sock_flags, SOCK_ZEROCOPY);
}

/* Whether a receive also returns control messages. */
static __always_inline bool smc_wants_control(struct tcp_sock *tcp)
{
	struct sock *sk = (struct sock *)tcp;
	__u32 stamps = 0; /* two bytes before 6.6 */

	bpf_core_read(&stamps, bpf_core_field_size(sk->sk_tsflags), &sk->sk_tsflags);
	return stamps || BPF_CORE_READ_BITFIELD_PROBED(tcp, recvmsg_inq) ||
	       (BPF_CORE_READ(sk, __sk_common.skc_flags) & 1UL << bpf_core_enum_value(enum sock_flags, SOCK_RCVTSTAMP));
}

static __always_inline bool smc_is_paced(const struct sock *sk)
{
	return BPF_CORE_READ(sk, sk_max_pacing_rate) != ~0UL;
}

static __always_inline void smc_add_habit(struct smc_member *member, __u32 habit)
{
	if ((member->habits & habit) != habit)
		__sync_fetch_and_or(&member->habits, habit);
}

#endif
