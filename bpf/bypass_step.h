/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Moves members from state to state (bypass_abi.h). User space runs this four times a second, so that the programs in
 * an application's path only have to read the state.
 */
#ifndef SMC_BYPASS_STEP_H
#define SMC_BYPASS_STEP_H

#define SMC_STREAM_BYTES (8ULL << 20) /* in a quarter of a second, the time between two runs */

struct bpf_map;

struct smc_step_context {
	const struct smc_bypass_config *config;
	struct smc_bypass_step *step;
};

static __always_inline bool smc_is_proven(const struct smc_member *member)
{
	return !member->habits && member->received >= SMC_PROOF && member->state <= SMC_MEMBER_MEMBER;
}

static __always_inline bool smc_is_placed(const struct smc_member *member)
{
	return member->state > SMC_MEMBER_WATCHED && member->state < SMC_MEMBER_OUT;
}

/* Members, and the bytes that they move, are counted anew in each run. */
static long smc_step_clear(struct bpf_map *map, __u64 *id, struct smc_bypass_cgroup *cgroup, void *unused)
{
	cgroup->members = 0;
	cgroup->sent = 0;
	cgroup->came = 0;
	return 0;
}

static long smc_step_count(struct bpf_map *map, __u64 *cookie, struct smc_member *member,
			   struct smc_step_context *context)
{
	struct smc_bypass_cgroup *cgroup;
	struct smc_member *peer;

	if (!smc_is_placed(member))
		return 0;
	context->step->members++;
	cgroup = bpf_map_lookup_elem(&smc_bypass_cgroups, &member->cgroup);
	if (!cgroup)
		return 0;
	peer = smc_peer_of(member, *cookie);
	cgroup->members++;
	cgroup->sent += member->redirected;
	cgroup->came += peer ? peer->redirected : 0;
	return 0;
}

/* The entry of the member's cgroup; 0: the cgroup may not have another member. */
static __always_inline struct smc_bypass_cgroup *smc_place_of(struct smc_step_context *context,
							      const struct smc_member *member)
{
	struct smc_bypass_cgroup fresh = {}, *cgroup;

	cgroup = bpf_map_lookup_elem(&smc_bypass_cgroups, &member->cgroup);
	if (!cgroup) {
		bpf_map_update_elem(&smc_bypass_cgroups, &member->cgroup, &fresh, BPF_NOEXIST);
		cgroup = bpf_map_lookup_elem(&smc_bypass_cgroups, &member->cgroup);
	}
	return cgroup && !cgroup->habits && cgroup->members < context->config->max_cgroup_members ? cgroup : 0;
}

/* Takes both members or neither: one alone would be in a sockmap for nothing. */
static __always_inline void smc_place_pair(struct smc_step_context *context, struct smc_member *member,
					   struct smc_member *peer)
{
	struct smc_bypass_cgroup *own = smc_place_of(context, member), *other = smc_place_of(context, peer);

	if (!own || !other || context->step->members + 2 > context->config->max_members)
		return;
	own->members++;
	other->members++;
	context->step->members += 2;
	member->state = SMC_MEMBER_PROVEN;
	peer->state = SMC_MEMBER_PROVEN;
}

/* Notes a reader that is slower than its sender: most of its bytes come by TCP, so smc_bypass_send runs for nothing. */
static __always_inline void smc_look_for_stream(struct smc_member *member, const struct smc_member *peer)
{
	__u64 consumed = *(volatile __u64 *)&member->consumed, redirected = peer->redirected;
	__u64 received = consumed - member->consumed_before, past_tcp = redirected - member->redirected_before;

	member->consumed_before = consumed;
	member->redirected_before = redirected;
	if (member->state == SMC_MEMBER_MEMBER && received > SMC_STREAM_BYTES && past_tcp < received / 2)
		smc_add_habit(member, SMC_HABIT_STREAMS);
}

/* The socket may have been added to an epoll with EPOLLET since it was enrolled. */
static __always_inline void smc_look_for_edges(struct smc_member *member, __u64 cookie)
{
	struct sock *sk = (struct sock *)member->sk;

	if (member->state != SMC_MEMBER_MEMBER || BPF_CORE_READ(sk, __sk_common.skc_cookie.counter) != (__s64)cookie)
		return;
	if (smc_may_miss_an_edge(member, sk))
		smc_add_habit(member, SMC_HABIT_EDGES);
}

