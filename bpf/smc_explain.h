/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Makes every check that does not need a socket: user space runs it (BPF_PROG_TEST_RUN) for `smcctl explain`. */
#ifndef SMC_EXPLAIN_H
#define SMC_EXPLAIN_H

#define SMC_OF_NODE(decision, function)                                                                                \
	if (smc_check_##function(&subject))                                                                            \
		answer.failed |= 1ULL << decision;
#define SMC_OF_SOCKET(decision, function) answer.needs_socket |= 1ULL << decision;
#define SMC_EXPLAIN(decision, needs, function, text) SMC_OF_##needs(decision, function)

struct smc_query smc_asked; /* input and output of smc_explain */

SEC("tc")
int smc_explain(void *unused)
{
	struct smc_query *query = &smc_asked;
	struct smc_query answer = *query;
	struct smc_cgroup any = {.rules = answer.rules, .enrolled = 1, .limited = answer.limited};
	struct smc_subject subject = {};

	subject.config = smc_get_config();
	if (!subject.config)
		return 1;
	subject.cgroup = answer.any_cgroup ? &any : bpf_map_lookup_elem(&smc_cgroups, &answer.cgroup);
	subject.netns_cookie = answer.netns;
	subject.cgroup_id = answer.cgroup;
	subject.remote = answer.remote;
	subject.port = answer.port;
	subject.direction = answer.direction;
	subject.rule = -1;
	answer.failed = 0;
	answer.needs_socket = 0;
	if (answer.direction == SMC_OUTBOUND) {
		SMC_OUTBOUND_CHECKS(SMC_EXPLAIN)
	} else {
		SMC_INBOUND_CHECKS(SMC_EXPLAIN)
	}
	query->failed = answer.failed;
	query->needs_socket = answer.needs_socket;
	query->rule = subject.rule;
	return 0;
}

#endif
