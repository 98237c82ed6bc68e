// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The links of a group: the first link, a second one at another port, and the loss of links (RFC 7609 sections 2.2.1,
// 3.5.1.6 and 3.5.5.1, C.8).
#include <algorithm>

#include "smc/group/smcr_group.h"

namespace smc::group {

namespace {

// How soon to try to replace a lost link: if another exchange prevents the attempt now, that exchange is over soon.
constexpr auto kSoon = std::chrono::milliseconds(200);
// A Linux client says that it has confirmed a further link before it takes connections on it.
constexpr auto kTakesConnectionsAfter = std::chrono::seconds(1);
// Each attempt in a row that fails for lack of another path doubles the time until the next one, up to 16 times.
constexpr unsigned kMostRefusals = 4;

bool is_parallel(const GroupLinks& links, const LocalPort& port, const RoceGid& peer) {
    return std::ranges::any_of(links.all(), [&](const auto& entry) {
        return entry.second.port.is(port) && entry.second.peer.gid.normalised() == peer.normalised();
    });
}

}  // namespace

std::optional<Refusal> SmcrGroup::create(ElementBytes& bytes, Out out) {
    began_ = out.now;
    while (!fits(terms_.link_bytes + buffer_bytes(bytes.rmbe) + buffer_bytes(bytes.send))) {
        if (!halve(bytes, terms_.rmbe_bytes)) {
            return Refusal::kOutOfMemory;
        }
    }
    begin_link(llc::kFirstLink, first_port_, out);
    add_buffer(BufferKind::kRmb, bytes.rmbe, out);
    add_buffer(BufferKind::kSend, bytes.send, out);
    return std::nullopt;
}

void SmcrGroup::begin_link(std::uint8_t number, const LocalPort& port, Out out) {
    registered_ += terms_.link_bytes;
    own_registered_ += terms_.link_bytes;
    links_.add(number, port);
    out.actions.push_back(CreateLink{id_, number, port, offered_ ? offered_->gid : key_.peer_gid});
    for (const auto& [id, buffer] : buffers_.all()) {
        out.actions.push_back(RegisterBuffer{id_, id, buffer.kind, number});
    }
}

void SmcrGroup::link_created(std::uint8_t number, const QpEnd& own, LinkId own_id, bool direct, Out out) {
    GroupLink* link = links_.find(number);
    if (link == nullptr || link->state != GroupLink::State::kCreating) {
        return;
    }
    link->exists = true;
    link->own = own;
    link->own_id = own_id;
    link->direct = direct;
    if (state_ == State::kCreating) {
        created_if_complete();
    } else {
        prepared(number, out);
    }
}

void SmcrGroup::created_if_complete() {
    GroupLink* first = links_.find(llc::kFirstLink);
    if (state_ == State::kCreating && first != nullptr && first->exists &&
        buffers_.first(BufferKind::kRmb, Buffer::State::kUsable) &&
        buffers_.first(BufferKind::kSend, Buffer::State::kUsable)) {
        state_ = State::kOffered;
        first->state = GroupLink::State::kReady;
    }
}

void SmcrGroup::connect(const clc::SmcrPeer& peer, Out out) {
    if (state_ == State::kOffered) {
        peer_ = peer;
        state_ = State::kConnecting;
        GroupLink& first = *links_.find(llc::kFirstLink);
        first.peer = peer.link;
        first.state = GroupLink::State::kConnecting;
        out.actions.push_back(ConnectLink{id_, llc::kFirstLink, peer.link});
    }
}

void SmcrGroup::link_connected(std::uint8_t number, Out out) {
    GroupLink* link = links_.find(number);
    if (state_ == State::kOver || link == nullptr || link->state != GroupLink::State::kConnecting) {
        return;
    }
    link->state = GroupLink::State::kConfirming;
    if (state_ != State::kConnecting) {
        carry_out(key_.server ? llc_->link_connected(number, out.now)
                              : llc_->accept_link({number, link->own, link->peer, link->own_id, link->direct}, out.now),
                  out);
        return;
    }
    state_ = State::kForming;
    llc_.emplace(llc_terms());
    for (const auto& [id, buffer] : buffers_.all()) {
        if (buffer.kind == BufferKind::kRmb) {
            for (const auto& [on, token] : buffer.tokens) {
                llc_->rmb_registered(llc::RmbId{static_cast<std::uint32_t>(id)}, on, token);
            }
        }
    }
    note_rmb(llc::kFirstLink, peer_.rmbe, out);
    const bool direct = key_.version < clc::kVersion2 || peer_.link_type == clc::LinkType::kDirect;
    carry_out(llc_->start({llc::kFirstLink, link->own, link->peer, link->own_id, direct}, out.now), out);
}

void SmcrGroup::link_refused(std::uint8_t number, Refusal refusal, const std::string& detail, Out out) {
    if (state_ == State::kCreating || state_ == State::kOffered || state_ == State::kConnecting) {
        finish({Reason::kNone, detail}, out);
        refused_ = refusal;
    } else if (adding_ == number) {
        give_up(number, out);
    }
}

// --- a further link -------------------------------------------------------------------------------------------------

bool SmcrGroup::could_be_better() const {
    return active() && peer_.max_links > 1 && links_.type() != GroupType::kSymmetric;
}

// The first port of the peer that no link uses; zero: there is none (SMC v2.1, Client RoCEv2 GID list, note 6).
RoceGid SmcrGroup::target() const {
    const auto free = std::ranges::find_if(peer_.gids, [&](const RoceGid& gid) { return !links_.has_peer(gid); });
    return free == peer_.gids.end() ? RoceGid{} : *free;
}

// Server: begins to add a link. If this node has only one port, the link is asymmetric, in case the client has two.
void SmcrGroup::add_link_if_wanted(Out out) {
    if (!key_.server || adding_ || !llc_ || !llc_->may_offer_link() || growing() || links_.all().empty() ||
        links_.all().size() >= llc::kMostLinks) {
        return;
    }
    const auto candidates = links_.candidates(ports_);
    const GroupType type = links_.type();
    const bool asymmetric = type == GroupType::kAsymmetricLocal || type == GroupType::kAsymmetricPeer;
    if ((candidates.empty() && asymmetric) || registered_ + terms_.link_bytes > terms_.memory_limit) {
        carry_out(llc_->no_link(out.now), out);
        return;
    }
    retry_at_ = kNever;
    adding_ = links_.next_number();
    begin_link(*adding_, candidates.empty() ? links_.all().begin()->second.port : candidates.front(), out);
}

// Client: tells the server that this node has another port; only the server may add a link.
void SmcrGroup::ask_for_link(Out out) {
    if (links_.all().empty()) {
        return;
    }
    const auto candidates = links_.candidates(ports_);
    std::vector<RoceGid> gids{links_.all().begin()->second.own.gid};
    Mac mac;
    for (const LocalPort& port : candidates) {
        if (!links_.uses(port) && gids.size() < clc::kMaxGids) {
            gids.push_back(port.gid);
            mac = port.mac;
        }
    }
    if (gids.size() > 1 && llc_->may_ask_for_link()) {
        carry_out(llc_->ask_for_link(gids, mac, out.now), out);
    }
}

// Continues to add a link when its queue pair exists and all buffers are registered for it.
void SmcrGroup::prepared(std::uint8_t number, Out out) {
    GroupLink* link = links_.find(number);
    if (adding_ != number || link == nullptr || link->state != GroupLink::State::kCreating || !link->exists ||
        !buffers_.all_registered_for(number)) {
        return;
    }
    link->state = GroupLink::State::kReady;
    if (key_.server) {
        carry_out(llc_->offer_link({number, link->own, {}, link->own_id, link->direct}, target(), out.now), out);
        return;
    }
    link->peer = *offered_;
    link->state = GroupLink::State::kConnecting;
    out.actions.push_back(ConnectLink{id_, number, link->peer});
}

void SmcrGroup::offered(const llc::LinkOffered& offer, Out out) {
    auto candidates = links_.candidates(ports_);
    std::erase_if(candidates, [&](const LocalPort& port) { return is_parallel(links_, port, offer.peer.gid); });
    const auto target = std::ranges::find_if(
        candidates, [&](const LocalPort& port) { return port.gid.normalised() == offer.target.normalised(); });
    std::optional<LocalPort> port;
    if (target != candidates.end()) {
        port = *target;
    } else if (!candidates.empty()) {
        port = candidates.front();
    } else if (links_.type() != GroupType::kAsymmetricLocal && links_.type() != GroupType::kAsymmetricPeer &&
               !links_.has_peer(offer.peer.gid)) {
        port = links_.find(offer.over)->port;  // an asymmetric link
    }
    if (!port || adding_ || links_.find(offer.number) != nullptr || links_.all().size() >= llc::kMostLinks ||
        registered_ + terms_.link_bytes > terms_.memory_limit) {
        return carry_out(llc_->reject_link(llc::AddLinkReason::kNoAlternatePath, out.now), out);
    }
    adding_ = offer.number;
    offered_ = offer.peer;
    begin_link(offer.number, *port, out);
}

// The link that is being added cannot be created or connected here.
void SmcrGroup::give_up(std::uint8_t number, Out out) {
    drop_link(number, "it could not be created or connected on this node", out);
    if (!key_.server) {
        carry_out(llc_->reject_link(llc::AddLinkReason::kNoAlternatePath, out.now), out);
        if (adding_) {
            added({}, out);
        }
        return;
    }
    carry_out(llc_->link_down(number, "it could not be created or connected on this node", out.now), out);
    carry_out(llc_->no_link(out.now), out);
    added({}, out);
}

void SmcrGroup::added(const llc::AddLinkOver& how, Out out) {
    if (adding_ && !how.added) {
        drop_link(*adding_, "the attempt to add it failed or was rejected", out);
    }
    adding_.reset();
    offered_.reset();
    tried_at_ = out.now;
    retry_at_ = out.now + terms_.link_retry * (1U << refusals_);  // C.8
    refusals_ = how.unlikely ? std::min(refusals_ + 1, kMostRefusals) : 0;
}

void SmcrGroup::link_up(const llc::LinkUp& up, Out out) {
    GroupLink* link = links_.find(up.number);
    if (link == nullptr) {
        return;
    }
    links_.confirmed(*link);
    link->peer_id = up.peer_id;
    out.actions.push_back(UseLink{id_, up.number});
    if (state_ == State::kActive) {
        link->usable_from = out.now + kTakesConnectionsAfter;
    }
    if (up.number != llc::kFirstLink || state_ == State::kActive) {
        out.actions.push_back(LinkChanged{id_, up.number, true, {}});
    }
    // The group is symmetric now, and needs its asymmetric link no more (section 2.2.1).
    if (const auto surplus = links_.surplus(); surplus && key_.server) {
        carry_out(llc_->delete_link(*surplus, llc::DeleteLinkReason::kAsymmetricNotNeeded, out.now), out);
    }
    leave_dead_ports(out);  // the new link replaces links on these ports
}

void SmcrGroup::drop_link(std::uint8_t number, const std::string& why, Out out) {
    const GroupLink* link = links_.find(number);
    if (link == nullptr) {
        return;
    }
    const bool was_used = link->state == GroupLink::State::kUp || link->state == GroupLink::State::kRetired;
    registered_ -= terms_.link_bytes;
    own_registered_ -= terms_.link_bytes;
    out.actions.push_back(EndLink{id_, number, why, link->state != GroupLink::State::kRetired});
    links_.erase(number);
    buffers_.forget_link(number);
    if (was_used) {
        out.actions.push_back(LinkChanged{id_, number, false, why});
        refusals_ = 0;
        retry_at_ = std::min(retry_at_, out.now + kSoon);
    }
    // Buffers that waited only for their registration with this link are complete without it.
    for (const auto& [id, buffer] : std::map(buffers_.all())) {
        if (Buffer* waiting = buffers_.find(id); waiting != nullptr && waiting->state == Buffer::State::kRegistering) {
            registered_everywhere(id, *waiting, out);
        }
    }
}

void SmcrGroup::link_down(std::uint8_t number, const std::string& why, Out out) {
    if (state_ == State::kOver || links_.find(number) == nullptr) {
        return;
    }
    if (!llc_) {
        finish({Reason::kLinkDown, why}, out);
    } else if (adding_ == number && links_.find(number)->state < GroupLink::State::kConfirming) {
        give_up(number, out);
    } else {
        carry_out(llc_->link_down(number, why, out.now), out);
    }
}

void SmcrGroup::device_gone(const std::string& device, Out out) {
    for (const auto& [number, link] : std::map(links_.all())) {
        if (link.port.device == device) {
            link_down(number, "device " + device + " is gone", out);
        }
    }
}

bool SmcrGroup::is_on_a_dead_port(std::uint8_t number) const {
    const GroupLink* link = links_.find(number);
    return link != nullptr && std::ranges::any_of(down_, [&](const LocalPort& port) { return port.is(link->port); });
}

// The device of a dead port would retransmit for seconds before the link breaks. If no other link is up, the links
// stay: the port may come back in time.
void SmcrGroup::leave_dead_ports(Out out) {
    const auto up = links_.up();
    if (std::ranges::all_of(up, [&](std::uint8_t number) { return is_on_a_dead_port(number); })) {
        return;
    }
    for (const std::uint8_t number : up) {
        if (is_on_a_dead_port(number)) {
            link_down(number, "its port is down", out);
        }
    }
}

void SmcrGroup::ports_changed(Out out) {
    try_again(out.now);
}

void SmcrGroup::try_again(TimePoint at) {
    refusals_ = 0;
    if (could_be_better()) {
        retry_at_ = std::min(retry_at_, at);
    }
}

bool SmcrGroup::is_up(std::uint8_t link) const {
    return std::ranges::count(links_.up(), link) != 0;
}

// In an asymmetric group connections begin on the first link; the other one is there in case the first link fails.
std::uint8_t SmcrGroup::least_used_link(TimePoint now) const {
    auto numbers = links_.up();
    const auto is_new = [&](std::uint8_t number) { return now < links_.find(number)->usable_from; };
    if (!std::ranges::all_of(numbers, is_new)) {
        std::erase_if(numbers, is_new);
    }
    if (numbers.empty()) {
        return llc::kFirstLink;
    }
    if (links_.type() != GroupType::kSymmetric) {
        return numbers.front();
    }
    const auto used = [&](std::uint8_t number) {
        return std::ranges::count_if(members_, [&](const auto& entry) { return entry.second == number; });
    };
    return *std::ranges::min_element(numbers, {}, used);
}

}  // namespace smc::group
