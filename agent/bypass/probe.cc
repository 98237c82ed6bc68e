// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/bypass/probe.h"

#include <fcntl.h>
#include <linux/errqueue.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <system_error>
#include <thread>

#include "agent/bypass/trial.h"
#include "os/clock.h"

namespace smc::bypass {

namespace {

using std::string;

string as_wanted(bool good, const char* otherwise) {
    return good ? "" : otherwise;
}

// --- requirements: otherwise there is no bypass

string arrives_in_order(Trial& trial) {
    string sent, got;
    for (std::size_t i = 0; i < 100; i++) {
        const string message(1 + i * 7 % 500, static_cast<char>('a' + i % 26));
        sent += trial.send(message) ? message : "";
    }
    while (got.size() < sent.size()) {
        const string more = trial.receive();
        if (more.empty()) {
            break;
        }
        got += more;
    }
    if (got != sent) {
        return "bytes are lost, or in another order";
    }
    return as_wanted(trial.sender_entry().redirected == sent.size(), "nothing was redirected");
}

string is_counted(Trial& trial) {
    if (!trial.send("redirected") || trial.receive(MSG_PEEK).size() != 10 || trial.receiver_entry().consumed != 0) {
        return "MSG_PEEK is counted";
    }
    return as_wanted(trial.receive().size() == 10 && trial.receiver_entry().consumed == 10, "it is not counted");
}

string tcp_goes_first(Trial& trial) {
    const string before = trial.receive();  // sent by TCP before the sockets were enrolled: see tried()
    return as_wanted(before == "by TCP" + string("and then"), "it does not go first");
}

string ends_after_the_last_byte(Trial& trial) {
    const bool sent = trial.send("last");
    trial.close_sender();
    return as_wanted(sent && trial.receive() == "last" && trial.what_receive_says() == "end", "bytes are lost");
}

string send_after_shutdown(Trial& trial) {
    ::shutdown(trial.sender(), SHUT_WR);
    const string said = trial.what_send_says();
    return said == "EPIPE" ? "" : said;
}

string send_to_closed(Trial& trial) {
    trial.close_receiver();
    string said;
    for (int i = 0; i < 100 && (said.empty() || said == "sent"); i++) {
        said = trial.what_send_says();
    }
    return said == "EPIPE" || said == "ECONNRESET" ? "" : said;
}

string is_bounded(Trial& trial) {
    constexpr std::size_t kFarTooMuch = 64 << 20;
    const string block(65536, 'x');
    std::size_t sent = 0;
    ssize_t n = 0;
    while (sent < kFarTooMuch && (n = ::send(trial.sender(), block.data(), block.size(), MSG_NOSIGNAL)) > 0) {
        sent += static_cast<std::size_t>(n);
    }
    return as_wanted(sent < kFarTooMuch, "a sender whose peer does not read is not stopped");
}

string low_water_mark(Trial& trial) {
    const int hundred = 100;
    ::setsockopt(trial.receiver(), SOL_SOCKET, SO_RCVLOWAT, &hundred, sizeof hundred);
    const bool sent = trial.send("too few");
    pollfd one{trial.receiver(), POLLIN, 0};
    return as_wanted(sent && ::poll(&one, 1, 2) == 0, "poll() ignores it");
}

string peek_offset(Trial& trial) {
    const int three = 3;
    ::setsockopt(trial.receiver(), SOL_SOCKET, SO_PEEK_OFF, &three, sizeof three);
    return as_wanted(trial.send("abcdef") && trial.receive(MSG_PEEK) == "def", "recv() ignores it");
}

string zero_copy(Trial& trial) {
    const int one = 1;
    ::setsockopt(trial.sender(), SOL_SOCKET, SO_ZEROCOPY, &one, sizeof one);
    if (!trial.send("bytes", MSG_ZEROCOPY) || trial.receive() != "bytes") {
        return "the bytes do not arrive";
    }
    pollfd error{trial.sender(), 0, 0};
    return as_wanted(::poll(&error, 1, 50) == 1 && (error.revents & POLLERR) != 0, "their completion is not reported");
}

string zero_copy_numbers(Trial& trial) {
    if (string lost = zero_copy(trial); !lost.empty()) {
        return lost;
    }
    alignas(cmsghdr) char control[256];
    msghdr message{};
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    if (::recvmsg(trial.sender(), &message, MSG_ERRQUEUE) < 0 || CMSG_FIRSTHDR(&message) == nullptr) {
        return "there are no numbers";
    }
    sock_extended_err error{};
    std::memcpy(&error, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof error);
    return as_wanted(error.ee_info == 0 && error.ee_data == 0, "one send() has several numbers");
}

// --- differences from TCP that something keeps applications from seeing

string inq_of_tcp(Trial& trial) {
    int there = 0;
    ::ioctl(trial.receiver(), FIONREAD, &there);  // sent by TCP before the sockets were enrolled: see tried()
    return as_wanted(there == 6, "it counts nothing");
}

string inq_of_redirected(Trial& trial) {
    int there = 0;
    const bool sent = trial.send("redirected");
    ::ioctl(trial.receiver(), FIONREAD, &there);
    return as_wanted(sent && there == 10, "it counts nothing");
}

string splice_of_redirected(Trial& trial) {
    int ends[2] = {-1, -1};
    if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
        return "no pipe";
    }
    const UniqueFd from(ends[0]), to(ends[1]);
    const bool sent = trial.send("redirected");
    const ssize_t moved = ::splice(trial.receiver(), nullptr, to.get(), nullptr, 10, SPLICE_F_NONBLOCK);
    const string said = moved < 0 ? ::strerrorname_np(errno) : "";
    return sent && moved == 10 ? "" : said;
}

string splice_says_something(Trial& trial) {
    const string said = splice_of_redirected(trial);
    return as_wanted(said.empty() || said == "EINVAL", "it finds nothing, while poll() reports data");
}

string urgent(Trial& trial) {
    char byte = 0;
    const bool sent = trial.send("!", MSG_OOB);
    pollfd one{trial.receiver(), POLLPRI, 0};
    ::poll(&one, 1, 5);
    return as_wanted(sent && ::recv(trial.receiver(), &byte, 1, MSG_OOB) == 1 && (one.revents & POLLPRI) != 0,
                     "it is an ordinary byte");
}

string closed_unread(Trial& trial) {
    const bool sent = trial.send("unread");
    trial.close_receiver();
    pollfd one{trial.sender(), POLLIN, 0};
    ::poll(&one, 1, 50);
    char byte = 0;
    const bool reset = ::recv(trial.sender(), &byte, 1, MSG_DONTWAIT) < 0 && errno == ECONNRESET;
    return as_wanted(sent && reset, "the peer receives a FIN, not a reset");
}

string truncating(Trial& trial) {
    const bool sent = trial.send("redirected");
    return as_wanted(sent && ::recv(trial.receiver(), nullptr, 10, MSG_TRUNC | MSG_DONTWAIT) == 10, "EFAULT");
}

// --- receives that wait

void nothing_happens(int) {}

// Wakes the thread without data, by a signal after which the kernel restarts the system call.
void wake_for_nothing(std::thread& thread) {
    struct sigaction now {};
    struct sigaction before {};
    now.sa_handler = nothing_happens;
    now.sa_flags = SA_RESTART;
    ::sigaction(SIGURG, &now, &before);
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    ::pthread_kill(thread.native_handle(), SIGURG);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ::sigaction(SIGURG, &before, nullptr);
}

string waiting(Trial& trial) {
    trial.set_receiver_blocking(true);
    bool interrupted = false;
    std::thread reader;
    try {
        reader = std::thread([&] {
            char byte = 0;
            interrupted = ::recv(trial.receiver(), &byte, 1, 0) < 0 && errno == EAGAIN;
        });
    } catch (const std::system_error&) {
        return "no thread could be started";
    }
    wake_for_nothing(reader);
    const bool sent = trial.send("x");
    reader.join();
    return as_wanted(sent && !interrupted, "EAGAIN, when it is woken without data");
}

// MSG_WAITALL takes all that is there, but a member's receive stops between the two queues. A receive that waits need
// not be tried: a sender checks first whether the receiver may wait.
string waiting_for_all(Trial& trial) {
    char bytes[100];
    bool sent = trial.send(string(30, 'x'));
    const bool past_tcp = trial.sender_entry().redirected != 0;
    trial.set_receiver_blocking(true);
    sent = trial.send(string(70, 'x')) && sent;  // by TCP
    trial.wait_for_bytes();
    const ssize_t got = ::recv(trial.receiver(), bytes, sizeof bytes, MSG_WAITALL | MSG_DONTWAIT);
    return as_wanted(sent && past_tcp && got == 100, past_tcp ? "it returns with less" : "nothing was redirected");
}

// --- differences that only a faulty program sees

string bad_pointer(Trial& trial) {
    const auto* nowhere = reinterpret_cast<const void*>(8);
    return as_wanted(::send(trial.sender(), nowhere, 10, MSG_NOSIGNAL) < 0 && errno == EFAULT, "0, and no EFAULT");
}

string nothing_asked(Trial& trial) {
    char byte = 0;
    return as_wanted(::recv(trial.receiver(), &byte, 0, MSG_DONTWAIT) < 0, "0, and no EAGAIN");
}

constexpr const char* kNothing = "";
constexpr const char* kNonBlocking = "sockets with blocking receives stay TCP";
constexpr const char* kHabit = "sockets that use it stay TCP";
constexpr const char* kTolerated = "tolerated: no working program asks for it";
constexpr const char* kReset = "the programs on devices send the reset";

struct Case {
    const char* what;
    string (*difference)(Trial&);
    const char* excluded;  // what keeps applications from seeing the difference
    const char* guard;     // the guard that this needs; null: none
    bool bytes_before;     // bytes are in TCP's queue when the sockets are enrolled
};

// Facts about kernels that were found by experiment. The probe tries each of them on the running kernel.
constexpr Case kCases[] = {
    {"what is redirected arrives, in order", arrives_in_order, kNothing, nullptr, false},
    {"what is received is counted", is_counted, kNothing, nullptr, false},
    {"what TCP holds already goes first", tcp_goes_first, kNothing, nullptr, true},
    {"the end comes after the last byte", ends_after_the_last_byte, kNothing, nullptr, false},
    {"send() after shutdown(): EPIPE", send_after_shutdown, kNothing, nullptr, false},
    {"send() to a peer that is closed: EPIPE or ECONNRESET", send_to_closed, kNothing, nullptr, false},
    {"a peer that does not read stops its sender", is_bounded, kNothing, nullptr, false},
    {"SO_RCVLOWAT, chosen late", low_water_mark, kNothing, nullptr, false},
    {"SO_PEEK_OFF, chosen late", peek_offset, kNothing, nullptr, false},
    {"MSG_ZEROCOPY, chosen late", zero_copy, kNothing, nullptr, false},
    {"MSG_ZEROCOPY numbers what it has sent", zero_copy_numbers, kHabit, "smc_guard_send", false},
    {"FIONREAD counts what TCP holds", inq_of_tcp, kHabit, "smc_guard_ioctl", true},
    {"FIONREAD counts what was redirected", inq_of_redirected, kHabit, "smc_guard_ioctl", false},
    {"splice() moves what was redirected", splice_of_redirected, kHabit, "smc_guard_splice", false},
    {"splice() does not loop for ever", splice_says_something, kNothing, nullptr, false},
    {"MSG_OOB is urgent", urgent, kHabit, "smc_guard_send", false},
    {"close() with bytes that are not read: a reset", closed_unread, kReset, nullptr, false},
    {"MSG_TRUNC without a buffer", truncating, kHabit, nullptr, false},
    {"a receive that waits", waiting, kNonBlocking, nullptr, false},
    {"MSG_WAITALL", waiting_for_all, kNonBlocking, nullptr, false},
    {"send() from an invalid address: EFAULT", bad_pointer, kTolerated, nullptr, false},
    {"recv() of 0 bytes from an empty queue: EAGAIN", nothing_asked, kTolerated, nullptr, false},
};

bool wants_a_guard(const Bypass& bypass, const Case& which) {
    return which.guard != nullptr && !bypass.has_guard(which.guard);
}

Finding tried(Bypass& bypass, const Case& which, std::chrono::milliseconds moment) {
    Trial trial(bypass, moment);
    Finding finding{which.what, {}, which.excluded};
    if (wants_a_guard(bypass, which)) {
        finding.excluded.clear();
    }
    const bool before = which.bytes_before && trial.send("by TCP");
    if (before) {
        trial.wait_for_bytes();
    }
    if (!trial.enrol()) {
        finding.difference = "the kernel refuses the sockets in a sockmap";
        finding.excluded.clear();
        return finding;
    }
    if (before) {
        (void)trial.send(which.difference == tcp_goes_first ? "and then" : "");
    }
    finding.difference = which.difference(trial);
    return finding;
}

bool in_a_namespace_of_its_own() {
    if (::unshare(CLONE_NEWNET) != 0) {
        return false;
    }
    const UniqueFd any(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    ifreq lo{};
    std::strncpy(lo.ifr_name, "lo", sizeof lo.ifr_name - 1);
    lo.ifr_flags = IFF_UP;
    return any && ::ioctl(any.get(), SIOCSIFFLAGS, &lo) == 0;
}

bool is_open(const Finding& finding) {
    return !finding.difference.empty() && finding.excluded.empty();
}

string obstacle_of(const std::vector<Finding>& findings) {
    const auto found = std::ranges::find_if(findings, is_open);
    return found == findings.end() ? "" : found->what + ": " + found->difference;
}

}  // namespace

Verdict probe(Bypass& bypass, std::chrono::milliseconds moment) {
    constexpr int kTries = 3;
    Verdict verdict;
    const auto start = os::now();
    const auto try_all = [&] {
        if (!in_a_namespace_of_its_own()) {
            verdict.obstacle = "it could not be tried: no network namespace";
            return;
        }
        for (const Case& which : kCases) {
            const bool unguarded = wants_a_guard(bypass, which);
            Finding finding = tried(bypass, which, moment);
            for (int n = 1; n < kTries && is_open(finding) && !unguarded; n++) {
                finding = tried(bypass, which, moment);
            }
            verdict.lasts |= is_open(finding) && unguarded;
            verdict.findings.push_back(std::move(finding));
        }
        verdict.obstacle = obstacle_of(verdict.findings);
    };
    try {
        std::thread(try_all).join();
    } catch (const std::system_error&) {
        verdict.obstacle = "it could not be tried: no thread could be started";
    }
    verdict.took = std::chrono::duration_cast<std::chrono::microseconds>(os::now() - start);
    return verdict;
}

}  // namespace smc::bypass
