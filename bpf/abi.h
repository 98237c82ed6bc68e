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

#include <linux/types.h>

#include "bpf/decisions.h"

/* To be incremented when any layout below changes. Readers of pinned maps find the version in smc_config. */
#define SMC_ABI_VERSION 20u

#define SMC_MAX_RULES 4096     /* flattened: each has one CIDR and one port range */
#define SMC_MAX_RULE_GROUPS 64 /* a group: all rules about the same applications; a bit of smc_cgroup.rules */
#define SMC_MAX_CGROUPS 16384
#define SMC_MAX_NETNS 1024
#define SMC_MAX_DEVICES 16384
#define SMC_MAX_REQUESTS 32768
#define SMC_MAX_HAIRPINS 131072 /* two for each leg */
#define SMC_MAX_CHOSEN 65536
#define SMC_MAX_INBOUND 16384
#define SMC_MAX_PAIRS 8192
#define SMC_MAX_SERVERS 8192 /* default size; the configuration may set another */
#define SMC_MAX_SHORT 8192
#define SMC_MAX_TUNED 65536
#define SMC_MAX_TOLD 4096 /* entries that one sweep leaves for user space; further ones wait for the next sweep */
#define SMC_EVENT_BYTES (1u << 21)
#define SMC_PACKET_BYTES 136 /* Ethernet, IPv6 and the longest TCP header, rounded up */

/* RFC 7609 appendix A.1: experimental option 254 with ExID "SMCR" in EBCDIC (IBM-1047). */
#define SMC_TCPOPT_KIND 254
#define SMC_TCPOPT_LEN 6
#define SMC_TCPOPT_EXID 0xe2d4c3d9u
/*
 * Our own option, which follows option 254 (kind 254, ExID "SMCA" in ASCII). It carries the tag of the agent that sends
 * it, and a port. Other SMC stacks ignore it. A peer that returns the sender's own tag copies unknown options from the
 * SYN, so its option 254 proves nothing.
 *
 *	in a request                the tag of the agent, port 0, and the socket's ID for smc_pairs.h
 *	in the SYN of a CLC socket  the tag of the agent, the application's port, and SMC_OWN_SPEAKS
 *	in a SYN-ACK                the tag of the server's agent, and the port that the SYN came from
 */
#define SMC_OWN_EXID 0x534d4341u
#define SMC_OWN_LEN 14
/*
 * Flag in the SYN of a CLC socket: the client's agent will announce that its application is connected. At the first
 * contact of SMC-R it connects the application only when the link is ready, and then sends a first CDC message. Until
 * this message arrives the server's application must not see the connection.
 */
#define SMC_OWN_SPEAKS 1

/*
 * A TCP segment without flags from this port to this port is a packet of the agent's own: a probe of a hairpin, or what
 * smc_keep() has made of a packet that must not leave.
 */
#define SMC_PROBE_PORT 254u

#define SMC_PROGRAM_EGRESS 0 /* indices in map smc_programs */
#define SMC_PROGRAM_INGRESS 1

/*
 * Stands for the slot of a network namespace in the programs that are loaded once for each namespace. User space
 * replaces this one immediate value before it loads them.
 */
#define SMC_SLOT_PLACEHOLDER 0x510770ad

/* From this score of struct smc_short on, new connections are TCP; the score goes no higher. */
#define SMC_SHORT_MANY 16
/*
 * A trial, one connection with SMC, begins when so many were left to TCP and this time has passed since the last trial,
 * or when the longer time has passed, however many they were.
 */
#define SMC_SHORT_TRIAL_EVERY 256
#define SMC_SHORT_TRIAL_NS 1000000000ull
#define SMC_SHORT_TRIAL_LATEST_NS 60000000000ull

/* How long entries of the tables are valid. */
#define SMC_INBOUND_NS 3000000000ull      /* smc_inbound: the SYN is on its way to the listener */
#define SMC_COOKIE_NS 130000000000ull     /* smc_inbound: answered by a SYN cookie, which is valid for two minutes */
#define SMC_REQUEST_NS 130000000000ull    /* smc_requests: longer than TCP retransmits a SYN */
#define SMC_OWN_REQUEST_NS 30000000000ull /* smc_requests: of an agent's own socket, which gives up sooner */
#define SMC_HAIRPIN_NS 3000000000ull      /* smc_hairpins: the leg has ended; its other end may still retransmit */
#define SMC_TAKEN_NS 3000000000ull        /* smc_requests: a leg has answered; late SYN-ACKs of the server may follow */

