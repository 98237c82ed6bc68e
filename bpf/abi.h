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

/* Bump when any layout below changes: whoever reads pinned maps finds it in smc_config. */
#define SMC_ABI_VERSION 13u

#define SMC_MAX_RULES 4096     /* flattened: one CIDR and one port range each */
#define SMC_MAX_RULE_GROUPS 64 /* of rules about the same applications: bits of smc_cgroup.rules */
#define SMC_MAX_CGROUPS 16384
#define SMC_MAX_NETNS 1024
#define SMC_MAX_DEVICES 16384
#define SMC_MAX_REQUESTS 32768
#define SMC_MAX_HAIRPINS 131072 /* two a leg */
#define SMC_MAX_CHOSEN 65536
#define SMC_MAX_INBOUND 16384
#define SMC_MAX_PAIRS 8192
#define SMC_MAX_SERVERS 8192 /* default size of the memory of servers */
#define SMC_MAX_TUNED 65536
#define SMC_MAX_TOLD 4096 /* what user space is told: the rest waits for the next sweep */
#define SMC_EVENT_BYTES (1u << 21)
#define SMC_PACKET_BYTES 136 /* Ethernet, IPv6 and the longest TCP header, rounded up */

/* RFC 7609 appendix A.1: experimental option 254 with ExID "SMCR" in EBCDIC (IBM-1047). */
#define SMC_TCPOPT_KIND 254
#define SMC_TCPOPT_LEN 6
#define SMC_TCPOPT_EXID 0xe2d4c3d9u
/*
 * Our own option behind it (kind 254, ExID "SMCA" in ASCII): who sends it, and a port. No SMC stack answers it. A peer
 * that returns the sender's own tag merely copies unknown options from the SYN (the canary).
 *
 *	in a request        tag of the agent, port 0, and what smc_pairs.h knows the socket by
 *	in the SYN of a W    tag of the agent, the port of the application that it connects for, and SMC_OWN_SPEAKS
 *	in a SYN-ACK         tag of the server's agent, the port that the request came from
 */
#define SMC_OWN_EXID 0x534d4341u
#define SMC_OWN_LEN 14
/*
 * At the first contact of SMC-R the client's agent connects its application behind the link, and says with a first CDC
 * message that it has: before, the server's application is not to hear of it.
 */
#define SMC_OWN_SPEAKS 1

/* A segment from this port to this port, without a flag, is the agent's: does the hairpin work? */
#define SMC_PROBE_PORT 254u

#define SMC_PROGRAM_EGRESS 0 /* in map smc_programs */
#define SMC_PROGRAM_INGRESS 1

/*
 * In place of a network namespace's slot in the programs that are loaded once for each: the one immediate value of
 * theirs that user space replaces.
 */
#define SMC_SLOT_PLACEHOLDER 0x510770ad

/* How long an entry of a table means something. */
#define SMC_INBOUND_NS 3000000000ull      /* a SYN, on its way to the listener */
#define SMC_COOKIE_NS 130000000000ull     /* answered by a SYN cookie, which is good for two minutes */
#define SMC_REQUEST_NS 130000000000ull    /* longer than TCP goes on with its SYNs */
#define SMC_OWN_REQUEST_NS 30000000000ull /* likewise, of a socket of the agent's, which has a budget */
#define SMC_HAIRPIN_NS 3000000000ull      /* of a leg that has ended: retransmissions of its other end */
#define SMC_TAKEN_NS 3000000000ull        /* of a request that a leg has answered: late answers of the server */

/* so many SYNs behind one that asked say that no answer with the option comes through */
#define SMC_ANSWER_LOST_SYNS 2
#define SMC_ANSWER_LOST_NS 70000000000ull /* of a SYN that has come again: longer than TCP waits for the next */

#define SMC_REASON_OPTION_LOST 0x0a010002u /* as in <smc/wire/reason.h> */

struct smc_addr {
	__u8 ip[16];
	__u16 port;
	__u16 pad;
};

/* What a socket is to us; kept in socket storage. */
enum smc_role {
	SMC_ROLE_NONE,
	SMC_ROLE_APP,          /* an application's socket with a leg of ours behind it */
	SMC_ROLE_LEG_CLIENT,   /* agent: L, the leg to a client's socket */
	SMC_ROLE_LEG_SERVER,   /* agent: L', the leg to a server's socket */
	SMC_ROLE_AGENT_CLC,    /* agent: CLC socket, or the listener for them; offers option 254 */
	SMC_ROLE_TUNED_CLIENT, /* an application's socket whose other end is on this node, and that was tuned */
	SMC_ROLE_TUNED_SERVER,
};

