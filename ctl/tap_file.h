// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Writes pieces of an accelerated stream as a pcapng file that other tools read: as TCP segments with headers that were
// never on a wire. Sequence numbers begin with 1 where the capture began.
#pragma once

#include <cstdint>
#include <fstream>
#include <nlohmann/json_fwd.hpp>
#include <ostream>
#include <string>

#include "os/endpoint.h"

namespace smc::ctl {

class TapFile {
 public:
    // "-" is standard output. Returns what went wrong; empty: nothing.
    [[nodiscard]] std::string open(const std::string& path);
    // Writes the pieces of an answer to "capture", at most `most` bytes of payload in the whole file. Returns what went
    // wrong; empty: nothing.
    [[nodiscard]] std::string write(const nlohmann::json& answer, std::uint64_t most);
    [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
    [[nodiscard]] std::uint64_t packets() const { return packets_; }

 private:
    void begin(bool v6);
    void block(std::uint32_t type, const std::string& body);
    void segment(bool from_client, std::uint64_t us, std::uint32_t sequence, std::uint32_t acknowledged,
                 const std::string& payload);

    std::ofstream file_;
    std::ostream* out_ = nullptr;
    std::string path_;
    bool begun_ = false;
    Endpoint client_, server_;
    std::uint64_t bytes_ = 0, packets_ = 0;
    std::uint32_t next_[2] = {1, 1};  // sequence numbers: the client's, the server's
};

}  // namespace smc::ctl
