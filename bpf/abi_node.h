/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The node, its policy, and the knowledge about servers. Part of abi.h: shared with user space. */
#ifndef SMC_ABI_NODE_H
#define SMC_ABI_NODE_H

#include "bpf/abi_limits.h"

enum smc_direction {
	SMC_OUTBOUND = 1,
	SMC_INBOUND = 2,
	SMC_BOTH = 3,
};

/* Treatment of connections within this node. */
enum smc_local {
	SMC_LOCAL_TUNE = 1,
	SMC_LOCAL_BYPASS = 2, /* if the agent's probe of the kernel finds no obstacle */
	SMC_LOCAL_FORCE = 4,  /* bypass even if the probe finds an obstacle */
};

struct smc_config {
	__u32 abi_version;
	__u32 rule_count;
	__u64 heartbeat_max_age_ns;
	__u64 budget_ns;  /* how long a SYN may be held */
	__u64 not_now_ns; /* pause for a server that answers only a SYN without the option */
	__u32 default_allow;
	__u32 tag;           /* this agent's, in our own TCP option */
	__u32 local;         /* enum smc_local, or'ed: for connections within this node that match no rule */
	__u32 local_mask;    /* the part of enum smc_local that this node can do */
	__u32 smcd;          /* SMC-D with another agent of this kernel, for connections that match no rule */
	__u32 most_requests; /* entries of smc_requests that one cgroup may have */
	__u32 past_limits;   /* as in smc_rule, for connections that match no rule */
	__u32 short_lived;   /* likewise */
	__u32 leg_unsent;    /* TCP_NOTSENT_LOWAT of legs */
	__u32 pad;
};

struct smc_heartbeat {
	__u64 ktime_ns;  /* CLOCK_MONOTONIC; too old: the agent hangs or is gone */
	__u32 accepting; /* 0: the agent runs but takes no new connections (Agent::obstacle() says why) */
	__u32 roce;      /* there is a RoCE device for SMC-R */
};

/* One CIDR and port range of one configured rule. First match in order decides. */
struct smc_rule {
	__u8 prefix[16];
	__u8 mask[16];
	__u16 port_first;
	__u16 port_last;
	__u8 allow;
	__u8 directions;  /* enum smc_direction */
	__u8 group;       /* group of the configured rule: number of its bit in smc_cgroup.rules */
	__u8 v4;          /* the prefix is IPv4's; ::/0 does not mean IPv4 */
	__u8 local;       /* enum smc_local, or'ed */
	__u8 smcd;        /* SMC-D with another agent of this kernel */
	__u8 past_limits; /* 1: also where a device has a shaper or filter that SMC would evade */
	__u8 short_lived; /* 1: also where connections are short-lived (smc_short_lived.h) */
};

struct smc_cgroup {
	__u64 rules;    /* bit n: the globs or pod selectors of rule group n match this cgroup */
	__u32 enrolled; /* 0: no connection is eligible (no rule matches, or it is the agent's own cgroup) */
	__u16 full;     /* it has as many connections or handshakes as one cgroup may have */
	__u16 limited;  /* the bandwidth of its pod is limited, which SMC would evade */
};

/* How many entries of smc_requests a cgroup has. An entry that user space deletes is counted until the next sweep. */
struct smc_req_counts {
	__s32 now;
	__s32 before;  /* the value of `now` when the current sweep began */
	__s32 counted; /* entries that this sweep has found so far */
};

struct smc_netns {
	__u32 slot;
	__u8 serves4; /* 1: IPv4 connections are served here: Namespace::obstacle() is empty */
	__u8 serves6;
	__u8 full;    /* it has as many connections or handshakes as one namespace may have */
	__u8 limited; /* one of its devices has a shaper or filter that a leg's packets do not pass */
	__u64 inode;  /* as in /proc/PID/ns/net */
};

struct smc_device_key {
	__u32 slot;
	__u32 ifindex;
};

/* A device that has our programs. */
struct smc_device {
	__u32 mac_len;  /* length of the link header: 14, or 0 where packets begin with the IP header */
	__u32 probe;    /* sequence number of the agent's probe packets */
	__u32 encrypts; /* 1: it may encrypt its packets (a VPN, MACsec), which SMC would evade */
	__u32 pad;
	__u64 looped4; /* IPv4 probes that came back through the hairpin */
	__u64 looped6;
};

/*
 * A server. With port 0, a client: something on the path removes option 254 from the answers to its address. With the
 * unspecified address, a listener of this namespace: legs to it were lost.
 */
struct smc_dest {
	__u64 netns; /* cookie */
	struct smc_addr remote;
	__u32 pad;
};

/* Knowledge about a server. */
enum smc_knowledge {
	SMC_SERVER_CAPABLE = 1, /* it speaks SMC: SYNs to it are held for the agent at once */
	SMC_SERVER_NOT_NOW,     /* it is not asked until the entry expires */
};

struct smc_server {
	enum smc_knowledge knowledge;
	__u32 reason; /* why it is not asked: a code of <smc/wire/reason.h> */
	__u64 expires_ns;
	__u32 ttl;     /* TTL of its SYN-ACK; 0: not known */
	__u32 pause_s; /* length of this pause; the next is twice as long; 0: no pause */
};

/* Connections of one application to one server, or from all clients to one listener. */
struct smc_short_key {
	__u64 netns;            /* cookie */
	__u64 cgroup;           /* ID: the application's, or the listener's */
	struct smc_addr server; /* inbound: only its port */
	__u32 direction;        /* enum smc_direction */
};

/* Whether such connections have ended lately before they had earned the set-up of SMC; see smc_short_lived.h. */
struct smc_short {
	__u32 score;    /* user space counts it: up for a short-lived connection, down for another one */
	__u32 left;     /* connections that were left to TCP since the last trial */
	__u64 tried_ns; /* when the last trial began */
};

#endif