/* What the SYN-ACK on a CLC socket said. */
enum smc_option_seen {
	SMC_OPTION_UNKNOWN,
	SMC_OPTION_ABSENT,
	SMC_OPTION_PRESENT,
	SMC_OPTION_AGENT,  /* present, and the server has an agent */
	SMC_OPTION_ECHOED, /* the canary came back: the peer repeats whatever it is sent */
};

/* A TCP connection as the device sees it from this end, per namespace slot. */
struct smc_tuple {
	__u8 remote_ip[16];
	__u8 local_ip[16];
	__u16 remote_port;
	__u16 local_port;
	__u32 slot;
};

struct smc_sock {
	enum smc_role role;
	enum smc_option_seen option;
	struct smc_tuple app; /* the application's connection: its own, or the one that a leg speaks to */
	__u16 to_port;        /* local port of the other end of the hairpin; 0: none */
	__u16 mac_len;        /* of the hairpin's device */
	__u16 port;           /* a leg's own, as the device sees it; of a CLC socket: the application's, to be told */
	__u8 hold;            /* of a server's leg: its application is not to hear of it yet */
	__u8 paws;            /* enum smc_paws, of a leg */
	char control[16];     /* the congestion control that a tuned socket had; empty: it has it still */
	__u32 queue;          /* TCP_NOTSENT_LOWAT that it was given; 0: none */
	__u32 chosen;         /* of a leg, and of the application behind it: index in smc_chosen; 0: none */
};

/* What is done to a leg's SYN that its application's kernel would drop by its time stamp. */
enum smc_paws {
	SMC_PAWS_REFUSE,
	SMC_PAWS_REFUSED, /* it was: the leg may try another port */
	SMC_PAWS_PASS,    /* nothing: no port will do */
};

/* Every decision has a counter of its name (map smc_counters). What is asked, and in which order: eligibility.h */
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
	SMC_OUT_TCP_SIGNED,
	SMC_OUT_STAMPED,
	SMC_OUT_FAST_OPEN,
	SMC_OUT_NO_ROOM,
	SMC_OUT_IPSEC,
	SMC_OUT_NOT_NOW,
	SMC_OUT_NOTHING,
	SMC_OUT_ASKS_MUCH, /* its cgroup has its share of smc_requests */
	SMC_OUT_TABLE_FULL,
	SMC_SYN_AGAIN,      /* retransmission of a request: goes without options */
	SMC_SYN_KEPT,       /* retransmission while the agent works: kept back */
	SMC_SYN_LET_GO,     /* retransmission of a SYN that the agent has let go, or too old a one */
	SMC_ANSWER_PLAIN,   /* the server does not speak SMC */
	SMC_ANSWER_LOST,    /* it answered the retransmission only */
	SMC_ANSWER_ECHOED,  /* it repeats whatever it is sent */
	SMC_ANSWER_SMC,     /* it does */
	SMC_ANSWER_AGAIN,   /* its half-open connection has not gone yet */
	SMC_ANSWER_UNASKED, /* to a SYN that this agent knows nothing of */
	SMC_ANSWER_REFUSED, /* it does, but the agent is not there, or does not keep up */
	SMC_IN_STEERED,
	SMC_IN_AGENT_STALE,
	SMC_IN_AGENT_FULL,
	SMC_IN_SAME_AGENT,
	SMC_IN_PASSES,
	SMC_IN_NOT_NOW,
	SMC_IN_LIMITED,
	SMC_IN_NOT_SERVED,
	SMC_IN_NETNS_FULL,
	SMC_IN_CGROUP_FULL,
	SMC_IN_MPTCP,
	SMC_IN_FAST_OPEN,
	SMC_IN_NO_LISTENER,
	SMC_IN_NET_SMC,
	SMC_IN_NOT_ENROLLED,
	SMC_IN_SPECIAL,
	SMC_IN_DENIED,
	SMC_IN_TCP_SIGNED,
	SMC_IN_STAMPED,
	SMC_IN_IPSEC,
	SMC_IN_HEADERS,
	SMC_IN_NOTHING,
	SMC_IN_TABLE_FULL,
	SMC_IN_MADE_WAY,  /* the client went on without us while our leg was half open */
	SMC_LEG_JOINED,   /* a leg's SYN was redirected for the first time */
	SMC_LEG_LATE,     /* ... was not: the application has gone on */
	SMC_LEG_CONFLICT, /* ... was not: the client's port is in use at the server */
	SMC_LEG_PAWS,     /* ... was not: the application's kernel would drop it by its time stamp */
	SMC_LEG_FULL,     /* ... was not: no room in smc_hairpins */
	SMC_OPTION_SYN,   /* option 254 written into the SYN of a CLC socket */
	SMC_OPTION_SYN_FAILED,
	SMC_OPTION_SYNACK, /* ... into a SYN-ACK */
	SMC_OPTION_SYNACK_FAILED,
	SMC_PEER_OPTION_PRESENT,
	SMC_PEER_OPTION_ABSENT,
	SMC_PEER_OPTION_ECHOED,
	SMC_LOCAL_PAIR, /* a SYN of this node's came to a server of this node's, and something is to be done to it */
	SMC_TUNED,      /* one end of such a connection, or of one over lo, was */
	SMC_BYPASS_WATCHED, /* such a connection may be bypassed, when its ends prove fit for it */
	SMC_DECISIONS,      /* keep last */
};

