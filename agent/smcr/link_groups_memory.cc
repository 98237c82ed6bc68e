// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// RMBs and memory to send from: allocated and registered; alert tokens, and when an RMBE may be used again.
#include <asio/post.hpp>

#include "agent/smcr/link_groups.h"
#include "os/clock.h"

namespace smc::smcr {

using group::GroupId;
using group::Refusal;

Refusal refusal_of(const Error& error) {
    return error.code == ENOMEM                                      ? Refusal::kOutOfMemory
           : error.code == EHOSTUNREACH || error.code == ENETUNREACH ? Refusal::kUnreachable
           : error.code == ENODEV                                    ? Refusal::kNoDevice
                                                                     : Refusal::kDeviceFailed;
}

std::vector<std::shared_ptr<ElementOwner>> LinkGroups::Live::memory() const {
    std::vector<std::shared_ptr<ElementOwner>> out;
    for (const auto& [id, buffer] : buffers) {
        out.push_back(buffer);
    }
    return out;
}

void LinkGroups::on(const group::KnowRmb& action) {
    if (Live* group = live(action.group); group != nullptr) {
        group->driver->note_rmb(action.tokens);
    }
}

void LinkGroups::on(const group::ForgetRmb& action) {
    if (Live* group = live(action.group); group != nullptr) {
        group->driver->forget_rmb(action.tokens);
    }
}

void LinkGroups::on(const group::RegisterBuffer& action) {
    Live* group = live(action.group);
    const LiveLink* there = live(action.group, action.link);
    if (group == nullptr || there == nullptr) {
        return;  // the link could not be created
    }
    const GroupId id = action.group;
    const group::BufferId buffer = action.buffer;
    const auto refused = [&](const Error& error) {
        carry_out(groups_.buffer_refused(id, buffer, action.link, refusal_of(error), error.text(), os::now()));
    };
    if (!group->buffers.contains(buffer)) {
        auto allocated = Buffer::allocate(action.kind, action.element_bytes, action.elements,
                                          [&io = io_, weak = std::weak_ptr(self_), id, buffer](std::size_t element) {
                                              asio::post(io, [weak, id, buffer, element] {
                                                  if (const auto self = weak.lock()) {
                                                      (*self)->carry_out((*self)->groups_.element_returned(
                                                          id, buffer, static_cast<std::uint8_t>(element), os::now()));
                                                  }
                                              });
                                          });
        if (!allocated) {
            return refused(allocated.error());
        }
        group->buffers.emplace(buffer, std::move(*allocated));
    }
    const auto token = group->buffers.at(buffer)->register_for(action.link, there->pd);
    if (!token) {
        return refused(token.error());
    }
    carry_out(groups_.buffer_registered(id, buffer, action.link, token->rkey, token->address, os::now()));
}

void LinkGroups::on(const group::DropBuffer& action) {
    if (Live* there = live(action.group); there != nullptr) {
        there->buffers.erase(action.buffer);
    }
}

void LinkGroups::on(const group::OpenToken& action) {
    if (Live* there = live(action.group); there != nullptr) {
        there->driver->open(action.token);
    }
}

void LinkGroups::on(const group::ForgetToken& action) {
    if (Live* there = live(action.group); there != nullptr) {
        there->driver->forget(action.token);
    }
}

void LinkGroups::on(const group::LingerToken& action) {
    if (Live* there = live(action.group); there != nullptr) {
        there->driver->linger(action.assignment.token,
                              there->buffers.at(action.assignment.rmb)->element(action.assignment.rmbe));
    }
}

void LinkGroups::on(const group::EndConnection& action) {
    if (Live* there = live(action.group); there != nullptr) {
        there->driver->rmbe_reassigned(action.token);
        for (const auto& [number, link] : there->links) {
            there->engine->kick(link.driver);
        }
    }
}

void LinkGroups::on(const group::ForgetGroup& action) {
    live_.erase(action.group);
}

}  // namespace smc::smcr
