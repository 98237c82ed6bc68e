// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The server's side of a connection whose SYN carried option 254: it was accepted in the application's stead. Carries
// out session::Server.
#pragma once

#include "agent/gateway/runner.h"
#include "agent/netns/namespace.h"
#include "smc/session/server.h"

namespace smc {

class ServerRunner final : public Runner<session::Server> {
 public:
    // `clc`: the accepted socket.
    ServerRunner(const SessionParts& parts, Connections::Handle connection, std::shared_ptr<Namespace> space,
                 UniqueFd clc, OnEnd on_end);
    void start() { feed({}); }

 private:
    void on(const session::ConnectApplication& action) override;
    void on(const session::Run& action) override;
    void on(const session::RunOnTcp& action) override;
    void on(const session::Refuse& action) override;

    Result<UniqueFd> connect() const;
    void connected();
    void refused(int error);

    std::shared_ptr<Namespace> space_;
    std::optional<loop::FdWatch> application_;
};

}  // namespace smc