enum smc_direction {
	SMC_OUTBOUND = 1,
	SMC_INBOUND = 2,
	SMC_BOTH = 3,
};

/* What is done to connections within this node. */
enum smc_local {
	SMC_LOCAL_TUNE = 1,
	SMC_LOCAL_BYPASS = 2, /* where the kernel's probe finds nothing in the way */
	SMC_LOCAL_FORCE = 4,  /* the bypass, whatever the probe finds */
};

struct smc_config {
	__u32 abi_version;
	__u32 rule_count;
	__u64 heartbeat_max_age_ns;
	__u64 budget_ns;  /* how long a SYN may be kept back */
	__u64 not_now_ns; /* how long a server is not asked that did not answer the option */
	__u32 default_allow;
	__u32 tag;         /* of this agent, in our own TCP option */
	__u32 local;       /* enum smc_local, or'ed: of connections within this node that match no rule */
	__u32 local_mask;  /* what of it can be had at all */
	__u32 queue;       /* bytes that a tuned socket over lo may have unsent; 0: as many as the system lets */
	__u32 smcd;        /* SMC-D with another agent of this kernel, for connections that match no rule */
	__u32 most_asking; /* entries of smc_requests that one cgroup may have */
	__u32 past_limits; /* as in smc_rule, for connections that match no rule */
};

struct smc_heartbeat {
	__u64 ktime_ns; /* CLOCK_MONOTONIC; too old: the agent hangs */
	__u32 steer;    /* 0: the agent lives but takes no more (full, or stopping) */
	__u32 roce;     /* there is a RoCE device for SMC-R */
};

/* One CIDR and port range of one configured rule. First match in order decides. */
struct smc_rule {
	__u8 prefix[16];
	__u8 mask[16];
	__u16 port_first;
	__u16 port_last;
	__u8 allow;
	__u8 directions;  /* enum smc_direction */
	__u8 group;       /* index of the configured rule: bit in smc_cgroup.rules */
	__u8 v4;          /* the prefix is IPv4's; ::/0 does not mean IPv4 */
	__u8 local;       /* enum smc_local, or'ed */
	__u8 smcd;        /* SMC-D with another agent of this kernel */
	__u8 past_limits; /* also where a device shapes or filters packets, which SMC goes past */
	__u8 pad;
};

struct smc_cgroup {
	__u64 rules;    /* bit n: rule n's cgroup globs match this cgroup */
	__u32 enrolled; /* 0: nothing here is ever eligible (no rule, or the agent itself) */
	__u16 full;     /* it has as many connections as one cgroup may have */
	__u16 limited;  /* its pod's bandwidth is, which SMC would go past */
};

/* Of a cgroup: entries of smc_requests. An entry that user space deletes is counted until the next sweep. */
struct smc_asking {
	__s32 now;
	__s32 before;  /* when the sweep that is under way began */
	__s32 counted; /* by that sweep, of those that it found */
};

