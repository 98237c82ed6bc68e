// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The socket that smcctl talks to: one JSON request, one JSON answer, each a line. Everybody may connect; the kernel
// names the client's user, and the handler decides what that user may ask. Clients that are neither root nor the
// agent's user get at most a quarter of the connections, so that they cannot keep root out.
#pragma once

#include <sys/types.h>

#include <asio/io_context.hpp>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "agent/loop/deadline.h"
#include "agent/loop/fd_watch.h"
#include "os/lock_file.h"
#include "os/result.h"
#include "os/unix_socket.h"

namespace smc {

class ControlServer {
 public:
    struct Who {
        bool owner = false;  // root, or the agent's own user
        pid_t pid = 0;       // 0: in a PID namespace that is not visible from here
    };
    using Handler = std::function<nlohmann::json(const nlohmann::json& request, const Who& who)>;

    // `timeout`: how long a client has for its request and for reading the answer.
    ControlServer(asio::io_context& io, std::string path, std::chrono::milliseconds timeout, Handler handler);
    ~ControlServer();
    ControlServer(const ControlServer&) = delete;
    ControlServer& operator=(const ControlServer&) = delete;

    // EBUSY: another agent holds the lock beside the socket.
    Result<void> start();
    // Gives up the socket, so that another agent can have it, and listens at `path` instead. Clients that are connected
    // are still answered.
    Result<void> move_to(const std::string& path);
    // Makes the socket and the lock beside it again if somebody has deleted them. True: it did so. EBUSY: another agent
    // has taken the lock meanwhile.
    Result<bool> restore();

 private:
    class Conversation;

    void make_directory() const;
    Result<void> listen();
    void give_up_socket();
    void accept_all();
    void admit(UniqueFd fd);

    asio::io_context& io_;
    std::string path_;
    std::chrono::milliseconds timeout_;
    Handler handler_;
    std::optional<LockFile> lock_;
    std::optional<SocketName> name_;
    std::optional<loop::FdWatch> listener_;
    loop::Deadline retry_;
    std::map<const Conversation*, std::unique_ptr<Conversation>> conversations_;
};

}  // namespace smc
