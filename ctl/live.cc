// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Commands that run until Ctrl-C, or until they have done as much as the user asked for: events, top, capture.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <ctime>
#include <iostream>
#include <map>
#include <memory>
#include <thread>

#include "ctl/client.h"
#include "ctl/commands.h"
#include "ctl/print.h"
#include "ctl/table.h"
#include "ctl/tap_file.h"

namespace smc::ctl {

using nlohmann::json;
using namespace std::chrono_literals;

namespace {

std::atomic<bool> interrupted{false};

void stop_at_interrupt() {
    std::signal(SIGINT, [](int) { interrupted = true; });
    std::signal(SIGTERM, [](int) { interrupted = true; });
}

void wait_for(std::chrono::milliseconds time) {
    for (; time > 0ms && !interrupted; time -= 50ms) {
        std::this_thread::sleep_for(std::min(time, 50ms));
    }
}

std::string time_of(std::int64_t us) {
    const std::time_t seconds = us / 1'000'000;
    std::tm utc{};
    ::gmtime_r(&seconds, &utc);
    char day[32], text[48];
    std::strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &utc);
    std::snprintf(text, sizeof text, "%s.%03dZ", day, static_cast<int>(us / 1000 % 1000));
    return text;
}

void print_event(const json& event, bool as_json) {
    if (as_json) {
        std::cout << event.dump() << "\n";
    } else {
        std::cout << time_of(event.at("us").get<std::int64_t>()) << " " << word(event.at("level")) << " "
                  << word(event.at("text")) << "\n";
    }
}

// Another agent may be taking over: for a moment no agent answers, or the new one answers that it is starting.
std::optional<json> events_behind(Context& context, std::uint64_t last, bool patient) {
    const json request = {{"command", "events"}, {"after", last}};
    for (const auto until = std::chrono::steady_clock::now() + 5s;
         patient && !interrupted && std::chrono::steady_clock::now() < until; wait_for(250ms)) {
        if (auto answer = ask(context.socket, request); answer && !answer->contains("error")) {
            return *answer;
        }
    }
    return answer_of(context, request);
}

void follow_events(Context& context, bool only_those_that_are_there) {
    std::uint64_t last = 0;
    json who;
    for (bool first = true; !interrupted && std::cout; first = false) {
        const auto answer = events_behind(context, last, !first);
        if (!answer) {
            return;
        }
        if (const json now = answer->value("pid", json()); now != who) {
            who = now;
            if (!first) {
                last = 0;  // another agent counts its own lines
                continue;
            }
        }
        for (const auto& event : answer->at("events")) {
            const auto number = event.at("number").get<std::uint64_t>();
            if (!first && number > last + 1) {
                std::cerr << "Error: " << number - last - 1 << " events were lost: they came too fast\n";
            }
            last = number;
            print_event(event, context.json);
        }
        std::cout << std::flush;
        if (only_those_that_are_there) {
            return;
        }
        wait_for(250ms);
    }
}

// Identifies a connection. One within this node stays the same when it changes between TCP and the bypass.
std::string key(const json& connection) {
    const std::string path = word(connection.at("path"));
    return (path == "bypass" ? "tuned" : path) + word(connection.at("id"));
}

// Bytes per second since the answer before: of each path, and of the `lines` connections that move the most.
json rates(const json& now, const std::map<std::string, json>& before, double seconds, std::size_t lines) {
    json paths = json::object();
    std::vector<json> all;
    for (const auto& c : now) {
        const auto it = before.find(key(c));
        // The bypass and TCP have counters of their own: a connection that has just changed between them has no rate.
        const bool changed = it != before.end() && it->second.at("path") != c.at("path");
        const auto delta = [&](const char* key) {
            const double then = it == before.end() ? 0 : (changed ? c : it->second).at(key).get<double>();
            return seconds > 0 ? std::max(0.0, c.at(key).get<double>() - then) / seconds : 0;
        };
        json one = {{"sent_per_s", delta("bytes_sent")}, {"received_per_s", delta("bytes_received")}};
        json& path = *paths.emplace(word(c.at("path")), json{{"connections", 0}}).first;
        path["connections"] = path.at("connections").get<int>() + 1;
        for (const char* key : {"sent_per_s", "received_per_s"}) {
            path[key] = path.value(key, 0.0) + one[key].get<double>();
        }
        for (const char* key : {"id", "path", "role", "client", "server"}) {
            one[key] = c.at(key);
        }
        all.push_back(std::move(one));
    }
    std::ranges::stable_sort(all, std::ranges::greater(), [](const json& one) {
        return one.at("sent_per_s").get<double>() + one.at("received_per_s").get<double>();
    });
    all.resize(std::min(lines, all.size()));
    return {{"seconds", seconds}, {"paths", std::move(paths)}, {"connections", std::move(all)}};
}

std::string rate(const json& bytes_per_second) {
    return bytes(bytes_per_second) + "/s";
}

void print_top(const json& rates) {
    std::vector<Row> table{{"Path", "#Conns", "Sent", "Received"}};
    for (const auto& [path, sum] : rates.at("paths").items()) {
        table.push_back(
            {path, word(sum.at("connections")), rate(sum.at("sent_per_s")), rate(sum.at("received_per_s"))});
    }
    print_table(std::cout, table);
    std::cout << "\n";
    table = {{"Id", "Path", "Role", "Client", "Server", "Sent", "Received"}};
    for (const auto& c : rates.at("connections")) {
        table.push_back({word(c.at("id")), word(c.at("path")), word(c.at("role")), word(c.at("client")),
                         word(c.at("server")), rate(c.at("sent_per_s")), rate(c.at("received_per_s"))});
    }
    print_table(std::cout, table);
}

void top(Context& context, unsigned times, std::size_t lines) {
    std::map<std::string, json> before;
    auto then = std::chrono::steady_clock::now();
    const auto every = std::chrono::seconds(std::max(1U, context.watch_s));
    for (unsigned i = 0; (times == 0 || i <= times) && !interrupted && std::cout; i++) {
        const auto answer = answer_of(context, {{"command", "connections"}});
        if (!answer) {
            return;
        }
        const auto now = std::chrono::steady_clock::now();
        const json& list = answer->at("connections");
        if (i != 0) {  // the first answer is only there to be compared with
            const json moved = rates(list, before, std::chrono::duration<double>(now - then).count(), lines);
            if (context.json) {
                std::cout << moved.dump() << "\n";
            } else {
                std::cout << (::isatty(STDOUT_FILENO) != 0 ? "\033[H\033[2J" : "");
                print_top(moved);
            }
            std::cout << std::flush;
        }
        before.clear();
        for (const auto& c : list) {
            before.emplace(key(c), c);
        }
        then = now;
        if (times == 0 || i < times) {
            wait_for(every);
        }
    }
}

void capture(Context& context, std::uint64_t id, const std::string& path, std::uint64_t most, unsigned seconds) {
    TapFile file;
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
    std::uint64_t lost = 0, tap = 0;
    std::string failed;
    for (bool over = false; !over;) {
        const bool enough = interrupted || file.bytes() >= most || !failed.empty() ||
                            (seconds != 0 && std::chrono::steady_clock::now() >= until);
        const auto answer =
            answer_of(context, {{"command", "capture"}, {"id", id}, {"tap", tap}, {"end", tap != 0 && enough}});
        if (!answer) {
            return;
        }
        if (tap == 0) {  // only now, so that a connection that cannot be captured leaves no file
            failed = file.open(path);
        }
        tap = answer->at("tap").get<std::uint64_t>();
        lost = answer->at("lost").get<std::uint64_t>();
        over = answer->at("over").get<bool>();
        if (failed.empty()) {
            failed = file.write(*answer, most);
        }
        if (!over && !answer->at("more").get<bool>() && failed.empty() && !enough) {
            wait_for(100ms);
        }
    }
    if (!failed.empty()) {
        std::cerr << "Error: " << failed << "\n";
        context.exit = kRefused;
        return;
    }
    std::cerr << "connection " << id << ": " << file.bytes() << " bytes in " << file.packets() << " packets, " << lost
              << " bytes lost\n";
}

}  // namespace

