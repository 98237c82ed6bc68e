/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The decisions of the programs, each of which is counted. Part of abi.h: shared with user space. */
#ifndef SMC_DECISIONS_H
#define SMC_DECISIONS_H

/*
 * Every decision has a counter of its name (map smc_counters). The checks and their order are in eligibility.h; their
 * numbers are bits of smc_query.
 */
enum smc_decision {
	SMC_OUT_ASKED,
	SMC_OUT_HELD, /* the server is known to speak SMC: the SYN waits for the agent */
	SMC_OUT_NOT_ENROLLED,
	SMC_OUT_SPECIAL,
	SMC_OUT_LOOPBACK,
	SMC_OUT_DENIED,
	SMC_OUT_AGENT_STALE,
	SMC_OUT_AGENT_FULL,
	SMC_OUT_LIMITED,
	SMC_OUT_NETNS_UNKNOWN,
	SMC_OUT_NOT_SERVED,
	SMC_OUT_NETNS_FULL,
	SMC_OUT_CGROUP_FULL,
	SMC_OUT_AGENT_GONE,
	SMC_OUT_LATER_SYN,
	SMC_OUT_HEADERS,
	SMC_OUT_MPTCP,
	SMC_OUT_NET_SMC,
	SMC_OUT_KERNEL,
	SMC_OUT_TCP_SIGNED,
	SMC_OUT_TIMESTAMPING,
	SMC_OUT_PACED,
	SMC_OUT_FAST_OPEN,
	SMC_OUT_NO_ROOM,
	SMC_OUT_IPSEC,
	SMC_OUT_NOT_NOW,
	SMC_OUT_SHORT_LIVED,
	SMC_OUT_NO_DEVICE,
	SMC_OUT_REQUESTS_FULL, /* its cgroup has used up its share of smc_requests */
	SMC_OUT_TABLE_FULL,
	SMC_IN_STEERED,
	SMC_IN_AGENT_STALE,
	SMC_IN_AGENT_FULL,
	SMC_IN_SAME_AGENT,
	SMC_IN_FORWARDED,
	SMC_IN_NOT_NOW,
	SMC_IN_NO_LEG,
	SMC_IN_SHORT_LIVED,
	SMC_IN_LIMITED,
	SMC_IN_NOT_SERVED,
	SMC_IN_NETNS_FULL,
	SMC_IN_CGROUP_FULL,
	SMC_IN_MPTCP,
	SMC_IN_FAST_OPEN,
	SMC_IN_NO_LISTENER,
	SMC_IN_NET_SMC,
	SMC_IN_KERNEL,
	SMC_IN_NOT_ENROLLED,
	SMC_IN_SPECIAL,
	SMC_IN_DENIED,
	SMC_IN_TCP_SIGNED,
	SMC_IN_TIMESTAMPING,
	SMC_IN_BOUND,
	SMC_IN_INCOMING_CPU,
	SMC_IN_IPSEC,
	SMC_IN_HEADERS,
	SMC_IN_NO_DEVICE,
	SMC_IN_TABLE_FULL,
	SMC_IN_TUPLE_REUSED, /* the client sent a SYN of its own; the half-open connection of our leg was reset */
	SMC_SYN_AGAIN,       /* retransmission of a request: leaves without options */
	SMC_SYN_HELD,        /* retransmission while the request is held: not sent */
	SMC_SYN_LET_GO,      /* retransmission after the agent let the request go, or after the budget */
	SMC_ANSWER_PLAIN,    /* the server does not speak SMC */
	SMC_ANSWER_LOST,     /* the server answered only the SYN without options */
	SMC_ANSWER_ECHOED,   /* the server copies unknown options */
	SMC_ANSWER_SMC,      /* the server speaks SMC: the agent takes over */
	SMC_ANSWER_AGAIN,    /* the same SYN-ACK again: it is reset again */
	SMC_ANSWER_UNASKED,  /* it answers a request that this agent did not send */
	SMC_ANSWER_REFUSED,  /* the server speaks SMC, but the agent is gone or does not keep up */
	SMC_ANSWER_RESET,    /* a RST or ICMP error: the agent sends the SYN again, without options */
	SMC_LEG_JOINED,      /* a leg's SYN was redirected for the first time */
	SMC_LEG_LATE,        /* refused: the application's request is not held any more */
	SMC_LEG_CONFLICT,    /* refused: the client's port is in use at the server, or another leg has it */
	SMC_LEG_TRANSLATED,  /* refused: this host translates the addresses of a server's leg */
	SMC_LEG_PAWS,        /* refused: the application's kernel would drop it because of its time stamp */
	SMC_LEG_FULL,        /* refused: no free entry in smc_hairpins */
	SMC_LEG_GONE,   /* data or a FIN of an application after its peer's end, to a leg that is gone: it is reset */
	SMC_OPTION_SYN, /* option 254 written into the SYN of a CLC socket */
	SMC_OPTION_SYN_FAILED,
	SMC_OPTION_SYN_LOST, /* another program has taken the callback flag of a CLC socket: no options */
	SMC_OPTION_SYNACK,   /* option 254 written into a SYN-ACK */
	SMC_OPTION_SYNACK_FAILED,
	SMC_OPTION_SYNACK_LOST, /* the same for the agent's listener */
	SMC_PEER_OPTION_PRESENT,
	SMC_PEER_OPTION_ABSENT,
	SMC_PEER_OPTION_ECHOED,
	SMC_LOCAL_PAIR,     /* a server of this node answered a SYN of this node that smc_pairs.h follows */
	SMC_TUNED,          /* one end of such a connection, or of one over lo, was tuned */
	SMC_BYPASS_WATCHED, /* such a connection is watched: it may be bypassed */
	SMC_DECISIONS,      /* keep last */
};

#endif
