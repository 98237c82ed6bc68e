// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The client's side of a connection: an application waits in connect(), its SYN is held. Carries out session::Client.
#pragma once

#include "agent/gateway/held_syn.h"
#include "agent/gateway/runner.h"
#include "agent/netns/namespace.h"
#include "agent/steer/programs.h"
#include "smc/session/client.h"

namespace smc {

class ClientRunner final : public Runner<session::Client> {
 public:
    struct Wanted {
        smc_event event;
        HeldSyn syn;
        std::shared_ptr<Namespace> space;
    };
    ClientRunner(const SessionParts& parts, bpf::Programs& programs, Connections::Handle connection, Wanted wanted,
                 OnEnd on_end)
        : Runner(parts, std::move(connection), session::Client(parts.node, parts.smcd_groups), std::move(on_end)),
          programs_(programs),
          wanted_(std::move(wanted)) {}

    void start() { feed(session_.start()); }
    // The application's socket has come to the local listener.
    void leg_arrived(UniqueFd leg);
    // Its connect() ended without us.
    void application_gone() { feed(session_.application_gone()); }

    [[nodiscard]] std::uint64_t cookie() const { return wanted_.event.cookie; }
    [[nodiscard]] std::uint32_t slot() const { return wanted_.space->slot(); }
    [[nodiscard]] const Endpoint& source() const { return wanted_.syn.source(); }

 private:
    void on(const session::Connect& action) override;
    void on(const session::FinishConnect& action) override;
    void on(const session::FailConnect& action) override;
    void on(const session::RememberIncapable& action) override;
    void on(const session::Run& action) override;
    void on(const session::RunOnTcp& action) override;
    void on(const session::Refuse& action) override;

    Result<UniqueFd> connect(bool offer) const;
    void connected();

    bpf::Programs& programs_;
    Wanted wanted_;
    UniqueFd leg_;
};

}  // namespace smc
