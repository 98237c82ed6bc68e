// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/control/admin.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "agent/log/log.h"

namespace smc {

namespace {

using nlohmann::json;

constexpr std::size_t kMostUeids = 8, kMostTaps = 4;
constexpr auto kTapPatience = std::chrono::seconds(5);  // of a tap that nobody empties

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

std::optional<json> Admin::answer(const json& request) {
    const std::string command = request.value("command", "");
    if (command == "bypass-revoke") {
        return revoke();
    }
    if (command == "drain") {
        return drain(request.value("on", true));
    }
    if (command == "ueid") {
        return ueid(request.value("what", "show"), request.value("eid", ""));
    }
    if (command == "seid") {
        return seid(request.value("what", "show"));
    }
    if (command == "capture") {
        return capture(request.value("id", std::uint64_t{0}), request.value("end", false));
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

json Admin::drain(bool on) {
    if (on != p_.drain.on) {
        p_.drain = {on, loop::now()};
        log()->info("{}, {} connections run on", on ? "draining: new connections are plain TCP" : "serving again",
                    p_.connections.live());
        p_.drain_changed();
    }
    return {{"draining", on}, {"connections", p_.connections.live()}};
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
            if (ueids.size() >= kMostUeids) {
                return error("there are 8 UEIDs already, and no more fit into a Proposal");
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

// The first request opens the tap; it is closed when it is asked to, or nobody asks any more.
json Admin::capture(std::uint64_t id, bool end) {
    auto it = taps_.find(id);
    const auto connection = p_.connections.find(id);
    if (it == taps_.end()) {
        if (!connection) {
            return error("there is no connection " + std::to_string(id) + ": `smcctl connections` has their numbers");
        }
        if (connection->path != Path::kSmcD && connection->path != Path::kSmcR) {
            return error("connection " + std::to_string(id) + " is on TCP (" + name(connection->path) +
                         "): a capture of its device shows it");
        }
        if (taps_.size() >= kMostTaps) {
            return error("4 connections are captured already");
        }
        it = taps_.emplace(id, OpenTap{connection, std::make_shared<Tap>(), {}}).first;
        connection->stats->tap.set(it->second.tap);
        log()->info("connection {} is captured", id);
        look_.set_in(kTapPatience);
    }
    OpenTap& open = it->second;
    open.asked = loop::now();
    const Tap::Taken taken = open.tap->take();
    json pieces = json::array();
    for (const Tap::Piece& piece : taken.pieces) {
        pieces.push_back(
            {{"us", std::chrono::duration_cast<std::chrono::microseconds>(piece.when.time_since_epoch()).count()},
             {"sent", piece.sent},
             {"offset", piece.offset},
             {"hex", hex(piece.bytes)}});
    }
    const auto captured = open.connection.lock();
    json answer = {{"pieces", pieces}, {"lost", taken.lost}, {"over", connection == nullptr}};
    if (captured) {
        answer.update({{"client", captured->client.text()},
                       {"server", captured->server.text()},
                       {"role", captured->role == Role::kClient ? "client" : "server"}});
    }
    if (end || !connection) {
        if (captured) {
            captured->stats->tap.set(nullptr);
        }
        taps_.erase(it);
    }
    return answer;
}

void Admin::close_idle_taps() {
    std::erase_if(taps_, [](const auto& entry) {
        const OpenTap& open = entry.second;
        if (loop::now() - open.asked < kTapPatience) {
            return false;
        }
        if (const auto connection = open.connection.lock()) {
            connection->stats->tap.set(nullptr);
        }
        return true;
    });
    if (!taps_.empty()) {
        look_.set_in(kTapPatience);
    }
}

}  // namespace smc
