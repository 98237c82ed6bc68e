/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Sockets, requests, hairpins and SYNs: the state of single connections. Part of abi.h: shared with user space. */
#ifndef SMC_ABI_CONNECTIONS_H
#define SMC_ABI_CONNECTIONS_H

#include "bpf/abi_limits.h"

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
	SMC_OPTION_AGENT,         /* present, and the server has an agent */
	SMC_OPTION_ECHOED,        /* our own tag came back: the peer copies unknown options */
	SMC_OPTION_CALLBACK_LOST, /* our SYN left, and the kernel had not asked for its options */
};

struct smc_sock {
	enum smc_role role;
	enum smc_option_seen option;
	struct smc_tuple app;      /* the application's connection: the socket's own, or the one behind the leg */
	__u16 to_port;             /* local port of the other end of the hairpin; 0: there is no hairpin */
	__u16 mac_len;             /* length of the link header on the hairpin's device */
	__u16 port;                /* leg: its local port on the device; CLC socket: the application's, to be sent */
	__u8 hold;                 /* server's leg: the ACK that ends its handshake is held */
	__u8 paws;                 /* enum smc_paws; of a leg */
	char saved_congestion[16]; /* congestion control before tuning; empty: it was not changed */
	__u32 chosen;              /* leg, and application behind it: index in smc_chosen; 0: none */
	/*
	 * Client's leg: sequence number of the application's SYN that it is to answer. Server's leg: of its own SYN.
	 * Another connection may have the same tuple by now.
	 */
	__be32 isn;
	__u64 challenge_ns;     /* application: when a challenge ACK was last expected of it (smc_port_again.h) */
	__u32 awaits_challenge; /* 1: none of its packets has left since then */
	__u32 challenge_by;     /* index of the device by which the last challenge ACK left; 0: none has */
	/* leg: SO_RCVBUF and SO_SNDBUF that smc_clc_ops sets in its connect(); the kernel doubles them */
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

/*
 * How smc_egress treats a leg's SYN that the application's kernel would drop because of its time stamp (PAWS), and
 * whether it has refused the SYN.
 */
enum smc_paws {
	SMC_PAWS_REFUSE,
	SMC_PAWS_REFUSED, /* the SYN was refused for its time stamp: the leg may try another port */
	SMC_PAWS_PASS,    /* let the SYN pass: no other port would be better */
	SMC_SYN_REFUSED,  /* the SYN was refused for another reason than its time stamp or a translation */
};

enum smc_request_state {
	SMC_REQUEST_ASKED,
	SMC_REQUEST_ASKED_BARE, /* unanswered; a retransmission was sent without options */
	SMC_REQUEST_HELD,       /* the agent negotiates; retransmissions are not sent */
	SMC_REQUEST_LET_GO,     /* the agent gave up: the SYN goes out without options */
	SMC_REQUEST_ANSWERED,   /* a leg has answered the application's SYN */
	SMC_REQUEST_CLC,        /* no application's SYN, but that of a CLC socket */
	SMC_REQUEST_LEG,        /* no application's SYN: a server's leg that its application has not seen yet */
};

/* Buffer sizes that the application set (SO_SNDBUF, SO_RCVBUF), in the kernel's own units; 0: not set. */
struct smc_buffers {
	__u32 send;
	__u32 receive;
};

/* A SYN with our options, a SYN that is held, or a server's leg that is not seen yet. The key is its tuple. */
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
	__u8 reset;      /* 1: a RST or ICMP error has answered the SYN with options, unseen by TCP */
	__u8 pad;
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
	__u32 reports;                  /* how often user space was told that this hairpin is half-open */
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

/* A SYN with option 254 that smc_ingress has noted, to be handed to the agent's listener for CLC sockets. */
struct smc_inbound {
	__u64 since_ns;
	__u16 port;      /* the client application's port, as its agent's CLC socket sent it; 0: none */
	__u8 peer_agent; /* the client's side has an agent */
	__u8 ttl;
	__u32 ifindex; /* the device that heard the SYN first: the lowest one */
	__u64 cgroup;  /* the listener's */
	struct smc_buffers buffers;
	__u8 peer_announces; /* the client's agent announces on a new link that its application is connected */
	__u8 syncookie;      /* answered by a SYN cookie, so the listener keeps no state of it */
	__u8 smcd;           /* SMC-D with another agent of this kernel may be accepted */
	__u8 again;          /* how often the SYN was sent again, counted up to SMC_ANSWER_LOST_SYNS */
	__be32 isn;          /* sequence number of the SYN */
	__u8 bare;           /* the SYN was sent again without options: it is no request any more */
	__u8 callback_ran;   /* the kernel has asked this agent's program for the options of the SYN-ACK */
	__u8 tos;            /* of the SYN */
	__u8 assigned;       /* handed to the agent's listener */
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

#endif
