// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The programs of one network namespace: sk_lookup, and tc on both sides of each of its devices.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/steer/programs.h"
#include "os/rtnetlink.h"

namespace smc::bpf {

class Hooks {
 public:
    enum class Tc : std::uint8_t { kAuto, kTcx, kClsact };
    enum Family : std::uint8_t { kIpv4, kIpv6, kFamilies };

    // To be called, like all members and the destructor, while the calling thread is inside the namespace that
    // `netns_fd` names. `slot` is its place in the maps.
    static Result<std::unique_ptr<Hooks>> load(const Programs& programs, std::uint32_t slot, int netns_fd,
                                               const std::string& tc, const std::vector<NetDevice>& devices);
    ~Hooks();
    Hooks(const Hooks&) = delete;
    Hooks& operator=(const Hooks&) = delete;

    // Attaches to devices that are new (not lo), forgets those that are gone, and tries every hairpin.
    void sync_devices(const std::vector<NetDevice>& devices);
    // Sends a packet of our own through the hairpin of every device that is up. It tells whether programs are where
    // they should be and whether somebody else's are in front of them.
    void probe();

    // Empty: every device that is up has a working hairpin. Else what is in the way.
    [[nodiscard]] const std::string& obstacle(Family family) const { return obstacles_[family]; }
    [[nodiscard]] std::vector<std::string> devices() const;
    // For packets that leave as they are: a packet socket of the namespace.
    [[nodiscard]] int packet_socket() const { return packets_.get(); }

 private:
    struct Device {
        std::string name;
        bool up = false;
        std::uint32_t mac_len = 0;
        std::string problem;                  // why it has no programs; empty: it has
        bool clsact = false;                  // they are filters of its qdisc
        std::vector<std::string> pins;        // else links, pinned here
        std::vector<UniqueFd> links;          // ... or held, where they could not be pinned
        std::array<bool, kFamilies> works{};  // its hairpins, when they were tried last
    };
    Hooks(const Programs& programs, std::uint32_t slot) : programs_(programs), slot_(slot) {}
    void attach(unsigned index, Device& device) const;
    Result<void> attach_tcx(unsigned index, Device& device) const;
    Result<void> attach_clsact(unsigned index, Device& device) const;
    void detach(unsigned index, const Device& device) const;
    void probe(unsigned index, Device& device) const;
    [[nodiscard]] bool comes_round(unsigned index, const Device& device, Family family) const;
    void conclude();

    const Programs& programs_;
    std::uint32_t slot_;
    Tc tc_ = Tc::kAuto;
    UniqueFd out_, in_;  // the namespace's own programs
    UniqueFd lookup_;    // a link
    UniqueFd packets_;
    std::map<unsigned, Device> devices_;
    std::array<std::string, kFamilies> obstacles_{"it was not tried yet", "it was not tried yet"};
};

}  // namespace smc::bpf