/*
 * After so many retransmissions of a SYN with the option, the SYN-ACK is sent without the option: answers that have it
 * seem to be lost on the path.
 */
#define SMC_ANSWER_LOST_SYNS 2
#define SMC_ANSWER_LOST_NS 70000000000ull /* smc_inbound: the SYN was retransmitted; TCP sends the next one sooner */

#define SMC_REASON_OPTION_LOST 0x0a010002u /* Reason::kOptionLost of <smc/wire/reason.h> */

struct smc_addr {
	__u8 ip[16];
	__u16 port;
	__u16 pad;
};

/* The role of a socket; kept in socket storage (map smc_socks). */
enum smc_role {
	SMC_ROLE_NONE,
	SMC_ROLE_APP,          /* an application's socket that is connected to a leg */
	SMC_ROLE_LEG_CLIENT,   /* agent: L, the leg to a client's socket */
	SMC_ROLE_LEG_SERVER,   /* agent: L', the leg to a server's socket */
	SMC_ROLE_AGENT_CLC,    /* agent: a CLC socket, or the listener for CLC sockets; offers option 254 */
	SMC_ROLE_TUNED_CLIENT, /* an application's socket that was tuned: its other end is on this node */
	SMC_ROLE_TUNED_SERVER,
};

/* Option 254 in the SYN-ACK that a CLC socket received. */
enum smc_option_seen {
	SMC_OPTION_UNKNOWN,
	SMC_OPTION_ASKING, /* the kernel has asked this agent's program for the options of the SYN; no SYN-ACK yet */
	SMC_OPTION_ABSENT,
	SMC_OPTION_PRESENT,
	SMC_OPTION_AGENT,  /* present, and the server has an agent */
	SMC_OPTION_ECHOED, /* our own tag came back: the peer copies unknown options */
	SMC_OPTION_TAKEN,  /* our SYN left, and the kernel had not asked for its options */
};

/* A TCP connection, from the point of view of this end and with the addresses that its device sees. */
struct smc_tuple {
	__u8 remote_ip[16];
	__u8 local_ip[16];
	__u16 remote_port;
	__u16 local_port;
	__u32 slot; /* of the network namespace */
};

struct smc_sock {
	enum smc_role role;
	enum smc_option_seen option;
	struct smc_tuple app; /* the application's connection: the socket's own, or the one behind the leg */
	__u16 to_port;        /* local port of the other end of the hairpin; 0: there is no hairpin */
	__u16 mac_len;        /* length of the link header on the hairpin's device */
	__u16 port;           /* leg: its local port on the device; CLC socket: the application's, to be sent */
	__u8 hold;            /* server's leg: the ACK that ends its handshake is held back */
	__u8 paws;            /* enum smc_paws; of a leg */
	char control[16];     /* congestion control before tuning; empty: it was not changed */
	__u32 chosen;         /* leg, and application behind it: index in smc_chosen; 0: none */
	/*
	 * Client's leg: sequence number of the application's SYN that it is to answer. Server's leg: of its own SYN.
	 * Another connection may have the same tuple by now.
	 */
	__be32 isn;
	__u64 challenge_ns;     /* application: when a challenge ACK was last expected of it (smc_port_again.h) */
	__u32 awaits_challenge; /* 1: none of its packets has left since then */
	__u32 challenge_by;     /* index of the device by which the last challenge ACK left; 0: none has */
	/* leg: SO_RCVBUF and SO_SNDBUF that connect() gives it; the kernel doubles them */
	__u32 receive_buffer;
	__u32 send_buffer;
};

/* The last SYN of an application that was judged on this processor (smc_ask.h). */
struct smc_judged {
	__u64 cookie;
	__be32 isn;
	__u32 ifindex;
};

/* The choices of an application that its leg follows; an entry of smc_chosen. */
struct smc_chosen {
	__u32 send;   /* SO_SNDBUF in the kernel's units; 0: the application has not set it */
	__u32 urgent; /* 1: the application has sent urgent data */
};

