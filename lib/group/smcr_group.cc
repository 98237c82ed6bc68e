// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "smc/group/smcr_group.h"

#include <algorithm>

namespace smc::group {

namespace {

// An idle group is ended by its server; a client that hears nothing ends it this much later.
constexpr auto kClientTimeout = std::chrono::seconds(10);
// When to try again if a link cannot be added because another exchange is under way.
constexpr auto kBusy = std::chrono::milliseconds(200);
// Time between attempts to add a link that a client asks for: each costs a queue pair and the registration of all
// memory, so a client that asks again and again has to wait.
constexpr auto kBetweenWishes = std::chrono::seconds(1);

}  // namespace

SmcrGroup::SmcrGroup(GroupId id, const SmcrKey& key, LocalPort port, const clc::SmcrPeer& peer, const SmcrTerms& terms,
                     const std::vector<LocalPort>& ports, const std::vector<LocalPort>& down, std::size_t& registered)
    : id_(id),
      key_(key),
      first_port_(std::move(port)),
      max_connections_(peer.max_connections),
      negotiable_(peer.version >= clc::kVersion2 && peer.release >= clc::kRelease1),
      terms_(terms),
      ports_(ports),
      down_(down),
      registered_(registered),
      peer_(peer) {}

SmcrGroup::~SmcrGroup() {
    registered_ -= own_registered_;
}

llc::GroupTerms SmcrGroup::llc_terms() const {
    llc::GroupTerms terms;
    terms.server = key_.server;
    terms.version = key_.version;
    terms.max_links = peer_.max_links;
    terms.max_connections = peer_.max_connections;
    terms.negotiated = negotiable_;
    terms.eye_catchers = terms_.eye_catchers;
    terms.reply_timeout = terms_.llc_timeout;
    terms.second_link = std::min(terms.second_link, terms_.llc_timeout);
    terms.test_interval = terms_.test_interval;
    return terms;
}

bool SmcrGroup::can_be_told() const {
    return state_ != State::kCreating && state_ != State::kOver;
}

bool SmcrGroup::has_room() const {
    // An RMBE or send element that is still taken although its member has left keeps another one out.
    const auto members = static_cast<unsigned>(members_.size());
    const auto held = [&](BufferKind kind) { return std::max(buffers_.taken(kind), members) - members; };
    return !closed_ && members + std::max(held(BufferKind::kRmb), held(BufferKind::kSend)) < max_connections_ &&
           buffers_.unconfirmed() < kMaxUnconfirmed;
}

clc::Rmbe SmcrGroup::rmbe(const Assignment& assignment) const {
    const Buffer& buffer = buffers_.at(assignment.rmb);
    const llc::RToken& rmb = buffer.tokens.at(assignment.link);
    return {rmb.rkey, rmb.address, static_cast<std::uint8_t>(assignment.rmbe + 1), assignment.token,
            compress_size(buffer.element_bytes)};
}

std::optional<Assignment> SmcrGroup::take(MemberId member, AlertToken token, std::optional<std::uint8_t> named,
                                          ElementBytes& bytes, Out out) {
    if (state_ == State::kCreating || state_ == State::kOver) {
        return std::nullopt;
    }
    bytes = {only_usual_rmbes_ ? terms_.rmbe_bytes : std::min(bytes.rmbe, largest_.rmbe),
             std::min(bytes.send, largest_.send)};
    auto assignment = buffers_.take(member, token, bytes);
    if (!assignment) {
        grow(bytes, out);
        assignment = buffers_.take(member, token, bytes);  // grow() may have reduced the sizes
    }
    if (assignment) {
        refused_.reset();
        assignment->link = named.value_or(least_used_link(out.now));
        members_.emplace(member, assignment->link);
        out.actions.push_back(OpenToken{id_, assignment->token});
    }
    return assignment;
}

void SmcrGroup::leave(MemberId member, const Assignment& assignment, const Leaving& how, Out out) {
    members_.erase(member);
    running_.erase(member);
    if (!how.ran) {
        buffers_.give_back(assignment.send, assignment.send_element);
        if (how.peer && state_ != State::kOver) {
            cdc::Message gone;
            gone.sequence = 1;
            gone.token = how.peer->token;
            gone.producer.count = gone.consumer.count = eye_catchers_ ? cdc::kEyeCatcherBytes : 0;
            gone.state = cdc::kAbnormalClose;
            const auto encoded = cdc::encode(gone);
            out.actions.push_back(SendMessage{id_, assignment.link, {encoded.view().begin(), encoded.view().end()}});
        }
        if (!how.told) {
            out.actions.push_back(ForgetToken{id_, assignment.token});
            buffers_.give_back(assignment.rmb, assignment.rmbe);
        } else {
            if (Buffer* rmb = buffers_.find(assignment.rmb); rmb != nullptr) {
                rmb->elements[assignment.rmbe].unconfirmed = !how.peer;
            }
            out.actions.push_back(LingerToken{id_, assignment});
        }
    }
    if (members_.empty()) {
        idle_since_ = out.now;
    }
    shrink(out);
}

void SmcrGroup::element_returned(BufferId buffer, std::uint8_t element, Out out) {
    buffers_.give_back(buffer, element);
    largest_ = kAnySize;
    only_usual_rmbes_ = false;
    shrink(out);
}

bool SmcrGroup::is_with(const SmcrKey& key, const PeerId& peer) const {
    if (key.server != key_.server || key.version != key_.version || key.eid != key_.eid ||
        key.pnet_id != key_.pnet_id || key.vlan != key_.vlan) {
        return false;
    }
    if (key.peer_gid.is_v4() != key_.peer_gid.is_v4()) {
        return false;
    }
    const bool same_peer = peer != PeerId{} && peer_.id == peer;
    const bool same_gid = key.peer_gid.normalised() == key_.peer_gid.normalised() || links_.has_peer(key.peer_gid);
    return same_peer || (same_gid && (peer == PeerId{} || peer_.id == PeerId{}));
}

// --- LLC ------------------------------------------------------------------------------------------------------------

void SmcrGroup::carry_out(const llc::Actions& actions, Out out) {
    for (const auto& action : actions) {
        std::visit([&](const auto& a) { on(a, out); }, action);
    }
}

void SmcrGroup::on(const llc::Send& send, Out out) {
    const auto view = send.message.view();
    out.actions.push_back(SendMessage{id_, send.link, {view.begin(), view.end()}});
}

void SmcrGroup::on(const llc::Confirmed& done, Out out) {
    state_ = State::kActive;
    eye_catchers_ = done.eye_catchers;
    if (retry_at_ == kNever) {
        retry_at_ = out.now + terms_.link_retry;
    }
    out.actions.push_back(GroupUp{id_});
}

void SmcrGroup::on(const llc::WantLink&, Out out) {
    add_link_if_wanted(out);
    if (!adding_) {
        carry_out(llc_->no_link(out.now), out);
    }
}

void SmcrGroup::on(const llc::PeerRmbGone& rmb, Out out) {
    forgotten_.push_back(rmb.tokens);
    out.actions.push_back(ForgetRmb{id_, rmb.tokens});
}

void SmcrGroup::on(const llc::LinkAccepted& accepted, Out out) {
    if (GroupLink* link = links_.find(accepted.number)) {
        link->peer = accepted.peer;
        link->state = GroupLink::State::kConnecting;
        out.actions.push_back(ConnectLink{id_, accepted.number, accepted.peer});
    }
}

void SmcrGroup::on(const llc::LinkRetired& retired, Out out) {
    if (GroupLink* link = links_.find(retired.number)) {
        link->state = GroupLink::State::kRetired;
        out.actions.push_back(RetireLink{id_, retired.number});
    }
}

// A client of version 2 lists all its ports, one of version 1 only another port that it has.
void SmcrGroup::on(const llc::LinkWanted& wanted, Out out) {
    peer_.gids.resize(0);
    for (const RoceGid& gid : wanted.gids) {
        peer_.gids.push_back(gid.normalised());
    }
    try_again(std::max(out.now, tried_at_ + kBetweenWishes));
}

void SmcrGroup::finish(const llc::Over& over, Out out) {
    if (state_ == State::kOver) {
        return;
    }
    const bool in_data_path = llc_.has_value();
    state_ = State::kOver;
    why_ = over;
    if (in_data_path) {
        out.actions.push_back(EndGroup{id_, over.detail});
    }
    out.actions.push_back(
        GroupOver{id_, key_.peer_gid, over.reason, over.detail, static_cast<unsigned>(running_.size())});
}

void SmcrGroup::message(std::uint8_t link, wire::Bytes bytes, Out out) {
    if (llc_ && state_ != State::kOver) {
        carry_out(llc_->message(link, bytes, out.now), out);
        shrink(out);
    }
}

void SmcrGroup::heard(std::uint8_t link, std::uint64_t messages, TimePoint now) {
    if (llc_) {
        llc_->heard(link, messages, now);
    }
}

void SmcrGroup::end(llc::DeleteLinkReason reason, Out out) {
    if (state_ == State::kOver) {
        return;
    }
    if (llc_) {
        carry_out(llc_->end(reason, out.now), out);
    } else {
        finish({Reason::kNone, "the first contact did not complete"}, out);
    }
}

void SmcrGroup::down(const std::string& why, Out out) {
    if (state_ == State::kOver) {
        return;
    }
    if (llc_) {
        carry_out(llc_->down(why), out);
    } else {
        finish({Reason::kLinkDown, why}, out);
    }
}

void SmcrGroup::out_of_sync(Out out) {
    if (running_.empty()) {
        return down("the peer says that the link group is out of sync", out);
    }
    closed_ = true;
    if (llc_) {
        carry_out(llc_->test(out.now), out);
    }
}

void SmcrGroup::tick(Out out) {
    if (state_ == State::kOver || !llc_) {
        return;
    }
    carry_out(llc_->tick(out.now), out);
    shrink(out);
    if (out.now >= retry_at_) {
        retry_at_ = kNever;
        if (could_be_better()) {
            retry_at_ = out.now + terms_.link_retry;
            if (key_.server && (adding_ || growing() || !llc_->may_offer_link())) {
                retry_at_ = out.now + kBusy;
            } else if (key_.server) {
                add_link_if_wanted(out);
            } else {
                ask_for_link(out);
            }
        }
    }
    if (out.now >= idle_deadline()) {
        end(llc::DeleteLinkReason::kInactivity, out);
    }
}

TimePoint SmcrGroup::next_deadline() const {
    if (state_ == State::kOver || !llc_) {
        return kNever;
    }
    const TimePoint surplus = surplus_since_ == kNever ? kNever : surplus_since_ + kSurplusTime;
    return std::min({llc_->next_deadline(), idle_deadline(), surplus, active() ? retry_at_ : kNever});
}

TimePoint SmcrGroup::idle_deadline() const {
    if (!active() || !members_.empty() || idle_since_ == kNever) {
        return kNever;
    }
    if (closed_) {
        return idle_since_;
    }
    // A group that has more memory than usual is kept for less long.
    const std::size_t usual = terms_.link_bytes * links_.all().size() + 2 * buffer_bytes(terms_.rmbe_bytes);
    const double part = std::min(1.0, static_cast<double>(usual) / static_cast<double>(own_registered_));
    const std::chrono::duration<double> idle = terms_.idle * part;
    return idle_since_ + std::chrono::duration_cast<TimePoint::duration>(idle) +
           (key_.server ? std::chrono::seconds(0) : kClientTimeout);
}

}  // namespace smc::group
