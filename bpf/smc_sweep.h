/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Deletes entries that are too old. User space runs this once a second (BPF_PROG_TEST_RUN; type: see programs.h). */
#ifndef SMC_SWEEP_H
#define SMC_SWEEP_H

struct bpf_map;

/* Signed, because an entry may be younger than the sweep. */
static __always_inline bool smc_older(__u64 now, __u64 since, __u64 life)
{
	return (__s64)(now - since) > (__s64)life;
}

static long smc_begin_counting(struct bpf_map *map, __u64 *cgroup, struct smc_req_counts *counts, void *unused)
{
	counts->before = counts->now;
	counts->counted = 0;
	return 0;
}

static long smc_sweep_request(struct bpf_map *map, struct smc_tuple *key, struct smc_request *request, void *now)
{
	__u64 life = SMC_REQUEST_NS;
	struct smc_req_counts *counts;

	if (request->state == SMC_REQUEST_ANSWERED)
		life = SMC_ANSWERED_NS;
	else if (request->state == SMC_REQUEST_CLC || request->state == SMC_REQUEST_LEG)
		life = SMC_OWN_REQUEST_NS;
	if (smc_older(*(__u64 *)now, request->since_ns, life)) {
		bpf_map_delete_elem(&smc_requests, key);
	} else if (request->cgroup && request->asked_ns <= *(__u64 *)now) {
		counts = bpf_map_lookup_elem(&smc_req_counts, &request->cgroup);
		if (counts)
			counts->counted++;
	}
	return 0;
}

/*
 * Requests begin and end during the sweep, so the count is not set: it is corrected by the error that the sweep found.
 */
static long smc_end_counting(struct bpf_map *map, __u64 *cgroup, struct smc_req_counts *counts, void *unused)
{
	__sync_fetch_and_add(&counts->now, counts->counted - counts->before);
	if (!counts->now)
		bpf_map_delete_elem(&smc_req_counts, cgroup);
	return 0;
}

/*
 * Whether the leg of this hairpin is gone. A callback at a leg's end would be cheaper, but any other sockops program of
 * a parent cgroup may switch it off.
 */
static __always_inline bool smc_leg_is_gone(const struct smc_tuple *key, const struct smc_hairpin *hairpin)
{
	const struct smc_hairpin *leg = hairpin;
	struct smc_tuple sender = *key;

	if (!hairpin->of_leg) {
		sender.local_port = hairpin->to_port;
		leg = bpf_map_lookup_elem(&smc_hairpins, &sender);
	}
	/* an entry that is missing, or leads elsewhere: the leg has made way */
	return !leg || (leg != hairpin && leg->to_port != key->local_port) || !smc_leg_lives(leg);
}

/* Whether the kernel has given up the socket of a leg's application, whose FIN or reset did not get through. */
static __always_inline bool smc_application_is_gone(const struct smc_tuple *key, const struct smc_hairpin *leg)
{
	const struct smc_hairpin *hairpin;
	struct smc_tuple sender = *key;

	sender.local_port = leg->to_port;
	hairpin = bpf_map_lookup_elem(&smc_hairpins, &sender);
	return hairpin && !hairpin->of_leg && hairpin->to_port == key->local_port && hairpin->sender.cookie &&
	       !smc_lives(&hairpin->sender);
}

/* The hairpin of a leg that has ended stays for a while, because its other end may still send. */
static long smc_sweep_hairpin(struct bpf_map *map, struct smc_tuple *key, struct smc_hairpin *hairpin, void *now)
{
	struct smc_tuple tuple = *key;
	bool leg_is_gone = smc_leg_is_gone(&tuple, hairpin);

	if (!leg_is_gone && !(hairpin->of_leg && smc_application_is_gone(&tuple, hairpin))) {
		hairpin->closed_ns = 0;
		if (!hairpin->of_leg)
			smc_tell_keepalive(&tuple, hairpin);
	} else if (!hairpin->closed_ns) {
		hairpin->closed_ns = *(__u64 *)now;
	} else if (smc_older(*(__u64 *)now, hairpin->closed_ns, SMC_HAIRPIN_NS)) {
		/* told about the end that is left: a leg without its application, or an application without its leg */
		if (hairpin->of_leg == !leg_is_gone && hairpin->reports < SMC_MOST_REPORTS &&
		    smc_is_half_open(hairpin)) {
			/* else the next sweep tries again */
			if (!smc_is_reported(hairpin) && smc_report_half_open(&tuple, hairpin)) {
				hairpin->reports++;
				hairpin->closed_ns = *(__u64 *)now; /* reported again after SMC_HAIRPIN_NS */
			}
		} else if (leg_is_gone && bpf_map_lookup_elem(&smc_hairpins, &tuple) == hairpin) {
			bpf_map_delete_elem(&smc_hairpins, &tuple); /* else its memory belongs to another entry */
		}
	}
	return 0;
}

static long smc_sweep_tuned(struct bpf_map *map, __u64 *key, struct smc_tuned_socket *tuned, void *unused)
{
	__u64 cookie = *key;

	if (!smc_is_still(tuned->sk, cookie))
		bpf_map_delete_elem(&smc_tuned, &cookie);
	return 0;
}

static long smc_sweep_inbound(struct bpf_map *map, struct smc_tuple *key, struct smc_inbound *inbound, void *now)
{
	if (smc_older(*(__u64 *)now, inbound->since_ns, smc_inbound_life(inbound)))
		bpf_map_delete_elem(&smc_inbound, key);
	return 0;
}

struct smc_clock smc_swept; /* output of the last smc_sweep */

SEC("tc")
int smc_sweep(void *unused)
{
	struct smc_clock *clock = &smc_swept;
	__u64 now;

	bpf_for_each_map_elem(&smc_req_counts, smc_begin_counting, 0, 0);
	now = bpf_ktime_get_ns();
	clock->requests = bpf_for_each_map_elem(&smc_requests, smc_sweep_request, &now, 0);
	bpf_for_each_map_elem(&smc_req_counts, smc_end_counting, 0, 0);
	clock->hairpins = bpf_for_each_map_elem(&smc_hairpins, smc_sweep_hairpin, &now, 0);
	clock->tuned = bpf_for_each_map_elem(&smc_tuned, smc_sweep_tuned, 0, 0);
	clock->inbound = bpf_for_each_map_elem(&smc_inbound, smc_sweep_inbound, &now, 0);
	clock->ktime_ns = now; /* the agent's own clock may differ, in a time namespace */
	return 0;
}

#endif
