// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The memory of an SMC-R link group as a table: which RMBs and which memory to send from there is, and whose each
// element is (RFC 7609 sections 4.2, 4.4.2 and 3.5.5.2).
//
// Invariant:
//   G2  Nobody learns of an RMB before the peer has confirmed its RKey, or by the CLC message of the first contact.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "smc/group/actions.h"
#include "smc/time.h"

namespace smc::group {

struct Buffer {
    // kRegistering -> kConfirming (an RMB behind the first one) -> kUsable -> kDeleting (an RMB)
    enum class State : std::uint8_t { kRegistering, kConfirming, kUsable, kDeleting };
    struct Element {
        enum class State : std::uint8_t { kNew, kTaken, kUsedBefore };
        State state = State::kNew;
        MemberId member{};         // whose it is, or was when it lingers
        AlertToken token{};        // of an RMBE
        bool unconfirmed = false;  // the peer was told and never confirmed: nobody knows when it is done with it
    };
    BufferKind kind{};
    State state = State::kRegistering;
    llc::RTokenSet tokens;  // the links that it is registered for
    std::vector<Element> elements;

    [[nodiscard]] bool is_full() const;
    [[nodiscard]] bool is_unused() const;
};

class Buffers {
 public:
    explicit Buffers(std::uint8_t elements_per_buffer) : elements_(elements_per_buffer) {}

    BufferId add(BufferKind kind);
    void erase(BufferId id) { buffers_.erase(id); }
    // nullptr: it is gone.
    [[nodiscard]] Buffer* find(BufferId id);
    [[nodiscard]] const Buffer& at(BufferId id) const { return buffers_.at(id); }
    [[nodiscard]] std::size_t count(BufferKind kind, Buffer::State state) const;
    // The first of that kind and state; nothing if there is none.
    [[nodiscard]] std::optional<BufferId> first(BufferKind kind, Buffer::State state) const;
    [[nodiscard]] const std::map<BufferId, Buffer>& all() const { return buffers_; }
    // Every buffer that is there is registered for this link.
    [[nodiscard]] bool all_registered_for(std::uint8_t link) const;
    void forget_link(std::uint8_t link);

    // An element of each kind; nothing if one of them is not to be had. `token` is where the search for a free alert
    // token begins.
    std::optional<Assignment> take(MemberId member, AlertToken token);
    void give_back(BufferId id, std::uint8_t element);

    [[nodiscard]] bool all_full(BufferKind kind) const;
    // Elements that are taken, and of these those that the peer was told of and never confirmed.
    [[nodiscard]] unsigned taken(BufferKind kind) const;
    [[nodiscard]] unsigned unconfirmed() const;

    // A usable buffer that nobody uses and that can go: memory to send from of which there is more than RMBs, or an RMB
    // behind the first one.
    [[nodiscard]] std::optional<BufferId> surplus(BufferKind kind) const;

 private:
    [[nodiscard]] std::optional<std::pair<BufferId, std::uint8_t>> free_element(BufferKind kind) const;
    [[nodiscard]] bool is_in_use(AlertToken token) const;

    std::uint8_t elements_;
    std::uint32_t next_id_ = 1;
    std::map<BufferId, Buffer> buffers_;
};

}  // namespace smc::group
