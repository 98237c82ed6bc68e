// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Two TCP sockets for the probe, connected over lo of the calling thread's network namespace. enrol() makes them
// members of the bypass. Errors are not reported: they show in the results that follow.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "agent/bypass/bypass.h"
#include "os/unique_fd.h"

namespace smc::bypass {

class Trial {
 public:
    // `moment`: how long to wait for bytes that are on their way over lo (times.trial_ms); a softirq delivers them.
    Trial(Bypass& bypass, std::chrono::milliseconds moment);
    ~Trial();
    Trial(const Trial&) = delete;
    Trial& operator=(const Trial&) = delete;

    // Enrols both sockets by smc_bypass_enrol, and sets them to MEMBER, as smc_bypass_step does in operation. False:
    // they are not members.
    bool enrol();
    [[nodiscard]] int sender() const { return sender_.fd.get(); }
    [[nodiscard]] int receiver() const { return receiver_.fd.get(); }
    void close_sender() { sender_.fd.reset(); }
    void close_receiver() { receiver_.fd.reset(); }
    [[nodiscard]] smc_member sender_entry() const { return bypass_.entry(sender_.cookie); }
    [[nodiscard]] smc_member receiver_entry() const { return bypass_.entry(receiver_.cookie); }

    // False: not all bytes were sent at once.
    [[nodiscard]] bool send(const std::string& bytes, int flags = 0) const;
    // Returns the bytes that are there, up to `most`. Waits only `moment`, for bytes that TCP has under way.
    [[nodiscard]] std::string receive(int flags = 0, std::size_t most = 65536) const;
    // Waits until something can be read, but not longer than `moment`.
    void wait_for_bytes() const;
    // The result of one receive or send: "a byte", "sent", "end" (of the stream), or the name of an errno ("EPIPE").
    [[nodiscard]] std::string what_receive_says() const;
    [[nodiscard]] std::string what_send_says() const;
    // Sets whether the receiver's receives wait, for a second at most.
    void set_receiver_blocking(bool blocking) const;

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
