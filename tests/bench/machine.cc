// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Measures the machine on which scripts/bench runs: the time of the cheapest system call, of waking a thread, and of
// copying. A line for each, "name<TAB>value<TAB>unit"; medians.
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

double nanoseconds_since(Clock::time_point start) {
    return std::chrono::duration<double, std::nano>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

void run_on(int processor) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    if (::sched_setaffinity(0, sizeof set, &set) != 0) {
        std::perror("sched_setaffinity");
        std::exit(1);
    }
}

std::vector<int> processors() {
    cpu_set_t set{};
    if (::sched_getaffinity(0, sizeof set, &set) != 0) {
        std::perror("sched_getaffinity");
        std::exit(1);
    }
    std::vector<int> all;
    for (int processor = 0; processor < CPU_SETSIZE; processor++) {
        if (CPU_ISSET(processor, &set)) {
            all.push_back(processor);
        }
    }
    return all;
}

double system_call_ns() {
    constexpr int kCalls = 1000;
    std::vector<double> took;
    for (int batch = 0; batch < 101; batch++) {
        const auto start = Clock::now();
        for (int i = 0; i < kCalls; i++) {
            ::syscall(SYS_getppid);
        }
        took.push_back(nanoseconds_since(start) / kCalls);
    }
    return median(took);
}

// The median time from the call that wakes a thread on `processor` until that thread runs, in nanoseconds. The caller
// sleeps between wake-ups, so that `processor` can become idle. `busy`: another thread there never sleeps.
double wake_up_ns(int own, int processor, bool busy) {
    constexpr int kTimes = 501;
    const int bell = ::eventfd(0, 0);
    std::atomic<int> heard{0};
    std::atomic<std::int64_t> rung{0};
    std::vector<double> took;
    std::thread sleeper([&] {
        run_on(processor);
        for (; heard < kTimes; heard++) {
            std::uint64_t value = 0;
            if (::read(bell, &value, sizeof value) != sizeof value) {
                std::exit(1);
            }
            const auto now = Clock::now().time_since_epoch();
            took.push_back(static_cast<double>(std::chrono::nanoseconds(now).count() - rung));
        }
    });
    std::thread other([&] {
        run_on(processor);
        while (busy && heard < kTimes) {
        }
    });
    run_on(own);
    for (int i = 0; i < kTimes; i++) {
        std::this_thread::sleep_for(std::chrono::microseconds(200));
        rung = std::chrono::nanoseconds(Clock::now().time_since_epoch()).count();
        const std::uint64_t one = 1;
        if (::write(bell, &one, sizeof one) != sizeof one) {
            std::exit(1);
        }
        while (heard == i) {
            std::this_thread::sleep_for(std::chrono::microseconds(50));
        }
    }
    sleeper.join();
    other.join();
    ::close(bell);
    return median(took);
}

double copied_gigabytes_per_second() {
    constexpr std::size_t kBytes = std::size_t{64} << 20;
    const std::vector<char> from(kBytes, 'x');
    std::vector<char> to(kBytes);
    std::vector<double> took;
    for (int i = 0; i < 11; i++) {
        const auto start = Clock::now();
        std::memcpy(to.data(), from.data(), kBytes);
        took.push_back(nanoseconds_since(start));
        if (to[static_cast<std::size_t>(i)] != 'x') {
            std::exit(1);
        }
    }
    return static_cast<double>(kBytes) / median(took);
}

}  // namespace

int main() {
    const std::vector<int> all = processors();
    std::printf("system call\t%.0f\tns\n", system_call_ns());
    std::printf("wake-up, same processor\t%.1f\tus\n", wake_up_ns(all.front(), all.front(), false) / 1000);
    if (all.size() > 1) {
        std::printf("wake-up, idle processor\t%.1f\tus\n", wake_up_ns(all.front(), all.back(), false) / 1000);
        std::printf("wake-up, busy processor\t%.1f\tus\n", wake_up_ns(all.front(), all.back(), true) / 1000);
    }
    std::printf("copy of 64 MiB\t%.1f\tGB/s\n", copied_gigabytes_per_second());
    return 0;
}
