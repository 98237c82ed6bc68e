// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <nlohmann/json.hpp>

#include "ctl/print.h"
#include "ctl/table.h"

namespace smc::ctl {

using nlohmann::json;

namespace {

// The BPF programs that the kernel has or refuses, and what is lost without the refused ones.
void print_programs(std::ostream& out, const json& programs) {
    std::vector<Row> rows{{"Program", "Hook", "This kernel", "What it is for, or what is lost"}};
    for (const auto& one : programs) {
        const bool refused = one.at("state") == "refused";
        rows.push_back({word(one.at("program")), word(one.at("hook")),
                        refused                       ? "refuses it: " + word(one.at("error"))
                        : one.at("state") == "loaded" ? "has it"
                                                      : "not needed",
                        refused ? "LOST: " + word(one.at("lost")) : word(one.at("purpose"))});
    }
    print_table(out, rows);
    out << "\n";
}

}  // namespace

void print_probe(std::ostream& out, const json& v) {
    print_programs(out, v.at("programs"));
    if (!v.at("tried").get<bool>()) {
        out << "The bypass was not tried: local.bypass is off, or it was not loaded: see the agent's log\n";
        return;
    }
    std::vector<Row> rows{{"What", "This kernel", "Kept from applications by"}};
    for (const auto& one : v.at("findings")) {
        const bool differs = !word(one.at("difference")).empty();
        const bool open = differs && word(one.at("excluded")).empty();
        rows.push_back({word(one.at("what")), differs ? word(one.at("difference")) : "as TCP",
                        open      ? "NOTHING"
                        : differs ? word(one.at("excluded"))
                                  : ""});
    }
    print_table(out, rows);
    out << "\nFor rules that say auto, the bypass is "
        << (v.at("automatic").get<bool>() ? std::string("on") : "off: " + word(v.at("obstacle"))) << " ("
        << v.at("took_us").get<double>() / 1000 << " ms)\n";
}

void print_bypass(std::ostream& out, const json& b) {
    if (!b.at("available").get<bool>()) {
        out << "There is no bypass: `smcctl probe` says why\n";
        return;
    }
    const json &sockets = b.at("sockets"), &limits = b.at("limits");
    print_table(
        out,
        {{"Sockets", word(sockets.at("members")) + " bypassed or about to be, at most " + word(limits.at("members")) +
                         ", " + word(limits.at("cgroup_members")) + " of one cgroup"},
         {"", word(sockets.at("watched")) + " watched, " + word(sockets.at("leaving")) + " leaving, " +
                  word(sockets.at("out")) + " out for good"},
         {"Went past TCP", word(b.at("redirected_bytes")) + " bytes in " + word(b.at("redirected_messages")) +
                               " messages, sent by present sockets"},
         {"On the way", word(b.value("backlog_bytes", json(0))) + " bytes now, at most " + word(limits.at("bytes")) +
                            " bytes and " + word(limits.at("messages")) + " messages for each socket"},
         {"Held up",
          b.value("namespaces_held_up", 0) == 0
              ? std::string("none")
              : word(b.at("namespaces_held_up")) +
                    " network namespaces, in which a program holds the lock of a socket: no further members"},
         {"Pins", word(b.at("pins")) + (b.at("taken_over").get<bool>() ? ", taken over" : "")}});
}

void print_revoked(std::ostream& out, const json& answer) {
    out << "Revoked for " << word(answer.at("revoked")) << " sockets: they go on by TCP\n";
}

}  // namespace smc::ctl
