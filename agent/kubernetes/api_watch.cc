// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/kubernetes/api_watch.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <stdexcept>

#include "agent/log/log.h"
#include "os/clock.h"

namespace smc::kubernetes {

namespace {

using nlohmann::json;
using namespace std::chrono_literals;

constexpr std::size_t kLongestLine = 4U << 20, kLongestList = 64U << 20;  // one event; all pages of a list
constexpr int kDeepest = 32;                                              // nesting of objects
constexpr std::size_t kMostOutstanding = 256;                             // events that the loop has not handled yet
constexpr auto kShortestPause = 200ms, kLongestPause = std::chrono::milliseconds(30s);
constexpr auto kWorks = 3s;                   // a watch that lived this long resets the growing pauses
constexpr std::size_t kLongestProblem = 400;  // bytes: the server chooses a part of the text
constexpr auto kListTakes = 30s;
constexpr int kWatchSeconds = 290;
constexpr const char* kMetadataOnly =
    "Accept: application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,"
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
constexpr long kOk = 200, kGoneStatus = 410;

// Throws if the text is nested too deeply, because the nodes of a JSON tree are visited recursively.
json parse_bounded(const std::string& text) {
    return json::parse(
        text,
        [](int depth, json::parse_event_t, const json&) {
            if (depth > kDeepest) {
                throw std::length_error("it is nested deeper than " + std::to_string(kDeepest) + " times");
            }
            return true;
        },
        false);
}

std::string first_line(const std::string& path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    return line;
}

}  // namespace

// State and result of one request.
struct ApiWatch::Transfer {
    ApiWatch* watch = nullptr;  // receives each line as it comes; null: the whole body is kept
    std::string body;           // or the beginning of an incomplete line
    Ended ended = Ended::kInOrder;

    static std::size_t write(const char* data, std::size_t, std::size_t bytes, void* self) {
        return static_cast<Transfer*>(self)->take(data, bytes) ? bytes : 0;
    }
    bool take(const char* data, std::size_t bytes) {
        body.append(data, bytes);
        if (watch == nullptr) {
            return body.size() <= kLongestList;
        }
        for (auto end = body.find('\n'); end != std::string::npos; end = body.find('\n')) {
            ended = watch->line(body.substr(0, end));  // does not throw: no exception may pass through libcurl
            body.erase(0, end + 1);
            if (ended != Ended::kInOrder) {
                return false;
            }
        }
        return body.size() <= kLongestLine;
    }
};

ApiWatch::ApiWatch(asio::io_context& io, Access access, std::string path, std::string selector, Callbacks callbacks)
    : io_(io),
      access_(std::move(access)),
      path_(std::move(path)),
      selector_(std::move(selector)),
      callbacks_(std::move(callbacks)),
      thread_([this] { follow(); }) {}

void ApiWatch::stop() {
    {
        const std::lock_guard lock(mutex_);
        stops_ = true;
        for (const int socket : sockets_) {
            ::shutdown(socket, SHUT_RDWR);  // else libcurl, which waits for it, would look at stops_ once a second
        }
    }
    changed_.notify_all();
}

ApiWatch::~ApiWatch() {
    stop();
    alive_.reset();
    thread_.join();
}

// Called by libcurl, on its thread, for each socket that it has made, and instead of close().
int ApiWatch::opened(void* self, curl_socket_t socket, curlsocktype) {
    auto* watch = static_cast<ApiWatch*>(self);
    const std::lock_guard lock(watch->mutex_);
    watch->sockets_.insert(socket);
    return watch->stops_ ? CURL_SOCKOPT_ERROR : CURL_SOCKOPT_OK;
}

int ApiWatch::close(void* self, curl_socket_t socket) {
    auto* watch = static_cast<ApiWatch*>(self);
    const std::lock_guard lock(watch->mutex_);
    watch->sockets_.erase(socket);
    return ::close(socket);
}

template <class Then>
void ApiWatch::tell(Then then) {
    {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return stops_ || outstanding_ < kMostOutstanding; });
        outstanding_++;
    }
    asio::post(io_, [this, alive = weak_alive_, then = std::move(then)] {
        if (alive.expired()) {
            return;
        }
        {
            const std::lock_guard lock(mutex_);
            outstanding_--;
        }
        changed_.notify_all();
        then();
    });
}

