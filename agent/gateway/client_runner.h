// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The client's side of a connection: an application waits in connect(), its server speaks SMC. Carries out
// session::Client.
#pragma once

#include "agent/gateway/likeness.h"
#include "agent/gateway/runner.h"
#include "agent/steer/programs.h"
#include "os/clock.h"
#include "smc/session/client.h"

namespace smc {

class ClientRunner final : public Runner<session::Client> {
 public:
    struct Wanted {
        smc_tuple tuple;
        smc_question question;
        std::shared_ptr<Namespace> space;
    };
    ClientRunner(const SessionParts& parts, bpf::Programs& programs, Connections::Handle connection, Wanted wanted,
                 OnEnd on_end)
        : Runner(parts, std::move(connection), session::Client(parts.node, parts.smcd_groups), wanted.question.buffers,
                 std::move(on_end)),
          programs_(programs),
          wanted_(std::move(wanted)),
          patience_(parts.io, [this] { lose_patience(); }) {}

    [[nodiscard]] smc_tuple front() const override { return wanted_.tuple; }
    void start() { feed(session_.start(os::now() + parts_.config.budget, wanted_.question.answer_isn != 0)); }

    // Its application does without us, whatever the session wants.
    void let_go();

 private:
    void on(const session::Connect& action) override;
    void on(const session::FinishConnect& action) override;
    void on(const session::RememberServer& action) override;
    void on(const session::Run& action) override;
    void on(const session::RunOnTcp& action) override;
    void on(const session::LeaveToTcp& action) override;
    void on(const session::Refuse& action) override;

    [[nodiscard]] Likeness likeness() const;
    void connected();
    void connect_leg(int ports);
    void leg_connected();
    bool catches_up() override;
    void lose_patience();

    bpf::Programs& programs_;
    Wanted wanted_;
    std::optional<loop::FdWatch> leg_;
    loop::Deadline patience_;  // with it
    int ports_ = 0;            // from which it may still try to connect, this one among them
};

// The application's own SYN, without options, decides.
void let_go(const bpf::Programs& programs, const Namespace* space, const smc_tuple& tuple,
            const smc_question& question);

}  // namespace smc
