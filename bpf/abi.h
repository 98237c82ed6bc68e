/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The layouts that the BPF programs and the agent share: map keys and values, ring buffer events.
 *
 * Compiled as BPF C and as C++. Addresses are 16 bytes, IPv4 as ::ffff:a.b.c.d, in
 * network order, so that `bpftool map dump` shows the dotted quad as the last four numbers. Ports and
 * everything else are in host order. Enumerations keep their names in BTF, so bpftool prints the names.
 */
#ifndef SMC_ABI_H
#define SMC_ABI_H

#include <linux/types.h>

/* Bump when any layout below changes: an agent discards pinned maps of another version. */
#define SMC_ABI_VERSION 2u

#define SMC_MAX_RULES 128      /* flattened: one CIDR and one port range each */
#define SMC_MAX_RULE_GROUPS 64 /* rules as written in the configuration: bits of smc_cgroup.rules */
#define SMC_MAX_CGROUPS 16384
#define SMC_MAX_NETNS 1024
#define SMC_MAX_FLOWS 32768
#define SMC_MAX_INBOUND 16384
#define SMC_MAX_PEERNAMES 16384
#define SMC_MAX_INCAPABLE 8192 /* default size of the negative cache */
#define SMC_EVENT_BYTES (1u << 20)
#define SMC_SYN_BYTES 120 /* IPv6 header + longest TCP header, rounded up */

/* RFC 7609 appendix A.1: experimental option 254 with ExID "SMCR" in EBCDIC (IBM-1047). */
#define SMC_TCPOPT_KIND 254
#define SMC_TCPOPT_LEN 6
#define SMC_TCPOPT_EXID 0xe2d4c3d9u
/*
 * The canary: a second kind-254 option with our own ExID ("SMCA", ASCII) and a nonce. No SMC stack
 * answers it; a peer that returns it merely copies unknown options from the SYN (see smc_option_seen).
 */
#define SMC_CANARY_EXID 0x534d4341u
#define SMC_CANARY_LEN 10

struct smc_addr {
	__u8 ip[16];
	__u16 port;
	__u16 pad;
};

/* What a socket is to us; kept in socket storage, inherited by accepted sockets of our listeners. */
enum smc_role {
	SMC_ROLE_NONE,
	SMC_ROLE_APP_CLIENT,  /* an application's socket that connect() steered */
	SMC_ROLE_APP_SERVER,  /* an application's accepted socket behind the agent */
	SMC_ROLE_AGENT_LEG,   /* agent: local leg, never steered */
	SMC_ROLE_AGENT_CLC,   /* agent: CLC socket that offers option 254 */
	SMC_ROLE_AGENT_PLAIN, /* agent: CLC socket that does not */
};

/* What the SYN-ACK on a CLC socket said. */
enum smc_option_seen {
	SMC_OPTION_UNKNOWN,
	SMC_OPTION_ABSENT,
	SMC_OPTION_PRESENT,
	SMC_OPTION_ECHOED, /* the canary came back: the peer repeats whatever it is sent */
};

struct smc_sock {
	enum smc_role role;
	enum smc_option_seen option;
	struct smc_addr remote; /* what getpeername() and accept() tell */
	struct smc_addr local;  /* what getsockname() tells; port 0: nothing to correct */
};

/* Every decision has a counter of its name (map smc_counters). What is asked, and in which order: eligibility.h */
enum smc_decision {
	SMC_OUT_STEERED,
	SMC_OUT_NOT_ENROLLED,
	SMC_OUT_SPECIAL,
	SMC_OUT_DENIED,
	SMC_OUT_AGENT_STALE,
	SMC_OUT_AGENT_FULL,
	SMC_OUT_NETNS_UNKNOWN,
	SMC_OUT_BOUND_PORT,
	SMC_OUT_BOUND_DEVICE,
	SMC_OUT_MPTCP,
	SMC_OUT_TCP_SIGNED,
	SMC_OUT_IPSEC,
	SMC_OUT_INCAPABLE,
	SMC_OUT_AGENT_GONE,
	SMC_OUT_TABLE_FULL,
	SMC_SYN_HELD,
	SMC_SYN_HELD_AGAIN, /* retransmission of a held SYN */
	SMC_SYN_EVENT_LOST, /* ring buffer full: the next retransmission tries again */
	SMC_IN_STEERED,
	SMC_IN_AGENT_STALE,
	SMC_IN_AGENT_FULL,
	SMC_IN_MPTCP,
	SMC_IN_NO_LISTENER,
	SMC_IN_BOUND_DEVICE,
	SMC_IN_NOT_ENROLLED,
	SMC_IN_SPECIAL,
	SMC_IN_DENIED,
	SMC_IN_TCP_SIGNED,
	SMC_IN_IPSEC,
	SMC_OPTION_SYN, /* option 254 written into a SYN */
	SMC_OPTION_SYN_FAILED,
	SMC_OPTION_SYNACK, /* ... into a SYN-ACK */
	SMC_OPTION_SYNACK_FAILED,
	SMC_PEER_OPTION_PRESENT,
	SMC_PEER_OPTION_ABSENT,
	SMC_PEER_OPTION_ECHOED,
	SMC_DECISIONS, /* keep last */
};

