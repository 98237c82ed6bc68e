/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The checks that decide whether a connection is accelerated, in the order in which they are made. The programs stop at
 * the first one that is in the way, and count it under its name (map smc_counters); program smc_explain makes those
 * that need no socket, and names the others, for `smcctl explain`. There is no other list: to add a check, add a row
 * here and its function in smc_checks.h.
 *
 *	X(decision, NODE or SOCKET, function, what is in the way)
 *
 * NODE: the agent, its tables and the addresses decide. SOCKET: the check needs the socket or the SYN, so smc_explain
 * cannot make it. (Whether the device encrypts packets, for LIMITED, is known by the SYN only: smc_explain leaves that
 * out.)
 */
#ifndef SMC_ELIGIBILITY_H
#define SMC_ELIGIBILITY_H

#define SMC_OUTBOUND_CHECKS(X)                                                                                         \
	X(SMC_OUT_NOT_ENROLLED, NODE, not_enrolled, "its cgroup matches no rule, or is not known yet")                 \
	X(SMC_OUT_SPECIAL, NODE, special, "IPv6 link-local and unspecified addresses are never accelerated")           \
	X(SMC_OUT_LOOPBACK, NODE, loopback,                                                                            \
	  "the server's address is a loopback address, or one of the client's own network namespace")                  \
	X(SMC_OUT_DENIED, NODE, denied, "the policy denies it")                                                        \
	X(SMC_OUT_AGENT_STALE, NODE, agent_stale, "the agent's heartbeat is too old")                                  \
	X(SMC_OUT_AGENT_FULL, NODE, agent_full, "the agent takes no more connections")                                 \
	X(SMC_OUT_NETNS_UNKNOWN, NODE, netns_unknown, "its network namespace is not known (yet)")                      \
	X(SMC_OUT_NOT_SERVED, NODE, not_served, "its network namespace is not served")                                 \
	X(SMC_OUT_LIMITED, NODE, limited,                                                                              \
	  "a device shapes, filters or encrypts its packets, or the bandwidth of its pod is limited; SMC would evade " \
	  "that")                                                                                                      \
	X(SMC_OUT_NETNS_FULL, NODE, netns_full,                                                                        \
	  "its network namespace has as many connections or handshakes as one may have")                               \
	X(SMC_OUT_CGROUP_FULL, NODE, cgroup_full, "its cgroup has as many connections or handshakes as one may have")  \
	X(SMC_OUT_AGENT_GONE, NODE, agent_gone, "the agent does not listen in its network namespace")                  \
	X(SMC_OUT_LATER_SYN, SOCKET, later_syn,                                                                        \
	  "the SYN is a retransmission, and only the first SYN of a connection asks for SMC")                          \
	X(SMC_OUT_HEADERS, SOCKET, headers, "its packets have IP options or extension headers")                        \
	X(SMC_OUT_MPTCP, SOCKET, mptcp, "it is a SYN of MPTCP")                                                        \
	X(SMC_OUT_NET_SMC, SOCKET, net_smc, "the socket is one of the kernel's own SMC (net/smc)")                     \
	X(SMC_OUT_KERNEL, SOCKET, kernel,                                                                              \
	  "the socket is the kernel's own (NFS, for example), which must not wait for programs")                       \
	X(SMC_OUT_TCP_SIGNED, SOCKET, tcp_signed, "the socket signs its segments (TCP-MD5 or TCP-AO)")                 \
	X(SMC_OUT_TIMESTAMPING, SOCKET, timestamping,                                                                  \
	  "the socket wants time stamps of the driver or the hardware (SO_TIMESTAMPING)")                              \
	X(SMC_OUT_PACED, SOCKET, paced, "the socket limits its own rate (SO_MAX_PACING_RATE)")                         \
	X(SMC_OUT_FAST_OPEN, SOCKET, fast_open, "it is a SYN of TCP Fast Open")                                        \
	X(SMC_OUT_NO_ROOM, SOCKET, no_room, "the SYN has no space for the options")                                    \
	X(SMC_OUT_IPSEC, SOCKET, ipsec, "the socket or its namespace has IPsec policies")                              \
	X(SMC_OUT_NOT_NOW, NODE, not_now, "the server is not asked for SMC for a while")                               \
	X(SMC_OUT_SHORT_LIVED, NODE, short_lived,                                                                      \
	  "its connections to this server end too early to be worth SMC, but now and then one is tried")               \
	X(SMC_OUT_NO_DEVICE, NODE, no_device,                                                                          \
	  "SMC-R has no RoCE device, and SMC-D is off for this connection (local.smcd)")

