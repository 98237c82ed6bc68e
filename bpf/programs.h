/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Every BPF program of the project: its purpose, and what is lost if the kernel refuses it. The agent loads the
 * programs that the kernel accepts and logs those that it left out.
 *
 *	NEEDED	without this program the others of its object are useless
 *	PART	this program alone can be left out
 *	RUN_*	user space runs it (BPF_PROG_TEST_RUN): as type syscall, which can be preempted; if the kernel
 *		refuses that, as type sched_cls, which runs with softirqs off
 */
#ifndef SMC_PROGRAMS_H
#define SMC_PROGRAMS_H

#define SMC_GATEWAY_PROGRAMS(PROGRAM)                                                                                  \
	PROGRAM(smc_out, NEEDED, "hands packets that leave by a device to smc_egress", "everything")                   \
	PROGRAM(smc_in, NEEDED, "hands packets that arrive by a device to smc_ingress", "everything")                  \
	PROGRAM(smc_egress, NEEDED, "adds option 254, holds SYNs, redirects packets of legs", "everything")            \
	PROGRAM(smc_ingress, NEEDED, "handles answers, notes SYNs with option 254", "everything")                      \
	PROGRAM(smc_lookup, NEEDED, "hands a noted SYN to the agent's listener", "everything")                         \
	PROGRAM(smc_app_sockops, NEEDED, "marks applications' sockets behind legs, tunes others", "everything")        \
	PROGRAM(smc_clc_ops, NEEDED, "option 254 and the socket options of CLC sockets and legs", "everything")        \
	PROGRAM(smc_sweep, RUN_PART, "deletes entries of tables that are too old, looks at sockets behind legs",       \
		"keepalive, resets, free entries: full tables mean plain TCP")                                         \
	PROGRAM(smc_explain, RUN_PART, "answers smcctl explain and dry-run", "smcctl explain and dry-run")             \
	PROGRAM(smc_see_tuned, RUN_PART, "reads figures of tuned sockets", "figures in smcctl ss")                     \
	PROGRAM(smc_socket_ends, NEEDED, "clears entries of sockets that end, if no program may read kernel memory",   \
		"everything, on such a kernel")

#define SMC_BYPASS_PROGRAMS(PROGRAM)                                                                                   \
	PROGRAM(smc_bypass_send, NEEDED, "puts a message into the peer's queue", "the bypass")                         \
	PROGRAM(smc_bypass_received, NEEDED, "counts what is received", "the bypass")                                  \
	PROGRAM(smc_bypass_sent, NEEDED, "counts what is sent", "the bypass")                                          \
	PROGRAM(smc_bypass_reused, NEEDED, "ends a member that is disconnected and used again", "the bypass")          \
	PROGRAM(smc_bypass_enrol, NEEDED, "puts proven sockets into map smc_members", "the bypass")                    \
	PROGRAM(smc_bypass_step, RUN_NEEDED, "moves members from state to state", "the bypass")                        \
	PROGRAM(smc_bypass_bar, RUN_NEEDED, "notes a habit that the agent has found", "the bypass")

#define SMC_GUARD_PROGRAMS(PROGRAM)                                                                                    \
	PROGRAM(smc_guard_splice, PART, "detects splice()", "the bypass by rules that say auto")                       \
	PROGRAM(smc_guard_ioctl, PART, "detects FIONREAD", "the bypass by rules that say auto")                        \
	PROGRAM(smc_guard_member_ioctl, PART, "detects a member's FIONREAD", "the bypass by rules that say auto")      \
	PROGRAM(smc_guard_send, PART, "detects MSG_OOB and MSG_ZEROCOPY", "the bypass by rules that say auto")         \
	PROGRAM(smc_guard_permission, PART, "refuses a splice() that would find nothing",                              \
		"the bypass by rules that say auto")

#endif
