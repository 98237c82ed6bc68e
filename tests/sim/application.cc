// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "application.h"

#include <algorithm>

namespace smc::sim {

namespace {

std::uint64_t mix(std::uint64_t value) {
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
    return value ^ (value >> 31);
}

}  // namespace

Byte byte_of(std::uint64_t stream, std::uint64_t at, bool with_urgent) {
    const std::uint64_t random = mix(stream * 0x9e3779b97f4a7c15ULL + at);
    return {static_cast<std::uint8_t>(random), with_urgent && (random >> 8) % 1499 == 0};
}

Application::Application(World& world, Plan plan)
    : world_(world), plan_(std::move(plan)), timer_(world, [this] { act(); }) {}

std::string Application::state() const {
    return plan_.name + " wrote " + std::to_string(written_) + " of " + std::to_string(plan_.bytes) + ", read " +
           std::to_string(read_) +
           (over_     ? ", over"
            : socket_ ? ", connected"
                      : ", not connected");
}

// An application that has read the end has read everything before it (F2).
bool Application::has_read_from(const Application& writer) const {
    return read_ <= writer.written_ && (end_ != End::kOrderly || (writer.ended_writing_ && read_ == writer.written_));
}

void Application::connected(std::shared_ptr<Socket> socket) {
    if (over_) {
        return socket->reset();
    }
    world_.tell(plan_.name + " is connected");
    socket_ = std::move(socket);
    reads_from_ = world_.now() + plan_.reads_late;
    socket_->descriptor().watch([this](std::uint32_t) { act(); });
    again(std::chrono::milliseconds(1));
}

void Application::refused(const std::string& why) {
    if (!over_ && !socket_) {
        finish(End::kError, "connect() fails: " + why);
    }
}

void Application::finish(End end, const std::string& how) {
    world_.tell(plan_.name + " " + how + "; wrote " + std::to_string(written_) + ", read " + std::to_string(read_));
    over_ = true;
    end_ = end;
    timer_.set(kNever);
}

void Application::again(Delay longest) {
    timer_.set(world_.now() + world_.some_time(longest));
}

void Application::act() {
    if (over_ || !socket_) {
        return;
    }
    if (world_.now() >= plan_.resets_at) {
        socket_->descriptor().unwatch();
        socket_->reset();
        return finish(End::kError, "resets");
    }
    if (world_.now() < asleep_until_) {
        return timer_.set(asleep_until_);
    }
    if (world_.strikes(Mishap::kApplicationStalls)) {
        asleep_until_ = world_.now() + world_.some_time(std::chrono::seconds(10));
        return timer_.set(asleep_until_);
    }
    const bool reads = world_.now() >= reads_from_;
    if (reads) {
        read_some();
    }
    if (!over_) {
        write_some();
    }
    if (over_) {
        return;
    }
    if (saw_end_ && ended_writing_) {
        socket_->close();
        return finish(End::kOrderly, "is done");
    }
    const bool may_write = !ended_writing_ && (saw_end_ || !plan_.waits_for_end);
    const bool more = (reads && socket_->readable() > 0) || (may_write && socket_->room() > 0);
    if (more) {
        again(plan_.is_slow ? std::chrono::milliseconds(10) : std::chrono::microseconds(100));
    } else if (!reads) {
        timer_.set(std::min(reads_from_, plan_.resets_at));
    } else if (plan_.resets_at != kNever) {
        timer_.set(plan_.resets_at);
    }
}

void Application::read_some() {
    for (std::uint64_t budget = world_.between(1, plan_.is_slow ? 4000 : 20000); budget > 0;) {
        const auto bytes = socket_->read(budget);
        if (bytes.empty()) {
            break;
        }
        for (const Byte& byte : bytes) {
            // A byte that was reported as consumed too early has been overwritten meanwhile (F1).
            const Byte expected = byte_of(plan_.in, read_, plan_.urgent);
            if (byte.value != expected.value || byte.urgent != expected.urgent) {
                const char* what = byte.value != expected.value ? " reads a wrong byte at "
                                   : byte.urgent                ? " reads an urgent byte that was none at "
                                                                : " reads an urgent byte without its mark at ";
                world_.violated(plan_.name + what + std::to_string(read_));
            }
            read_++;
        }
        budget -= bytes.size();
    }
    if (socket_->at_end() && !saw_end_) {  // also if a reset has followed
        saw_end_ = true;
        world_.tell(plan_.name + " reads the end at " + std::to_string(read_));
    }
    if (socket_->broken() && socket_->readable() == 0) {
        socket_->descriptor().unwatch();
        finish(End::kError, "reads ECONNRESET");
    }
}

void Application::write_some() {
    if (plan_.waits_for_end && !saw_end_) {
        return;
    }
    std::vector<Byte> bytes;
    const std::uint64_t left = plan_.bytes - written_;
    const std::uint64_t most = std::min({left, world_.between(1, 20000), std::uint64_t{socket_->room()}});
    bytes.reserve(most);
    for (std::uint64_t i = 0; i < most; i++) {
        bytes.push_back(byte_of(plan_.out, written_ + i, plan_.urgent));
    }
    written_ += socket_->write(bytes);
    if (written_ == plan_.bytes && !ended_writing_) {
        ended_writing_ = true;
        socket_->end_writing();
    }
}

}  // namespace smc::sim
