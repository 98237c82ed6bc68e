// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The client's side of a connection: an application waits in connect() for a server that speaks SMC. Carries out
// session::Client.
#pragma once

#include "agent/gateway/runner.h"
#include "agent/gateway/socket_options.h"
#include "agent/steer/programs.h"
#include "os/clock.h"
#include "smc/session/client.h"

namespace smc {

class ClientRunner final : public Runner<session::Client> {
 public:
    struct Wanted {
        smc_tuple tuple;
        smc_request request;
        std::shared_ptr<Namespace> netns;
    };
    ClientRunner(const SessionParts& parts, bpf::Programs& programs, Connections::Handle connection, Wanted wanted,
                 OnEnd on_end)
        : Runner(parts, std::move(connection), session::Client(parts.node, parts.smcd_groups), wanted.request.buffers,
                 std::move(on_end)),
          programs_(programs),
          wanted_(std::move(wanted)),
          timeout_(parts.io, [this] { timed_out(); }) {}

    [[nodiscard]] smc_tuple app() const override { return wanted_.tuple; }
    void start() { feed(session_.start(os::now() + parts_.config.budget, wanted_.request.answer_isn != 0)); }

    // Gives the application back to plain TCP, whatever the state of the session.
    void let_go();

 private:
    void on(const session::Connect& action) override;
    void on(const session::FinishConnect& action) override;
    void on(const session::EndApplication&) override { end_application(); }
    void on(const session::RememberServer& action) override;
    void on(const session::Run& action) override;
    void on(const session::RunOnTcp& action) override;
    void on(const session::LeaveToTcp& action) override;
    void on(const session::Refuse& action) override;

    [[nodiscard]] SocketOptions socket_options() const;
    [[nodiscard]] SockDiag::Socket application() const;
    void connected(int error, smc_option_seen option);
    void connect_leg(int ports);
    [[nodiscard]] unsigned device_of_leg() const;
    void leg_connected(int error);
    [[nodiscard]] session::AppState app_state() const;
    [[nodiscard]] session::AppState after_reset() const;
    void end_application();
    bool catches_up() override;
    void timed_out();
    void leg_is_late(session::AppState app);

    bpf::Programs& programs_;
    Wanted wanted_;
    UniqueFd ready_leg_;  // a socket for the first leg, made together with the CLC socket
    std::optional<loop::FdWatch> leg_;
    loop::Deadline timeout_;  // Config::leg_timeout()
    int ports_left_ = 0;      // left to try, including the present one
};

// Leaves the connection to plain TCP: the application's own SYN is sent without options.
void let_go(const bpf::Programs& programs, const Namespace* netns, const smc_tuple& tuple, const smc_request& request);

}  // namespace smc
