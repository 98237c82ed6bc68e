// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Port: what a reliable connected queue pair does for a link: it carries messages and RDMA writes, and counts the
// requests that are under way. Knows neither LLC nor CDC.
//
// Invariants, which every implementation upholds:
//   Q1  Sends and writes complete in the order in which they were posted, so one completion retires all before it.
//       A completed send makes fd() readable only if that was asked for.
//   Q2  A message never overtakes the write that was posted before it (InfiniBand: requests of a queue pair execute in
//       order), so a CDC message that arrives describes data that has arrived.
//   Q3  After the first failure the link is broken for good: poll() hands over what had arrived before (the device of
//       this node has acknowledged it), then calls on_broken() once, and nothing else any more.
//   Q4  The last free place in the send queue is kept for a message: writes alone would never be retired.
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
    // A whole LLC or CDC message; the bytes are valid only during the call.
    virtual void on_message(wire::Bytes message) = 0;
    virtual void on_broken(const std::string& why) = 0;
};

class Link {
 public:
    enum class Posted : std::uint8_t { kYes, kFull, kBroken };

    virtual ~Link() = default;
    [[nodiscard]] virtual const QpEnd& end() const = 0;
    // Makes the link ready to receive and send, with the smaller MTU of both ends. May wait for the network; any
    // thread.
    virtual Result<void> connect(const QpEnd& peer) = 0;

    // kFull: until room() grows. kBroken: not connected yet, or broken; the next poll() says why. The bytes are copied.
    virtual Posted send(wire::Bytes message) = 0;
    // An RDMA write that leaves with the next send(). `from` is registered with this link's device under `lkey`, and
    // must not change until a later message is retired.
    virtual Posted write(std::span<const std::uint8_t> from, std::uint32_t lkey, RKey rkey, VirtualAddress to) = 0;
    // The sequence number that the next send() or write() will have.
    [[nodiscard]] virtual std::uint64_t next_sequence() const = 0;
    // All requests with sequence numbers lower than this are completed.
    [[nodiscard]] virtual std::uint64_t retired() const = 0;
    // How many requests can be posted now, and how many when none is under way.
    [[nodiscard]] virtual std::uint32_t room() const = 0;
    [[nodiscard]] virtual std::uint32_t capacity() const = 0;

    [[nodiscard]] virtual bool broken() const = 0;
    // Breaks the link. From then on the peer cannot write into memory that this side no longer reads.
    virtual void shut(std::string why) = 0;

    // Becomes readable when a message has come or, if wanted, a send is completed: once for each poll() that asks.
    [[nodiscard]] virtual int fd() const = 0;
    virtual void want_completions(bool wanted) = 0;
    // Whether poll() must be called although fd() is not readable.
    [[nodiscard]] virtual bool wants_poll() const = 0;
    // Hands a bounded number of completions to the handler; makes no system call unless something has come. `readable`:
    // fd() was readable. True: there may be more. False: there is nothing more, and, if `asks`, the next completion
    // makes fd() readable.
    virtual bool poll(LinkHandler& handler, bool readable, bool asks) = 0;
};

}  // namespace smc::smcr
