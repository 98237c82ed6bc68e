/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The layouts of the bypass that its programs and the agent share. Compiled as BPF C and as C++.
 *
 * A pair is a TCP connection whose two sockets are both of this node. Each of the two is a `struct smc_member` from the
 * moment on at which the handshake has proven that; most never become more than watched. What is sent by one member of
 * a pair that is bypassed is put into the other's queue by the kernel (sk_msg redirect), past TCP.
 */
#ifndef SMC_BYPASS_ABI_H
#define SMC_BYPASS_ABI_H

#include "bpf/abi.h"

#define SMC_MAX_MEMBERS 65536
#define SMC_PROOF 32 /* so many receives that did not wait, and nothing that speaks against it */

/*
 *	WATCHED -> PROVEN      it has received often enough without waiting, and so has its peer
 *	PROVEN -> ENROLLED     program smc_bypass_enrol has put it into smc_members
 *	ENROLLED -> MEMBER     so is its peer: what it sends may be redirected
 *	PROVEN.. -> LEAVING    a habit that does not go with it, a revocation, or the peer leaves
 *	LEAVING -> OUT         what was redirected to it is consumed: out of smc_members, for good
 */
enum smc_member_state {
	SMC_MEMBER_WATCHED,
	SMC_MEMBER_PROVEN,
	SMC_MEMBER_ENROLLED,
	SMC_MEMBER_MEMBER,
	SMC_MEMBER_LEAVING,
	SMC_MEMBER_OUT,
};

/* What an application does with its socket, or asks of it, that a socket in a sockmap does not do as TCP does. */
enum smc_habit {
	SMC_HABIT_WAITS = 1,         /* a receive that waits: the kernel returns EAGAIN when it wakes up for nothing */
	SMC_HABIT_PEEKS = 2,         /* MSG_PEEK, SO_PEEK_OFF: the two queues are not one for it */
	SMC_HABIT_WAITALL = 4,       /* MSG_WAITALL */
	SMC_HABIT_LOWAT = 8,         /* SO_RCVLOWAT */
	SMC_HABIT_URGENT = 16,       /* MSG_OOB */
	SMC_HABIT_TRUNCATES = 32,    /* MSG_TRUNC */
	SMC_HABIT_SPLICES = 64,      /* splice() sees TCP's queue only */
	SMC_HABIT_ZEROCOPY = 128,    /* SO_ZEROCOPY */
	SMC_HABIT_ULP = 256,         /* TCP_ULP: kTLS */
	SMC_HABIT_ASKS_INQ = 512,    /* FIONREAD: counts one queue only */
	SMC_HABIT_SHUTS_DOWN = 1024, /* shutdown() of its receiving side */
	SMC_HABIT_FOREIGN = 2048,    /* the kernel did not take it: somebody else's sockmap */
	SMC_HABIT_UNTRACKED = 4096,  /* not its own: its connection tracking entry has gone */
	SMC_HABIT_STREAMS = 8192,    /* so much that it goes by TCP most of the time: then TCP alone is faster */
	SMC_HABIT_EDGES = 16384,     /* may miss an edge, and does not read until there is nothing (bypass_wakes.h) */
	SMC_HABIT_CONTROL = 32768,   /* wants control messages: TCP_INQ, time stamps */
	SMC_HABIT_PACED = 65536,     /* SO_MAX_PACING_RATE: nobody paces what goes past TCP */
};

/* No habits of a program, but of a connection: its next one may have it. */
#define SMC_HABITS_OF_ONE (SMC_HABIT_STREAMS | SMC_HABIT_SHUTS_DOWN | SMC_HABIT_UNTRACKED | SMC_HABIT_FOREIGN)

/* Key is the socket's cookie. */
struct smc_member {
	enum smc_member_state state;
	__u32 habits; /* enum smc_habit, or'ed; they are never forgotten */
	__u64 peer;   /* cookie */
	__u64 cgroup;
	__u64 rules;             /* that matched the cgroup when it was paired, as struct smc_cgroup has them */
	__u64 netns;             /* cookie */
	__u64 sk;                /* address of its struct sock (bpf/smc_socket.h) */
	__u64 redirected;        /* bytes that it sent past TCP */
	__u64 redirected_told;   /* ... of which smc_bypass_turn has told user space */
	__u64 messages;          /* ... in so many messages */
	__u64 last;              /* the place in its stream behind the last of them */
	__u64 consumed;          /* bytes that its receives have returned, by either way */
	__u64 consumed_before;   /* ... when smc_bypass_turn looked last */
	__u64 redirected_before; /* likewise, what its peer had sent past TCP */
	__u64 came_last;         /* its peer is gone: where what that sent past TCP ends */
	__u64 wire_ns;           /* when it sent something by TCP for the last time */
	__u32 first_seq;         /* TCP's sequence number of the first byte that it sends */
	__u32 generation;        /* of map smc_bypass_generation, when it was paired; members of an earlier one leave */
	__u32 received;          /* receives that did not wait; SMC_PROOF at most */
	__u32 found_nothing;     /* ... of which there was nothing to receive */
	__u32 in_a_row;          /* messages that it sent past TCP since its peer had consumed all */
	__u32 passing;           /* by TCP, until its peer has consumed all */
	__u32 deciding;          /* the program is at it, for a message of this member's */
	__u32 client;            /* 0: the server's */
	__u32 inode;             /* of its network namespace */
	__u32 alone;             /* its peer is gone */
	__u32 failed;            /* what it redirected is not known exactly, or what its peer has read of that */
	struct smc_tuple app;    /* slot is 0 */
};

/* An agent of another build writes and reads this, and nothing else: it stays as it is. */
struct smc_bypass_identity {
	__u32 off; /* nothing is redirected any more */
	__u32 pad;
	__u64 build; /* which programs these are; 0: they are not all there yet */
};

struct smc_bypass_config {
	struct smc_bypass_identity identity;
	__u32 limit;       /* bytes that a member may have sent past TCP and its peer not consumed */
	__u32 messages;    /* likewise */
	__u32 room;        /* members that there may be */
	__u32 cgroup_room; /* ... of one cgroup */
	__u64 policy;      /* a hash of who may have pairs */
};

/* Key is a cgroup's ID. */
struct smc_bypass_cgroup {
	__u32 members; /* enrolled, or about to be */
	__u32 habits;  /* of its sockets that were members, and what guards have seen of any of them */
	__u64 sent;    /* bytes past TCP, of those that are members */
	__u64 came;    /* ... to them */
};

/* What program smc_bypass_bar is told. */
struct smc_bypass_bar {
	__u64 cookie;
	__u32 habit;
	__u32 pad;
};

/* What program smc_bypass_turn answers. */
struct smc_bypass_turn {
	__u32 watched;
	__u32 members;
	__u32 enrol; /* wait for smc_bypass_enrol */
	__u32 leaving;
	__u32 out;
	__u32 joined;     /* have become members since it was asked last */
	__u64 moved;      /* bytes past TCP, since then; also of sockets that are gone now */
	__u64 redirected; /* of those that live */
	__u64 messages;
	__u64 backlog; /* bytes that went past TCP, and that nobody has read yet */
};

#endif
