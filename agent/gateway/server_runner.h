// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The server's side of a connection whose SYN carried option 254; the agent accepted it in place of the application.
// Carries out session::Server.
#pragma once

#include <string>
#include <system_error>

#include "agent/gateway/runner.h"
#include "agent/gateway/socket_options.h"
#include "smc/session/server.h"

namespace smc {

// The client's address and port as the server's application will see them. `taken`: whether another session under way
// shows this client to the same server, or a socket of this namespace has that connection.
[[nodiscard]] Endpoint shown_client(const bpf::Programs& programs, const Endpoint& from, const Endpoint& server,
                                    const smc_inbound& inbound, std::uint32_t slot,
                                    const std::function<bool(const Endpoint& shown)>& taken);

// Why the client's application was connected by a SYN-ACK without option 254; kNone: it was not, as far as is known.
[[nodiscard]] Reason without_option(const smc_inbound& inbound);

class ServerRunner final : public Runner<session::Server> {
 public:
    // `clc`: the accepted socket, `from`: the address of its peer; `inbound`: what the tc program noted about its SYN.
    ServerRunner(const SessionParts& parts, const bpf::Programs& programs, Connections::Handle connection,
                 std::shared_ptr<Namespace> netns, const smc_inbound& inbound, UniqueFd clc, const Endpoint& from,
                 OnEnd on_end);
    void start() { feed(session_.begin(os::now())); }
    [[nodiscard]] smc_tuple app() const override;

 private:
    void on(const session::ConnectApplication& action) override;
    void on(const session::Run& action) override;
    void on(const session::RunOnTcp& action) override;
    void on(const session::LeaveToTcp& action) override;
    void on(const session::Refuse& action) override;

    void connect_leg(int ports, std::uint16_t port);
    void connected(int error);
    void not_begun(int error);
    void leg_lost();
    void pause_listener();
    void timed_out();
    void refused(int error) { refused(std::generic_category().message(error)); }
    void refused(std::string why);
    UniqueFd take_leg();
    void disconnect_if_unheard(int leg) const;
    void reconnect_leg(const clc::Outcome& outcome, UniqueFd leg);
    void run(UniqueFd leg);
    void reset_leg();

    const bpf::Programs& programs_;
    std::shared_ptr<Namespace> netns_;
    smc_inbound inbound_;
    std::optional<loop::FdWatch> leg_;
    loop::Deadline timeout_;  // of the leg's handshake
    int ports_left_ = 0;      // left to try, including the present one
    struct Reconnect {
        clc::Outcome outcome;
        UniqueFd leg;  // the first one, which was reset
    };
    std::optional<Reconnect> reconnect_;  // after the session has ended on SMC
};

}  // namespace smc