enum smc_direction {
	SMC_OUTBOUND = 1,
	SMC_INBOUND = 2,
	SMC_BOTH = 3,
};

struct smc_config {
	__u32 abi_version;
	__u32 rule_count;
	__u64 heartbeat_max_age_ns;
	__u32 default_allow;
	__u32 pad;
};

struct smc_heartbeat {
	__u64 ktime_ns; /* CLOCK_MONOTONIC; too old: the agent hangs */
	__u64 steer;    /* 0: the agent lives but takes no more (full, or stopping) */
};

/* One CIDR and port range of one configured rule. First match in order decides. */
struct smc_rule {
	__u8 prefix[16];
	__u8 mask[16];
	__u16 port_first;
	__u16 port_last;
	__u8 allow;
	__u8 directions; /* enum smc_direction */
	__u8 group;      /* index of the configured rule: bit in smc_cgroup.rules */
	__u8 v4;         /* the prefix is IPv4's; ::/0 does not mean IPv4 */
};

struct smc_cgroup {
	__u64 rules;    /* bit n: rule n's cgroup globs match this cgroup */
	__u32 enrolled; /* 0: nothing here is ever eligible (no rule, or the agent itself) */
	__u32 pad;
};

struct smc_netns {
	__u32 slot;
	__u16 leg4_port; /* listener on 127.0.0.1; 0: IPv4 not served here */
	__u16 leg6_port; /* listener on ::1; 0: IPv6 not served here */
	__u64 inode;     /* as in /proc/PID/ns/net */
};

struct smc_dest {
	__u64 netns; /* cookie */
	struct smc_addr remote;
	__u32 pad;
};

struct smc_incapable {
	__u64 expires_ns;
	__u32 reason; /* code as in <smc/wire/reason.h> */
	__u32 pad;
};

enum smc_flow_state {
	SMC_FLOW_STEERED,  /* connect() rewritten, SYN not seen yet; swept if it stays so */
	SMC_FLOW_HELD,     /* SYN with the agent */
	SMC_FLOW_RELEASED, /* SYN re-injected */
	SMC_FLOW_ESTABLISHED,
};

/* One application socket that was steered; key is its socket cookie. Gone when the socket closes. */
struct smc_flow {
	enum smc_flow_state state;
	__u32 pid;
	__u32 uid;
	__u32 gid;
	__u64 since_ns;
	__u64 netns;
	__u64 cgroup;
	struct smc_addr remote;
	struct smc_addr local; /* the CLC socket's address, once known */
};

/* The server's view of a leg socket, so that its accepted socket can be told the real client. */
struct smc_leg {
	__u64 netns;
	struct smc_addr client; /* the leg's own address */
	__u16 server_port;
	__u16 pad;
};

/* A steered SYN, per namespace slot. */
struct smc_tuple {
	__u8 remote_ip[16];
	__u8 local_ip[16];
	__u16 remote_port;
	__u16 local_port;
	__u32 slot;
};

enum smc_event_type {
	SMC_EVENT_SYN_HELD = 1,
	SMC_EVENT_CONNECT_ABORTED,
	SMC_EVENT_NETNS_WANTED,
	SMC_EVENT_CGROUP_WANTED,
};

struct smc_event {
	enum smc_event_type type;
	__u32 pid;
	__u64 cookie; /* the application's socket */
	__u64 netns;
	__u64 cgroup;
	struct smc_addr remote; /* where the application wants to go */
	__u32 uid;              /* the application's, for the CLC socket */
	__u32 gid;
	__u32 mark;
	__u8 syn_len;
	__u8 pad[3];
	__u8 syn[SMC_SYN_BYTES]; /* IP header onwards, TCP checksum incomplete */
};

/* What program smc_explain is asked, and answers. */
struct smc_query {
	__u64 cgroup;
	__u64 netns; /* cookie */
	struct smc_addr remote;
	__u16 port;      /* the server's */
	__u8 any_cgroup; /* 1: one that every rule's globs match */
	__u8 direction;  /* enum smc_direction, but not both */
	__s32 rule;      /* the index in smc_rules that decides; -1: the default */
	__u32 pad;
	__u64 in_the_way; /* bit n: decision n */
	__u64 open;       /* bit n: only the socket could tell */
};

#ifdef __cplusplus
static_assert(SMC_DECISIONS <= 64, "bits of smc_query");
static_assert(sizeof(smc_query) == 64);
static_assert(sizeof(smc_addr) == 20);
static_assert(sizeof(smc_rule) == 40);
static_assert(sizeof(smc_dest) == 32);
static_assert(sizeof(smc_netns) == 16);
static_assert(sizeof(smc_flow) == 80);
static_assert(sizeof(smc_leg) == 32);
static_assert(sizeof(smc_tuple) == 40);
#endif

#endif
