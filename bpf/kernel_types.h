/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The fields of the kernel's own structures that the programs read. Only names and types count: libbpf finds out at
 * load time where the running kernel has each field (CO-RE), so this compiles anywhere. Everything else comes from the
 * kernel's user space headers, except the constants at the end, which have the values of x86_64.
 */
#ifndef SMC_KERNEL_TYPES_H
#define SMC_KERNEL_TYPES_H

#include <linux/types.h>
#include <stdbool.h>

#include <linux/bpf.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct kernfs_node {
	__u64 id;
};
struct cgroup {
	struct kernfs_node *kn;
};
struct sock_cgroup_data {
	struct cgroup *cgroup;
};
struct netns_xfrm {
	unsigned int policy_count[6];
};
struct ns_common {
	unsigned int inum;
};
struct net {
	__u64 net_cookie;
	struct ns_common ns;
	struct netns_xfrm xfrm;
};
typedef struct {
	struct net *net;
} possible_net_t;
typedef struct {
	int counter;
} atomic_t;
typedef struct refcount_struct {
	atomic_t refs;
} refcount_t;
typedef struct {
	__s64 counter;
} atomic64_t;
struct list_head {
	struct list_head *next;
};
struct wait_queue_head {
	struct list_head head;
};
struct wait_queue_entry {
	const void *func;
	struct list_head entry;
};
struct fasync_struct;
struct socket_wq {
	struct wait_queue_head wait;
	struct fasync_struct *fasync_list;
};
struct epoll_event {
	__u32 events;
};
struct epitem {
	struct epoll_event event;
};
struct eppoll_entry {
	struct epitem *base;
	struct wait_queue_entry wait;
};
typedef struct {
	long counter;
} atomic_long_t;
struct page_counter {
	atomic_long_t usage;
	unsigned long max;
	struct page_counter *parent;
};
struct mem_cgroup {
	struct page_counter memory;
	struct page_counter tcpmem; /* only in kernels with version 1 of control groups */
};
struct proto {
	unsigned long *memory_pressure;
};
struct sock_common {
	struct proto *skc_prot;
	possible_net_t skc_net;
	atomic64_t skc_cookie;
	refcount_t skc_refcnt;
	unsigned long skc_flags;
	int skc_bound_dev_if;
	volatile unsigned char skc_state;
	int skc_incoming_cpu; /* in a union with members of other kinds of sockets */
};
typedef struct {
	__u32 val;
} kuid_t;
typedef struct {
	__u32 val;
} kgid_t;
struct cred {
	kuid_t fsuid;
	kgid_t fsgid;
};
struct inode {
	unsigned short i_mode;
};
struct file {
	unsigned int f_flags;
	const struct cred *f_cred;
	struct inode *f_inode;
	void *private_data;
};
struct sock;
struct socket {
	struct file *file;
	struct sock *sk;
};
struct msghdr {
	unsigned int msg_flags;
};
typedef struct {
	int owned;
} socket_lock_t;
struct xfrm_policy;
struct net_device {
	int ifindex;
};
struct dst_entry {
	struct net_device *dev;
};
struct sock {
	struct sock_common __sk_common;
	socket_lock_t sk_lock;
	struct xfrm_policy *sk_policy[2];
	struct socket *sk_socket;
	struct socket_wq *sk_wq;
	struct mem_cgroup *sk_memcg; /* only in kernels with memory control groups */
	int sk_forward_alloc;
	__u32 sk_tsflags; /* two bytes before 6.6 */
	struct dst_entry *sk_dst_cache;
	int sk_rx_dst_ifindex;
	struct sock_cgroup_data sk_cgrp_data;
	int sk_sndbuf;
	int sk_rcvbuf;
	int sk_rcvlowat;
	int sk_peek_off;
	unsigned long sk_max_pacing_rate;
	__u32 sk_mark;
	struct {
		atomic_t rmem_alloc;
	} sk_backlog;
	__u8 sk_shutdown;
	__u16 sk_protocol;
	unsigned char sk_userlocks : 4;
	unsigned char sk_kern_sock : 1;
};
struct tcp_congestion_ops {
	char name[16];
};
enum sock_flags {
	SOCK_RCVTSTAMP, /* bits of skc_flags; the numbers are the running kernel's */
	SOCK_ZEROCOPY,
};
struct tcp_ulp_ops;
struct ipv6_txoptions;
struct ipv6_pinfo {
	struct ipv6_txoptions *opt;
};
struct inet_sock {
	struct ipv6_pinfo *pinet6; /* only in kernels with IPv6 */
};
struct inet_connection_sock {
	struct inet_sock icsk_inet;
	const struct tcp_congestion_ops *icsk_ca_ops;
	const struct tcp_ulp_ops *icsk_ulp_ops;
	__u32 icsk_user_timeout;
	__u8 icsk_ca_setsockopt : 1;
};
#define SMC_IPPROTO_ICMP6 58
#define SMC_IPPROTO_L2TP 115
#define SMC_SOL_SOCKET 1
#define SMC_SO_SNDBUF 7
#define SMC_SO_RCVBUF 8
#define SMC_SOL_TCP 6
#define SMC_TCP_NODELAY 1
#define SMC_TCP_CONGESTION 13
#define SMC_TCP_NOTSENT_LOWAT 25
#define SMC_SNDBUF_LOCK 1
#define SMC_RCVBUF_LOCK 2
struct tcp_md5sig_info;
struct tcp_ao_info;
struct tcp_options_received {
	__u32 ts_recent;
};
struct tcp_timewait_sock {
	__u32 tw_ts_recent;
};
struct tcp_sock {
	struct inet_connection_sock inet_conn;
	struct tcp_options_received rx_opt;
	__u32 rcv_nxt;
	__u32 copied_seq;
	__u32 write_seq;
	__u32 snd_una;
	__u32 snd_up;
	__u16 urg_data;
	__u8 recvmsg_inq : 1;
	__u32 total_retrans;
	__u64 bytes_acked;
	__u64 bytes_received;
	unsigned int keepalive_time;
	unsigned int keepalive_intvl;
	unsigned char keepalive_probes;
	struct tcp_md5sig_info *md5sig_info;
	struct tcp_ao_info *ao_info;
	unsigned char syn_smc : 1; /* only in kernels with net/smc */
	_Bool is_mptcp;            /* only in kernels with MPTCP */
};

