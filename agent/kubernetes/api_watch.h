// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Follows one kind of object of the Kubernetes API: lists it, watches it from there on, and lists it again when the
// server has forgotten where the watch was (410). libcurl asks, on a thread of its own; only metadata is asked for.
#pragma once

#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "os/result.h"

namespace smc::kubernetes {

// Where the API server is, and who asks. The files are read again for each request: tokens are renewed.
struct Access {
    std::string url;  // "https://10.96.0.1:443"
    std::string token_file, ca_file;
};

class ApiWatch {
 public:
    struct Hooks {
        std::function<void(const nlohmann::json& items)> listed;
        std::function<void(const std::string& type, const nlohmann::json& object)> changed;
        // Empty: the server answers. Else why it does not; told when that changes.
        std::function<void(const std::string& problem)> state;
    };
    // `path`: "/api/v1/pods"; `selector`: a query, as "fieldSelector=...". The hooks are called on `io`.
    ApiWatch(asio::io_context& io, Access access, std::string path, std::string selector, Hooks hooks);
    ~ApiWatch();
    ApiWatch(const ApiWatch&) = delete;
    ApiWatch& operator=(const ApiWatch&) = delete;

 private:
    struct Transfer;
    enum class Ended : std::uint8_t { kInOrder, kGone, kFailed };

    void follow();
    bool list();
    Ended watch();
    Ended line(const std::string& text);
    // The status, or what kept the server from answering; the body goes to `transfer`.
    Result<long> get(const std::string& query, Transfer& transfer, std::chrono::seconds longest);
    void pause(std::chrono::milliseconds time);
    void say(const std::string& problem);
    // `then` is called on the loop's thread. This waits while many calls are outstanding, so that the server sends no
    // faster than the loop works.
    template <class Then>
    void tell(Then then);

    asio::io_context& io_;
    const Access access_;
    const std::string path_, selector_;
    const Hooks hooks_;
    std::string version_;  // resourceVersion, from where to watch; empty: list first
    std::string problem_ = "not asked yet";
    std::atomic<bool> stops_{false};
    std::mutex mutex_;
    std::condition_variable stopped_;  // or told
    std::size_t untold_ = 0;           // under mutex_
    std::shared_ptr<int> alive_ = std::make_shared<int>();
    const std::weak_ptr<int> told_ = alive_;  // the thread's own
    std::thread thread_;                      // behind everything that it uses
};

}  // namespace smc::kubernetes
