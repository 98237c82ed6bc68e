// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "attempt.h"

#include <cerrno>

#include "node.h"

namespace smc::sim {

namespace {

constexpr std::size_t kSocketBytes = 32 * 1024;

// Mishaps of the TCP connection that CLC is spoken on.
void trouble(World& world, const Socket::Pair& pair) {
    const auto& victim = world.chance(50) ? pair.first : pair.second;
    if (world.strikes(Mishap::kClcReset)) {
        world.after(world.some_time(std::chrono::seconds(10)), [weak = std::weak_ptr(victim)] {
            if (const auto socket = weak.lock()) {
                socket->reset();
                // A reset by the network is noticed at both ends.
                socket->descriptor().changed();
            }
        });
    }
    if (world.strikes(Mishap::kClcLost)) {
        world.after(world.some_time(std::chrono::seconds(1)), [weak = std::weak_ptr(victim)] {
            if (const auto socket = weak.lock()) {
                socket->lose();
            }
        });
    }
    if (world.strikes(Mishap::kClcSlow)) {
        const Delay more = world.some_time(std::chrono::seconds(9));
        world.after(world.some_time(std::chrono::milliseconds(10)), [weak = std::weak_ptr(victim), more] {
            if (const auto socket = weak.lock()) {
                socket->delay(more);
            }
        });
    }
}

}  // namespace

void ClientAttempt::on(const session::Connect&) {
    const Delay there = world_.network(), back = world_.network();
    if (world_.strikes(Mishap::kConnectFails)) {
        const int error = world_.chance(50) ? ECONNREFUSED : ETIMEDOUT;
        return after(there + back, [this, error] { feed(session_.connect_failed(error)); });
    }
    if (world_.strikes(Mishap::kNoOption) || world_.strikes(Mishap::kEcho)) {
        const auto option = world_.chance(50) ? session::PeerOption::kAbsent : session::PeerOption::kEchoed;
        return after(there + back, [this, option] { feed(session_.connected(option, parts_.means, world_.now())); });
    }
    const auto pair = Socket::pair(world_, kSocketBytes, true);
    trouble(world_, pair);
    world_.after(there,
                 [&server = server_, &listener = listener_, socket = pair.second] { server.accept(socket, listener); });
    after(there + back, [this, socket = pair.first] {
        if (socket->broken()) {
            return feed(session_.connect_failed(ECONNRESET));
        }
        use_clc_socket(socket);
        feed(session_.connected(session::PeerOption::kAgent, parts_.means, world_.now()));
    });
}

void ClientAttempt::on(const session::FinishConnect&) {
    if (application_.over()) {
        return after(world_.local(),
                     [this] { feed(session_.leg_failed(session::AppState::kGone, "the application has gone")); });
    }
    Delay answer = world_.local();
    if (world_.strikes(Mishap::kNoLeg)) {
        if (world_.chance(50)) {
            return after(answer, [this] { feed(session_.leg_failed(session::AppState::kSynSent, "simulated")); });
        }
        if (world_.chance(50)) {
            return;
        }
        after(answer, [this] { feed(session_.leg_late(session::AppState::kSynRecv, "simulated", world_.now())); });
        answer += world_.some_time(std::chrono::seconds(6));
    }
    const auto pair = Socket::pair(world_, kSocketBytes, false);
    leg_ = pair.second;
    after(answer, [this, socket = pair.first] {
        if (session_.state() != session::Client::State::kFinishing) {
            return;  // the session does not wait for the leg any more
        }
        application_.connected(socket);
        feed(session_.leg_connected(world_.now()));
    });
}

// The application's own SYN goes to the server.
void ClientAttempt::on_tcp() {
    const auto pair = Socket::pair(world_, kSocketBytes, true);
    const Delay there = world_.network(), back = world_.network();
    world_.after(there, [&listener = listener_, socket = pair.second] { listener.accepted(socket); });
    world_.after(there + back, [&application = application_, socket = pair.first] { application.connected(socket); });
}

void ServerAttempt::on(const session::ConnectApplication&) {
    if (world_.strikes(Mishap::kServerSilent)) {
        return;
    }
    if (world_.strikes(Mishap::kServerRefuses)) {
        return after(world_.local(), [this] { feed(session_.application_refused("simulated", world_.now())); });
    }
    const auto pair = Socket::pair(world_, kSocketBytes, false);
    leg_ = pair.second;
    accepted_ = pair.first;
    after(world_.local(), [this] { feed(session_.application_connected(world_.now())); });
}

// The last packet of the leg's handshake: only now can the application accept the leg.
void ServerAttempt::runs() {
    world_.after(world_.local(), [&listener = listener_, socket = accepted_] { listener.accepted(socket); });
}

}  // namespace smc::sim
