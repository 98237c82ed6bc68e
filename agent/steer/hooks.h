// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The programs of one network namespace: sk_lookup, and tc on both sides of each of its devices. To attach one the
// kernel waits for a grace period of RCU, tens of milliseconds: not for a thread on which others wait.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/steer/programs.h"
#include "os/rtnetlink.h"
#include "smc/time.h"

namespace smc::bpf {

class Hooks {
 public:
    enum class Tc : std::uint8_t { kAuto, kTcx, kClsact };
    // Of bpf.tc in the configuration.
    static Tc tc_of(const std::string& name) {
        return name == "tcx" ? Tc::kTcx : name == "clsact" ? Tc::kClsact : Tc::kAuto;
    }
    enum Family : std::uint8_t { kIpv4, kIpv6, kFamilies };

    struct State {
        // Empty: every device that is up has a working hairpin. Else what is in the way.
        std::array<std::string, kFamilies> obstacles{"its devices are being prepared",
                                                     "its devices are being prepared"};
        std::vector<std::string> devices;  // that have programs
        std::string limits;                // what SMC would go past; empty: nothing (device_limits.h)
        bool unfinished = true;            // there are more: call sync_devices() again
        bool doubtful = false;             // a hairpin has failed lately: call probe() soon
    };

    // `slot` is the namespace's place in the maps. Nothing is loaded yet.
    Hooks(const Programs& programs, std::uint32_t slot, UniqueFd netns, Tc tc)
        : programs_(programs), slot_(slot), netns_(std::move(netns)), tc_(tc) {}
    ~Hooks();
    Hooks(const Hooks&) = delete;
    Hooks& operator=(const Hooks&) = delete;

    // Loads what is not loaded, attaches to devices that are new (not lo; a few for each call, so that another
    // namespace has its turn), forgets those that are gone, and tries every hairpin.
    Result<State> sync_devices();
    // Sends a packet of our own through the hairpin of every device that is up. It tells whether programs are where
    // they should be and whether somebody else's are in front of them.
    Result<State> probe();

    // Nothing new is handed to the agent here.
    void withdraw();

    // For packets that leave as they are: a packet socket of the namespace. -1 before anything is loaded.
    [[nodiscard]] int packet_socket() const { return packets_.get(); }

 private:
    struct Device {
        std::string name;
        bool up = false;
        std::uint32_t mac_len = 0;
        std::string problem;                        // why it has no programs; empty: it has
        std::string limits;                         // that its packets have, and a leg's have not
        bool clsact = false;                        // they are filters of its qdisc
        std::vector<std::string> pins;              // else links, pinned under these names
        std::vector<UniqueFd> links;                // ... or held, where they could not be pinned
        std::array<bool, kFamilies> works{};        // its hairpins
        std::array<unsigned, kFamilies> misses{};   // packets in a row that have not come round
        std::array<TimePoint, kFamilies> missed{};  // the last of them
    };
    Result<void> load();
    void attach(unsigned index, Device& device) const;
    Result<void> attach_tcx(unsigned index, Device& device) const;
    Result<void> attach_clsact(unsigned index, Device& device) const;
    void detach(unsigned index, const Device& device) const;
    void look_at_limits(const Rtnetlink& there, const Rtnetlink& own, const std::vector<NetDevice>& devices);
    void probe_all();
    void probe(unsigned index, Device& device, Family family) const;
    [[nodiscard]] std::string pin(const UniqueFd& link, const std::string& name) const;
    void unpin(const std::string& name) const;
    [[nodiscard]] bool comes_round(unsigned index, const Device& device, Family family) const;
    [[nodiscard]] State conclude(bool unfinished) const;

    const Programs& programs_;
    std::uint32_t slot_;
    UniqueFd netns_;
    Tc tc_;
    UniqueFd out_, in_;  // the namespace's own programs
    UniqueFd lookup_;
    bool withdrawn_ = false;
    std::string lookup_pin_;  // a link's, likewise
    UniqueFd packets_;
    bool goes_on_ = false;  // the next look at the devices; what failed in this one waits for the one behind it
    std::map<unsigned, Device> devices_;
    unsigned probes_ = 0;  // since the last look at the devices
};

}  // namespace smc::bpf
