// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The routes of one network namespace, as the kernel gave them a second ago at most. Control thread only.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>

#include "os/endpoint.h"
#include "smc/time.h"

namespace smc {

class Routes {
 public:
    // TCP connections that differ in their ports only.
    struct Flow {
        std::array<std::uint8_t, 16> from{}, to{};
        std::uint32_t mark = 0, uid = 0;  // of the socket
        auto operator<=>(const Flow&) const = default;
    };
    struct Found {
        unsigned device = 0;        // index of the device by which packets leave
        bool ports_decide = false;  // perhaps: rules by port or protocol, or a multipath hash by ports
    };

    // Nothing: there is no route, or it could not be asked for. `netns_fd`: the namespace.
    [[nodiscard]] std::optional<Found> of(const Flow& flow, int netns_fd);

 private:
    struct Known {
        std::optional<Found> found;
        TimePoint until;  // when it is to be asked for again
    };
    std::map<Flow, Known> known_;
};

}  // namespace smc
