// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// DMBs of the `local` ISM provider: a sealed memfd, and a pair of sockets as the doorbell.
//
//   page 0            the provider's, not part of SMC: the doorbell word, and at 64 that of the lease
//   page 1 ...        the DMB
//
// The memfd is sealed against every change of size before it leaves its owner, and the one who attaches checks the
// seals (D2). The doorbell is no eventfd: that is one open file for both, and the flag that keeps a write from blocking
// is the open file's. Each end of a socket pair is a file of its own, and a send says for itself that it does not
// block.
#pragma once

#include "datapath/smcd/dmb.h"
#include "os/result.h"
#include "os/unique_fd.h"

namespace smc::ism {

struct CreatedDmb {
    std::shared_ptr<smcd::Dmb> dmb;
    UniqueFd memory, bell;  // for the peer; needed no more once it has its copies
};

// A new DMB of `bytes`.
Result<CreatedDmb> create_dmb(std::uint32_t bytes);
// A peer's DMB from its descriptors; refuses memory that is not sealed, shorter than `bytes` or not of ordinary pages,
// and a bell that could block.
Result<smcd::Dmb> attach_dmb(const UniqueFd& memory, UniqueFd bell, std::uint32_t bytes);

}  // namespace smc::ism
