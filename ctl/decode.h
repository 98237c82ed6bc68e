// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// smcctl decode: reads captures and single messages; needs no agent.
#pragma once

#include <iosfwd>
#include <string>

namespace smc::ctl {

struct DecodeOptions {
    std::string file = "-";  // "-" is standard input
    bool hex = false;        // messages in hexadecimal, one per line, instead of a capture
    bool summary = false;    // histories of connections and link groups instead of messages
    bool rdma = false;       // RDMA writes and acknowledgements, too
    bool json = false;       // one object per line
};

// 0: all of it was read. 1: the input is broken or is no SMC message; what could be read has been printed.
int decode(const DecodeOptions& options, std::ostream& out, std::ostream& error);

}  // namespace smc::ctl
