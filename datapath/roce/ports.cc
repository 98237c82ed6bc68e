// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/roce/ports.h"

#include <infiniband/verbs.h>

#include <algorithm>
#include <cstring>

#include "os/rtnetlink.h"

namespace smc::roce {

namespace {

std::vector<NetDevice> net_devices() {
    const auto rtnetlink = Rtnetlink::open();
    auto devices = rtnetlink ? rtnetlink->devices() : Result<std::vector<NetDevice>>(rtnetlink.error());
    return devices ? std::move(*devices) : std::vector<NetDevice>();
}

void add_gids(Port& port, std::span<const ibv_gid_entry> table, const std::vector<NetDevice>& devices) {
    for (const ibv_gid_entry& entry : table) {
        // An address handle has eight bits for the index.
        const bool v1 = entry.gid_type == IBV_GID_TYPE_ROCE_V1;
        if (entry.port_num != port.number || (!v1 && entry.gid_type != IBV_GID_TYPE_ROCE_V2) || entry.gid_index > 255) {
            continue;
        }
        PortGid gid;
        gid.version = v1 ? RoceVersion::kV1 : RoceVersion::kV2;
        std::memcpy(gid.gid.bytes.data(), entry.gid.raw, gid.gid.bytes.size());
        gid.index = static_cast<std::uint8_t>(entry.gid_index);
        const auto device = std::ranges::find(devices, entry.ndev_ifindex, &NetDevice::index);
        if (device != devices.end()) {
            gid.net_device = device->name;
            gid.mac.bytes = device->mac;
            gid.vlan = device->vlan;
        }
        (v1 ? port.gids_v1 : port.gids).push_back(std::move(gid));
    }
}

}  // namespace

bool is_link_local(const RoceGid& gid) {
    return gid.bytes[0] == 0xfe && (gid.bytes[1] & 0xc0) == 0x80;
}

std::vector<Port> ports_of(const Context& context) {
    std::vector<Port> out;
    ibv_device_attr device{};
    if (::ibv_query_device(context.get(), &device) != 0) {
        return out;
    }
    std::size_t gids = 0;
    for (unsigned number = 1; number <= device.phys_port_cnt; number++) {
        ibv_port_attr attributes{};
        if (::ibv_query_port(context.get(), static_cast<std::uint8_t>(number), &attributes) != 0) {
            continue;
        }
        gids += static_cast<std::size_t>(attributes.gid_tbl_len);
        if (attributes.link_layer != IBV_LINK_LAYER_ETHERNET) {
            continue;
        }
        Port port;
        port.device = context.name();
        port.number = static_cast<std::uint8_t>(number);
        port.active = attributes.state == IBV_PORT_ACTIVE;
        port.mtu = static_cast<clc::Mtu>(attributes.active_mtu);
        out.push_back(std::move(port));
    }
    // The kernel returns the entries of all ports, or, if the buffer is too small for them, none.
    std::vector<ibv_gid_entry> table(gids);
    const ssize_t entries = ::ibv_query_gid_table(context.get(), table.data(), table.size(), 0);
    table.resize(entries > 0 ? static_cast<std::size_t>(entries) : 0);
    const auto devices = net_devices();
    for (Port& port : out) {
        add_gids(port, table, devices);
    }
    return out;
}

Result<std::vector<std::string>> device_names() {
    int count = 0;
    ibv_device** list = ::ibv_get_device_list(&count);
    if (list == nullptr) {
        if (errno == ENOSYS || errno == ENOENT) {
            return std::vector<std::string>{};  // no RDMA in this kernel
        }
        return last_error("listing RDMA devices");
    }
    std::vector<std::string> names;
    for (int i = 0; i < count; i++) {
        names.emplace_back(::ibv_get_device_name(list[i]));
    }
    ::ibv_free_device_list(list);
    return names;
}

Result<std::vector<Port>> ports() {
    const auto names = device_names();
    if (!names) {
        return names.error();
    }
    std::vector<Port> found;
    for (const std::string& name : *names) {
        if (const auto context = Context::open(name)) {
            const auto more = ports_of(**context);
            found.insert(found.end(), more.begin(), more.end());
        }
    }
    return found;
}

std::optional<PortChoice> port_for(const std::vector<Port>& ports, const RoceGid& local, std::uint16_t vlan,
                                   RoceVersion version) {
    const RoceGid wanted = local.normalised();
    const auto select = [&](auto matches) -> std::optional<PortChoice> {
        for (const Port& port : ports) {
            for (const PortGid& gid : version == RoceVersion::kV1 ? port.gids_v1 : port.gids) {
                if (port.active && matches(gid)) {
                    return PortChoice{&port, gid};
                }
            }
        }
        return std::nullopt;
    };
    const auto is_own = [&](const PortGid& gid) { return gid.gid.normalised() == wanted; };
    const auto is_like = [&](const PortGid& gid) {
        return gid.gid.is_v4() == wanted.is_v4() && !is_link_local(gid.gid);
    };
    const auto in_vlan = [&](const PortGid& gid) { return gid.vlan == vlan; };
    if (auto own = select([&](const PortGid& gid) { return in_vlan(gid) && is_own(gid); })) {
        return own;
    }
    if (auto like = select([&](const PortGid& gid) { return in_vlan(gid) && is_like(gid); }); like || vlan != 0) {
        return like;
    }
    return select(is_like);
}

}  // namespace smc::roce
