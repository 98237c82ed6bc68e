// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Port: what a reliable connected queue pair does for a link: it carries messages and RDMA writes and keeps the account
// of what is under way. Knows neither LLC nor CDC.
//
// Invariants, which every implementation upholds:
//   Q1  Sends and writes complete in the order in which they were posted, so one completion retires all before it.
//       Nobody is woken for a completed send unless it was asked for.
//   Q2  A message never overtakes the write that was posted before it (InfiniBand: requests of a queue pair execute in
//       order), so a CDC message that arrives describes data that is there.
//   Q3  After the first failure the link is broken for good: the handler hears once, from poll(), what had arrived
//       before (the peer's device has acknowledged it), then that it is broken, and nothing else any more.
//   Q4  The last free place in the queue is for a message: writes alone would never be retired.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "os/result.h"
#include "smc/wire/layout.h"
#include "smc/wire/qp_end.h"

namespace smc::smcr {

// Called from Link::poll(), and must not destroy the link there.
class LinkHandler {
 public:
    virtual ~LinkHandler() = default;
    // A whole LLC or CDC message; the bytes are gone when this returns.
    virtual void on_message(wire::Bytes message) = 0;
    virtual void on_broken(const std::string& why) = 0;
};

class Link {
 public:
    enum class Posted : std::uint8_t { kYes, kFull, kBroken };

    virtual ~Link() = default;
    [[nodiscard]] virtual const QpEnd& end() const = 0;
    // Ready to receive and to send. The smaller MTU of both is used. May wait for the network; any thread.
    virtual Result<void> connect(const QpEnd& peer) = 0;

    // kFull: until room() grows. kBroken: not connected yet, or broken; the next poll() says why. The bytes are copied.
    virtual Posted send(wire::Bytes message) = 0;
    // Leaves with the next send(). `from` is registered with this link's device under `lkey`, and stays as it is until
    // a later message is retired.
    virtual Posted write(std::span<const std::uint8_t> from, std::uint32_t lkey, RKey rkey, VirtualAddress to) = 0;
    // What the next send() or write() is called in retired().
    [[nodiscard]] virtual std::uint64_t next_sequence() const = 0;
    // Everything before this one is done.
    [[nodiscard]] virtual std::uint64_t retired() const = 0;
    // Requests that can be posted now, and at all.
    [[nodiscard]] virtual std::uint32_t room() const = 0;
    [[nodiscard]] virtual std::uint32_t capacity() const = 0;

    [[nodiscard]] virtual bool broken() const = 0;
    // Breaks it. The peer must not go on writing into memory whose owner does not look any more.
    virtual void shut(std::string why) = 0;

    // Readable when a message came, or, if that is wanted, when a send completed; once for each poll() that asks.
    [[nodiscard]] virtual int fd() const = 0;
    virtual void want_completions(bool wanted) = 0;
    // poll() must be called although fd() is not readable.
    [[nodiscard]] virtual bool wants_poll() const = 0;
    // Hands completions to the handler, a bounded number, without a system call unless something has come. `readable`:
    // fd() was. True: there may be more. False: if it `asks`, fd() tells of the next; otherwise it may not.
    virtual bool poll(LinkHandler& handler, bool readable, bool asks) = 0;
};

}  // namespace smc::smcr
