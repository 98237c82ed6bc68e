// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Read-only HTTP server for metrics, probes and the page: GET and HEAD, one answer for each path, and no request
// changes anything. libmicrohttpd runs on the control thread, so a missing answer shows that the control thread hangs.
#pragma once

#include <asio/io_context.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "agent/loop/deadline.h"
#include "agent/loop/fd_watch.h"
#include "os/endpoint.h"

struct MHD_Daemon;
struct MHD_Connection;

namespace smc {

class WebServer {
 public:
    struct Answer {
        unsigned status = 200;
        std::string type = "text/plain; charset=utf-8";
        std::string body;
    };
    struct Request {
        std::string path;
        std::string host;  // header "Host" without the port; empty: none
    };
    // Nothing: there is no such path.
    using Handler = std::function<std::optional<Answer>(const Request& request)>;

    // Listens as soon as the address is free. Until then the agent serves without metrics.
    WebServer(asio::io_context& io, const Endpoint& listen, Handler handler);
    ~WebServer();
    WebServer(const WebServer&) = delete;
    WebServer& operator=(const WebServer&) = delete;

 private:
    friend struct MhdCallbacks;

    void open();
    [[nodiscard]] static UniqueFd bound(const Endpoint& to);
    void listen();
    void serve();
    void end_old_ones();
    [[nodiscard]] int answer(MHD_Connection* connection, const char* path, const char* method) const;

    Endpoint address_;
    Handler handler_;
    asio::io_context& io_;
    bool said_ = false;                         // that it cannot listen
    std::unordered_map<int, TimePoint> since_;  // when each connection began, by its descriptor
    std::unique_ptr<MHD_Daemon, void (*)(MHD_Daemon*)> daemon_;
    std::optional<loop::FdWatch> events_;
    loop::Deadline again_, rest_;
};

}  // namespace smc
