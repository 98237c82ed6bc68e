// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/log/log_writer.h"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <utility>

namespace smc {

namespace {

constexpr auto kLastLines = std::chrono::milliseconds(200);

bool is_file(int fd) {
    struct stat status {};
    return ::fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
}

// Text that cannot be written is lost: there is no other place to report it.
void write_all(int fd, std::string_view text) {
    while (!text.empty()) {
        const ssize_t n = ::write(fd, text.data(), text.size());
        if (n < 0 && errno == EAGAIN) {  // another process has made the shared descriptor non-blocking
            pollfd writable{fd, POLLOUT, 0};
            ::poll(&writable, 1, -1);
            continue;
        }
        if (n < 0 && errno != EINTR) {
            return;
        }
        text.remove_prefix(n > 0 ? static_cast<std::size_t>(n) : 0);
    }
}

}  // namespace

// State of the thread. It may outlive the LogWriter: the thread may hang in a write() whose reader stands still.
struct LogWriter::Shared {
    int fd;
    std::function<std::string(std::uint64_t)> says;
    std::mutex mutex;
    std::condition_variable more, less;
    std::deque<std::string> lines;  // the thread writes the first one
    std::size_t bytes = 0;          // of all lines
    std::uint64_t unsaid = 0;       // dropped lines that are not reported yet; they came after the last of `lines`
    bool ends = false;

    void add(std::string line) {
        bytes += line.size();
        lines.push_back(std::move(line));
    }
    void say_what_was_dropped() {
        if (unsaid != 0) {
            add(says(std::exchange(unsaid, 0)));
        }
    }
};

LogWriter::LogWriter(int fd, std::function<std::string(std::uint64_t dropped)> says) : fd_(fd) {
    if (!is_file(fd)) {
        shared_ = std::make_shared<Shared>();
        shared_->fd = fd;
        shared_->says = std::move(says);
        try {
            thread_ = std::thread([shared = shared_] { serve(shared); });
        } catch (const std::system_error&) {
            shared_.reset();  // no thread can be started: write() writes
        }
    }
}

LogWriter::~LogWriter() {
    if (!shared_) {
        return;
    }
    const bool done = drain();
    {
        const std::lock_guard lock(shared_->mutex);
        shared_->ends = true;
    }
    shared_->more.notify_one();
    done ? thread_.join() : thread_.detach();
}

bool LogWriter::drain() {
    if (!shared_) {
        return true;
    }
    std::unique_lock lock(shared_->mutex);
    return shared_->less.wait_for(lock, kLastLines, [&] { return shared_->lines.empty(); });
}

void LogWriter::write(std::string_view line) {
    if (!shared_) {
        return write_all(fd_, line);
    }
    const std::lock_guard lock(shared_->mutex);
    if (shared_->lines.size() >= kMostLines || shared_->bytes + line.size() > kMostBytes) {
        shared_->unsaid++;
        dropped_.fetch_add(1, std::memory_order_relaxed);
        return;
    }
    shared_->say_what_was_dropped();
    shared_->add(std::string(line));
    shared_->more.notify_one();
}

void LogWriter::serve(const std::shared_ptr<Shared>& shared) {
    std::unique_lock lock(shared->mutex);
    for (;;) {
        shared->more.wait(lock, [&] { return shared->ends || !shared->lines.empty(); });
        if (shared->lines.empty()) {
            return;
        }
        const std::string& first = shared->lines.front();  // push_back() does not move it
        lock.unlock();
        write_all(shared->fd, first);
        lock.lock();
        shared->bytes -= first.size();
        shared->lines.pop_front();
        if (shared->lines.empty()) {
            shared->say_what_was_dropped();
        }
        shared->less.notify_all();
    }
}

}  // namespace smc
