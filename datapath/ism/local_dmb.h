// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// DMBs of the `local` ISM provider: a sealed memfd and an eventfd.
//
//   page 0            the provider's: the doorbell word, not part of SMC
//   page 1 ...        the DMB
//
// The memfd is sealed against every change of size before it leaves its owner, and the one who attaches checks the
// seals (D2).
#pragma once

#include "datapath/smcd/dmb.h"
#include "os/result.h"
#include "os/unique_fd.h"

namespace smc::ism {

struct CreatedDmb {
    std::shared_ptr<smcd::Dmb> dmb;
    UniqueFd memory;  // for the peer, with the doorbell's descriptor; needed no more once it has its copy
};

// A new DMB of `bytes`.
Result<CreatedDmb> create_dmb(std::uint32_t bytes);
// A peer's DMB from its descriptors; refuses memory that is not sealed or shorter than `bytes`, and a doorbell that
// could block.
Result<smcd::Dmb> attach_dmb(const UniqueFd& memory, UniqueFd doorbell, std::uint32_t bytes);

}  // namespace smc::ism
