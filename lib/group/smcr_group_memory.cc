// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Memory of a link group: RMBs and buffers to send from are registered, told to the peer, and given back.
#include <algorithm>
#include <utility>

#include "smc/group/smcr_group.h"

namespace smc::group {

bool SmcrGroup::growing() const {
    return std::ranges::any_of(buffers_.all(), [](const auto& entry) {
        return entry.second.state == Buffer::State::kRegistering || entry.second.state == Buffer::State::kConfirming;
    });
}

void SmcrGroup::add_buffer(BufferKind kind, std::uint32_t element_bytes, Out out) {
    const std::size_t elements = elements_of(element_bytes, terms_.rmbe_bytes, terms_.rmbes_per_rmb);
    const BufferId buffer = buffers_.add(kind, element_bytes, elements);
    registered_ += buffers_.at(buffer).bytes();
    own_registered_ += buffers_.at(buffer).bytes();
    for (const auto& [number, link] : links_.all()) {
        out.actions.push_back(RegisterBuffer{id_, buffer, kind, number, element_bytes, elements});
    }
}

void SmcrGroup::drop_buffer(BufferId buffer, Out out) {
    registered_ -= buffers_.at(buffer).bytes();
    own_registered_ -= buffers_.at(buffer).bytes();
    buffers_.erase(buffer);
    out.actions.push_back(DropBuffer{id_, buffer});
}

// Adds an RMB if all RMBEs of the wanted size are taken, and a send buffer if all send elements are; both or none,
// because a member needs an element of each. If there is too little memory, sizes beyond the usual one become smaller.
void SmcrGroup::grow(ElementBytes& bytes, Out out) {
    if (growing() || adding_) {
        return;  // while a link is being added, the buffers must stay as they are
    }
    bool send = false, rmb = false;
    for (;;) {
        send = buffers_.all_full(BufferKind::kSend, bytes.send);
        rmb = buffers_.all_full(BufferKind::kRmb, bytes.rmbe);
        if (!send && !rmb) {
            return;
        }
        if (fits((send ? buffer_bytes(bytes.send) : 0) + (rmb ? buffer_bytes(bytes.rmbe) : 0))) {
            break;
        }
        if (const auto unused = buffers_.surplus(BufferKind::kSend, terms_.rmbe_bytes)) {
            drop_buffer(*unused, out);
        } else if (!halve(bytes, terms_.rmbe_bytes)) {
            refused_ = Refusal::kOutOfMemory;
            return;
        }
    }
    if (rmb && rmbs() >= llc::kMaxRmbs) {
        if (std::exchange(bytes.rmbe, terms_.rmbe_bytes) != terms_.rmbe_bytes) {
            return grow(bytes, out);  // there may be a free RMBE of the usual size
        }
        refused_ = Refusal::kNoMoreRmbs;
        return;
    }
    if (send) {
        add_buffer(BufferKind::kSend, bytes.send, out);
    }
    if (rmb) {
        add_buffer(BufferKind::kRmb, bytes.rmbe, out);
    }
}

void SmcrGroup::buffer_registered(BufferId id, std::uint8_t link, RKey rkey, VirtualAddress address, Out out) {
    Buffer* buffer = buffers_.find(id);
    if (buffer == nullptr || links_.find(link) == nullptr) {
        return;
    }
    buffer->tokens[link] = {rkey, address};
    if (llc_ && buffer->kind == BufferKind::kRmb) {
        llc_->rmb_registered(llc::RmbId{static_cast<std::uint32_t>(id)}, link, buffer->tokens[link]);
    }
    if (buffer->state == Buffer::State::kRegistering) {
        registered_everywhere(id, *buffer, out);
    }
    prepared(link, out);
}

void SmcrGroup::registered_everywhere(BufferId id, Buffer& buffer, Out out) {
    const auto& links = links_.all();
    if (!std::ranges::all_of(links, [&](const auto& entry) { return buffer.tokens.contains(entry.first); })) {
        return;
    }
    // G2: CLC tells the peer of the first RMB, CONFIRM RKEY of further ones.
    if (buffer.kind == BufferKind::kRmb && state_ != State::kCreating) {
        buffer.state = Buffer::State::kConfirming;
        if (llc_) {
            carry_out(llc_->confirm_rkey(llc::RmbId{static_cast<std::uint32_t>(id)}, out.now), out);
        }
        return;
    }
    buffer.state = Buffer::State::kUsable;
    created_if_complete();
}

void SmcrGroup::buffer_refused(BufferId id, std::uint8_t link, Refusal refusal, const std::string& detail, Out out) {
    const Buffer* buffer = buffers_.find(id);
    if (buffer == nullptr) {
        return;
    }
    if (adding_ == link) {
        give_up(link, out);  // the group continues without the new link
        return;
    }
    if (buffer->state != Buffer::State::kRegistering) {
        return;
    }
    const std::uint32_t bytes = buffer->element_bytes;
    const BufferKind kind = buffer->kind;
    drop_buffer(id, out);
    if (bytes > terms_.rmbe_bytes) {  // elements of the usual size may still be available
        (kind == BufferKind::kRmb ? largest_.rmbe : largest_.send) = terms_.rmbe_bytes;
        if (state_ == State::kCreating) {
            add_buffer(kind, terms_.rmbe_bytes, out);
        }
        return;
    }
    if (state_ == State::kCreating) {
        finish({Reason::kNone, detail}, out);
    }
    refused_ = refusal;
}

bool SmcrGroup::note_rmb(std::uint8_t link, const clc::Rmbe& rmbe, Out out) {
    if (!llc_) {
        return false;
    }
    const llc::RTokenSet* tokens = llc_->find_rmb(link, rmbe.rkey);
    if (tokens == nullptr) {
        tokens = llc_->note_rmb(link, {rmbe.rkey, rmbe.rmb_address});
    }
    if (tokens != nullptr) {
        out.actions.push_back(KnowRmb{id_, *tokens});
    }
    return tokens != nullptr;
}

void SmcrGroup::rkey_confirmed(const llc::RkeyConfirmed& done, Out out) {
    const BufferId id{static_cast<std::uint32_t>(done.rmb)};
    Buffer* buffer = buffers_.find(id);
    if (buffer == nullptr || buffer->state != Buffer::State::kConfirming) {
        return;
    }
    if (done.accepted) {
        buffer->state = Buffer::State::kUsable;
        return;
    }
    const bool usual = buffer->element_bytes == terms_.rmbe_bytes;
    drop_buffer(id, out);
    if (usual) {
        refused_ = Refusal::kNoMoreRmbs;
    } else {
        only_usual_rmbes_ = true;  // an RMBE of the usual size may be free
    }
}

void SmcrGroup::rkey_deleted(const llc::RkeyDeleted& done, Out out) {
    const BufferId id{static_cast<std::uint32_t>(done.rmb)};
    const Buffer* buffer = buffers_.find(id);
    if (buffer != nullptr && buffer->state == Buffer::State::kDeleting) {
        drop_buffer(id, out);
    }
}

// Drops unused memory after kSurplusTime, because the next burst of connections would have to register it again.
void SmcrGroup::shrink(Out out) {
    if (!active() || growing() || adding_) {
        surplus_since_ = kNever;
        return;
    }
    const auto surplus = [&](BufferKind kind) { return buffers_.surplus(kind, terms_.rmbe_bytes); };
    if (!surplus(BufferKind::kSend) && !surplus(BufferKind::kRmb)) {
        surplus_since_ = kNever;
    } else if (surplus_since_ == kNever) {
        surplus_since_ = out.now;
    } else if (out.now - surplus_since_ >= kSurplusTime) {
        surplus_since_ = kNever;
        while (const auto rmb = surplus(BufferKind::kRmb)) {
            Buffer& buffer = *buffers_.find(*rmb);
            buffer.state = Buffer::State::kDeleting;
            carry_out(llc_->delete_rkey(llc::RmbId{static_cast<std::uint32_t>(*rmb)}, out.now), out);
        }
        while (const auto send = surplus(BufferKind::kSend)) {
            drop_buffer(*send, out);
        }
    }
}

}  // namespace smc::group
