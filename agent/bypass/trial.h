// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Two TCP sockets that are connected over lo of the calling thread's network namespace, for the probe: members of the
// bypass, unless somebody says otherwise. Nobody is there to read errors: what cannot be done shows in what follows.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "agent/bypass/bypass.h"
#include "os/unique_fd.h"

namespace smc::bypass {

class Trial {
 public:
    // `moment`: for what TCP has on its way over lo, which a softirq brings.
    Trial(Bypass& bypass, std::chrono::milliseconds moment);
    ~Trial();
    Trial(const Trial&) = delete;
    Trial& operator=(const Trial&) = delete;

    // By the real iterator. False: they are not members.
    bool enrol();
    [[nodiscard]] int sender() const { return sender_.fd.get(); }
    [[nodiscard]] int receiver() const { return receiver_.fd.get(); }
    void close_sender() { sender_.fd.reset(); }
    void close_receiver() { receiver_.fd.reset(); }
    [[nodiscard]] smc_member sender_entry() const { return bypass_.entry(sender_.cookie); }
    [[nodiscard]] smc_member receiver_entry() const { return bypass_.entry(receiver_.cookie); }

    // False: not all of it, at once.
    [[nodiscard]] bool send(const std::string& bytes, int flags = 0) const;
    // What is there, without waiting, but for a moment for what TCP has on its way.
    [[nodiscard]] std::string receive(int flags = 0, std::size_t most = 65536) const;
    // Until something can be read; not for ever.
    void wait_for_bytes() const;
    // With an errno in place of what cannot be said: "EPIPE". "end": of the stream.
    [[nodiscard]] std::string what_receive_says() const;
    [[nodiscard]] std::string what_send_says() const;
    // Of the receiver.
    void wait_blocking(bool blocking) const;

 private:
    struct End {
        UniqueFd fd;
        std::uint64_t cookie = 0;
    };
    void watch(const End& own, const End& peer) const;

    Bypass& bypass_;
    std::chrono::milliseconds moment_;
    End sender_, receiver_;
};

}  // namespace smc::bypass
