// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/smcr/link_group.h"

#include <asio/co_spawn.hpp>
#include <asio/post.hpp>

#include <algorithm>

#include "agent/log.h"
#include "os/random.h"

namespace smc::smcr {

namespace {

constexpr unsigned kMaxConnecting = 8;

// Counts while it exists, however that ends.
class Waiting {
 public:
    explicit Waiting(std::shared_ptr<unsigned> count) : count_(std::move(count)) { ++*count_; }
    ~Waiting() { --*count_; }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

 private:
    std::shared_ptr<unsigned> count_;
};

asio::awaitable<Result<void>> connect_link(std::shared_ptr<roce::Channel> channel, roce::LinkAddress to) {
    co_return channel->link().connect(to);
}

template <class Id>
Id random_id() {
    std::uint32_t value = 0;
    while (value == 0) {
        random_bytes(&value, sizeof value);
    }
    return Id{value};
}

}  // namespace

LinkGroup::LinkGroup(Parts parts, std::uint32_t id, const GroupKey& key, Devices::Usable device)
    : parts_(std::move(parts)), id_(id), key_(key), device_(std::move(device)), own_id_(random_id<LinkId>()) {}

Result<std::shared_ptr<LinkGroup>> LinkGroup::create(Parts parts, std::uint32_t id, const GroupKey& key,
                                                     const Devices::Usable& device) {
    std::shared_ptr<LinkGroup> group(new LinkGroup(std::move(parts), id, key, device));
    if (auto opened = group->open(); !opened) {
        return opened.error();
    }
    return group;
}

Result<void> LinkGroup::open() {
    auto pd = roce::ProtectionDomain::allocate(device_.context);
    if (!pd) {
        return pd.error();
    }
    pd_ = std::move(*pd);
    if (*parts_.registered + group_bytes(parts_.config) > memory_limit()) {
        return Error{ENOMEM, "roce.memory_mib is used up"};
    }
    auto link = roce::Link::create(pd_, device_.port, device_.gid, link_limits(parts_.config));
    if (!link) {
        return link.error();
    }
    link_bytes_ = roce::message_bytes(link_limits(parts_.config));
    *parts_.registered += link_bytes_;
    if (key_.server && key_.version < 2) {
        roce::LinkLimits little;
        little.sends = little.receives = 16;
        auto spare = roce::Link::create(pd_, device_.port, device_.gid, little);
        if (!spare) {
            return spare.error();
        }
        spare_ = std::move(*spare);
    }
    // The hooks run on the engine's thread and may outlive the group.
    auto& io = parts_.io;
    const auto weak = weak_from_this();
    roce::Channel::Hooks hooks{
        [&io, weak](std::vector<std::uint8_t> message) {
            asio::post(io, [weak, message = std::move(message)] {
                if (const auto group = weak.lock()) {
                    group->channel_->llc_done();
                    log()->debug("link group {}: LLC type {:#04x} of {} bytes", group->id_,
                                 message.empty() ? 0 : message[0], message.size());
                    group->apply(group->machine_->message(message, std::chrono::steady_clock::now()));
                }
            });
        },
        [&io, weak](std::string why) {
            asio::post(io, [weak, why = std::move(why)] {
                if (const auto group = weak.lock()) {
                    group->down(why);
                }
            });
        }};
    channel_ = std::make_shared<roce::Channel>(std::move(*link), std::move(hooks), parts_.config.busy_poll);
    for (const bool rmb : {true, false}) {
        auto memory = allocate(rmb ? roce::MemoryRegion::Access::kRemoteWrite : roce::MemoryRegion::Access::kLocal);
        if (!memory) {
            return memory.error();
        }
        (rmb ? rmbs_ : sends_).push_back(std::move(*memory));
    }
    return {};
}

LinkGroup::~LinkGroup() {
    *parts_.registered -= link_bytes_;
    for (auto* list : {&rmbs_, &sends_, &going_}) {
        for (auto& rmb : *list) {
            release(std::move(rmb));
        }
    }
    if (growth_) {
        release(std::move(growth_->rmb));
    }
}

clc::RoceAddress LinkGroup::address() const {
    const roce::LinkAddress& own = channel_->link().address();
    return {own.gid, own.mac, own.qpn, own.psn, own.mtu};
}

bool LinkGroup::is_with(const clc::RoceAddress& peer) const {
    return peer_.link.gid == peer.gid && peer_.link.qpn == peer.qpn;
}

asio::awaitable<Result<void>> LinkGroup::connect(clc::RocePeer peer) {
    const auto self = shared_from_this();
    if (over_) {
        co_return Error{ENOTCONN, why_.detail};
    }
    const clc::RoceAddress& link = peer.link;
    // The kernel may have to ask for the neighbour's address, and waits a second for an answer. Peers that nobody knows
    // must not keep the others from being asked for.
    if (*parts_.connecting >= kMaxConnecting) {
        co_return Error{EBUSY, "too many queue pairs wait for their peer's address"};
    }
    const roce::LinkAddress to{link.gid, link.mac, link.qpn, link.psn, link.mtu};
    const auto connected = co_await [&]() -> asio::awaitable<Result<void>> {
        const Waiting waiting(parts_.connecting);
        co_return co_await asio::co_spawn(parts_.blocking, connect_link(channel_, to), asio::use_awaitable);
    }();
    if (!connected) {
        co_return connected;
    }
    if (over_) {
        co_return Error{ENOTCONN, why_.detail};
    }
    peer_ = peer;
    llc::LinkTerms terms;
    terms.server = key_.server;
    terms.version = key_.version;
    terms.own = {address().gid, address().mac, address().qpn};
    terms.peer = {link.gid, link.mac, link.qpn};
    terms.own_id = own_id_;
    // RFC 7609 section 2.2.2: a server of version 1 cannot say less than 2.
    terms.max_links = key_.server && key_.version < 2 ? 2 : peer.max_links;
    terms.max_connections = peer.max_connections;
    terms.eye_catchers = parts_.config.eye_catchers;
    terms.mtu = address().mtu;
    if (spare_) {
        terms.second = llc::LinkEnd{spare_->address().gid, spare_->address().mac, spare_->address().qpn};
        terms.second_psn = spare_->address().psn;
    }
    terms.reply_timeout = parts_.config.llc_timeout;
    terms.test_interval = parts_.config.test_link;
    machine_.emplace(std::move(terms));
    machine_->know(peer.rmbe.rkey);
    parts_.engine.add_task(channel_);
    apply(machine_->start(std::chrono::steady_clock::now()));
    co_return Result<void>();
}

void LinkGroup::when_settled(std::function<void()> then) {
    if (settled()) {
        asio::post(parts_.io, std::move(then));
    } else {
        settled_.push_back(std::move(then));
    }
}

void LinkGroup::settle() {
    for (auto& then : std::exchange(settled_, {})) {
        asio::post(parts_.io, std::move(then));
    }
}

void LinkGroup::send(wire::Bytes message) {
    if (!channel_->send_soon({message.begin(), message.end()}) && !over_) {
        asio::post(parts_.io, [self = shared_from_this()] { self->down("the peer does not take what it is sent"); });
    }
    parts_.engine.kick(channel_);
}

void LinkGroup::apply(const llc::Actions& actions) {
    const auto self = shared_from_this();
    for (const auto& action : actions) {
        if (const auto* send = std::get_if<llc::Send>(&action)) {
            this->send(send->message.view());
        } else if (const auto* done = std::get_if<llc::Confirmed>(&action)) {
            confirmed(*done);
        } else if (const auto* rkey = std::get_if<llc::RkeyConfirmed>(&action)) {
            rkey_confirmed(*rkey);
        } else if (const auto* gone = std::get_if<llc::RkeyDeleted>(&action)) {
            rkey_deleted(*gone);
        } else if (const auto* over = std::get_if<llc::Over>(&action)) {
            finish(*over);
        }
    }
}

void LinkGroup::confirmed(const llc::Confirmed& done) {
    confirmed_ = true;
    eye_catchers_ = done.eye_catchers;
    peer_link_id_ = done.peer_id;
    spare_.reset();
    log()->info("link group {} with {} ({}) is up: {} of {}, {} {}, version {}", id_, peer_.link.gid.text(),
                peer_.host_name.empty() ? "no name" : peer_.host_name, key_.server ? "server" : "client",
                device_.context->name(), address().gid.text(), text(address().qpn), key_.version);
    settle();
}

void LinkGroup::finish(const llc::Over& over) {
    over_ = true;
    why_ = over;
    if (machine_) {  // in the engine
        channel_->end(over.detail);
        parts_.engine.kick(channel_);
    }
    if (seats_ == 0) {
        log()->info("link group {} with {} ended: {}", id_, peer_.link.gid.text(), over.detail);
    } else {
        log()->warn("link group {} with {} ended, {} connections are lost: {} ({})", id_, peer_.link.gid.text(), seats_,
                    reason_name(over.reason), over.detail);
    }
    if (growth_) {
        for (const auto& event : growth_->waiting) {
            event->set();
        }
    }
    settle();
    parts_.over(*this);
}

void LinkGroup::end(llc::DeleteLinkReason reason) {
    if (!over_ && machine_) {
        apply(machine_->end(reason, std::chrono::steady_clock::now()));
    } else if (!over_) {
        finish({Reason::kNone, "the first contact did not complete"});
    }
}

void LinkGroup::down(const std::string& why) {
    if (!over_ && machine_) {
        apply(machine_->down(why));
    } else if (!over_) {
        finish({Reason::kLinkDown, why});
    }
}

std::shared_ptr<Seat> LinkGroup::seat_now() {
    for (const auto& rmb : rmbs_) {
        auto own = rmb->take();
        if (!own) {
            continue;
        }
        for (const auto& memory : sends_) {
            if (auto send = memory->take()) {
                auto token = random_id<AlertToken>();
                while (!channel_->open(token)) {
                    token = random_id<AlertToken>();
                }
                idle_since_ = TimePoint::max();
                return std::make_shared<Seat>(shared_from_this(), token, std::move(*own), std::move(*send));
            }
        }
        return nullptr;  // nothing to send from
    }
    return nullptr;
}

asio::awaitable<Result<std::shared_ptr<Seat>>> LinkGroup::take_seat(TimePoint deadline) {
    const auto self = shared_from_this();
    for (;;) {
        if (over_) {
            co_return Error{ENOTCONN, "the link group has ended"};
        }
        if (key_.server && !has_room()) {
            co_return Error{EAGAIN, "the link group has become full"};
        }
        if (auto seat = seat_now()) {
            co_return seat;
        }
        if (!growth_) {
            const std::size_t rmbs = rmbs_.size(), sends = sends_.size();
            if (const auto begun = begin_growth(); !begun) {
                co_return begun.error();
            }
            if (!growth_ && rmbs == rmbs_.size() && sends == sends_.size()) {
                auto last = seat_now();  // given back meanwhile
                co_return last ? Result<std::shared_ptr<Seat>>(last) : Error{ENOMEM, "no RMBE"};
            }
        }
        if (growth_) {
            const std::size_t before = rmbs_.size();
            const auto event = std::make_shared<Event>(parts_.io);
            growth_->waiting.push_back(event);
            if (!co_await event->wait(deadline)) {
                co_return Error{ETIMEDOUT, "waiting for CONFIRM RKEY"};
            }
            if (!over_ && !growth_ && rmbs_.size() == before) {
                co_return Error{ENOBUFS, "the peer takes no more RMBs"};
            }
        }
    }
}

void LinkGroup::left() {
    seats_--;
    if (seats_ == 0) {
        idle_since_ = std::chrono::steady_clock::now();
        if (!machine_ && !over_) {
            end(llc::DeleteLinkReason::kNone);  // nobody is left to connect it
        }
    }
}

void LinkGroup::tick(TimePoint now) {
    if (over_ || !machine_) {
        return;
    }
    const auto self = shared_from_this();
    apply(machine_->tick(now, channel_->counters().messages_received.load(std::memory_order_relaxed)));
    if (!active()) {
        return;
    }
    shrink(now);
    // The server decides; a client that is not told goes a little later.
    const auto patience = parts_.config.group_idle + std::chrono::seconds(key_.server ? 0 : 10);
    if (!over_ && seats_ == 0 && idle_since_ != TimePoint::max() && now - idle_since_ >= patience) {
        end(llc::DeleteLinkReason::kInactivity);
    }
}

const char* LinkGroup::link_state() const {
    return over_ ? "LINK_INACTIVE" : confirmed_ ? "LINK_ACTIVE" : "LINK_ACTIVATING";
}

}  // namespace smc::smcr
