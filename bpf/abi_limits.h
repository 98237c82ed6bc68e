/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Sizes of the maps, numbers on the wire, times; addresses and tuples. Part of abi.h: shared with user space. */
#ifndef SMC_ABI_LIMITS_H
#define SMC_ABI_LIMITS_H

#include <linux/types.h>

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
#define SMC_MAX_REPORTS 4096 /* entries that one sweep leaves for user space; further ones wait for the next sweep */
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
 *	in the SYN of a CLC socket  the tag of the agent, the application's port, and SMC_OWN_ANNOUNCES
 *	in a SYN-ACK                the tag of the server's agent, and the port that the SYN came from
 */
#define SMC_OWN_EXID 0x534d4341u
#define SMC_OWN_LEN 14
/*
 * Flag in the SYN of a CLC socket: the client's agent will announce that its application is connected. At the first
 * contact of SMC-R it connects the application only when the link is ready, and then sends a first CDC message. Until
 * this message arrives the server's application must not see the connection.
 */
#define SMC_OWN_ANNOUNCES 1

/*
 * A TCP segment without flags from this port to this port is a packet of the agent's own: a probe of a hairpin, or what
 * smc_suppress() has made of a packet that must not leave.
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
#define SMC_ANSWERED_NS 3000000000ull     /* smc_requests: a leg has answered; late SYN-ACKs of the server may follow */

/*
 * After so many retransmissions of a SYN with the option, the SYN-ACK is sent without the option: answers that have it
 * seem to be lost on the path.
 */
#define SMC_ANSWER_LOST_SYNS 2
#define SMC_ANSWER_LOST_NS 70000000000ull /* smc_inbound: the SYN was retransmitted; TCP sends the next one sooner */

/* How long a server is not asked after a RST, and after a RST in answer to options alone. */
#define SMC_RESET_PAUSE_NS 100000000ULL
#define SMC_OPTION_RESET_PAUSE_NS 5000000000ULL
/*
 * TCP repeats a lost SYN after a second. A SYN that was repeated and answered sooner was not lost: an older connection
 * of the port has answered it by an ACK, at which TCP resets that connection and repeats the SYN within 20 ms.
 */
#define SMC_SYN_LOST_NS 900000000ULL
/* Of <smc/wire/reason.h>: Reason::kOptionLost and kConnectFailed. */
#define SMC_REASON_OPTION_LOST 0x0a010002u
#define SMC_REASON_CONNECT_FAILED 0x0a050000u

struct smc_addr {
	__u8 ip[16];
	__u16 port;
	__u16 pad;
};

/* A TCP connection, from the point of view of this end and with the addresses that its device sees. */
struct smc_tuple {
	__u8 remote_ip[16];
	__u8 local_ip[16];
	__u16 remote_port;
	__u16 local_port;
	__u32 slot; /* of the network namespace */
};

#endif