/* How to treat a leg's SYN that the application's kernel would drop because of its time stamp (PAWS). */
enum smc_paws {
	SMC_PAWS_REFUSE,
	SMC_PAWS_REFUSED, /* the SYN was refused: the leg may try another port */
	SMC_PAWS_PASS,    /* let the SYN pass: no other port would be better */
};

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
	__u64 budget_ns;  /* how long a SYN may be kept back */
	__u64 not_now_ns; /* pause for a server that answers only a SYN without the option */
	__u32 default_allow;
	__u32 tag;         /* this agent's, in our own TCP option */
	__u32 local;       /* enum smc_local, or'ed: for connections within this node that match no rule */
	__u32 local_mask;  /* the part of enum smc_local that this node can do */
	__u32 smcd;        /* SMC-D with another agent of this kernel, for connections that match no rule */
	__u32 most_asking; /* entries of smc_requests that one cgroup may have */
	__u32 past_limits; /* as in smc_rule, for connections that match no rule */
	__u32 short_lived; /* likewise */
	__u32 leg_unsent;  /* TCP_NOTSENT_LOWAT of legs */
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
struct smc_asking {
	__s32 now;
	__s32 before;  /* the value of `now` when the current sweep began */
	__s32 counted; /* entries that this sweep has found so far */
};

