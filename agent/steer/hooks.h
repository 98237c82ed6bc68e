// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The programs of one network namespace: sk_lookup, and tc on both sides of each of its devices. Attaching a program
// takes a grace period of RCU, tens of milliseconds, so it must not be done on a thread on which others wait.
#pragma once

#include <array>
#include <map>
#include <string>
#include <vector>

#include "agent/steer/programs.h"
#include "agent/steer/vlans.h"
#include "os/rtnetlink.h"
#include "smc/time.h"

namespace smc::bpf {

class Hooks {
 public:
    enum class Tc : std::uint8_t { kAuto, kTcx, kClsact };
    // Translates bpf.tc of the configuration.
    static Tc tc_of(const std::string& name) {
        return name == "tcx" ? Tc::kTcx : name == "clsact" ? Tc::kClsact : Tc::kAuto;
    }
    enum Family : std::uint8_t { kIpv4, kIpv6, kFamilies };
    struct Options {
        Tc tc = Tc::kAuto;
        bool vlans = false;  // whether State::vlans is wanted
    };

    struct State {
        // Empty: every device that is up has a working hairpin. Otherwise: why the namespace is not served.
        std::array<std::string, kFamilies> obstacles{"its devices are being prepared",
                                                     "its devices are being prepared"};
        std::vector<std::string> devices;  // names of those that are up and have no `problem`
        std::string limits;                // a limit that SMC would evade; empty: none (device_limits.h)
        Vlans vlans;                       // of its devices; empty before they have all been looked at
        bool unfinished = true;            // not all devices are done: call sync_devices() again
        bool doubtful = false;             // a hairpin has failed lately: call probe() soon
    };

    // `slot` is the namespace's index in the maps. Nothing is loaded yet.
    Hooks(const Programs& programs, std::uint32_t slot, UniqueFd netns, const Options& options)
        : programs_(programs), slot_(slot), netns_(std::move(netns)), options_(options) {}
    ~Hooks();
    Hooks(const Hooks&) = delete;
    Hooks& operator=(const Hooks&) = delete;

    // Loads the programs if needed, attaches them to new devices (not lo; a few for each call, so that other namespaces
    // get their turn), forgets devices that are gone, and probes every hairpin.
    Result<State> sync_devices();
    // Sends a packet of our own through the hairpin of every device that is up. This shows whether the programs are
    // still attached and no other program in front of them takes their packets.
    Result<State> probe();

    // From here on no new connection of this namespace is handed to the agent.
    void withdraw();

    // A packet socket of the namespace, for packets that are sent as they are. -1 before anything is loaded.
    [[nodiscard]] int packet_socket() const { return packets_.get(); }

 private:
    // A namespace with more devices is not served.
    static constexpr std::size_t kMostDevices = 256;
    struct Device {
        std::string name;
        bool up = false;
        std::uint32_t mac_len = 0;
        bool encrypts = false;                      // it, or a device below it, may encrypt packets
        std::string problem;                        // why programs could not be attached; empty: none was found
        std::string attach_again_problem;           // why programs could not be attached again
        std::string limits;                         // a limit that its packets meet and a leg's do not
        bool clsact = false;                        // the programs are filters of its clsact qdisc
        std::vector<std::string> pins;              // names of pinned tcx links
        std::vector<UniqueFd> links;                // tcx links that could not be pinned
        std::array<bool, kFamilies> works{};        // whether its hairpin works
        std::array<unsigned, kFamilies> misses{};   // probes in a row that have not come back
        std::array<TimePoint, kFamilies> missed{};  // when the last of them was lost
    };
    Result<void> load();
    void attach(unsigned index, Device& device) const;
    Result<void> attach_tcx(unsigned index, Device& device) const;
    Result<void> attach_tcx(unsigned index, Device& device, bool out) const;
    Result<void> attach_clsact(unsigned index, Device& device) const;
    bool attach_again(unsigned index, Device& device) const;
    void detach(unsigned index, const Device& device) const;
    void tell_encrypts(unsigned index, const Device& device) const;
    void look_at_limits(const Rtnetlink& there, const Rtnetlink& own, const std::vector<NetDevice>& devices);
    void look_at_vlans(const Rtnetlink& there, const Rtnetlink& own, const std::vector<NetDevice>& devices);
    void probe_all();
    void probe(unsigned index, Device& device, Family family) const;
    [[nodiscard]] std::string pin(const UniqueFd& link, const std::string& name) const;
    void unpin(const std::string& name) const;
    [[nodiscard]] bool probe_returns(unsigned index, const Device& device, Family family) const;
    [[nodiscard]] State conclude(bool unfinished) const;

    const Programs& programs_;
    std::uint32_t slot_;
    UniqueFd netns_;
    Options options_;
    UniqueFd out_, in_;  // the namespace's own programs
    UniqueFd lookup_;
    bool withdrawn_ = false;
    std::string lookup_pin_;  // name of the pinned sk_lookup link
    UniqueFd packets_;
    bool goes_on_ = false;  // the next sync_devices() continues this one, and skips devices that failed in it
    std::map<unsigned, Device> devices_;
    Vlans vlans_;
    unsigned probes_ = 0;  // since the limits and VLANs of devices were looked at
};

}  // namespace smc::bpf
