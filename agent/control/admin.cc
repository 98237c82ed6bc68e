// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/control/admin.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "agent/control/describe.h"
#include "agent/log/log.h"
#include "os/clock.h"

namespace smc {

namespace {

using nlohmann::json;

constexpr std::size_t kMostTaps = 4;

json error(std::string text) {
    return {{"error", std::move(text)}};
}

std::string hex(const std::string& bytes) {
    constexpr const char* kDigits = "0123456789abcdef";
    std::string text;
    text.reserve(bytes.size() * 2);
    for (const char c : bytes) {
        const auto byte = static_cast<unsigned char>(c);
        text += {kDigits[byte >> 4], kDigits[byte & 15]};
    }
    return text;
}

}  // namespace

std::optional<json> Admin::answer(const json& request, pid_t asker) {
    const std::string command = request.value("command", "");
    if (command == "bypass-revoke") {
        return revoke();
    }
    if (command == "drain") {
        return drain(request.value("on", json(true)));
    }
    if (command == "leave") {
        return leave(request.value("pin_path", p_.pin_path), asker);
    }
    if (command == "upgrade") {
        return upgrade();
    }
    if (command == "ueid") {
        return ueid(request.value("what", "show"), request.value("eid", ""));
    }
    if (command == "seid") {
        return seid(request.value("what", "show"));
    }
    if (command == "capture") {
        return capture(request.value("id", std::uint64_t{0}), request.value("tap", std::uint64_t{0}),
                       request.value("end", false));
    }
    return std::nullopt;
}

json Admin::revoke() const {
    if (p_.bypass == nullptr) {
        return error("there is no bypass: `smcctl probe` says why");
    }
    const auto members = p_.bypass->state().members;
    p_.bypass->revoke();
    log()->info("the bypass of {} sockets is revoked", members);
    return {{"revoked", members}};
}

json Admin::drain(const json& wanted) {
    const bool on = wanted.is_null() ? p_.drain.on : wanted.get<bool>();
    if (on != p_.drain.on) {
        p_.drain = {on, os::now()};
        log()->info("{}, {} connections run on", on ? "draining: new connections are plain TCP" : "serving again",
                    p_.connections.live());
        p_.drain_changed();
    }
    return {{"draining", on},
            {"pid", ::getpid()},
            {"connections", p_.connections.live()},
            {"live", live_by_path(p_.connections)}};
}

// Request of the agent that takes this one's place.
json Admin::leave(const std::string& pin_path, pid_t asker) {
    if (pin_path != p_.pin_path) {
        return error("that agent's bpf.pin_path is " + p_.pin_path + ": stop that agent before you change it");
    }
    if (!p_.departure.leave(asker)) {
        return error("this agent is already leaving");
    }
    return {{"leaving", true}, {"connections", p_.connections.live()}};
}

json Admin::upgrade() {
    if (p_.in_pod) {
        return error("the next agent would end with this one's container: start another pod instead");
    }
    const auto successor = p_.departure.upgrade();
    return successor ? json{{"pid", *successor}} : error(successor.error().text());
}

json Admin::ueid(const std::string& what, const std::string& text) {
    auto& ueids = p_.node.ueids;
    if (what == "add" || what == "del") {
        const auto eid = Eid::parse(text);
        if (!eid) {
            return error("\"" + text +
                         "\" is no EID: 1 to 32 of A-Z 0-9 . -, the first A-Z or 0-9, no two dots in a row");
        }
        const auto it = std::ranges::find(ueids, *eid);
        if (what == "add" && it == ueids.end()) {
            if (ueids.size() >= clc::kMostUeids) {
                return error("there are " + std::to_string(clc::kMostUeids) +
                             " UEIDs already, and no more fit into a Proposal");
            }
            ueids.push_back(*eid);
        } else if (what == "del") {
            if (it == ueids.end()) {
                return error("there is no such UEID");
            }
            ueids.erase(it);
        }
    } else if (what == "flush") {
        ueids.clear();
    }
    json list = json::array();
    for (const Eid& eid : ueids) {
        list.push_back(eid.text());
    }
    if (what != "show") {
        log()->info("ueid {} {}: {} now, until the agent ends", what, text, list.size());
    }
    return {{"ueids", list}};
}

json Admin::seid(const std::string& what) {
    if (what == "disable" && p_.node.seid) {
        seid_ = std::exchange(p_.node.seid, std::nullopt);
    } else if (what == "enable" && !p_.node.seid) {
        if (!seid_) {
            return error("there is no SEID: smc.seid is empty");
        }
        p_.node.seid = std::exchange(seid_, std::nullopt);
    }
    const auto& shown = p_.node.seid ? p_.node.seid : seid_;
    return {{"seid", shown ? shown->text() : ""}, {"enabled", p_.node.seid.has_value()}};
}

// Returns why the tap cannot be opened; empty: it is open.
std::string Admin::open_tap(std::uint64_t id) {
    const auto connection = p_.connections.find(id);
    const std::string which = "connection " + std::to_string(id);
    if (!connection) {
        return "there is no " + which + ": `smcctl connections` has their numbers";
    }
    if (connection->path != Path::kSmcD && connection->path != Path::kSmcR) {
        return which + " is on TCP (" + name(connection->path) + "): a capture of its device shows it";
    }
    if (taps_.contains(id)) {
        return which + " is captured already";
    }
    if (taps_.size() >= kMostTaps) {
        return "4 connections are captured already";
    }
    const auto tap = std::make_shared<Tap>();
    taps_.emplace(id, OpenTap{connection, tap, ++last_tap_, os::now()});
    connection->stats->tap.set(tap);
    log()->info("connection {} is captured", id);
    look_.set_in(p_.timeout);
    return "";
}

// The tap is closed on request, at the end of the connection, or when no client has asked for a while.
json Admin::capture(std::uint64_t id, std::uint64_t tap, bool end) {
    if (tap == 0) {
        if (std::string problem = open_tap(id); !problem.empty()) {
            return error(std::move(problem));
        }
        tap = taps_.at(id).number;
    }
    const auto it = taps_.find(id);
    if (it == taps_.end() || it->second.number != tap) {
        return error("the capture of connection " + std::to_string(id) + " was given up: nobody had asked for a while");
    }
    OpenTap& open = it->second;
    open.asked = os::now();
    const bool ended = p_.connections.find(id) == nullptr;
    const Tap::Taken taken = open.tap->take();
    json pieces = json::array();
    for (const Tap::Piece& piece : taken.pieces) {
        const auto us = std::chrono::duration_cast<std::chrono::microseconds>(piece.when.time_since_epoch()).count();
        pieces.push_back({{"us", us}, {"sent", piece.sent}, {"offset", piece.offset}, {"hex", hex(piece.bytes)}});
    }
    json answer = {{"tap", tap},
                   {"pieces", std::move(pieces)},
                   {"lost", taken.lost},
                   {"more", taken.more},
                   {"over", (ended || end) && !taken.more}};
    const auto captured = open.connection.lock();
    if (captured) {
        answer.update({{"client", captured->client.text()},
                       {"server", captured->server.text()},
                       {"role", captured->role == Role::kClient ? "client" : "server"}});
    }
    if ((end || ended) && captured) {
        captured->stats->tap.set(nullptr);
    }
    if (answer["over"].get<bool>()) {
        taps_.erase(it);
    }
    return answer;
}

void Admin::close_idle_taps() {
    std::erase_if(taps_, [this](const auto& entry) {
        const OpenTap& open = entry.second;
        if (os::now() - open.asked < p_.timeout) {
            return false;
        }
        if (const auto connection = open.connection.lock()) {
            connection->stats->tap.set(nullptr);
        }
        return true;
    });
    if (!taps_.empty()) {
        look_.set_in(p_.timeout);
    }
}

}  // namespace smc
