// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Memory, messages and alert tokens of a link group.
#include "link_groups.h"

namespace smc::sim {

using group::GroupId;
using group::Refusal;

void LinkGroups::on(const group::KnowRmb& action) {
    if (Live* group = live(action.group)) {
        group->driver->note_rmb(action.tokens);
    }
}

void LinkGroups::on(const group::ForgetRmb& action) {
    if (Live* group = live(action.group)) {
        tell(name(action.group) + ": the peer takes an RMB back");
        group->driver->forget_rmb(action.tokens);
    }
}

void LinkGroups::on(const group::RegisterBuffer& action) {
    Live* group = live(action.group);
    LiveLink* there = live(action.group, action.link);
    if (group == nullptr || there == nullptr) {
        return;
    }
    const GroupId id = action.group;
    const group::BufferId buffer = action.buffer;
    if (world_.strikes(Mishap::kBufferRefused)) {
        return carry_out(
            groups_.buffer_refused(id, buffer, action.link, Refusal::kOutOfMemory, "simulated", world_.now()));
    }
    auto& memory = group->buffers[buffer];
    const std::uint32_t number = there->port->next_number++;
    if (!memory) {
        memory = std::make_shared<SimMemory>(
            action.element_bytes, action.elements, VirtualAddress{std::uint64_t{number} << 32},
            [this, id, buffer](std::size_t element) {
                world_.after(world_.local(), [this, id, buffer, element] {
                    carry_out(groups_.element_returned(id, buffer, static_cast<std::uint8_t>(element), world_.now()));
                });
            });
    }
    memory->register_for(action.link, number);
    there->port->local.insert_or_assign(number, memory);
    if (action.kind == group::BufferKind::kRmb) {
        there->port->memory.insert_or_assign(RKey{number}, memory);
    }
    carry_out(groups_.buffer_registered(id, buffer, action.link, RKey{number}, memory->address(), world_.now()));
}

void LinkGroups::on(const group::DropBuffer& action) {
    if (Live* there = live(action.group)) {
        there->buffers.erase(action.buffer);
    }
}

// The last message of a connection goes by any link that there is.
void LinkGroups::on(const group::SendMessage& action) {
    Live* group = live(action.group);
    LiveLink* there = live(action.group, action.link);
    if (group != nullptr && there == nullptr && !group->links.empty()) {
        there = &group->links.begin()->second;
    }
    if (there != nullptr) {
        there->driver->send_soon(action.bytes);
        engine_.kick(there->driver);
    }
}

void LinkGroups::on(const group::OpenToken& action) {
    if (Live* there = live(action.group)) {
        world_.require(there->driver->open(action.token), node_ + ": two connections with one alert token");
    }
}

void LinkGroups::on(const group::ForgetToken& action) {
    if (Live* there = live(action.group)) {
        there->driver->forget(action.token);
    }
}

void LinkGroups::on(const group::LingerToken& action) {
    if (Live* there = live(action.group)) {
        there->driver->linger(action.assignment.token,
                              there->buffers.at(action.assignment.rmb)->element(action.assignment.rmbe));
    }
}

void LinkGroups::on(const group::EndConnection& action) {
    if (Live* there = live(action.group); there != nullptr && !there->links.empty()) {
        tell(name(action.group) + ": the peer has left " + text(action.token));
        there->driver->rmbe_reassigned(action.token);
        for (auto& [number, link] : there->links) {
            engine_.kick(link.driver);
        }
    }
}

}  // namespace smc::sim
