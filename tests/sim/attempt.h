// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Carries out the actions of a connection's session, on the client's or the server's side. The sides differ in how they
// connect to the application, and in which of them begins.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>

#include "application.h"
#include "fabric.h"
#include "link_groups.h"
#include "smc/clc/framer.h"
#include "smc/session/client.h"
#include "smc/session/server.h"

namespace smc::sim {

// The parts of a node that its sessions use.
struct NodeParts {
    World& world;
    std::string name;
    clc::LocalNode node;
    clc::Means means;
    Fabric& fabric;
    group::SmcdGroups& smcd_groups;
    LinkGroups& smcr_groups;
    std::uint32_t dmb_bytes;
};

// How a session ended, and what it leaves.
struct AttemptEnd {
    enum class Kind : std::uint8_t { kSmc, kTcp, kRefused };
    Kind kind = Kind::kRefused;
    clc::Outcome outcome{};
    std::shared_ptr<Socket> leg{}, clc{};
    std::optional<Fabric::Registered> own_dmb{};
    std::optional<smcd::Dmb> peer_dmb{};
};

template <class Session>
class Attempt : public std::enable_shared_from_this<Attempt<Session>> {
 public:
    using OnEnd = std::function<void(Attempt&, AttemptEnd)>;

    Attempt(NodeParts& parts, std::uint64_t id, Session session, OnEnd on_end)
        : parts_(parts),
          world_(parts.world),
          id_(id),
          session_(std::move(session)),
          timer_(parts.world, [this] { feed(session_.tick(world_.now())); }),
          on_end_(std::move(on_end)),
          since_(parts.world.now()) {}
    virtual ~Attempt() = default;
    Attempt(const Attempt&) = delete;
    Attempt& operator=(const Attempt&) = delete;

    [[nodiscard]] std::uint64_t id() const { return id_; }
    // The session was refused. Tells the application, which hears of it in no other way.
    virtual void refused() {}
    // The session has ended, and the connection runs on SMC or on TCP.
    virtual void runs() {}
    virtual void on_tcp() {}

 protected:
    void feed(session::Actions actions) {
        world_.require(!ended_ || actions.empty(), name() + ": the session goes on after its end (S1)");
        std::move(actions.begin(), actions.end(), std::back_inserter(pending_));
        if (feeding_ || ended_) {
            return;
        }
        const auto self = this->shared_from_this();
        feeding_ = true;
        while (!pending_.empty()) {
            world_.require(!ended_, name() + ": the session goes on after its end (S1)");
            const session::Action action = std::move(pending_.front());
            pending_.pop_front();
            std::visit([this](const auto& a) { this->on(a); }, action);
        }
        feeding_ = false;
        if (!ended_) {
            timer_.set(session_.next_deadline());
            read_clc();
        }
    }
    // Calls `then` after `delay`, if this attempt is still there.
    template <class Then>
    void after(Delay delay, Then then) {
        world_.after(delay, [weak = this->weak_from_this(), then = std::move(then)] {
            if (const auto self = weak.lock()) {
                then();
            }
        });
    }

    void use_clc_socket(std::shared_ptr<Socket> socket) {
        clc_ = std::move(socket);
        framer_ = {};
        clc_->descriptor().watch([weak = this->weak_from_this()](std::uint32_t) {
            if (const auto self = weak.lock()) {
                self->read_clc();
            }
        });
    }
    void end(AttemptEnd::Kind kind, const clc::Outcome& outcome) {
        world_.require(now() - since_ < kLongest, name() + ": took longer than its deadlines allow (H3)");
        ended_ = true;
        timer_.set(kNever);
        for (const auto& socket : {clc_, leg_}) {
            if (socket) {
                socket->descriptor().unwatch();
            }
        }
        on_end_(*this, {kind, outcome, leg_, clc_, std::move(own_dmb_), std::move(peer_dmb_)});
    }
    [[nodiscard]] std::string name() const {
        return parts_.name + " connection " + std::to_string(id_) + (Session::kServer ? " (server)" : " (client)");
    }
    void tell(const std::string& line) const { world_.tell(name() + ": " + line); }

    virtual void on(const session::Connect&) {}
    virtual void on(const session::FinishConnect&) {}
    virtual void on(const session::ConnectApplication&) {}
    void on(const session::EndApplication&) {}

    NodeParts& parts_;
    World& world_;
    std::uint64_t id_;
    Session session_;
    std::shared_ptr<Socket> clc_, leg_;

 private:
    [[nodiscard]] group::MemberId member() const { return group::MemberId{id_}; }
    [[nodiscard]] TimePoint now() const { return world_.now(); }
    // More than all steps of a handshake may take together. A client has a smaller budget for them.
    static constexpr auto kLongest = std::chrono::seconds(40);

    void read_clc() {
        while (clc_ && !ended_ && session_.listens()) {
            const auto space = framer_.free_space();
            const auto bytes = clc_->read(space.size());
            if (bytes.empty()) {
                if (clc_->at_end() || clc_->broken()) {
                    feed(session_.clc_closed(now()));
                }
                return;
            }
            std::ranges::transform(bytes, space.begin(), &Byte::value);
            if (const auto message = framer_.filled(bytes.size())) {
                if (const auto* fault = std::get_if<Fault>(&*message)) {
                    feed(session_.clc_fault(*fault, now()));
                } else {
                    feed(session_.clc_message(std::get<clc::Message>(*message).view(), now()));
                }
            }
        }
    }

