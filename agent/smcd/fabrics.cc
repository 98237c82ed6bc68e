// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/smcd/fabrics.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "agent/log/log.h"
#include "datapath/ism/local_fabric.h"
#include "datapath/ivshmem/device.h"
#include "datapath/ivshmem/ivshmem_fabric.h"
#include "os/random.h"

namespace smc::smcd {

namespace {

Chid chid_of(const std::string& text) {
    std::uint16_t number = 0;
    std::from_chars(text.data() + 2, text.data() + text.size(), number, 16);
    return Chid{number};
}

// Whether the fabric failed because of what another machine has put into the shared area. The agent starts
// nevertheless, with SMC-R and TCP.
bool is_spoilt(const Error& error) {
    return error.code == EPROTO || error.code == ETIMEDOUT;
}

}  // namespace

Result<std::unique_ptr<Fabrics>> Fabrics::open(asio::io_context& io, const Config& config, OnPeerLost on_peer_lost) {
    std::unique_ptr<Fabrics> fabrics(new Fabrics(std::move(on_peer_lost)));
    std::optional<Error> mistake;
    for (const IsmFabric& wanted : config.fabrics()) {
        if (const auto added = fabrics->add(io, wanted); !added) {
            log()->warn("ism: the fabric with CHID {} is not used: {}", wanted.chid, added.error().text());
            if (!is_spoilt(added.error())) {
                mistake = added.error();
            }
        }
    }
    return fabrics->all_.empty() && mistake ? Result<std::unique_ptr<Fabrics>>(*mistake) : std::move(fabrics);
}

Result<void> Fabrics::add(asio::io_context& io, const IsmFabric& wanted) {
    const Gid gid{random_uuid()};
    const Chid chid = chid_of(wanted.chid);
    const auto lost = [this, chid](const Gid& peer) {
        if (Fabric* const fabric = on(chid)) {
            on_peer_lost_({fabric, peer});
        }
    };
    if (wanted.provider == "ivshmem") {
        auto path = wanted.device.empty() ? ivshmem::find_device() : Result<std::string>(wanted.device);
        if (!path) {
            return path.error();
        }
        auto opened = ivshmem::IvshmemFabric::open(io, *path, gid, chid, lost);
        if (!opened) {
            return opened.error();
        }
        if (!(*opened)->has_slot()) {
            log()->warn("ism: all peer slots of {} are in use: SMC-D over it does not work until one is free", *path);
        }
        all_.push_back(std::move(*opened));
        log()->info("ism: {} is shared with other machines, CHID {}", *path, text(chid));
        return {};
    }
    auto local = std::make_unique<ism::LocalFabric>(io, wanted.directory, gid, chid, lost);
    if (auto started = local->start(); !started) {
        return started;
    }
    all_.push_back(std::move(local));
    return {};
}

std::vector<clc::IsmDevice> Fabrics::devices() const {
    std::vector<clc::IsmDevice> out;
    std::ranges::transform(all_, std::back_inserter(out), [](const auto& fabric) {
        return clc::IsmDevice{fabric->gid(), fabric->chid()};
    });
    return out;
}

Fabric* Fabrics::on(Chid chid) const {
    const auto it = std::ranges::find(all_, chid, [](const auto& fabric) { return fabric->chid(); });
    return it == all_.end() ? nullptr : it->get();
}

std::vector<std::shared_ptr<BusyPoll>> Fabrics::busy_polls() const {
    std::vector<std::shared_ptr<BusyPoll>> out;
    for (const auto& fabric : all_) {
        if (auto busy_poll = fabric->busy_poll()) {
            out.push_back(std::move(busy_poll));
        }
    }
    return out;
}

Result<bool> Fabrics::restore() {
    Result<bool> out = false;
    for (const auto& fabric : all_) {
        if (auto restored = fabric->restore(); !restored || *restored) {
            out = std::move(restored);
        }
    }
    return out;
}

std::size_t Fabrics::registered() const {
    std::size_t count = 0;
    for (const auto& fabric : all_) {
        count += fabric->registered();
    }
    return count;
}

}  // namespace smc::smcd
