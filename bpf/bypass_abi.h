/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The layouts of the bypass that its programs and the agent share. Compiled as BPF C and as C++.
 *
 * A pair is a TCP connection with both sockets on this node. Each socket gets a `struct smc_member` when the handshake
 * has shown this (smc_pairs.h); most of them stay in state WATCHED. If a pair is bypassed, the kernel puts the bytes
 * that one member sends into the other's queue (sk_msg redirect), past TCP.
 */
#ifndef SMC_BYPASS_ABI_H
#define SMC_BYPASS_ABI_H

#include "bpf/abi.h"

#define SMC_MAX_MEMBERS 65536
#define SMC_PROOF 32 /* proven after this many receives that did not wait, and without any habit */

/*
 *	WATCHED -> PROVEN      it has received often enough without waiting, and so has its peer
 *	PROVEN -> ENROLLED     program smc_bypass_enrol has put it into smc_members
 *	ENROLLED -> MEMBER     its peer is in smc_members, too: what it sends may be redirected
 *	PROVEN.. -> LEAVING    a habit that the bypass cannot serve, a revocation, or the peer leaves
 *	LEAVING -> OUT         it has consumed what was redirected to it: out of smc_members, for good
 */
enum smc_member_state {
	SMC_MEMBER_WATCHED,
	SMC_MEMBER_PROVEN,
	SMC_MEMBER_ENROLLED,
	SMC_MEMBER_MEMBER,
	SMC_MEMBER_LEAVING,
	SMC_MEMBER_OUT,
};

/* Uses of a socket by its application that a socket in a sockmap does not serve as TCP does. */
enum smc_habit {
	SMC_HABIT_WAITS = 1,         /* a blocking receive: it returns EAGAIN when it is woken for nothing */
	SMC_HABIT_PEEKS = 2,         /* MSG_PEEK, SO_PEEK_OFF: a peek does not see both queues as one */
	SMC_HABIT_WAITALL = 4,       /* MSG_WAITALL */
	SMC_HABIT_LOWAT = 8,         /* SO_RCVLOWAT */
	SMC_HABIT_URGENT = 16,       /* MSG_OOB */
	SMC_HABIT_TRUNCATES = 32,    /* MSG_TRUNC */
	SMC_HABIT_SPLICES = 64,      /* splice() sees TCP's queue only */
	SMC_HABIT_ZEROCOPY = 128,    /* SO_ZEROCOPY */
	SMC_HABIT_ULP = 256,         /* TCP_ULP: kTLS */
	SMC_HABIT_ASKS_INQ = 512,    /* FIONREAD: counts one queue only */
	SMC_HABIT_SHUTS_DOWN = 1024, /* shutdown() of its receiving side */
	SMC_HABIT_FOREIGN = 2048,    /* the kernel refused it: it is in another program's sockmap */
	SMC_HABIT_UNTRACKED = 4096,  /* the connection tracking entry is gone; no habit of the application */
	SMC_HABIT_STREAMS = 8192,    /* it receives so much that most goes by TCP: then TCP alone is faster */
	SMC_HABIT_EDGES = 16384,     /* does not read until empty, so it may miss an edge (bypass_wakes.h) */
	SMC_HABIT_CONTROL = 32768,   /* wants control messages: TCP_INQ, time stamps */
	SMC_HABIT_PACED = 65536,     /* SO_MAX_PACING_RATE: bytes past TCP are not paced */
};

/* Habits of one connection, not of its application: the application's next connection may be bypassed. */
#define SMC_HABITS_OF_ONE (SMC_HABIT_STREAMS | SMC_HABIT_SHUTS_DOWN | SMC_HABIT_UNTRACKED | SMC_HABIT_FOREIGN)

