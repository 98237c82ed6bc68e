// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The RoCE devices that SMC-R may use. Each is opened once and watched, and polled now and then, because not every
// device sends an event when it goes away. Control thread only.
#pragma once

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>

#include <functional>
#include <map>
#include <memory>

#include "agent/config/config.h"
#include "agent/smcr/offer.h"
#include "agent/smcr/pnets.h"
#include "datapath/roce/ports.h"
#include "datapath/roce/rc_link.h"
#include "os/endpoint.h"
#include "smc/clc/node.h"
#include "smc/group/actions.h"

namespace smc::smcr {

class Devices {
 public:
    // `gone` is called with the name of a device that must be released; `changed` when the list of ports has changed.
    Devices(asio::io_context& io, const Config::Roce& config, std::function<void(const std::string&)> gone,
            std::function<void()> changed)
        : io_(io), config_(config), pnets_(config.pnets), gone_(std::move(gone)), changed_(std::move(changed)) {}
    ~Devices();
    Devices(const Devices&) = delete;
    Devices& operator=(const Devices&) = delete;

    // Opens and tries new devices, drops those that are gone, and queries the state of all ports.
    void refresh();

    struct Usable {
        std::shared_ptr<roce::Context> context;
        roce::Port port;
        roce::PortGid gid;
    };
    using Local = smcr::Local;
    // The port and GID for such a connection, on a port of its physical network. SMC-Rv1 uses a RoCEv1 GID if the
    // device has one.
    [[nodiscard]] std::optional<Usable> usable_for(const Local& local, std::uint8_t smcr_version) const;
    // Whether such connections have a port. True without roce.pnets and without a VLAN tag: then any port may do.
    [[nodiscard]] bool serves(const Local& local) const;
    // The port with exactly this device, number and GID, if it is active.
    [[nodiscard]] std::optional<Usable> usable(const group::LocalPort& port) const;
    // `peer_agent`: the peer is an agent, and not a kernel.
    [[nodiscard]] std::optional<clc::RoceOffer> offer_for(const Local& local, const Endpoint& peer,
                                                          bool peer_agent) const;
    [[nodiscard]] const std::vector<roce::Port>& ports() const { return ports_; }
    [[nodiscard]] const Pnets& pnets() const { return pnets_; }
    // Devices that are not used, and why.
    [[nodiscard]] const std::map<std::string, std::string>& refused() const { return refused_; }

 private:
    struct Device {
        std::shared_ptr<roce::Context> context;
        std::shared_ptr<asio::posix::stream_descriptor> events;
    };
    void open(const std::string& name);
    void listen(const std::string& name, const std::shared_ptr<roce::Context>& context,
                const std::shared_ptr<asio::posix::stream_descriptor>& events);
    [[nodiscard]] bool speaks(unsigned version) const;
    [[nodiscard]] std::vector<roce::Port> ports_for(const RoceGid& local) const;
    [[nodiscard]] bool wanted(const std::string& name) const;
    [[nodiscard]] bool wanted_by_name(const std::string& name) const;
    [[nodiscard]] bool named(const std::string& name) const;

    asio::io_context& io_;
    const Config::Roce& config_;
    Pnets pnets_;
    std::function<void(const std::string&)> gone_;
    std::function<void()> changed_;
    std::map<std::string, Device> devices_;
    std::map<std::string, std::string> refused_;  // name -> reason, so that each is logged once
    std::vector<roce::Port> ports_;
};

// Sizes and timeouts of a link's queue pair.
roce::LinkLimits link_limits(const Config::Roce& config);
// Bytes that a link group registers when it begins.
std::size_t group_bytes(const Config::Roce& config);

// The address part of an endpoint as a RoCEv2 GID.
RoceGid gid_of(const Endpoint& endpoint);

}  // namespace smc::smcr
