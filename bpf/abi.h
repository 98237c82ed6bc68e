/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The layouts that the BPF programs and the agent share: map keys and values, ring buffer events.
 *
 * Compiled as BPF C and as C++. Addresses are 16 bytes in network order, IPv4 as ::ffff:a.b.c.d, so `bpftool map dump`
 * shows the dotted quad as the last four numbers. Ports and everything else are in host order. Enumerations keep their
 * names in BTF, so bpftool prints the names.
 */
#ifndef SMC_ABI_H
#define SMC_ABI_H

#include "bpf/abi_connections.h"
#include "bpf/abi_limits.h"
#include "bpf/abi_node.h"
#include "bpf/decisions.h"

/* To be incremented when any layout below changes. Readers of pinned maps find the version in smc_config. */
#define SMC_ABI_VERSION 24u

enum smc_event_type {
	SMC_EVENT_REQUEST = 1,   /* a server speaks SMC, or is known to: the agent negotiates */
	SMC_EVENT_NETNS_UNKNOWN, /* a socket connects or listens in a network namespace that is not known */
	SMC_EVENT_CGROUP_UNKNOWN,
	SMC_EVENT_CALLBACK_LOST, /* a SYN-ACK of the agent's listener left without options (smc_flag.h) */
	SMC_EVENT_RESET,         /* a RST or ICMP error has answered a SYN with options: the agent sends it without */
};

struct smc_event {
	enum smc_event_type type;
	__u32 pad;
	__u64 cgroup;           /* NETNS_UNKNOWN: ID of the socket's; CGROUP_UNKNOWN: of one that is not known yet */
	struct smc_tuple tuple; /* REQUEST and RESET: key of the request; CALLBACK_LOST: the connection */
	struct smc_request request; /* REQUEST and RESET: its entry */
};

/* Output of program smc_sweep. */
struct smc_clock {
	__u64 ktime_ns; /* time of the sweep */
	/* number of entries in each table */
	__u32 requests;
	__u32 hairpins;
	__u32 inbound;
	__u32 tuned;
};

/* Input and output of program smc_explain. */
struct smc_query {
	__u64 cgroup;
	__u64 rules; /* if any_cgroup is set: the rule groups that match the cgroup, as in smc_cgroup */
	__u64 netns; /* cookie */
	struct smc_addr remote;
	__u16 port;         /* the server's */
	__u8 any_cgroup;    /* 1: any cgroup that those rule groups match */
	__u8 direction;     /* SMC_OUTBOUND or SMC_INBOUND */
	__s32 rule;         /* the index in smc_rules that decides; -1: the default */
	__u32 limited;      /* if any_cgroup is set: as in smc_cgroup */
	__u64 failed;       /* bit n: the check of decision n fails */
	__u64 needs_socket; /* bit n: the check of decision n needs the socket */
};

#ifdef __cplusplus
static_assert(SMC_IN_TABLE_FULL < 64, "decisions are bits of smc_query");
static_assert(sizeof(smc_query) == 72);
static_assert(sizeof(smc_addr) == 20);
static_assert(sizeof(smc_tuple) == 40);
static_assert(sizeof(smc_sock) == 104);
static_assert(sizeof(smc_rule) == 44);
static_assert(sizeof(smc_dest) == 32);
static_assert(sizeof(smc_netns) == 16);
static_assert(sizeof(smc_device) == 32);
static_assert(sizeof(smc_server) == 24);
static_assert(sizeof(smc_short_key) == 40);
static_assert(sizeof(smc_short) == 16);
static_assert(sizeof(smc_request) == 256);
static_assert(sizeof(smc_hairpin) == 56);
static_assert(sizeof(smc_inbound) == 48);
static_assert(sizeof(smc_config) == 72);
static_assert(sizeof(smc_req_counts) == 12);
static_assert(sizeof(smc_pair) == 56);
static_assert(sizeof(smc_tuned_socket) == 88);
static_assert(sizeof(smc_half_open) == 48);
#endif

#endif