    static std::vector<Byte> bytes_of(const clc::Message& message) {
        std::vector<Byte> bytes;
        for (const std::uint8_t value : message.view()) {
            bytes.push_back({value, false});
        }
        return bytes;
    }
    void on(const session::SendClc& action) {
        const std::vector<Byte> bytes = bytes_of(action.message);
        if (!clc_ || clc_->write(bytes) != bytes.size()) {
            pending_.clear();
            feed(session_.clc_not_sent(now()));
        }
    }
    void on(const session::ResetClc& action) {
        if (action.first && clc_) {
            clc_->write(bytes_of(*action.first));
        }
        if (const auto socket = std::exchange(clc_, nullptr)) {
            socket->descriptor().unwatch();
            socket->reset();
        }
    }
    void on(const session::RegisterDmb& action) {
        if (world_.strikes(Mishap::kDmbRefused)) {
            return feed(session_.dmb_refused(Reason::kOutOfMemory, "simulated", now()));
        }
        own_dmb_ = parts_.fabric.register_dmb(parts_.node.ism_on(action.chid)->gid, parts_.dmb_bytes);
        feed(session_.dmb_registered({own_dmb_->token, compress_size(parts_.dmb_bytes)}, now()));
    }
    void on(const session::AttachDmb& action) {
        after(world_.local(), [this, peer = action.peer] {
            if (!world_.strikes(Mishap::kAttachFails)) {
                peer_dmb_ = parts_.fabric.attach(peer.gid, peer.token);
            }
            feed(peer_dmb_ ? session_.dmb_attached(now())
                           : session_.dmb_not_attached(Reason::kFabric, "simulated", now()));
        });
    }
    void on(const session::JoinGroup& action) {
        in_group_ = true;
        parts_.smcr_groups.join(
            member(), Session::kServer, action.peer, action.deadline,
            {[this](const group::Joined& joined) { feed(session_.joined(joined.local, now())); },
             [this](const group::JoinRefused& refused) {
                 tell("is refused an RMBE: " + refused.detail);
                 feed(session_.join_refused(refused.refusal, refused.detail, now()));
             },
             [this] { feed(session_.link_ready(now())); },
             [this](const group::LinkFailed& failed) {
                 feed(session_.link_failed(failed.reason, failed.detail, failed.may_decline, now()));
             },
             [this](bool aborts) { client_announced(aborts); }});
    }
    void on(const session::AwaitLink& action) { parts_.smcr_groups.await_link(member(), action.peer); }
    void client_announced([[maybe_unused]] bool aborts) {
        if constexpr (Session::kServer) {
            feed(session_.client_announced(aborts));
        }
    }
    void on(const session::AwaitClient&) { parts_.smcr_groups.await_peer(member()); }
    void on(const session::GiveBack& action) {
        give_back_dmb();
        if (std::exchange(in_group_, false)) {
            parts_.smcr_groups.leave(
                member(), {action.outcome.kind == clc::Outcome::Kind::kFallBack, action.outcome.peer_out_of_sync});
        }
    }
    void on(const session::RememberServer&) {}
    void on(const session::Run& action) { end(AttemptEnd::Kind::kSmc, action.outcome); }
    void on(const session::RunOnTcp&) { world_.violated(name() + ": stays on a connection that the client leaves"); }
    void on(const session::LeaveToTcp& action) { end(AttemptEnd::Kind::kTcp, action.outcome); }
    void on(const session::Refuse& action) {
        world_.require(!own_dmb_ && !in_group_, name() + ": refused, and something was not given back");
        end(AttemptEnd::Kind::kRefused, {.reason = action.reason, .detail = action.detail});
    }
    void give_back_dmb() {
        if (own_dmb_) {
            parts_.fabric.deregister(own_dmb_->token);
        }
        own_dmb_.reset();
        peer_dmb_.reset();
    }

    std::optional<Fabric::Registered> own_dmb_;
    std::optional<smcd::Dmb> peer_dmb_;
    clc::Framer framer_;
    Timer timer_;
    OnEnd on_end_;
    TimePoint since_;
    std::deque<session::Action> pending_;
    bool in_group_ = false, feeding_ = false, ended_ = false;
};

class Node;

class ClientAttempt final : public Attempt<session::Client> {
 public:
    ClientAttempt(NodeParts& parts, std::uint64_t id, Application& application, OnEnd on_end, Node& server,
                  Listener& listener)
        : Attempt(parts, id, session::Client(parts.node, parts.smcd_groups), std::move(on_end)),
          application_(application),
          server_(server),
          listener_(listener) {}

    void start() {
        const auto budget = std::chrono::seconds(30);
        const bool hurry = world_.strikes(Mishap::kNoTime);
        const auto most = hurry ? world_.some_time(std::chrono::milliseconds(10)) : budget;
        feed(session_.start(world_.now() + most, true));
    }
    void refused() override { application_.refused("the session is refused"); }
    void on_tcp() override;

 private:
    void on(const session::Connect& action) override;
    void on(const session::FinishConnect& action) override;

    Application& application_;
    Node& server_;
    Listener& listener_;
};

class ServerAttempt final : public Attempt<session::Server> {
 public:
    ServerAttempt(NodeParts& parts, std::uint64_t id, Listener& listener, OnEnd on_end)
        : Attempt(parts, id,
                  session::Server(parts.node, parts.smcd_groups, parts.means, {true, true}, parts.world.now()),
                  std::move(on_end)),
          listener_(listener) {}

    // To be called when a SYN with the option was accepted.
    void start(std::shared_ptr<Socket> clc) {
        use_clc_socket(std::move(clc));
        feed({});
    }
    void runs() override;

 private:
    void on(const session::ConnectApplication& action) override;

    std::shared_ptr<Socket> accepted_;  // the application's end of the leg, before the application accepts it

    Listener& listener_;
};

}  // namespace smc::sim