struct smc_netns {
	__u32 slot;
	__u8 serves4; /* every device that is up has a working hairpin for IPv4 */
	__u8 serves6;
	__u8 full;    /* it has as many connections as one namespace may have */
	__u8 limited; /* a device of it shapes or filters packets, and a leg's go past that */
	__u64 inode;  /* as in /proc/PID/ns/net */
};

struct smc_device_key {
	__u32 slot;
	__u32 ifindex;
};

/* A device that has the programs. */
struct smc_device {
	__u32 mac_len; /* 14, or 0 where packets begin with the IP header */
	__u32 probe;   /* what the agent's own packets carry */
	__u64 looped4; /* how many of them came round */
	__u64 looped6;
};

/* A server. An entry whose port is 0 is a client's address: something on the way takes the option out of answers. */
struct smc_dest {
	__u64 netns; /* cookie */
	struct smc_addr remote;
	__u32 pad;
};

/* What was learnt of a server. */
enum smc_knowledge {
	SMC_SERVER_CAPABLE = 1, /* speaks SMC: connections to it wait for the agent at once */
	SMC_SERVER_NOT_NOW,     /* is not asked for a while */
};

struct smc_server {
	enum smc_knowledge knowledge;
	__u32 reason; /* why not now: code as in <smc/wire/reason.h> */
	__u64 expires_ns;
	__u32 ttl;     /* of its SYN-ACK; 0: not known */
	__u32 pause_s; /* for how long it is not asked; twice as long the next time; 0: not for a pause */
};

enum smc_request_state {
	SMC_REQUEST_ASKED,
	SMC_REQUEST_ASKED_BARE, /* unanswered; the retransmission went without options */
	SMC_REQUEST_HELD,       /* with the agent */
	SMC_REQUEST_LET_GO,     /* the agent has sent, or wants to be sent, the SYN without options */
	SMC_REQUEST_TAKEN,      /* a leg answers */
	SMC_REQUEST_CLC,        /* no application's: the SYN of a CLC socket */
	SMC_REQUEST_LEG,        /* no application's: a server's leg that its application has not heard of */
};

/* Buffers that the application chose for its socket (SO_SNDBUF, SO_RCVBUF), as the kernel counts; 0: it did not. */
struct smc_buffers {
	__u32 send;
	__u32 receive;
};

/* An application's SYN that asked, or that is held; key is its tuple. */
struct smc_request {
	enum smc_request_state state;
	__u32 ifindex;
	__u64 cookie;   /* the application's socket */
	__u64 asked_ns; /* when it came; a sweep counts those before it */
	__u64 since_ns; /* in this state, or in the one before where time does not matter */
	__u64 netns;    /* cookie */
	__u64 cgroup;
	struct smc_addr local; /* the application's own, before any translation */
	__u32 uid;
	__u32 gid;
	__u32 pid; /* 0: not known */
	__u32 mark;
	__u32 bound_device;
	struct smc_buffers buffers;
	__be32 isn;        /* sequence number of the SYN */
	__be32 answer_isn; /* ... of the answer that was reset */
	__u16 mac_len;
	__u8 ttl;
	__u8 tos;
	__u16 packet_len;
	__u16 seen_port; /* the application's, as the server sees it; 0: it did not say */
	__u8 answer_ttl; /* of the SYN-ACK */
	__u8 smcd;       /* SMC-D with another agent of this kernel may be offered */
	__u8 pad[2];
	__u8 packet[SMC_PACKET_BYTES]; /* as it would have left the device; TCP checksum incomplete */
};

/*
 * A socket that an entry of a map is about. The entry does not keep it: memory at that address is the socket's as long
 * as it has that cookie (bpf/smc_socket.h).
 */
struct smc_socket {
	__u64 cookie; /* 0: none */
	__u64 sk;     /* address of its struct sock */
};

/* Keepalive and user timeout of an application's socket. Ticks: of the kernel; 0: its default. */
struct smc_keepalive {
	__u32 idle_ticks;
	__u32 interval_ticks;
	__u32 user_timeout_ms;
	__u8 on; /* SO_KEEPALIVE */
	__u8 probes;
	__u16 pad;
};

