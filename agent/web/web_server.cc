// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/web/web_server.h"

#include <fcntl.h>
#include <microhttpd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "agent/log/log.h"
#include "os/clock.h"
#include "os/result.h"

namespace smc {

namespace {

constexpr unsigned kMostConnections = 64, kMostOfOneAddress = 16;
constexpr unsigned kIdleSeconds = 5;
constexpr auto kLongestLife = std::chrono::seconds(10);  // of a connection: a slow client must not keep its place
constexpr auto kTryAgain = std::chrono::seconds(5);
constexpr int kBacklog = 16;
constexpr auto kRest = std::chrono::milliseconds(20);

// The request's header "Host" without the port.
std::string host_of(MHD_Connection* connection) {
    const char* header = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST);
    std::string host = header != nullptr ? header : "";
    if (host.starts_with('[')) {
        return host.substr(1, host.find(']') - 1);
    }
    return host.substr(0, host.find(':'));
}

// The page loads nothing from other servers, and must not be shown in a frame.
constexpr const char* kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "frame-ancestors 'none'";

}  // namespace

struct MhdCallbacks {
    static MHD_Result handle(void* self, MHD_Connection* connection, const char* url, const char* method, const char*,
                             const char*, std::size_t* uploaded, void** state) {
        static char seen;
        if (*state == nullptr) {  // the first call, with the headers only; a body may follow
            *state = &seen;
            return MHD_YES;
        }
        if (*uploaded != 0) {  // a body is discarded, and answered after its end
            *uploaded = 0;
            return MHD_YES;
        }
        try {
            return static_cast<MHD_Result>(static_cast<const WebServer*>(self)->answer(connection, url, method));
        } catch (const std::exception& error) {  // no exception may pass through C code
            log()->warn("http: no answer to {}: {}", url, error.what());
            return MHD_NO;
        }
    }
    static void notify(void* self, MHD_Connection* connection, void**, MHD_ConnectionNotificationCode what) {
        auto& since = static_cast<WebServer*>(self)->since_;
        const auto* info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        if (info == nullptr) {
            return;
        }
        if (what == MHD_CONNECTION_NOTIFY_STARTED) {
            since[info->connect_fd] = os::now();
        } else {
            since.erase(info->connect_fd);
        }
    }
};

WebServer::WebServer(asio::io_context& io, const Endpoint& listen, Handler handler)
    : address_(listen),
      handler_(std::move(handler)),
      io_(io),
      daemon_(nullptr, [](MHD_Daemon* daemon) { MHD_stop_daemon(daemon); }),
      again_(io, [this] { daemon_ ? serve() : open(); }),
      rest_(io, [this] { this->listen(); }) {
    open();
}

WebServer::~WebServer() = default;

// Invalid: errno says why.
UniqueFd WebServer::bound(const Endpoint& to) {
    sockaddr_storage address{};
    const socklen_t length = to.to_sockaddr(address, to.family());
    UniqueFd fd(::socket(to.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd && errno == EAFNOSUPPORT && to.ip == Endpoint::parse("[::]:1")->ip) {
        return bound(*Endpoint::parse("0.0.0.0:" + std::to_string(to.port)));  // a node without IPv6
    }
    const int on = 1, off = 0;
    ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);  // [::] is every address, IPv4's too
    if (fd && (::bind(fd.get(), reinterpret_cast<const ::sockaddr*>(&address), length) != 0 ||
               ::listen(fd.get(), kBacklog) != 0)) {
        return {};
    }
    return fd;
}

// If the address is in use, perhaps by an agent that is about to end, tries again later.
void WebServer::open() {
    UniqueFd fd = bound(address_);
    if (!fd) {
        if (!std::exchange(said_, true)) {
            log()->warn("no metrics and no page: the agent cannot listen on {}, and tries again: {}", address_.text(),
                        last_error("binding").text());
        }
        return again_.set_in(kTryAgain);
    }
    daemon_.reset(MHD_start_daemon(MHD_USE_EPOLL, 0, nullptr, nullptr, &MhdCallbacks::handle, this,
                                   MHD_OPTION_LISTEN_SOCKET, fd.get(), MHD_OPTION_CONNECTION_LIMIT, kMostConnections,
                                   MHD_OPTION_PER_IP_CONNECTION_LIMIT, kMostOfOneAddress, MHD_OPTION_CONNECTION_TIMEOUT,
                                   kIdleSeconds, MHD_OPTION_NOTIFY_CONNECTION, &MhdCallbacks::notify, this,
                                   MHD_OPTION_END));
    if (!daemon_) {
        log()->warn("no metrics and no page: libmicrohttpd does not start");
        return again_.set_in(kTryAgain);
    }
    (void)fd.release();  // the daemon owns it now
    const auto* info = MHD_get_daemon_info(daemon_.get(), MHD_DAEMON_INFO_EPOLL_FD);
    events_.emplace(io_, UniqueFd(::fcntl(info->epoll_fd, F_DUPFD_CLOEXEC, 0)));
    log()->info("metrics at http://{}/metrics", address_.text());
    listen();
    serve();
}

void WebServer::listen() {
    events_->when_readable([this] {
        serve();
        // No connection was accepted, for lack of descriptors. The listener stays readable, so wait a little.
        if (since_.empty()) {
            return rest_.set_in(kRest);
        }
        listen();
    });
}

void WebServer::serve() {
    end_old_ones();
    MHD_run(daemon_.get());
    MHD_UNSIGNED_LONG_LONG ms = 0;
    const bool waits = MHD_get_timeout(daemon_.get(), &ms) == MHD_YES;
    // A timeout of 0 means that the daemon has work left, which follows other work of this thread. Without a timeout
    // the daemon still runs once a second: after it was full, it listens again only in a later run, which no event
    // would cause.
    constexpr long kLook = 1000;
    again_.set_in(std::chrono::milliseconds(waits ? std::clamp<long>(static_cast<long>(ms), 1, kLook) : kLook));
}

void WebServer::end_old_ones() {
    const TimePoint now = os::now();
    for (const auto& [fd, since] : since_) {
        if (now - since > kLongestLife) {
            ::shutdown(fd, SHUT_RDWR);
        }
    }
}

int WebServer::answer(MHD_Connection* connection, const char* path, const char* method) const {
    Answer answer;
    if (std::strcmp(method, MHD_HTTP_METHOD_GET) != 0 && std::strcmp(method, MHD_HTTP_METHOD_HEAD) != 0) {
        answer = {MHD_HTTP_METHOD_NOT_ALLOWED, answer.type, "GET only\n"};
    } else if (auto found = handler_({path, host_of(connection)})) {
        answer = std::move(*found);
    } else {
        answer = {MHD_HTTP_NOT_FOUND, answer.type, "there is nothing here\n"};
    }
    auto* response = MHD_create_response_from_buffer(answer.body.size(), answer.body.data(), MHD_RESPMEM_MUST_COPY);
    if (response == nullptr) {
        return MHD_NO;
    }
    MHD_add_response_header(response, "Content-Type", answer.type.c_str());
    MHD_add_response_header(response, "Content-Security-Policy", kPolicy);
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(response, "Cache-Control", "no-store");
    if (answer.status == MHD_HTTP_METHOD_NOT_ALLOWED) {
        MHD_add_response_header(response, "Allow", "GET, HEAD");
    }
    const int queued = MHD_queue_response(connection, answer.status, response);
    MHD_destroy_response(response);
    return queued;
}

}  // namespace smc
