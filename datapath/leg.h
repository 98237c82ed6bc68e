// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A TCP socket that the data path owns. Until everything was delivered, an end must look like an error:
// SO_LINGER 0 makes even a kill of the agent a reset, never a clean end of file.
#pragma once

#include <cstdint>

#include "os/unique_fd.h"

namespace smc {

class Leg {
 public:
    Leg() = default;
    explicit Leg(UniqueFd fd);

    [[nodiscard]] int fd() const { return fd_.get(); }
    explicit operator bool() const { return static_cast<bool>(fd_); }

    // The next byte to read is the urgent one. The socket has SO_OOBINLINE, so reading never skips it.
    [[nodiscard]] bool at_mark() const;
    // Bytes that can be read now.
    [[nodiscard]] std::uint32_t readable() const;
    // FIN behind what was written; from now on a close delivers what is still queued.
    void end_writing();
    // Closes in order.
    void close();
    // Closes with RST.
    void reset();

 private:
    void set_linger(bool reset_on_close) const;
    UniqueFd fd_;
};

}  // namespace smc
