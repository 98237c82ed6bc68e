// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The memory of an SMC-R link group as a table: its RMBs, its send buffers, and the member that has each of their
// elements (RFC 7609 sections 4.2, 4.4.2 and 3.5.5.2).
//
// Invariant:
//   G2  No member is assigned an RMBE of an RMB whose RKey the peer has not confirmed. Only the first RMB needs no such
//       confirmation: CLC tells the peer of it on first contact.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "smc/group/actions.h"

namespace smc::group {

struct Buffer {
    // kRegistering -> kConfirming (RMBs after the first one) -> kUsable -> kDeleting (RMBs)
    enum class State : std::uint8_t { kRegistering, kConfirming, kUsable, kDeleting };
    struct Element {
        enum class State : std::uint8_t { kNew, kTaken, kUsedBefore };
        State state = State::kNew;
        MemberId member{};         // the member that has it, or that had it last if it lingers
        AlertToken token{};        // RMBEs only
        bool unconfirmed = false;  // the peer was told of this RMBE but sent no Confirm: it may never say it is done
    };
    BufferKind kind{};
    State state = State::kRegistering;
    llc::RTokenSet tokens;  // RKey and address on each link that it is registered for
    std::uint32_t element_bytes = 0;
    std::vector<Element> elements;

    [[nodiscard]] std::size_t bytes() const { return std::size_t{element_bytes} * elements.size(); }
    [[nodiscard]] bool is_full() const;
    [[nodiscard]] bool is_unused() const;
};

// How many elements of `bytes` a buffer has: as many as fit into the memory of `most` elements of `usual` bytes, but at
// most `most`, and at least one.
std::size_t elements_of(std::uint32_t bytes, std::uint32_t usual, std::uint8_t most);

// Halves the larger of the two sizes. False: neither is larger than `usual`.
bool halve(ElementBytes& bytes, std::uint32_t usual);

class Buffers {
 public:
    BufferId add(BufferKind kind, std::uint32_t element_bytes, std::size_t elements);
    void erase(BufferId id) { buffers_.erase(id); }
    // nullptr: it is gone.
    [[nodiscard]] Buffer* find(BufferId id);
    [[nodiscard]] const Buffer& at(BufferId id) const { return buffers_.at(id); }
    [[nodiscard]] std::size_t count(BufferKind kind, Buffer::State state) const;
    // The first buffer of that kind and state; nothing if there is none.
    [[nodiscard]] std::optional<BufferId> first(BufferKind kind, Buffer::State state) const;
    [[nodiscard]] const std::map<BufferId, Buffer>& all() const { return buffers_; }
    // True if every buffer is registered for this link.
    [[nodiscard]] bool all_registered_for(std::uint8_t link) const;
    void forget_link(std::uint8_t link);

    // Takes an RMBE and a send element of these sizes; nothing if either kind has none free. The search for a free
    // alert token begins at `token`.
    std::optional<Assignment> take(MemberId member, AlertToken token, const ElementBytes& bytes);
    void give_back(BufferId id, std::uint8_t element);

    // No element of this size is free.
    [[nodiscard]] bool all_full(BufferKind kind, std::uint32_t element_bytes) const;
    // The number of elements that are taken, and of RMBEs among them that are `unconfirmed`.
    [[nodiscard]] unsigned taken(BufferKind kind) const;
    [[nodiscard]] unsigned unconfirmed() const;

    // A usable buffer without taken elements that can be dropped: a send buffer if there are more of them than RMBs or
    // if its elements have another size than the usual one, or an RMB other than the first. Nothing: there is none.
    [[nodiscard]] std::optional<BufferId> surplus(BufferKind kind, std::uint32_t usual) const;

 private:
    [[nodiscard]] std::optional<std::pair<BufferId, std::uint8_t>> free_element(BufferKind kind,
                                                                                std::uint32_t element_bytes) const;
    [[nodiscard]] bool is_in_use(AlertToken token) const;

    std::uint32_t next_id_ = 1;
    std::map<BufferId, Buffer> buffers_;
};

}  // namespace smc::group
