// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "smc/group/smcr_group.h"

#include <algorithm>

namespace smc::group {

namespace {

// A client that is not told by its server goes a little later than the server would.
constexpr auto kClientPatience = std::chrono::seconds(10);
// An RMB that nobody uses is kept for so long.
constexpr auto kSurplusTime = std::chrono::seconds(10);

}  // namespace

SmcrGroup::SmcrGroup(GroupId id, const SmcrKey& key, LocalPort port, const clc::SmcrPeer& peer, const SmcrTerms& terms,
                     std::size_t& registered)
    : id_(id),
      key_(key),
      port_(std::move(port)),
      max_connections_(peer.max_connections),
      negotiable_(peer.version >= clc::kVersion2 && peer.release >= clc::kRelease1),
      terms_(terms),
      registered_(registered),
      buffers_(terms.rmbes_per_rmb) {}

SmcrGroup::~SmcrGroup() {
    registered_ -= own_registered_;
}

std::optional<Refusal> SmcrGroup::create(Out out) {
    if (registered_ + terms_.link_bytes + 2 * buffer_bytes() > terms_.memory_limit) {
        return Refusal::kOutOfMemory;
    }
    registered_ += terms_.link_bytes;
    own_registered_ += terms_.link_bytes;
    // RFC 7609 section 3.5.1.6: a server must offer a second link where one link cannot be agreed on.
    out.actions.push_back(CreateLink{id_, port_, key_.server && !negotiable_});
    add_buffer(BufferKind::kRmb, out);
    add_buffer(BufferKind::kSend, out);
    return std::nullopt;
}

void SmcrGroup::link_created(const QpEnd& own, const std::optional<QpEnd>& spare, LinkId own_id, bool direct, Out) {
    if (state_ == State::kCreating) {
        link_exists_ = true;
        own_ = own;
        spare_ = spare;
        own_link_id_ = own_id;
        direct_ = direct;
        created_if_complete();
    }
}

void SmcrGroup::created_if_complete() {
    if (state_ == State::kCreating && link_exists_ && buffers_.first(BufferKind::kRmb, Buffer::State::kUsable) &&
        buffers_.first(BufferKind::kSend, Buffer::State::kUsable)) {
        state_ = State::kOffered;
    }
}

void SmcrGroup::connect(const clc::SmcrPeer& peer, Out out) {
    if (state_ == State::kOffered) {
        peer_ = peer;
        state_ = State::kConnecting;
        out.actions.push_back(ConnectLink{id_, peer.link});
    }
}

llc::GroupTerms SmcrGroup::llc_terms() const {
    llc::GroupTerms terms;
    terms.server = key_.server;
    terms.version = key_.version;
    terms.max_links = peer_.max_links;
    terms.max_connections = peer_.max_connections;
    terms.negotiated = negotiable_;
    terms.eye_catchers = terms_.eye_catchers;
    const auto rmb = buffers_.first(BufferKind::kRmb, Buffer::State::kUsable);
    if (spare_ && rmb) {
        // One device, and one protection domain: the RMB has the same RKey on either link.
        const Buffer& first = buffers_.at(*rmb);
        terms.second = {*spare_, {first.rkey, first.rkey, first.address}};
    }
    terms.reply_timeout = terms_.llc_timeout;
    terms.test_interval = terms_.test_interval;
    return terms;
}

void SmcrGroup::link_connected(Out out) {
    if (state_ != State::kConnecting) {
        return;
    }
    state_ = State::kForming;
    llc_.emplace(llc_terms());
    llc_->know(peer_.rmbe.rkey);
    const bool direct = key_.version < clc::kVersion2 || peer_.link_type == clc::LinkType::kDirect;
    carry_out(llc_->start({llc::kFirstLink, own_, peer_.link, own_link_id_, direct}, out.now), out);
}

void SmcrGroup::link_refused(Refusal refusal, const std::string& detail, Out out) {
    finish({Reason::kNone, detail}, out);
    refused_ = refusal;
}

bool SmcrGroup::can_be_told() const {
    return state_ != State::kCreating && state_ != State::kOver;
}

bool SmcrGroup::has_room() const {
    // Elements that members which are gone still occupy count as well.
    const auto seats = static_cast<unsigned>(members_.size());
    const auto held = [&](BufferKind kind) { return std::max(buffers_.taken(kind), seats) - seats; };
    return seats + held(BufferKind::kRmb) + held(BufferKind::kSend) < max_connections_ &&
           buffers_.unconfirmed() < kMaxUnconfirmed;
}

clc::Rmbe SmcrGroup::rmbe(const Seat& seat) const {
    const Buffer& rmb = buffers_.at(seat.rmb);
    return {rmb.rkey, rmb.address, static_cast<std::uint8_t>(seat.rmbe + 1), seat.token,
            compress_size(terms_.rmbe_bytes)};
}

std::optional<Seat> SmcrGroup::take(MemberId member, AlertToken token, Out out) {
    if (state_ == State::kCreating || state_ == State::kOver) {
        return std::nullopt;
    }
    if (const auto seat = buffers_.take(member, token)) {
        members_.insert(member);
        out.actions.push_back(OpenToken{id_, seat->token});
        return seat;
    }
    grow(out);
    return std::nullopt;
}

void SmcrGroup::leave(MemberId member, const Seat& seat, const Leaving& how, Out out) {
    members_.erase(member);
    running_.erase(member);
    if (!how.ran) {
        buffers_.give_back(seat.send, seat.send_element);
        if (how.peer && state_ != State::kOver) {
            cdc::Message gone;
            gone.sequence = 1;
            gone.token = how.peer->token;
            gone.producer.count = gone.consumer.count = eye_catchers_ ? cdc::kEyeCatcherBytes : 0;
            gone.state = cdc::kAbnormalClose;
            const auto encoded = cdc::encode(gone);
            out.actions.push_back(SendMessage{id_, llc::kFirstLink, {encoded.view().begin(), encoded.view().end()}});
        }
        if (!how.told) {
            out.actions.push_back(ForgetToken{id_, seat.token});
            buffers_.give_back(seat.rmb, seat.rmbe);
        } else {
            if (Buffer* rmb = buffers_.find(seat.rmb); rmb != nullptr) {
                rmb->elements[seat.rmbe].unconfirmed = !how.peer;
            }
            out.actions.push_back(LingerToken{id_, seat});
        }
    }
    if (members_.empty()) {
        idle_since_ = out.now;
    }
    shrink(out);
}

void SmcrGroup::element_returned(BufferId buffer, std::uint8_t element, Out out) {
    buffers_.give_back(buffer, element);
    shrink(out);
}

// --- memory ---------------------------------------------------------------------------------------------------------

bool SmcrGroup::growing() const {
    return std::ranges::any_of(buffers_.all(), [](const auto& entry) {
        return entry.second.state == Buffer::State::kRegistering || entry.second.state == Buffer::State::kConfirming;
    });
}

void SmcrGroup::add_buffer(BufferKind kind, Out out) {
    registered_ += buffer_bytes();
    own_registered_ += buffer_bytes();
    out.actions.push_back(RegisterBuffer{id_, buffers_.add(kind), kind});
}

void SmcrGroup::drop_buffer(BufferId buffer, Out out) {
    registered_ -= buffer_bytes();
    own_registered_ -= buffer_bytes();
    buffers_.erase(buffer);
    out.actions.push_back(DropBuffer{id_, buffer});
}

// One more RMB, and as much to send from, where all is in use. Both or none: half of it helps nobody.
void SmcrGroup::grow(Out out) {
    if (growing()) {
        return;
    }
    const bool send = buffers_.all_full(BufferKind::kSend), rmb = buffers_.all_full(BufferKind::kRmb);
    if (registered_ + (send ? buffer_bytes() : 0) + (rmb ? buffer_bytes() : 0) > terms_.memory_limit) {
        refused_ = Refusal::kOutOfMemory;
        return;
    }
    if (rmb && rmbs() >= llc::kMaxRmbs) {
        refused_ = Refusal::kNoMoreRmbs;
        return;
    }
    if (send) {
        add_buffer(BufferKind::kSend, out);
    }
    if (rmb) {
        add_buffer(BufferKind::kRmb, out);
    }
}

void SmcrGroup::buffer_registered(BufferId id, RKey rkey, VirtualAddress address, Out out) {
    Buffer* buffer = buffers_.find(id);
    if (buffer == nullptr || buffer->state != Buffer::State::kRegistering) {
        return;
    }
    buffer->rkey = rkey;
    buffer->address = address;
    // G2: the first RMB is told by CLC.
    if (buffer->kind == BufferKind::kRmb && state_ != State::kCreating) {
        buffer->state = Buffer::State::kConfirming;
        if (llc_) {
            carry_out(llc_->confirm_rkey(rkey, address, out.now), out);
        }
        return;
    }
    buffer->state = Buffer::State::kUsable;
    created_if_complete();
}

void SmcrGroup::buffer_refused(BufferId id, Refusal refusal, const std::string& detail, Out out) {
    if (buffers_.find(id) == nullptr) {
        return;
    }
    drop_buffer(id, out);
    if (state_ == State::kCreating) {
        finish({Reason::kNone, detail}, out);
    }
    refused_ = refusal;
}

void SmcrGroup::rkey_confirmed(const llc::RkeyConfirmed& done, Out out) {
    const auto id = buffers_.by_rkey(done.rkey);
    if (!id || buffers_.at(*id).state != Buffer::State::kConfirming) {
        return;
    }
    if (done.accepted) {
        buffers_.find(*id)->state = Buffer::State::kUsable;
    } else {
        drop_buffer(*id, out);
        refused_ = Refusal::kNoMoreRmbs;
    }
}

void SmcrGroup::rkey_deleted(const llc::RkeyDeleted& done, Out out) {
    const auto id = buffers_.by_rkey(done.rkey);
    if (id && buffers_.at(*id).state == Buffer::State::kDeleting) {
        drop_buffer(*id, out);
    }
}

// Memory that nobody uses goes: what is only sent from at once, an RMB after a while, because the next burst would
// register it again.
void SmcrGroup::shrink(Out out) {
    if (!active() || growing()) {
        surplus_since_ = kNever;
        return;
    }
    if (const auto send = buffers_.surplus(BufferKind::kSend)) {
        drop_buffer(*send, out);
    }
    if (!buffers_.surplus(BufferKind::kRmb)) {
        surplus_since_ = kNever;
    } else if (surplus_since_ == kNever) {
        surplus_since_ = out.now;
    } else if (out.now - surplus_since_ >= kSurplusTime) {
        surplus_since_ = kNever;
        while (const auto rmb = buffers_.surplus(BufferKind::kRmb)) {
            Buffer& buffer = *buffers_.find(*rmb);
            buffer.state = Buffer::State::kDeleting;
            carry_out(llc_->delete_rkey(buffer.rkey, out.now), out);
        }
    }
}

// --- LLC ------------------------------------------------------------------------------------------------------------

void SmcrGroup::carry_out(const llc::Actions& actions, Out out) {
    for (const auto& action : actions) {
        if (const auto* send = std::get_if<llc::Send>(&action)) {
            const auto view = send->message.view();
            out.actions.push_back(SendMessage{id_, send->link, {view.begin(), view.end()}});
        } else if (const auto* done = std::get_if<llc::Confirmed>(&action)) {
            confirmed(*done, out);
        } else if (const auto* rkey = std::get_if<llc::RkeyConfirmed>(&action)) {
            rkey_confirmed(*rkey, out);
        } else if (const auto* gone = std::get_if<llc::RkeyDeleted>(&action)) {
            rkey_deleted(*gone, out);
        } else if (const auto* over = std::get_if<llc::Over>(&action)) {
            finish(*over, out);
        }
    }
}

void SmcrGroup::confirmed(const llc::Confirmed& done, Out out) {
    state_ = State::kActive;
    eye_catchers_ = done.eye_catchers;
    peer_link_id_ = done.peer_id;
    out.actions.push_back(GroupUp{id_});
}

void SmcrGroup::finish(const llc::Over& over, Out out) {
    if (state_ == State::kOver) {
        return;
    }
    const bool in_data_path = llc_.has_value();
    state_ = State::kOver;
    why_ = over;
    if (in_data_path) {
        out.actions.push_back(EndLink{id_, over.detail});
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

void SmcrGroup::tick(Out out) {
    if (state_ == State::kOver || !llc_) {
        return;
    }
    carry_out(llc_->tick(out.now), out);
    shrink(out);
    if (out.now >= idle_deadline()) {
        end(llc::DeleteLinkReason::kInactivity, out);
    }
}

TimePoint SmcrGroup::next_deadline() const {
    if (state_ == State::kOver || !llc_) {
        return kNever;
    }
    const TimePoint surplus = surplus_since_ == kNever ? kNever : surplus_since_ + kSurplusTime;
    return std::min({llc_->next_deadline(), idle_deadline(), surplus});
}

TimePoint SmcrGroup::idle_deadline() const {
    if (!active() || !members_.empty() || idle_since_ == kNever) {
        return kNever;
    }
    return idle_since_ + terms_.idle + (key_.server ? std::chrono::seconds(0) : kClientPatience);
}

}  // namespace smc::group