#define SMC_INBOUND_CHECKS(X)                                                                                          \
	X(SMC_IN_AGENT_STALE, NODE, agent_stale, "the agent's heartbeat is too old")                                   \
	X(SMC_IN_AGENT_FULL, NODE, agent_full, "the agent takes no more connections")                                  \
	X(SMC_IN_SAME_AGENT, SOCKET, same_agent, "both ends are served by this agent, which leaves them to TCP")       \
	X(SMC_IN_FORWARDED, SOCKET, forwarded, "the SYN only passes through this network namespace")                   \
	X(SMC_IN_MPTCP, SOCKET, mptcp, "it is a SYN of MPTCP")                                                         \
	X(SMC_IN_FAST_OPEN, SOCKET, fast_open, "it is a SYN of TCP Fast Open")                                         \
	X(SMC_IN_NO_LISTENER, SOCKET, no_listener, "nobody listens on that port")                                      \
	X(SMC_IN_NOT_NOW, NODE, client_not_now,                                                                        \
	  "the client is not answered with option 254 for a while: the option is lost on the way to it")               \
	X(SMC_IN_NO_LEG, NODE, no_leg,                                                                                 \
	  "legs to its listener were lost lately: this host drops, redirects or translates their packets, or the "     \
	  "listener's backlog was full")                                                                               \
	X(SMC_IN_NET_SMC, SOCKET, net_smc, "the listener is one of the kernel's own SMC (net/smc)")                    \
	X(SMC_IN_KERNEL, SOCKET, kernel, "the listener is the kernel's own, which must not wait for programs")         \
	X(SMC_IN_NOT_SERVED, NODE, not_served, "its network namespace is not served")                                  \
	X(SMC_IN_NETNS_FULL, NODE, netns_full,                                                                         \
	  "its network namespace has as many connections or handshakes as one may have")                               \
	X(SMC_IN_NOT_ENROLLED, NODE, not_enrolled, "the listener's cgroup matches no rule, or is not known yet")       \
	X(SMC_IN_CGROUP_FULL, NODE, cgroup_full, "its cgroup has as many connections or handshakes as one may have")   \
	X(SMC_IN_SPECIAL, NODE, special, "IPv6 link-local and unspecified addresses are never accelerated")            \
	X(SMC_IN_DENIED, NODE, denied, "the policy denies it")                                                         \
	X(SMC_IN_LIMITED, NODE, limited,                                                                               \
	  "a device shapes, filters or encrypts its packets, or the bandwidth of its pod is limited; SMC would evade " \
	  "that")                                                                                                      \
	X(SMC_IN_TCP_SIGNED, SOCKET, tcp_signed, "the listener signs its segments (TCP-MD5 or TCP-AO)")                \
	X(SMC_IN_TIMESTAMPING, SOCKET, timestamping,                                                                   \
	  "the listener wants time stamps of the driver or the hardware (SO_TIMESTAMPING)")                            \
	X(SMC_IN_BOUND, SOCKET, bound,                                                                                 \
	  "the listener is bound to a device or has a mark: the agent's answer might leave by another way")            \
	X(SMC_IN_INCOMING_CPU, SOCKET, incoming_cpu,                                                                   \
	  "the listener is for connections of one processor (SO_INCOMING_CPU), and a leg may come by another one")     \
	X(SMC_IN_IPSEC, SOCKET, ipsec, "the listener or its namespace has IPsec policies")                             \
	X(SMC_IN_HEADERS, SOCKET, listener_headers, "the listener's packets have extension headers")                   \
	X(SMC_IN_SHORT_LIVED, NODE, short_lived,                                                                       \
	  "connections to this listener end too early to be worth SMC, but now and then one is tried")                 \
	X(SMC_IN_NO_DEVICE, NODE, no_device,                                                                           \
	  "SMC-R has no RoCE device, and SMC-D is off for this connection (local.smcd)")

#endif
