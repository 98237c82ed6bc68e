// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Carries out the actions of a session (smc/session) that both sides have in common: CLC messages, SMC-D, SMC-R and
// timeouts. Each side's own actions are in client_runner.h and server_runner.h. Control thread only.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>

#include "agent/connections/connections.h"
#include "agent/gateway/buffers.h"
#include "agent/gateway/clc_io.h"
#include "agent/loop/deadline.h"
#include "agent/netns/namespace.h"
#include "agent/smcd/exchange.h"
#include "agent/smcd/fabrics.h"
#include "agent/smcr/devices.h"
#include "agent/smcr/link_groups.h"
#include "agent/steer/chosen_buffers.h"
#include "agent/steer/programs.h"
#include "datapath/tcp_socket.h"
#include "os/clock.h"
#include "smc/group/smcd_groups.h"
#include "smc/session/actions.h"

namespace smc {

// Objects that runners use.
struct SessionParts {
    asio::io_context& io;
    const Config& config;
    const clc::LocalNode& node;
    smcd::Fabrics& fabrics;
    smcd::Pool& smcd_pool;
    group::SmcdGroups& smcd_groups;
    smcr::Devices& roce_devices;
    smcr::LinkGroups& smcr_groups;
};

// How a session ended.
struct SessionEnd {
    // kTcp: TCP through the agent; kPlain: TCP without the agent
    enum class Kind : std::uint8_t { kSmc, kTcp, kPlain, kRefused };
    Kind kind = Kind::kRefused;
    clc::Outcome outcome{};  // kRefused: reason and detail only
    UniqueFd leg{}, clc{};   // kSmc and kTcp only
    bool is_silent = false;  // kTcp: the peer has sent nothing yet, and may still send CLC
};

// This end of a CLC socket's connection, as it is on the wire in `netns`. `mark`, `uid`: of the socket, for the routing
// rules.
inline smcr::Devices::Local local_of(const Namespace& netns, const Endpoint& local, const Endpoint& peer,
                                     std::uint32_t mark = 0, std::uint32_t uid = 0) {
    return {smcr::gid_of(local), netns.vlan_of({local.ip, peer.ip, mark, uid})};
}

// Which kinds of SMC this node may use for that connection. `smcd`: whether the policy allows SMC-D.
inline clc::Means means_for(const SessionParts& parts, const Endpoint& peer, const smcr::Devices::Local& local,
                            bool smcd, bool peer_agent) {
    return {smcd && !parts.node.ism.empty(), parts.roce_devices.offer_for(local, peer, peer_agent)};
}

template <class Session>
class Runner : public std::enable_shared_from_this<Runner<Session>> {
 public:
    // Called once. It may drop its reference to the runner.
    using OnEnd = std::function<void(Runner& runner, SessionEnd end)>;

    virtual ~Runner() { leave_group({}); }
    Runner(const Runner&) = delete;
    Runner& operator=(const Runner&) = delete;

    [[nodiscard]] const Connections::Handle& connection() const { return connection_; }
    // From now on nothing makes the session go on, and on_end_ is not called.
    void abandon() {
        ended_ = true;
        pending_.clear();
        deadline_.set(kNever);
    }
    // If the session ended on SMC: the transport for the data path, once. nullptr: the link group has ended meanwhile.
    std::unique_ptr<Transport> transport(const clc::Outcome& outcome) {
        if (outcome.kind == clc::Outcome::Kind::kSmcD) {
            return smcd_->transport();
        }
        in_group_ = false;  // the gateway leaves the group when the connection ends
        return parts_.smcr_groups.run(member(), outcome.smcr.rmbe);
    }
    // The tuple of the application's connection, as the BPF programs know it.
    [[nodiscard]] virtual smc_tuple app() const = 0;
    // SO_SNDBUF of the application: its present value, or, if that is not available, the value when it connected or
    // listened.
    [[nodiscard]] std::shared_ptr<const std::atomic<std::uint32_t>> send_buffer() const {
        return chosen_ ? std::shared_ptr<const std::atomic<std::uint32_t>>(chosen_, &chosen_->send())
                       : std::make_shared<const std::atomic<std::uint32_t>>(buffers_.send);
    }
    // Not 0: the application has sent urgent data. nullptr: that is not available.
    [[nodiscard]] std::shared_ptr<const std::atomic<std::uint32_t>> urgent() const {
        return chosen_ ? std::shared_ptr<const std::atomic<std::uint32_t>>(chosen_, &chosen_->urgent()) : nullptr;
    }
    // The connection's DMBs; the caller may keep them after this runner is gone.
    [[nodiscard]] std::shared_ptr<smcd::Exchange> smcd() const { return smcd_; }
    [[nodiscard]] bool peer_has_agent() const { return session_.peer_has_agent(); }
    // Whether this side sends a first CDC message on a new link. Its SYN announced that, and a server's agent waits for
    // the message.
    [[nodiscard]] static bool announces(const clc::Outcome& outcome) {
        return !Session::kServer && outcome.is_on_new_link();
    }

