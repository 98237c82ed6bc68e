// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The socket that smcctl talks to: one JSON request, one JSON answer, each a line.
#pragma once

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "os/result.h"

namespace smc {

class ControlServer {
 public:
    using Handler = std::function<nlohmann::json(const nlohmann::json& request)>;

    ControlServer(asio::io_context& io, std::string path, Handler handler);
    ~ControlServer();
    ControlServer(const ControlServer&) = delete;
    ControlServer& operator=(const ControlServer&) = delete;

    // Fails if another agent holds the lock beside the socket.
    Result<void> start();

 private:
    void accept_next();

    asio::io_context& io_;
    std::string path_;
    Handler handler_;
    asio::posix::stream_descriptor listener_;
    asio::posix::stream_descriptor lock_;
};

}  // namespace smc