/* The key is the socket's cookie. */
struct smc_member {
	enum smc_member_state state;
	__u32 habits; /* enum smc_habit, or'ed; they are never forgotten */
	__u64 peer;   /* cookie of the peer's socket */
	__u64 cgroup;
	__u64 rules;             /* smc_cgroup.rules of its cgroup when it was paired */
	__u64 netns;             /* cookie */
	__u64 sk;                /* address of its struct sock (bpf/smc_socket.h) */
	__u64 redirected;        /* bytes that it sent past TCP */
	__u64 redirected_told;   /* the part of `redirected` that smc_bypass_step has told user space */
	__u64 messages;          /* messages that it sent past TCP */
	__u64 last;              /* offset in its stream after the last byte that it sent past TCP */
	__u64 consumed;          /* bytes that its receives have returned, from either queue */
	__u64 consumed_before;   /* `consumed` at the last smc_bypass_step */
	__u64 redirected_before; /* `redirected` of its peer at the last smc_bypass_step */
	__u64 peer_last;         /* the peer's `last`, noted when the peer was gone */
	__u64 tcp_sent_ns;       /* when it last sent something by TCP */
	__u32 first_seq;         /* TCP's sequence number of the first byte that it sends */
	__u32 generation;        /* smc_bypass_generation when it was paired; members of an earlier one leave */
	__u32 received;          /* receives seen, up to SMC_PROOF; one that waits is a habit */
	__u32 short_reads;       /* those of them that got less than they had room for */
	__u32 found_nothing;     /* those that found nothing right after a short one */
	__u32 was_short;         /* the last one was short */
	__u32 in_a_row;          /* messages past TCP since its peer had consumed everything */
	__u32 by_tcp;            /* 1: it sends by TCP until its peer has consumed everything */
	__u32 deciding;          /* smc_bypass_send is running for a message of this member */
	__u32 client;            /* 0: the server's socket */
	__u32 inode;             /* of its network namespace */
	__u32 alone;             /* 1: its peer is gone */
	__u32 failed;            /* 1: what it redirected, or what its peer has read of that, is not known exactly */
	struct smc_tuple app;    /* slot is 0 */
};

/* The only part that an agent of another build reads and writes: this layout must never change. */
struct smc_bypass_identity {
	__u32 off; /* 1: nothing is redirected any more */
	__u32 pad;
	__u64 build; /* identifies the programs; 0: not all of them are in place yet */
};

struct smc_bypass_config {
	struct smc_bypass_identity identity;
	__u32 limit;              /* most bytes that a member has sent and its peer has not consumed yet */
	__u32 messages;           /* most messages past TCP until the peer has consumed everything */
	__u32 max_members;        /* of all cgroups together */
	__u32 max_cgroup_members; /* of one cgroup */
	__u64 policy;             /* hash of the settings that decide which connections may be bypassed */
	__u64 missed;             /* skipped runs of smc_bypass_received that an agent has seen */
};

/* The key is a cgroup's ID. */
struct smc_bypass_cgroup {
	__u32 members; /* its sockets in the states PROVEN to LEAVING */
	__u32 habits;  /* habits of its former members, and those that guards have seen on any of its sockets */
	__u64 sent;    /* bytes that its present members have sent past TCP */
	__u64 came;    /* bytes that were sent to them past TCP */
};

/* Input of program smc_bypass_bar. */
struct smc_bypass_bar {
	__u64 cookie;
	__u32 habit;
	__u32 pad;
};

/* Output of program smc_bypass_step. */
struct smc_bypass_step {
	__u32 watched;
	__u32 members; /* sockets in the states PROVEN to LEAVING */
	__u32 enrol;   /* members that wait for smc_bypass_enrol */
	__u32 leaving;
	__u32 out;
	__u32 joined;        /* sockets that became members since the last run */
	__u32 knows_waiters; /* 1: the kernel has told the addresses of the functions in bypass_wakes.h */
	__u32 pad;
	__u64 moved;      /* bytes past TCP since the last run; also of sockets that are gone now */
	__u64 redirected; /* bytes past TCP of all living sockets */
	__u64 messages;
	__u64 backlog; /* bytes up to the last one past TCP that are not read yet */
};

#endif