struct smc_netns {
	__u32 slot;
	__u8 serves4; /* every device that is up has a working hairpin for IPv4 */
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

/* A server. With port 0, a client: something on the path removes option 254 from the answers to its address. */
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

enum smc_request_state {
	SMC_REQUEST_ASKED,
	SMC_REQUEST_ASKED_BARE, /* unanswered; a retransmission was sent without options */
	SMC_REQUEST_HELD,       /* the agent negotiates; retransmissions are kept back */
	SMC_REQUEST_LET_GO,     /* the agent gave up: the SYN goes out without options */
	SMC_REQUEST_TAKEN,      /* a leg has answered the application's SYN */
	SMC_REQUEST_CLC,        /* no application's SYN, but that of a CLC socket */
	SMC_REQUEST_LEG,        /* no application's SYN: a server's leg that its application has not seen yet */
};

/* Buffer sizes that the application set (SO_SNDBUF, SO_RCVBUF), in the kernel's own units; 0: not set. */
struct smc_buffers {
	__u32 send;
	__u32 receive;
};

/* An application's SYN that carries option 254 or is held. The key is its tuple. */
struct smc_request {
	enum smc_request_state state;
	__u32 ifindex;
	__u64 cookie;   /* the application's socket */
	__u64 asked_ns; /* when the SYN came; a sweep counts only entries that came before it began */
	__u64 since_ns; /* when this state began; ASKED_BARE and LET_GO keep the time of the state before */
	__u64 netns;    /* cookie */
	__u64 cgroup;
	struct smc_addr local; /* the application's own address, before any translation */
	__u32 uid;
	__u32 gid;
	__u32 pid; /* 0: not known */
	__u32 mark;
	__u32 bound_device;
	struct smc_buffers buffers;
	__be32 isn;        /* sequence number of the SYN */
	__be32 answer_isn; /* sequence number of the SYN-ACK that was reset */
	__u16 mac_len;
	__u8 ttl;
	__u8 tos;
	__u16 packet_len;
	__u16 seen_port; /* the application's port as the server sees it; 0: the server did not tell */
	__u8 answer_ttl; /* of the SYN-ACK */
	__u8 smcd;       /* SMC-D with another agent of this kernel may be offered */
	__u8 pad[2];
	__u8 packet[SMC_PACKET_BYTES]; /* the packet as it would have left the device; TCP checksum incomplete */
};

/*
 * A reference to a socket from a map entry. The entry does not keep the socket alive: the memory at `sk` is still this
 * socket only as long as it holds this cookie (bpf/smc_socket.h).
 */
struct smc_socket {
	__u64 cookie; /* 0: none */
	__u64 sk;     /* address of its struct sock */
};

/* Keepalive and user timeout of an application's socket, in ticks of the kernel; 0: the kernel's default. */
struct smc_keepalive {
	__u32 idle_ticks;
	__u32 interval_ticks;
	__u32 user_timeout_ms;
	__u8 on; /* SO_KEEPALIVE */
	__u8 probes;
	__u16 pad;
};

/* One direction of a hairpin. The key is the tuple of the sender. */
struct smc_hairpin {
	__u16 to_port; /* local port of the receiver */
	__u16 mac_len;
	__u8 of_leg; /* the sender is the leg */
	__u8 pad;
	__u16 chosen;                   /* index in smc_chosen; 0: none */
	__be32 isn;                     /* sequence number of the leg's SYN */
	__u32 told;                     /* how often user space was told that this hairpin is half-open */
	struct smc_socket sender;       /* of the leg: from its SYN on; of the application: from its first packet or its
					   handshake's end on */
	__u64 closed_ns;                /* when one of the two sockets was found gone; 0: both live */
	struct smc_keepalive keepalive; /* the application's settings that user space was told last */
};

/* A connection within this node whose handshake is under way; see smc_pairs.h. */
struct smc_pair {
	struct smc_tuple server; /* as the server sees it */
	__be32 answer;           /* sequence number of the server's SYN-ACK; 0: none was seen yet */
	__u16 id;                /* ID of the client's socket (smc_pair_id()) */
	__u8 proven;             /* the client has received this very SYN-ACK */
	__u8 pad;
	__u64 bypass; /* cookie of the client's socket if the connection may be bypassed, else 0 */
};

/* A SYN that was handed to the agent's listener for CLC sockets. */
struct smc_inbound {
	__u64 since_ns;
	__u16 port;      /* the client application's port, as its agent's CLC socket sent it; 0: none */
	__u8 peer_agent; /* the client's side has an agent */
	__u8 ttl;
	__u32 bound_device; /* the listener's */
	__u64 cgroup;       /* the listener's */
	struct smc_buffers buffers;
	__u8 peer_speaks;  /* the client's agent announces on a new link that its application is connected */
	__u8 syncookie;    /* answered by a SYN cookie, so the listener keeps no state of it */
	__u8 smcd;         /* SMC-D with another agent of this kernel may be accepted */
	__u8 again;        /* how often the SYN was sent again, counted up to SMC_ANSWER_LOST_SYNS */
	__be32 isn;        /* sequence number of the SYN */
	__u8 bare;         /* the SYN was sent again without options: it is no request any more */
	__u8 callback_ran; /* the kernel has asked this agent's program for the options of the SYN-ACK */
	__u8 tos;          /* of the SYN */
	__u8 pad;
	__u32 ifindex; /* the device that heard the SYN first: the lowest one */
};

/* A socket that got no FIN or reset although the other end of its hairpin is gone. The key is the socket's cookie. */
struct smc_half_open {
	struct smc_tuple sender;
	__u32 bound_device;
	__u32 of_leg; /* 1: this is the leg's socket, and the application's is gone */
};

/* A socket that was tuned. The key is its cookie. Program smc_see_tuned updates sent, received and state. */
struct smc_tuned_socket {
	__u64 sk; /* address of its struct sock (bpf/smc_socket.h) */
	__u64 cgroup;
	__u64 sent; /* bytes that were acknowledged */
	__u64 received;
	struct smc_tuple app; /* its slot is 0 */
	__u32 netns;          /* inode */
	__u32 client;         /* 0: the server's socket */
	__u32 state;          /* TCP's state */
	__u32 pad;
};

enum smc_event_type {
	SMC_EVENT_REQUEST = 1, /* a server speaks SMC, or is known to: the agent negotiates */
	SMC_EVENT_NETNS_WANTED,
	SMC_EVENT_CGROUP_WANTED,
	SMC_EVENT_CALLBACK_TAKEN, /* a SYN-ACK of the agent's listener left without options (smc_flag.h) */
};

struct smc_event {
	enum smc_event_type type;
	__u32 pad;
	__u64 cgroup;               /* SMC_EVENT_CGROUP_WANTED: ID of a cgroup that is not known yet */
	struct smc_tuple tuple;     /* SMC_EVENT_REQUEST: its key; SMC_EVENT_CALLBACK_TAKEN: the connection */
	struct smc_request request; /* SMC_EVENT_REQUEST: its entry */
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
	__u16 port;      /* the server's */
	__u8 any_cgroup; /* 1: any cgroup that those rule groups match */
	__u8 direction;  /* SMC_OUTBOUND or SMC_INBOUND */
	__s32 rule;      /* the index in smc_rules that decides; -1: the default */
	__u32 pad;
	__u64 in_the_way; /* bit n: the check of decision n fails */
	__u64 open;       /* bit n: the check of decision n needs the socket */
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
static_assert(sizeof(smc_asking) == 12);
static_assert(sizeof(smc_pair) == 56);
static_assert(sizeof(smc_tuned_socket) == 88);
static_assert(sizeof(smc_half_open) == 48);
#endif

#endif
