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
        const bool refused = one["state"] == "refused";
        rows.push_back({word(one["program"]), word(one["hook"]),
                        refused                    ? "refuses it: " + word(one["error"])
                        : one["state"] == "loaded" ? "has it"
                                                   : "needs none",
                        refused ? "LOST: " + word(one["lost"]) : word(one["purpose"])});
    }
    print_table(out, rows);
    out << "\n";
}

}  // namespace

void print_probe(std::ostream& out, const json& v) {
    print_programs(out, v["programs"]);
    if (!v["tried"].get<bool>()) {
        out << "The bypass was not tried: local.bypass is off, or it was not loaded: see the agent's log\n";
        return;
    }
    std::vector<Row> rows{{"What", "This kernel", "Kept from applications by"}};
    for (const auto& one : v["findings"]) {
        const bool differs = !word(one["difference"]).empty();
        const bool open = differs && word(one["excluded"]).empty();
        rows.push_back({word(one["what"]), differs ? word(one["difference"]) : "as TCP",
                        open      ? "NOTHING"
                        : differs ? word(one["excluded"])
                                  : ""});
    }
    print_table(out, rows);
    out << "\nFor rules that say auto, the bypass is "
        << (v["automatic"].get<bool>() ? std::string("on") : "off: " + word(v["obstacle"])) << " ("
        << v["took_us"].get<double>() / 1000 << " ms)\n";
}

void print_bypass(std::ostream& out, const json& b) {
    if (!b["there"].get<bool>()) {
        out << "There is no bypass: `smcctl probe` says why\n";
        return;
    }
    const json &sockets = b["sockets"], &limits = b["limits"];
    print_table(
        out, {{"Sockets", word(sockets["members"]) + " bypassed or about to be, at most " + word(limits["members"]) +
                              ", " + word(limits["cgroup_members"]) + " of one cgroup"},
              {"", word(sockets["watched"]) + " watched, " + word(sockets["leaving"]) + " leaving, " +
                       word(sockets["out"]) + " out for good"},
              {"Went past TCP", word(b["redirected_bytes"]) + " bytes in " + word(b["redirected_messages"]) +
                                    " messages, of those that live"},
              {"On the way", word(b.value("backlog_bytes", json(0))) + " bytes now, at most " + word(limits["bytes"]) +
                                 " bytes and " + word(limits["messages"]) + " messages for each socket"},
              {"Pins", word(b["pins"]) + (b["taken_over"].get<bool>() ? ", taken over" : "")}});
}

void print_revoked(std::ostream& out, const json& answer) {
    out << "Revoked for " << word(answer["revoked"]) << " sockets: they go on by TCP\n";
}

}  // namespace smc::ctl
