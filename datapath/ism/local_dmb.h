// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// DMBs of the `local` ISM provider: a sealed memfd, and a socket pair as the doorbell.
//
//   page 0            for the provider, not part of SMC: the doorbell's words at 0 and 8 (time), the lease at 64
//   page 1 ...        the DMB
//
// The memfd is sealed against every change of its size before it is handed out, and the peer that attaches it checks
// the seals (D2). The doorbell is not an eventfd: both sides would share one open file with its O_NONBLOCK, which
// either could clear, so that the other one's write blocks. Each end of a socket pair is an open file of its own, and
// MSG_DONTWAIT keeps a send from blocking.
#pragma once

#include "datapath/smcd/dmb.h"
#include "os/result.h"
#include "os/unique_fd.h"

namespace smc::ism {

struct CreatedDmb {
    std::shared_ptr<smcd::Dmb> dmb;
    UniqueFd memory, bell;  // for the peer; may be closed once the peer has its copies
};

// A new DMB of `bytes`.
Result<CreatedDmb> create_dmb(std::uint32_t bytes);
// A peer's DMB from its descriptors; refuses memory that is not sealed, shorter than `bytes` or not of ordinary pages,
// and a bell that could block.
Result<smcd::Dmb> attach_dmb(const UniqueFd& memory, UniqueFd bell, std::uint32_t bytes);

}  // namespace smc::ism
