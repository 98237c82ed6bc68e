// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Simulates a kernel that refuses bpf() calls: preloaded into an agent, it answers some of them with an error, and
// passes on the others. SMC_REFUSE is a list of the calls to refuse:
//
//   load:T      programs of type T                  load:T:A   ... and expected attach type A
//   helper:N    helper N, in programs               map:T      maps of type T
//   link:A      links of attach type A              attach:A   BPF_PROG_ATTACH of attach type A
//   run         BPF_PROG_TEST_RUN
//   late:N      refuses no call: the probe of the bypass receives nothing for N seconds
//
// T, A and helper numbers are those of <linux/bpf.h>; the error is EPERM, or N if the list begins with "errno:N".
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/bpf.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>

#define NO_HELPER 0x7ffff

static bool matches(const char* word, int command, const union bpf_attr* attributes) {
    int a = -1, b = -1;

    if (command == BPF_PROG_LOAD && sscanf(word, "load:%d:%d", &a, &b) == 2) {
        return (int)attributes->prog_type == a && (int)attributes->expected_attach_type == b;
    }
    if (command == BPF_PROG_LOAD && sscanf(word, "load:%d", &a) == 1) {
        return (int)attributes->prog_type == a;
    }
    if (command == BPF_MAP_CREATE && sscanf(word, "map:%d", &a) == 1) {
        return (int)attributes->map_type == a;
    }
    if (command == BPF_LINK_CREATE && sscanf(word, "link:%d", &a) == 1) {
        return (int)attributes->link_create.attach_type == a;
    }
    if (command == BPF_PROG_TEST_RUN && strcmp(word, "run") == 0) {
        return true;
    }
    if (command == BPF_PROG_ATTACH && sscanf(word, "attach:%d", &a) == 1) {
        return (int)attributes->attach_type == a;
    }
    return false;
}

// The error number; 0: the call may pass.
static int refused(int command, const union bpf_attr* attributes) {
    const char* list = getenv("SMC_REFUSE");
    int error = EPERM;
    char words[256], *rest = words, *word;

    snprintf(words, sizeof words, "%s", list != NULL ? list : "");
    while ((word = strsep(&rest, " ")) != NULL) {
        if (sscanf(word, "errno:%d", &error) != 1 && matches(word, command, attributes)) {
            return error;
        }
    }
    return 0;
}

static bool is_word(const char* wanted) {
    char words[256], *rest = words, *word;

    snprintf(words, sizeof words, "%s", getenv("SMC_REFUSE") != NULL ? getenv("SMC_REFUSE") : "");
    while ((word = strsep(&rest, " ")) != NULL) {
        if (strcmp(word, wanted) == 0) {
            return true;
        }
    }
    return false;
}

// Calls of a refused helper become calls of a helper that does not exist: the verifier then rejects them, if they can
// be reached, with the message that it has for every helper that a program may not call.
static void take_helpers_away(const struct bpf_insn* from, struct bpf_insn* to, unsigned count) {
    char word[32];

    for (unsigned i = 0; i < count; i++) {
        to[i] = from[i];
        snprintf(word, sizeof word, "helper:%d", from[i].imm);
        if (from[i].code == (BPF_JMP | BPF_CALL) && from[i].src_reg == 0 && is_word(word)) {
            to[i].imm = NO_HELPER;
        }
    }
}

ssize_t recv(int fd, void* to, size_t size, int flags) {
    static ssize_t (*next)(int, void*, size_t, int);
    static time_t began;
    struct timespec now;
    const char* late = getenv("SMC_REFUSE") != NULL ? strstr(getenv("SMC_REFUSE"), "late:") : NULL;

    clock_gettime(CLOCK_MONOTONIC, &now);
    began = began != 0 ? began : now.tv_sec;
    if (late != NULL && size == 65536 && now.tv_sec - began < atoi(late + strlen("late:"))) {
        errno = EAGAIN;
        return -1;
    }
    if (next == NULL) {
        next = (ssize_t(*)(int, void*, size_t, int))dlsym(RTLD_NEXT, "recv");
    }
    return next(fd, to, size, flags);
}

long syscall(long number, ...) {
    static long (*next)(long, ...);
    long a[6];
    va_list list;

    va_start(list, number);
    for (int i = 0; i < 6; i++) {
        a[i] = va_arg(list, long);
    }
    va_end(list);
    if (next == NULL) {
        next = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    }
    if (number == SYS_bpf) {
        union bpf_attr* attributes = (union bpf_attr*)a[1];
        const int error = refused((int)a[0], attributes);

        if (error != 0) {
            errno = error;
            return -1;
        }
        if (a[0] == BPF_PROG_LOAD && getenv("SMC_REFUSE") != NULL && strstr(getenv("SMC_REFUSE"), "helper:") != NULL) {
            const unsigned long given = attributes->insns;
            struct bpf_insn* code = malloc(attributes->insn_cnt * sizeof *code);

            take_helpers_away((const struct bpf_insn*)given, code, attributes->insn_cnt);
            attributes->insns = (unsigned long)code;
            const long result = next(number, a[0], a[1], a[2]);
            const int said = errno;
            attributes->insns = given;
            free(code);
            errno = said;
            return result;
        }
    }
    return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