void ApiWatch::say(const std::string& problem) {
    std::string text = problem.size() > kLongestProblem ? problem.substr(0, kLongestProblem) + "..." : problem;
    std::ranges::replace_if(
        text, [](char c) { return c < ' ' || c > '~'; }, '?');  // it is a part of a log line
    if (text != std::exchange(problem_, text)) {
        tell([this, text] { callbacks_.state(text); });
    }
}

void ApiWatch::pause(std::chrono::milliseconds time) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, time, [this] { return stops_.load(); });
}

// A successful list does not reset the growing pauses: if only watches fail, every node would list all pods again and
// again.
void ApiWatch::follow() {
    auto next_pause = kShortestPause;
    while (!stops_) {
        if (version_.empty() && list()) {
            continue;
        }
        bool works = false;
        if (!version_.empty()) {
            has_news_ = false;
            const auto began = os::now();
            if (watch() == Ended::kGone) {
                version_.clear();
            }
            works = has_news_ || os::now() - began >= kWorks;
        }
        pause(works ? kShortestPause : next_pause);
        next_pause = works ? kShortestPause : std::min(next_pause * 2, kLongestPause);
    }
}

Result<long> ApiWatch::get(const std::string& query, Transfer& transfer, std::chrono::seconds longest) {
    const std::unique_ptr<CURL, void (*)(CURL*)> curl(::curl_easy_init(), ::curl_easy_cleanup);
    const std::string url = access_.url + path_ + "?" + query + (selector_.empty() ? "" : "&" + selector_);
    ::curl_slist* headers = ::curl_slist_append(nullptr, kMetadataOnly);
    if (const std::string token = access_.token_file.empty() ? "" : first_line(access_.token_file); !token.empty()) {
        headers = ::curl_slist_append(headers, ("Authorization: Bearer " + token).c_str());
    }
    const std::unique_ptr<::curl_slist, void (*)(::curl_slist*)> owned(headers, ::curl_slist_free_all);
    char problem[CURL_ERROR_SIZE] = "";
    CURL* c = curl.get();
    ::curl_easy_setopt(c, CURLOPT_URL, url.c_str());
    ::curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers);
    ::curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
    ::curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    ::curl_easy_setopt(c, CURLOPT_NOPROXY, "*");
    ::curl_easy_setopt(c, CURLOPT_QUICK_EXIT, 1L);  // else stop() would wait for a name server that does not answer
    ::curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT, 10L);
    ::curl_easy_setopt(c, CURLOPT_TIMEOUT, static_cast<long>(longest.count()));
    ::curl_easy_setopt(c, CURLOPT_TCP_KEEPALIVE, 1L);
    ::curl_easy_setopt(c, CURLOPT_ERRORBUFFER, problem);
    ::curl_easy_setopt(c, CURLOPT_FAILONERROR, 1L);
    ::curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, &Transfer::write);
    ::curl_easy_setopt(c, CURLOPT_WRITEDATA, &transfer);
    ::curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L);
    ::curl_easy_setopt(c, CURLOPT_XFERINFODATA, this);
    ::curl_easy_setopt(
        c, CURLOPT_XFERINFOFUNCTION, +[](void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t) -> int {
            return static_cast<ApiWatch*>(self)->stops_ ? 1 : 0;
        });
    ::curl_easy_setopt(c, CURLOPT_SOCKOPTDATA, this);
    ::curl_easy_setopt(c, CURLOPT_SOCKOPTFUNCTION, &ApiWatch::opened);
    ::curl_easy_setopt(c, CURLOPT_CLOSESOCKETDATA, this);
    ::curl_easy_setopt(c, CURLOPT_CLOSESOCKETFUNCTION, &ApiWatch::close);
    if (!access_.ca_file.empty()) {
        ::curl_easy_setopt(c, CURLOPT_CAINFO, access_.ca_file.c_str());
    }
    const CURLcode done = ::curl_easy_perform(c);
    long status = 0;
    ::curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &status);
    if (done == CURLE_HTTP_RETURNED_ERROR) {
        return status;
    }
    // A watch also ends in order when its time is over, or when line() has ended it.
    if (done == CURLE_OK || (transfer.watch != nullptr && status == kOk &&
                             (done == CURLE_OPERATION_TIMEDOUT || transfer.ended != Ended::kInOrder))) {
        return status;
    }
    return Error{EIO,
                 "asking " + access_.url + path_ + ": " + (*problem != '\0' ? problem : ::curl_easy_strerror(done))};
}