 protected:
    Runner(const SessionParts& parts, Connections::Handle connection, Session session, const smc_buffers& buffers,
           OnEnd on_end)
        : parts_(parts),
          connection_(std::move(connection)),
          session_(std::move(session)),
          smcd_(std::make_shared<smcd::Exchange>(parts.smcd_pool, dmb_bytes(parts.config.dmb_kib * 1024, buffers),
                                                 parts.config.dmb_kib * 1024)),
          buffers_(buffers),
          deadline_(parts.io,
                    [this] {
                        if (!catches_up()) {
                            feed(session_.tick(os::now()));
                        }
                    }),
          on_end_(std::move(on_end)) {}

    // Carries out `actions`, and the actions that result from them.
    void feed(session::Actions actions) {
        std::move(actions.begin(), actions.end(), std::back_inserter(pending_));
        if (feeding_) {
            return;
        }
        const auto self = this->shared_from_this();  // on_end_ may drop the last other reference
        feeding_ = true;
        while (!pending_.empty() && !ended_) {
            const session::Action action = std::move(pending_.front());
            pending_.pop_front();
            std::visit([this](const auto& a) { this->on(a); }, action);
        }
        feeding_ = false;
        if (ended_) {
            return;
        }
        deadline_.set(session_.next_deadline());
        if (clc_ && session_.listens()) {
            clc_->read();
        }
    }

    void use_clc_socket(UniqueFd fd) {
        clc_.emplace(parts_.io, std::move(fd),
                     ClcIo::Callbacks{[this] {
                                          if constexpr (Session::kServer) {
                                              session_.clc_began();
                                          }
                                      },
                                      [this](wire::Bytes message) { feed(session_.clc_message(message, os::now())); },
                                      [this](const Fault& fault) { feed(session_.clc_fault(fault, os::now())); },
                                      [this](bool in_order) { clc_closed(in_order); }});
    }
    void end(SessionEnd how) {
        ended_ = true;
        deadline_.set(kNever);
        on_end_(*this, std::move(how));
    }

    // Marks a leg such that the data path can read send_buffer() and urgent().
    void follow_send_buffer(const bpf::Programs& programs, smc_sock& mark) {
        chosen_ = programs.follow_send_buffer(buffers_.send);
        mark.chosen = chosen_ ? chosen_->number() : 0;
    }

    // Whether the link group still has the link that CLC has agreed on.
    [[nodiscard]] bool has_link() const { return !in_group_ || parts_.smcr_groups.groups().named_link_is_up(member()); }

    [[nodiscard]] LegBuffers buffers_of_leg() const { return leg_buffers(buffers_, peer_ring_); }

    // Handles events that became ready while this thread was late; returns true if any was handled.
    virtual bool catches_up() { return false; }

    virtual void on(const session::Connect&) {}
    virtual void on(const session::FinishConnect&) {}
    virtual void on(const session::ConnectApplication&) {}
    virtual void on(const session::EndApplication&) {}
    virtual void on(const session::RememberServer&) {}
    virtual void on(const session::Run& action) = 0;
    virtual void on(const session::RunOnTcp&) {}
    virtual void on(const session::LeaveToTcp& action) = 0;
    virtual void on(const session::Refuse& action) = 0;