void add_live(CLI::App& app, Context& context) {
    auto* events = app.add_subcommand("events", "Events of connections, link groups and namespaces, as they happen");
    const auto once = std::make_shared<bool>(false);
    events->add_flag("--once", *once, "Print the events that the agent remembers, and exit");
    events->callback([&context, once] {
        stop_at_interrupt();
        follow_events(context, *once);
    });
    auto* tops = app.add_subcommand("top", "Throughput by path and connection, every second or every --watch seconds");
    const auto times = std::make_shared<unsigned>(0);
    const auto lines = std::make_shared<std::size_t>(20);
    tops->add_option("-n,--times", *times, "Number of updates; default: until Ctrl-C");
    tops->add_option("-l,--lines", *lines, "Number of connections to show")->capture_default_str();
    tops->callback([&context, times, lines] {
        stop_at_interrupt();
        top(context, *times, *lines);
    });
    auto* captures = app.add_subcommand(
        "capture", "Payload of an accelerated connection, as pcapng with TCP headers made by smcctl");
    const auto id = std::make_shared<std::uint64_t>(0);
    const auto file = std::make_shared<std::string>();
    const auto most = std::make_shared<std::uint64_t>(64U << 20);
    const auto seconds = std::make_shared<unsigned>(0);
    captures->add_option("ID", *id, "ID of the connection, as in `smcctl connections`")->required();
    captures->add_option("FILE", *file, "Output file; - is standard output")->required();
    captures->add_option("-s,--size", *most, "Bytes of payload at most")->capture_default_str();
    captures->add_option("-t,--seconds", *seconds,
                         "Stop after this many seconds; default: at Ctrl-C or the connection's end");
    captures->callback([&context, id, file, most, seconds] {
        stop_at_interrupt();
        capture(context, *id, *file, *most, *seconds);
    });
}

}  // namespace smc::ctl
