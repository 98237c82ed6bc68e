// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Follows one kind of object of the Kubernetes API: lists the objects, watches for changes from there on, and lists
// them again when the server no longer knows where the watch was (410). libcurl runs on a thread of its own; only
// metadata is requested.
#pragma once

#include <curl/curl.h>

#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>

#include "os/result.h"

namespace smc::kubernetes {

// Address of the API server, and credentials. The files are read again for each request, because tokens are renewed.
struct Access {
    std::string url;  // "https://10.96.0.1:443"
    std::string token_file, ca_file;
};

class ApiWatch {
 public:
    struct Callbacks {
        std::function<void(const nlohmann::json& items)> listed;
        std::function<void(const std::string& type, const nlohmann::json& object)> changed;
        // Why objects cannot be listed or watched; empty: they can. Called when that changes.
        std::function<void(const std::string& problem)> state;
    };
    // `path`: "/api/v1/pods"; `selector`: a query, as "fieldSelector=...". The callbacks are called on `io`.
    ApiWatch(asio::io_context& io, Access access, std::string path, std::string selector, Callbacks callbacks);
    ~ApiWatch();
    // Ends the request that is under way, so that the destructor does not wait for it.
    void stop();
    ApiWatch(const ApiWatch&) = delete;
    ApiWatch& operator=(const ApiWatch&) = delete;

 private:
    struct Transfer;
    enum class Ended : std::uint8_t { kInOrder, kGone, kFailed };

    static int opened(void* self, curl_socket_t socket, curlsocktype);
    static int close(void* self, curl_socket_t socket);
    void follow();
    bool list();
    Ended watch();
    Ended line(const std::string& text);
    // Returns the HTTP status, or why the server did not answer; the body goes to `transfer`.
    Result<long> get(const std::string& query, Transfer& transfer, std::chrono::seconds longest);
    void pause(std::chrono::milliseconds time);
    void say(const std::string& problem);
    // Calls `then` on the loop's thread. Waits while many calls are outstanding, so that the server sends no faster
    // than the loop works.
    template <class Then>
    void tell(Then then);

    asio::io_context& io_;
    const Access access_;
    const std::string path_, selector_;
    const Callbacks callbacks_;
    std::string version_;    // resourceVersion, from where to watch; empty: list first
    bool has_news_ = false;  // the watch has brought an event or a bookmark
    std::string problem_ = "not asked yet";
    std::atomic<bool> stops_{false};
    std::set<int> sockets_;  // of the request that is under way; guarded by mutex_
    std::mutex mutex_;
    std::condition_variable changed_;  // stops_ is set, or outstanding_ has decreased
    std::size_t outstanding_ = 0;      // guarded by mutex_
    std::shared_ptr<int> alive_ = std::make_shared<int>();
    const std::weak_ptr<int> weak_alive_ = alive_;  // the thread's copy
    std::thread thread_;                            // last member, because it uses the others
};

}  // namespace smc::kubernetes
