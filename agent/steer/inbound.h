// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The programs of one network namespace: sk_lookup, and tc ingress on each of its devices.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/steer/programs.h"
#include "os/rtnetlink.h"

struct smc_inbound;

namespace smc::bpf {

class Inbound {
 public:
    enum class Tc { kAuto, kTcx, kClsact };

    // `slot` picks the listeners for CLC sockets in map smc_clc. To be called, like all members and the destructor,
    // while the calling thread is inside the namespace that `netns_fd` names.
    static Result<std::unique_ptr<Inbound>> load(const Programs& programs, std::uint32_t slot, int netns_fd,
                                                 const std::string& tc, const std::vector<NetDevice>& devices);
    ~Inbound();
    Inbound(const Inbound&) = delete;
    Inbound& operator=(const Inbound&) = delete;

    // Attaches to devices that are new (not lo), forgets those that are gone.
    void sync_devices(const std::vector<NetDevice>& devices);
    [[nodiscard]] std::vector<std::string> devices() const;

 private:
    struct Device {
        std::string name;
        UniqueFd tcx_link;  // or, if closed, a clsact filter
    };
    Inbound() = default;
    Result<void> attach_device(unsigned index, const std::string& name);

    smc_inbound* skeleton_ = nullptr;
    bpf_link* lookup_ = nullptr;
    Tc tc_ = Tc::kAuto;
    std::map<unsigned, Device> devices_;
};

}  // namespace smc::bpf