/* One direction of a hairpin; key is the tuple of its sender. */
struct smc_hairpin {
	__u16 to_port; /* local port of the receiver */
	__u16 mac_len;
	__u8 of_leg; /* the sender is the leg */
	__u8 pad;
	__u16 chosen;                   /* index in smc_chosen; 0: none */
	__be32 isn;                     /* sequence number of the leg's SYN */
	__u32 told;                     /* how often user space was told that it is half-open */
	struct smc_socket sender;       /* an application's: from its first packet or its handshake's end on */
	__u64 closed_ns;                /* since when one of the two sockets is gone; 0: both live */
	struct smc_keepalive keepalive; /* of an application, as user space was told last */
};

/* A connection within this node, before it stands; see smc_pairs.h. */
struct smc_pair {
	struct smc_tuple server; /* as the server sees it */
	__be32 answer;           /* sequence number of the server's SYN-ACK; 0: none was seen */
	__u16 id;                /* of the client's socket */
	__u8 proven;             /* that SYN-ACK is the client's answer */
	__u8 pad;
	__u64 bypass; /* cookie of the client's socket, if the two may be bypassed; 0: they may not */
};

/* A SYN that was handed to the agent's listener for CLC sockets. */
struct smc_inbound {
	__u64 since_ns;
	__u16 port;      /* the application's, that a W of an agent named; 0: none */
	__u8 peer_agent; /* the client has an agent */
	__u8 ttl;
	__u32 bound_device; /* the listener's */
	__u64 cgroup;       /* likewise */
	struct smc_buffers buffers;
	__u8 peer_speaks; /* its agent says on a new link when its application is connected */
	__u8 cookie;      /* the listener knows nothing of it: its answer was a SYN cookie */
	__u8 smcd;        /* SMC-D with another agent of this kernel may be accepted */
	__u8 again;       /* how often its SYN came again: no answer has come through */
	__be32 isn;       /* sequence number of the SYN */
	__u8 bare;        /* it came again without options: it asks no more */
	__u8 pad[7];
};

/* A socket whose other end of the hairpin is gone without a word that got through to it; key is its cookie. */
struct smc_half_open {
	struct smc_tuple sender;
	__u32 bound_device;
	__u32 of_leg; /* it is the leg: the application's is gone */
};

/* A socket that was tuned; key is its cookie. Program smc_see_tuned fills in what changes. */
struct smc_tuned_socket {
	__u64 sk; /* address of its struct sock (bpf/smc_socket.h) */
	__u64 cgroup;
	__u64 sent; /* bytes, acknowledged */
	__u64 received;
	struct smc_tuple app; /* its slot is 0 */
	__u32 netns;          /* inode */
	__u32 client;         /* 0: the server's */
	__u32 state;          /* of TCP */
	__u32 pad;
};

enum smc_event_type {
	SMC_EVENT_REQUEST = 1, /* the server said yes, or is known to: the agent's turn */
	SMC_EVENT_NETNS_WANTED,
	SMC_EVENT_CGROUP_WANTED,
};

struct smc_event {
	enum smc_event_type type;
	__u32 pad;
	__u64 cgroup;               /* that is wanted */
	struct smc_tuple tuple;     /* of a request ... */
	struct smc_request request; /* ... and itself */
};

/* What program smc_sweep answers. */
struct smc_clock {
	__u64 ktime_ns; /* now */
	/* how many entries there were */
	__u32 requests;
	__u32 hairpins;
	__u32 inbound;
	__u32 tuned;
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
static_assert(SMC_IN_TABLE_FULL < 64, "the checks are bits of smc_query");
static_assert(sizeof(smc_query) == 64);
static_assert(sizeof(smc_addr) == 20);
static_assert(sizeof(smc_tuple) == 40);
static_assert(sizeof(smc_sock) == 80);
static_assert(sizeof(smc_rule) == 44);
static_assert(sizeof(smc_dest) == 32);
static_assert(sizeof(smc_netns) == 16);
static_assert(sizeof(smc_device) == 24);
static_assert(sizeof(smc_server) == 24);
static_assert(sizeof(smc_request) == 256);
static_assert(sizeof(smc_hairpin) == 56);
static_assert(sizeof(smc_inbound) == 48);
static_assert(sizeof(smc_config) == 64);
static_assert(sizeof(smc_asking) == 12);
static_assert(sizeof(smc_pair) == 56);
static_assert(sizeof(smc_tuned_socket) == 88);
static_assert(sizeof(smc_half_open) == 48);
#endif

#endif
