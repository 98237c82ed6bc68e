// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/ivshmem/device.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

namespace smc::ivshmem {

namespace {

constexpr const char* kVendor = "0x1af4";
constexpr const char* kDevice = "0x1110";
constexpr const char* kBar = "resource2";

std::string word_of(const std::filesystem::path& file) {
    std::ifstream in(file);
    std::string word;
    in >> word;
    return word;
}

}  // namespace

// BAR 2 is the shared memory.
Result<std::string> find_device(const std::string& devices) {
    std::vector<std::filesystem::path> found;
    std::error_code failure;
    using Entries = std::filesystem::directory_iterator;
    for (Entries it(devices, failure), end; !failure && it != end; it.increment(failure)) {
        if (word_of(it->path() / "vendor") == kVendor && word_of(it->path() / "device") == kDevice) {
            found.push_back(it->path());
        }
    }
    if (found.empty()) {
        return Error{ENODEV, "looking for an ivshmem device in " + devices};
    }
    return (*std::ranges::min_element(found) / kBar).string();
}

std::string device_of(const std::string& bar) {
    const std::filesystem::path path(bar);
    return path.filename() == kBar ? path.parent_path().filename().string() : bar;
}

Result<void> enable(const std::string& bar) {
    const std::filesystem::path path(bar), switched = path.parent_path() / "enable";
    if (path.filename() == kBar && word_of(switched) == "0" && !(std::ofstream(switched) << "1" << std::flush)) {
        return last_error("enabling " + path.parent_path().string());
    }
    return {};
}

}  // namespace smc::ivshmem