// Gets the list in pages. False: it must be asked for again.
bool ApiWatch::list() try {
    json items = json::array();
    std::string more, version;
    std::size_t bytes = 0;
    version_.clear();
    do {
        Transfer transfer;
        const auto status = get("limit=500" + (more.empty() ? "" : "&continue=" + more), transfer, kListTakes);
        if (!status || *status != kOk) {
            say(status ? "the API server answers " + std::to_string(*status) + " to a list of " + path_
                       : status.error().text());
            return false;
        }
        json page = parse_bounded(transfer.body);
        bytes += transfer.body.size();
        if (bytes > kLongestList) {
            say("the API server's list of " + path_ + " has more than " + std::to_string(kLongestList >> 20) + " MiB");
            return false;
        }
        if (!page.is_object() || !page.contains("items") || !page["items"].is_array() ||
            !page.value("metadata", json()).is_object()) {
            say("the API server answers no list of " + path_);
            return false;
        }
        std::ranges::move(page["items"], std::back_inserter(items));
        version = page["metadata"].value("resourceVersion", "");
        more = page["metadata"].value("continue", "");
        if (const std::unique_ptr<char, void (*)(void*)> escaped(
                ::curl_easy_escape(nullptr, more.c_str(), static_cast<int>(more.size())), ::curl_free);
            escaped && !more.empty()) {
            more = escaped.get();
        }
    } while (!more.empty() && !stops_);
    say("");
    tell([this, items = std::move(items)] { callbacks_.listed(items); });
    version_ = version;
    return !version_.empty();
} catch (const std::exception& error) {
    say("the API server's list of " + path_ + ": " + error.what());
    return false;
}

ApiWatch::Ended ApiWatch::watch() {
    Transfer transfer;
    transfer.watch = this;
    const auto status = get("watch=1&allowWatchBookmarks=true&timeoutSeconds=" + std::to_string(kWatchSeconds) +
                                "&resourceVersion=" + version_,
                            transfer, std::chrono::seconds(kWatchSeconds + 30));
    if (!status) {
        say(status.error().text());
        return Ended::kFailed;
    }
    if (*status == kGoneStatus) {
        return Ended::kGone;
    }
    if (*status != kOk) {
        say("the API server answers " + std::to_string(*status) + " to a watch of " + path_);
        return Ended::kFailed;
    }
    if (transfer.ended == Ended::kFailed) {  // line() has reported why
        version_.clear();                    // a watch from there would fail again
        return Ended::kFailed;
    }
    say("");
    return transfer.ended;
}

ApiWatch::Ended ApiWatch::line(const std::string& text) try {
    json event = parse_bounded(text);
    if (!event.is_object() || !event.contains("object") || !event["object"].is_object()) {
        say("the API server's watch of " + path_ + " has a line that is no event");
        return Ended::kFailed;
    }
    const std::string type = event.value("type", "");
    json& object = event["object"];
    if (type == "ERROR") {
        if (object.value("code", 0) == kGoneStatus) {
            return Ended::kGone;
        }
        say("the API server ends a watch of " + path_ + ": " + object.value("message", "it does not say why"));
        return Ended::kFailed;
    }
    const json metadata = object.value("metadata", json::object());
    if (const std::string version = metadata.value("resourceVersion", ""); !version.empty()) {
        version_ = version;
    }
    has_news_ = true;
    say("");
    if (type != "BOOKMARK") {
        tell([this, type, object = std::move(object)] { callbacks_.changed(type, object); });
    }
    return Ended::kInOrder;
} catch (const std::exception& error) {
    say("the API server's watch of " + path_ + ": " + error.what());
    return Ended::kFailed;
}

}  // namespace smc::kubernetes