#pragma clang attribute pop

/* Arguments of an iterator, whose layout is fixed: no CO-RE. */
struct seq_file;
struct bpf_iter_meta {
	struct seq_file *seq;
	__u64 session_id;
	__u64 seq_num;
};
struct bpf_iter__tcp {
	struct bpf_iter_meta *meta;
	struct sock_common *sk_common;
	unsigned int uid;
};

#define SMC_MSG_OOB 0x1
#define SMC_MSG_PEEK 0x2
#define SMC_MSG_TRUNC 0x20
#define SMC_MSG_DONTWAIT 0x40
#define SMC_MSG_WAITALL 0x100
#define SMC_MSG_ERRQUEUE 0x2000
#define SMC_MSG_ZEROCOPY 0x4000000
#define SMC_O_NONBLOCK 04000
#define SMC_STAMPS_OF_DEVICE 7 /* SOF_TIMESTAMPING_TX_HARDWARE, _TX_SOFTWARE, _RX_HARDWARE */
#define SMC_FASYNC 020000      /* O_ASYNC */
#define SMC_RCV_SHUTDOWN 1

#define SMC_S_IFMT 0170000
#define SMC_S_IFSOCK 0140000
#define SMC_MAY_READ 4
#define SMC_EAGAIN 11
#define SMC_EINVAL 22
#define SMC_ENOMEM 12
#define SMC_ENOBUFS 105

#define AF_INET 2
#define AF_INET6 10
#define SOCK_STREAM 1
#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86dd
#define SMC_TCP_FIN 0x01
#define SMC_TCP_SYN 0x02
#define SMC_TCP_RST 0x04
#define SMC_TCP_ACK 0x10
#define XFRM_POLICY_IN_DIR 0
#define XFRM_POLICY_OUT_DIR 1

#endif
