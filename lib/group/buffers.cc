// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "smc/group/buffers.h"

#include <algorithm>
#include <tuple>

namespace smc::group {

namespace {

bool is_taken(const Buffer::Element& element) {
    return element.state == Buffer::Element::State::kTaken;
}

}  // namespace

bool Buffer::is_full() const {
    return std::ranges::all_of(elements, is_taken);
}

bool Buffer::is_unused() const {
    return std::ranges::none_of(elements, is_taken);
}

std::size_t elements_of(std::uint32_t bytes, std::uint32_t usual, std::uint8_t most) {
    return std::clamp<std::size_t>(std::size_t{usual} * most / bytes, 1, most);
}

bool halve(ElementBytes& bytes, std::uint32_t usual) {
    std::uint32_t& larger = bytes.rmbe > bytes.send ? bytes.rmbe : bytes.send;
    if (larger <= usual) {
        return false;
    }
    larger /= 2;
    return true;
}

BufferId Buffers::add(BufferKind kind, std::uint32_t element_bytes, std::size_t elements) {
    const BufferId id{next_id_++};
    Buffer& buffer = buffers_[id];
    buffer.kind = kind;
    buffer.element_bytes = element_bytes;
    buffer.elements.resize(elements);
    return id;
}

Buffer* Buffers::find(BufferId id) {
    const auto it = buffers_.find(id);
    return it == buffers_.end() ? nullptr : &it->second;
}

std::size_t Buffers::count(BufferKind kind, Buffer::State state) const {
    return static_cast<std::size_t>(std::ranges::count_if(
        buffers_, [&](const auto& entry) { return entry.second.kind == kind && entry.second.state == state; }));
}

std::optional<BufferId> Buffers::first(BufferKind kind, Buffer::State state) const {
    for (const auto& [id, buffer] : buffers_) {
        if (buffer.kind == kind && buffer.state == state) {
            return id;
        }
    }
    return std::nullopt;
}

bool Buffers::all_registered_for(std::uint8_t link) const {
    return std::ranges::all_of(buffers_, [&](const auto& entry) { return entry.second.tokens.contains(link); });
}

void Buffers::forget_link(std::uint8_t link) {
    for (auto& [id, buffer] : buffers_) {
        buffer.tokens.erase(link);
    }
}

std::optional<std::pair<BufferId, std::uint8_t>> Buffers::free_element(BufferKind kind,
                                                                       std::uint32_t element_bytes) const {
    for (const auto& [id, buffer] : buffers_) {
        if (buffer.kind == kind && buffer.element_bytes == element_bytes && buffer.state == Buffer::State::kUsable &&
            !buffer.is_full()) {
            const auto free = std::ranges::find_if_not(buffer.elements, is_taken);
            return std::pair(id, static_cast<std::uint8_t>(free - buffer.elements.begin()));
        }
    }
    return std::nullopt;
}

bool Buffers::is_in_use(AlertToken token) const {
    return std::ranges::any_of(buffers_, [&](const auto& entry) {
        return std::ranges::any_of(entry.second.elements, [&](const Buffer::Element& element) {
            return is_taken(element) && element.token == token;
        });
    });
}

std::optional<Assignment> Buffers::take(MemberId member, AlertToken token, const ElementBytes& bytes) {
    const auto rmbe = free_element(BufferKind::kRmb, bytes.rmbe);
    const auto send = free_element(BufferKind::kSend, bytes.send);
    if (!rmbe || !send) {
        return std::nullopt;
    }
    while (token == AlertToken{} || is_in_use(token)) {
        token = AlertToken{static_cast<std::uint32_t>(token) + 1};
    }
    auto& own = buffers_.at(rmbe->first).elements[rmbe->second];
    Assignment assignment;
    assignment.token = token;
    std::tie(assignment.rmb, assignment.rmbe) = *rmbe;
    assignment.rmbe_was_used = own.state == Buffer::Element::State::kUsedBefore;
    std::tie(assignment.send, assignment.send_element) = *send;
    own = {Buffer::Element::State::kTaken, member, token, false};
    buffers_.at(send->first).elements[send->second] = {Buffer::Element::State::kTaken, member, {}, false};
    return assignment;
}

void Buffers::give_back(BufferId id, std::uint8_t element) {
    if (Buffer* buffer = find(id); buffer != nullptr && element < buffer->elements.size()) {
        buffer->elements[element] = {Buffer::Element::State::kUsedBefore, {}, {}, false};
    }
}

bool Buffers::all_full(BufferKind kind, std::uint32_t element_bytes) const {
    return !free_element(kind, element_bytes);
}

unsigned Buffers::taken(BufferKind kind) const {
    unsigned n = 0;
    for (const auto& [id, buffer] : buffers_) {
        n += buffer.kind == kind ? static_cast<unsigned>(std::ranges::count_if(buffer.elements, is_taken)) : 0;
    }
    return n;
}

unsigned Buffers::unconfirmed() const {
    unsigned n = 0;
    for (const auto& [id, buffer] : buffers_) {
        n += static_cast<unsigned>(std::ranges::count_if(
            buffer.elements, [](const Buffer::Element& element) { return is_taken(element) && element.unconfirmed; }));
    }
    return n;
}

std::optional<BufferId> Buffers::surplus(BufferKind kind, std::uint32_t usual) const {
    const std::size_t rmbs = count(BufferKind::kRmb, Buffer::State::kUsable);
    const bool many = count(BufferKind::kSend, Buffer::State::kUsable) > rmbs;
    const auto first_rmb = first(BufferKind::kRmb, Buffer::State::kUsable);
    for (const auto& [id, buffer] : buffers_) {
        if (buffer.kind == kind && buffer.state == Buffer::State::kUsable && buffer.is_unused() && id != first_rmb &&
            (kind == BufferKind::kRmb || many || buffer.element_bytes != usual)) {
            return id;
        }
    }
    return std::nullopt;
}

}  // namespace smc::group
