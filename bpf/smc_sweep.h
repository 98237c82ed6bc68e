/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Tables age: user space runs this now and then (BPF_PROG_TEST_RUN). */
#ifndef SMC_SWEEP_H
#define SMC_SWEEP_H

struct bpf_map;

/* An entry may be younger than the sweep. */
static __always_inline bool smc_older(__u64 now, __u64 since, __u64 life)
{
	return (__s64)(now - since) > (__s64)life;
}

static long smc_sweep_question(struct bpf_map *map, struct smc_tuple *key, struct smc_question *question, void *now)
{
	__u64 life = SMC_QUESTION_NS;
	struct smc_asking *asking;

	if (question->state == SMC_QUESTION_TAKEN)
		life = SMC_TAKEN_NS;
	else if (question->state == SMC_QUESTION_CLC || question->state == SMC_QUESTION_LEG)
		life = SMC_OWN_QUESTION_NS;
	if (smc_older(*(__u64 *)now, question->since_ns, life)) {
		smc_end_question(key, question);
	} else if (question->cgroup) {
		asking = bpf_map_lookup_elem(&smc_asking, &question->cgroup);
		if (asking)
			asking->counted++;
	}
	return 0;
}

static long smc_sweep_asking(struct bpf_map *map, __u64 *cgroup, struct smc_asking *asking, void *unused)
{
	asking->now = asking->counted;
	asking->counted = 0;
	if (!asking->now)
		bpf_map_delete_elem(&smc_asking, cgroup);
	return 0;
}

struct smc_census {
	__u64 since, now;
};

/* The hairpin of a leg that has ended stays for what its other end may still send. */
static long smc_sweep_hairpin(struct bpf_map *map, struct smc_tuple *key, struct smc_hairpin *hairpin,
			      struct smc_census *census)
{
	if (hairpin->seen_ns >= census->since)
		hairpin->closed_ns = 0;
	else if (!hairpin->closed_ns)
		hairpin->closed_ns = census->now;
	else if (smc_older(census->now, hairpin->closed_ns, SMC_HAIRPIN_NS))
		bpf_map_delete_elem(&smc_hairpins, key);
	return 0;
}

static long smc_sweep_inbound(struct bpf_map *map, struct smc_tuple *key, struct smc_inbound *inbound, void *now)
{
	if (smc_older(*(__u64 *)now, inbound->since_ns, smc_inbound_life(inbound)))
		bpf_map_delete_elem(&smc_inbound, key);
	return 0;
}

SEC("syscall")
int smc_sweep(struct smc_clock *clock)
{
	__u64 now = bpf_ktime_get_ns();
	struct smc_census census = {.since = clock->ktime_ns, .now = now};

	clock->questions = bpf_for_each_map_elem(&smc_questions, smc_sweep_question, &now, 0);
	bpf_for_each_map_elem(&smc_asking, smc_sweep_asking, 0, 0);
	if (census.since)
		clock->hairpins = bpf_for_each_map_elem(&smc_hairpins, smc_sweep_hairpin, &census, 0);
	clock->inbound = bpf_for_each_map_elem(&smc_inbound, smc_sweep_inbound, &now, 0);
	clock->ktime_ns = now; /* the agent's own clock may be another's, in a time namespace */
	return 0;
}

#endif
