// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/smcr/devices.h"

#include <sys/resource.h>

#include <algorithm>

#include "agent/log/log.h"
#include "datapath/roce/memory.h"
#include "os/rtnetlink.h"

namespace smc::smcr {

namespace {

// For version 1: sets the prefix length of the offer's own address, and with IPv6 the other prefixes of its interface.
// False: no interface has that address, or the addresses cannot be read.
bool look_for_networks(clc::RoceOffer& offer) {
    const auto rtnetlink = Rtnetlink::open();
    const auto addresses = rtnetlink ? rtnetlink->addresses() : rtnetlink.error();
    if (!addresses) {
        log()->warn("roce: {}", addresses.error().text());
        return false;
    }
    const auto own = std::ranges::find_if(
        *addresses, [&](const NetAddress& entry) { return gid_of(entry.address) == offer.own_address; });
    if (own == addresses->end()) {
        return false;
    }
    offer.prefix_bits = own->prefix_bits;
    for (const NetAddress& other : *addresses) {
        const RoceGid gid = gid_of(other.address);
        if (!offer.own_address.is_v4() && other.device == own->device && !gid.is_v4() && !roce::is_link_local(gid) &&
            gid != offer.own_address) {
            offer.other_addresses.push_back({gid, other.prefix_bits});
        }
    }
    return true;
}

std::string locked_memory() {
    rlimit limit{};
    ::getrlimit(RLIMIT_MEMLOCK, &limit);
    return limit.rlim_cur == RLIM_INFINITY ? "unlimited" : std::to_string(limit.rlim_cur / 1024) + " KiB";
}

// Registers as much as a first link group would, so that a device without it is refused now and not in a handshake.
Result<void> try_out(const std::shared_ptr<roce::Context>& context, const Config::Roce& config) {
    const auto pd = roce::ProtectionDomain::allocate(context);
    if (!pd) {
        return pd.error();
    }
    const std::size_t rmb_bytes = std::size_t{config.rmbe_kib} * 1024 * config.rmbes_per_rmb;
    const auto rmb = roce::RegisteredMemory::allocate(*pd, rmb_bytes, roce::Memory::Access::kRemoteWrite);
    if (!rmb) {
        return rmb.error();
    }
    const auto rest =
        roce::RegisteredMemory::allocate(*pd, group_bytes(config) - rmb_bytes, roce::Memory::Access::kLocal);
    return rest ? Result<void>() : Result<void>(rest.error());
}

}  // namespace

roce::LinkLimits link_limits(const Config::Roce& config) {
    roce::LinkLimits limits;
    limits.sends = config.sends;
    limits.receives = config.receives;
    limits.timeout = static_cast<std::uint8_t>(config.timeout);
    limits.retries = static_cast<std::uint8_t>(config.retries);
    return limits;
}

std::size_t group_bytes(const Config::Roce& config) {
    return std::size_t{2} * config.rmbe_kib * 1024 * config.rmbes_per_rmb + roce::message_bytes(link_limits(config));
}

RoceGid gid_of(const Endpoint& endpoint) {
    RoceGid gid;
    gid.bytes = endpoint.ip;
    return gid;
}

Devices::~Devices() {
    for (const auto& [name, device] : devices_) {
        device.events->release();
    }
}

bool Devices::wanted_by_name(const std::string& name) const {
    return std::find(config_.devices.begin(), config_.devices.end(), name) != config_.devices.end();
}

bool Devices::named(const std::string& name) const {
    return wanted_by_name(name) || pnets_.devices().contains(name);
}

bool Devices::wanted(const std::string& name) const {
    return config_.devices.empty() || wanted_by_name(name);
}

void Devices::refresh() {
    const auto names = roce::device_names();
    if (!names) {
        if (refused_.emplace("", names.error().text()).second) {
            log()->warn("roce: {}", names.error().text());
        }
        return;
    }
    std::vector<std::string> lost;
    for (const auto& [name, device] : devices_) {
        // A device that was removed and came back under the same name: the old context cannot be queried any more.
        if (std::find(names->begin(), names->end(), name) == names->end() || !device.context->alive()) {
            lost.push_back(name);
        }
    }
    for (const std::string& name : lost) {
        log()->warn("roce: device {} is gone", name);
        gone_(name);
        devices_.at(name).events->release();
        devices_.erase(name);
    }
    std::erase_if(refused_, [&](const auto& entry) {
        return std::find(names->begin(), names->end(), entry.first) == names->end() && !named(entry.first);
    });
    for (const std::string& name : *names) {
        if (wanted(name) && !devices_.contains(name)) {
            open(name);
        }
    }
    for (const std::string& name : config_.devices) {
        if (std::find(names->begin(), names->end(), name) == names->end() &&
            refused_.emplace(name, "there is no such device").second) {
            log()->warn("roce: roce.devices names {}, and there is no such device", name);
        }
    }
    for (const std::string& name : pnets_.devices()) {
        if (!devices_.contains(name) &&
            refused_.emplace(name, "roce.pnets names it; there is no such device, or not in roce.devices").second) {
            log()->warn("roce: roce.pnets names {}: there is no such device, or roce.devices does not name it", name);
        }
    }
    std::vector<roce::Port> ports;
    for (const auto& [name, device] : devices_) {
        const auto more = roce::ports_of(*device.context);
        ports.insert(ports.end(), more.begin(), more.end());
    }
    if (std::exchange(ports_, std::move(ports)) != ports_) {
        changed_();
    }
}

void Devices::open(const std::string& name) {
    const auto refuse = [&](const std::string& why) {
        if (refused_.emplace(name, why).second) {
            log()->warn("roce: device {} is not used: {}", name, why);
        }
    };
    auto context = roce::Context::open(name);
    if (!context) {
        return refuse(context.error().text());
    }
    if (const auto tried = try_out(*context, config_); !tried) {
        const std::string limit = "; ulimit -l is " + locked_memory() + ", a link group takes " +
                                  std::to_string(group_bytes(config_) / 1024) +
                                  " KiB (roce.rmbe_kib, rmbes_per_rmb, sends, receives)";
        return refuse(tried.error().text() + (tried.error().code == ENOMEM ? limit : ""));
    }
    Device device{*context, std::make_shared<asio::posix::stream_descriptor>(io_)};
    std::error_code error;
    device.events->assign((*context)->async_fd(), error);
    if (error) {
        return refuse("watching its events: " + error.message());
    }
    listen(name, device.context, device.events);
    devices_.emplace(name, std::move(device));
    refused_.erase(name);
    log()->info("roce: device {} opened", name);
    if (const std::size_t needed = group_bytes(config_); needed > std::size_t{config_.memory_mib} << 20) {
        log()->warn("roce: all connections are declined: a link group takes {} KiB, and roce.memory_mib is {}",
                    needed / 1024, config_.memory_mib);
    }
}

// The descriptor belongs to the context; it must be released from Asio before the device is closed.
void Devices::listen(const std::string& name, const std::shared_ptr<roce::Context>& context,
                     const std::shared_ptr<asio::posix::stream_descriptor>& events) {
    events->async_wait(asio::posix::stream_descriptor::wait_read,
                       [this, name, weak = std::weak_ptr(context), events](std::error_code error) {
                           const auto still = weak.lock();
                           if (error || !still || !devices_.contains(name)) {
                               return;
                           }
                           for (const std::string& event : still->take_events()) {
                               log()->info("roce: device {}: {}", name, event);
                           }
                           refresh();
                           if (devices_.contains(name)) {
                               listen(name, still, events);
                           }
                       });
}

std::vector<roce::Port> Devices::ports_for(const RoceGid& local) const {
    const std::string pnet = pnets_.of_address(local.normalised().bytes);
    std::vector<roce::Port> out;
    std::ranges::copy_if(ports_, std::back_inserter(out), [&](const roce::Port& port) {
        return devices_.contains(port.device) && pnets_.of_port(port.device, port.number) == pnet;
    });
    return out;
}

bool Devices::speaks(unsigned version) const {
    return std::find(config_.versions.begin(), config_.versions.end(), version) != config_.versions.end();
}

bool Devices::serves(const Local& local) const {
    return (config_.pnets.empty() && local.vlan == 0) ||
           ports_to_offer(ports_for(local.address), local, speaks(clc::kVersion1), speaks(clc::kVersion2), true);
}

std::optional<Devices::Usable> Devices::usable(const group::LocalPort& wanted) const {
    for (const roce::Port& port : ports_) {
        const bool there = devices_.contains(port.device) && port.active;  // a device that is being closed has no entry
        if (!there || port.device != wanted.device || port.number != wanted.number) {
            continue;
        }
        for (const auto* gids : {&port.gids_v1, &port.gids}) {
            const auto it = std::ranges::find(*gids, wanted.gid, &roce::PortGid::gid);
            if (it != gids->end() && (wanted.version == 1 || gids == &port.gids)) {
                return Usable{devices_.at(port.device).context, port, *it};
            }
        }
    }
    return std::nullopt;
}

std::optional<Devices::Usable> Devices::usable_for(const Local& local, std::uint8_t smcr_version) const {
    const auto ports = ports_for(local.address);
    const auto choice = choose_port(ports, local, smcr_version);
    if (!choice) {
        return std::nullopt;
    }
    return Usable{devices_.at(choice->port->device).context, *choice->port, choice->gid};
}

std::optional<clc::RoceOffer> Devices::offer_for(const Local& local, const Endpoint& peer, bool peer_agent) const {
    auto offer =
        ports_to_offer(ports_for(local.address), local, speaks(clc::kVersion1), speaks(clc::kVersion2), peer_agent);
    if (!offer) {
        return std::nullopt;
    }
    offer->own_address = local.address;
    offer->peer_address = gid_of(peer);
    if (offer->v1) {
        offer->v1 = look_for_networks(*offer);
    }
    return offer->v1 || offer->v2 ? offer : std::nullopt;
}

}  // namespace smc::smcr
