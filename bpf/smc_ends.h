/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Notes that sockets end, for kernels that let no program read their memory (smc_socket.h): there no sweep can check
 * whether the socket of an entry still lives. Loaded on no other kernel, because every socket of the node passes here.
 */
#ifndef SMC_ENDS_H
#define SMC_ENDS_H

static __always_inline void smc_end_sender(const struct smc_tuple *key, __u64 cookie)
{
	struct smc_hairpin *hairpin = bpf_map_lookup_elem(&smc_hairpins, key);

	if (hairpin && hairpin->sender.cookie == cookie)
		hairpin->sender.cookie = 0;
}

SEC("?tp_btf/tcp_destroy_sock")
int BPF_PROG(smc_socket_ends, struct sock *sk)
{
	struct smc_sock *state = bpf_sk_storage_get(&smc_socks, sk, 0, 0);
	__u64 cookie = sk->__sk_common.skc_cookie.counter;
	struct smc_tuple key;

	if (!state || !cookie)
		return 0;
	key = state->app;
	if (state->role == SMC_ROLE_APP) {
		smc_end_sender(&key, cookie);
	} else if (smc_is_leg(state)) {
		key.local_port = state->port; /* the tuples of both ends differ only in this port */
		smc_end_sender(&key, cookie);
	} else if (smc_is_tuned(state)) {
		bpf_map_delete_elem(&smc_tuned, &cookie);
	}
	return 0;
}

#endif