/* Bytes up to `last` of the peer's stream that are not read yet; those that came by TCP count, too. */
static __always_inline __u64 smc_unread(const struct smc_member *member, __u64 last)
{
	__s64 unread = (__s64)(last - *(volatile __u64 *)&member->consumed);

	return unread > 0 ? (__u64)unread : 0;
}

/* Adds what was redirected since the last run: a sum over living members would shrink when one of them is gone. */
static __always_inline void smc_tell_of(struct smc_bypass_step *step, struct smc_member *member)
{
	__u64 redirected = *(volatile __u64 *)&member->redirected;

	step->moved += redirected - member->redirected_told;
	member->redirected_told = redirected;
}

static __always_inline void smc_leave(__u64 cookie, struct smc_member *member, struct smc_member *peer)
{
	/* smc_send() redirects only while both are MEMBERs, so two drained members stay drained */
	if (smc_is_drained(member, peer) && !bpf_map_push_elem(&smc_bypass_gone, &cookie, BPF_ANY))
		member->state = SMC_MEMBER_OUT;
}

__u32 smc_inexact; /* input of smc_bypass_step; 1: receives went unnoticed, and it is not known of which sockets */

static long smc_step_member(struct bpf_map *map, __u64 *key, struct smc_member *member,
			    struct smc_step_context *context)
{
	__u64 cookie = *key;
	struct smc_member *peer;
	__u32 one = 1;
	bool stays;

	peer = smc_peer_of(member, cookie);
	smc_tell_of(context->step, member);
	if (smc_inexact)
		member->failed = 1;
	if (!smc_is_still(member->sk, cookie)) {
		smc_forget_member(member, cookie);
		return 0;
	}
	if (peer)
		smc_look_for_stream(member, peer);
	smc_look_for_edges(member, cookie);
	stays = peer && smc_is_proven(member) && smc_is_proven(peer) && !context->config->identity.off &&
		!smc_is_revoked(member);
	switch (member->state) {
	case SMC_MEMBER_WATCHED:
		if (stays && peer->state == SMC_MEMBER_WATCHED)
			smc_place_pair(context, member, peer);
		break;
	case SMC_MEMBER_PROVEN:
	case SMC_MEMBER_ENROLLED:
	case SMC_MEMBER_MEMBER:
		if (!stays) {
			member->state = SMC_MEMBER_LEAVING;
			smc_remember_habits(member);
		} else if (member->state == SMC_MEMBER_ENROLLED && peer->state >= SMC_MEMBER_ENROLLED) {
			member->state = SMC_MEMBER_MEMBER;
			context->step->joined++;
		}
		break;
	case SMC_MEMBER_LEAVING:
		smc_leave(cookie, member, peer);
		break;
	default:
		break;
	}
	if (member->state == SMC_MEMBER_PROVEN)
		bpf_map_update_elem(&smc_bypass_spaces, &member->netns, &one, BPF_ANY);
	context->step->watched += member->state == SMC_MEMBER_WATCHED;
	context->step->enrol += member->state == SMC_MEMBER_PROVEN;
	context->step->leaving += member->state == SMC_MEMBER_LEAVING;
	context->step->out += member->state == SMC_MEMBER_OUT;
	context->step->redirected += member->redirected;
	context->step->messages += member->messages;
	if (peer ? peer->redirected : member->alone)
		context->step->backlog += smc_unread(member, peer ? peer->last : member->peer_last);
	return 0;
}

struct smc_bypass_step smc_step_result; /* output of the last smc_bypass_step */

SEC("tc")
int smc_bypass_step(void *unused)
{
	struct smc_step_context context = {.config = smc_bypass_get_config(), .step = &smc_step_result};

	__builtin_memset(&smc_step_result, 0, sizeof(smc_step_result));
	if (!context.config)
		return 0;
	smc_step_result.knows_waiters = smc_knows_waiters();
	bpf_for_each_map_elem(&smc_bypass_cgroups, smc_step_clear, 0, 0);
	bpf_for_each_map_elem(&smc_bypass, smc_step_count, &context, 0);
	bpf_for_each_map_elem(&smc_bypass, smc_step_member, &context, 0);
	return 0;
}

/* Notes a habit that user space has found. Only a program may write to an entry in which other programs count. */
struct smc_bypass_bar smc_barred; /* input of smc_bypass_bar */

SEC("tc")
int smc_bypass_bar(void *unused)
{
	__u64 cookie = smc_barred.cookie;
	struct smc_member *member = bpf_map_lookup_elem(&smc_bypass, &cookie);

	if (member)
		smc_add_habit(member, smc_barred.habit);
	return 0;
}

#endif