    SessionParts parts_;
    Connections::Handle connection_;
    Session session_;
    std::optional<ClcIo> clc_;
    smcr::Devices::Local local_;  // of the CLC socket

 private:
    [[nodiscard]] group::MemberId member() const { return group::MemberId{connection_->id}; }

    void on(const session::SendClc& action) {
        if (!clc_->write(action.message)) {
            pending_.clear();
            feed(session_.clc_not_sent(os::now()));
        }
    }
    void clc_closed([[maybe_unused]] bool in_order) {
        if constexpr (Session::kServer) {
            feed(session_.clc_closed(os::now(), in_order));
        } else {
            feed(session_.clc_closed(os::now()));
        }
    }
    void on(const session::ResetClc& action) {
        if (clc_) {
            if (action.first) {
                (void)clc_->write(*action.first);
            }
            clc_->release().reset();  // closing resets it (L1)
            clc_.reset();
        }
    }
    void on(const session::RegisterDmb& action) {
        // A peer that the fabric cannot reach must be declined now: after Accept it is too late (RFC 7609 C.3).
        const smcd::Peer peer{parts_.fabrics.on(action.chid), action.peer};
        if (const auto reached = peer.fabric->reach(peer.gid); !reached) {
            return feed(session_.dmb_refused(Reason::kNoSmcdV2Device, reached.error().text(), os::now()));
        }
        const auto own = smcd_->register_dmb(peer);
        feed(own ? session_.dmb_registered(*own, os::now())
                 : session_.dmb_refused(Reason::kOutOfMemory, own.error().text(), os::now()));
    }
    void on(const session::AttachDmb& action) {
        const clc::SmcdPeer& peer = action.peer;
        peer_ring_ = bytes_of(peer.dmb_size);
        const auto then = [this](const Result<void>& attached) {
            if (attached) {
                return feed(session_.dmb_attached(os::now()));
            }
            const Reason reason = attached.error().code == ENOMEM ? Reason::kOutOfMemory : Reason::kFabric;
            feed(session_.dmb_not_attached(reason, attached.error().text(), os::now()));
        };
        smcd_->attach({parts_.fabrics.on(peer.chid), peer.gid}, peer.token, peer_ring_, parts_.config.step_timeout,
                      then);
    }
    void on(const session::JoinGroup& action) {
        in_group_ = true;
        peer_ring_ = Session::kServer ? 0 : bytes_of(action.peer.rmbe.size);
        parts_.smcr_groups.join(
            member(), Session::kServer, action.peer, local_, element_bytes(parts_.config.roce, buffers_),
            action.deadline,
            {[this](const group::Joined& joined) { feed(session_.joined(joined.local, os::now())); },
             [this](const group::JoinRefused& refused) {
                 feed(session_.join_refused(refused.refusal, refused.detail, os::now()));
             },
             [this] { feed(session_.link_ready(os::now())); },
             [this](const group::LinkFailed& failed) {
                 feed(session_.link_failed(failed.reason, failed.detail, failed.may_decline, os::now()));
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
        peer_ring_ = 0;
        smcd_->give_back();
        leave_group(action.outcome);
    }
    void leave_group(const clc::Outcome& outcome) {
        if (std::exchange(in_group_, false)) {
            parts_.smcr_groups.leave(member(),
                                     {outcome.kind == clc::Outcome::Kind::kFallBack, outcome.peer_out_of_sync});
        }
    }

    std::shared_ptr<smcd::Exchange> smcd_;
    smc_buffers buffers_;  // of the application, when it connected or listened
    std::shared_ptr<const bpf::ChosenBuffers::Lease> chosen_;
    std::uint32_t peer_ring_ = 0;  // size in bytes; 0: not known yet
    loop::Deadline deadline_;
    OnEnd on_end_;
    std::deque<session::Action> pending_;
    bool in_group_ = false;  // an SMC-R link group
    bool feeding_ = false;
    bool ended_ = false;
};

}  // namespace smc
