// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/metrics/process.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

namespace smc {

namespace {

// Seconds since 1970, from a line "btime 1700000000" in /proc/stat.
double boot_time() {
    std::ifstream file("/proc/stat");
    for (std::string word; file >> word;) {
        if (double value = 0; word == "btime" && file >> value) {
            return value;
        }
    }
    return 0;
}

// When this process started, in clock ticks since boot: field 22; fields are read from
// the name's end on, because the name may have spaces.
double start_ticks() {
    std::ifstream file("/proc/self/stat");
    std::string all((std::istreambuf_iterator<char>(file)), {});
    std::istringstream rest(all.substr(all.rfind(')') + 1));
    const std::vector<std::string> fields(std::istream_iterator<std::string>{rest},
                                          std::istream_iterator<std::string>{});
    return fields.size() > 19 ? std::stod(fields[19]) : 0;
}

}  // namespace

ProcessUsage process_usage() {
    ProcessUsage usage;
    rusage used{};
    ::getrusage(RUSAGE_SELF, &used);
    const auto seconds = [](const timeval& t) {
        return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
    };
    usage.processor_s = seconds(used.ru_utime) + seconds(used.ru_stime);
    double total = 0, resident = 0;
    std::ifstream("/proc/self/statm") >> total >> resident;
    usage.resident_bytes = resident * static_cast<double>(::sysconf(_SC_PAGESIZE));
    std::error_code error;
    for (std::filesystem::directory_iterator it("/proc/self/fd", error), end; !error && it != end;
         it.increment(error)) {
        usage.descriptors++;
    }
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    usage.most_descriptors = static_cast<double>(limit.rlim_cur);
    usage.start_s = boot_time() + start_ticks() / static_cast<double>(::sysconf(_SC_CLK_TCK));
    return usage;
}

}  // namespace smc
