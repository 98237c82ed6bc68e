// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/config/config.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <sstream>

#include "agent/config/schema.h"
#include "smc/wire/reason.h"

using namespace smc;

namespace {

std::string problem(const std::string& json) {
    const auto parsed = parse_config(json);
    const auto* p = std::get_if<ConfigProblem>(&parsed);
    return p != nullptr ? p->pointer + ": " + p->text : "";
}

}  // namespace

TEST_CASE("default__is_valid_and_survives_a_round_trip") {
    const std::string text = print_config({});
    const auto parsed = parse_config(text);
    REQUIRE(std::holds_alternative<Config>(parsed));
    CHECK(print_config(std::get<Config>(parsed)) == text);
    CHECK(problem("{}").empty());
}

TEST_CASE("problem__names_pointer_found_and_allowed") {
    CHECK(problem(R"({"limits": {"connections": "many"}})") ==
          R"(/limits/connections: found "many", allowed: integer from 1 to 1000000)");
    CHECK(problem(R"({"limits": {"connections": 0}})") ==
          "/limits/connections: found 0, allowed: integer from 1 to 1000000");
    CHECK(problem(R"({"limits": {"conections": 5}})") ==
          "/limits/conections: found an unknown key, "
          "allowed: cgroup_percent, connections, handshakes, namespace_percent");
    CHECK(problem(R"({"tc": 1})").starts_with("/tc: found an unknown key, allowed: $schema, bpf, cgroup"));
    CHECK(problem(R"({"bpf": {"tc": "xdp"}})") == R"(/bpf/tc: found "xdp", allowed: "auto", "tcx", "clsact")");
    CHECK(problem(R"({"policy": {"rules": [{"name": "x", "action": "allow"}, {"name": "y"}]}})") ==
          R"(/policy/rules/1: found no key "action", allowed: an object with it)");
    CHECK(problem(R"([])").starts_with(": found [], allowed: object"));
    for (const char* key : {"labels", "annotations", "namespace_labels", "namespace_annotations"}) {
        CHECK(problem(R"({"policy": {"rules": [{"name": "x", "action": "allow", "pods": [{")" + std::string(key) +
                      R"(": {"a": true}}]}]}})")
                  .starts_with("/policy/rules/0/pods/0/" + std::string(key) + "/a: found true, allowed: string"));
    }
    for (const char* spin : {R"("often")", "1001", "-1", "1.5", "null"}) {
        CHECK(problem(R"({"engine": {"spin_us": )" + std::string(spin) + "}}") ==
              "/engine/spin_us: found " + std::string(spin) + R"(, allowed: "auto" or integer from 0 to 1000)");
    }
    CHECK(problem("{").starts_with(": not JSON"));
    CHECK(problem(R"({"policy": {"rules": [{"name": "x", "action": "allow", "pods": [{}]}]}})") ==
          "/policy/rules/0/pods/0: found {}, allowed: object of at least this many keys: 1");
    CHECK(problem(R"({"roce": {"versions": [2, 2]}})").ends_with(", each once"));
}

TEST_CASE("problem__a_key_that_stands_twice_is_not_taken_for_one") {
    CHECK(problem(R"({"limits": {"connections": "x"}, "limits": {}})") == "/limits: found twice, allowed: once");
    CHECK(problem(R"({"policy": {"default": "deny"}, "policy": {"default": "allow"}})") ==
          "/policy: found twice, allowed: once");
    CHECK(problem(R"({"policy": {"rules": [{"name": "x", "action": "allow"}, {"name": "y", "name": "z"}]}})") ==
          "/policy/rules/1/name: found twice, allowed: once");
    CHECK(problem(R"({"policy": {"rules": [{"name": "x", "action": "deny"}, {"name": "y", "action": "deny"}]}})")
              .empty());
}

TEST_CASE("problem__what_is_too_large_or_too_deep_is_said_at_once") {
    CHECK(problem(R"({"cgroup": {"root": "/)" + std::string(200'000, 'x') + R"("}})") ==
          "/cgroup/root: found a text of 200001 characters, allowed: at most 4096");
    CHECK(problem(std::string(200'000, '[')).starts_with(": not JSON"));
    CHECK(problem(R"({"limits": {"connections": 1e999}})").starts_with(": not JSON"));
    CHECK(problem("{\"limits\": {\"connections\": " + std::string(3000, '9') + "}}").starts_with(": not JSON"));
    CHECK(problem(R"({"bpf": {"pin_path": "/sys/fs/bpf/a\u0000b"}})") ==
          "/bpf/pin_path: found a text with a zero byte");
    CHECK(problem(std::string(200'000, '[') + std::string(200'000, ']')).find("deeper than 16") != std::string::npos);
    CHECK(problem("{}" + std::string(5'000'000, ' ')) == ": found more than the 4194304 bytes that are allowed");
}

TEST_CASE("former_keys__are_honoured_under_their_names_or_ignored_and_noted") {
    const auto parsed = parse_config(R"({"stop": {"patience_s": 7}, "local": {"queue_kib": 16, "tune": false}})");
    const auto& config = std::get<Config>(parsed);
    CHECK(config.stop_drain.count() == 7);
    CHECK_FALSE(config.tune);
    CHECK(config.notes == std::vector<std::string>{
                              "stop.patience_s is a key of an earlier version: it is called stop.drain_s",
                              "local.queue_kib is a key of an earlier version: it is gone: TCP_NOTSENT_LOWAT is left "
                              "to applications"});
    CHECK(
        problem(R"({"stop": {"patience_s": 7, "drain_s": 8}})").starts_with("/stop/patience_s: found an unknown key"));
    CHECK(problem(R"({"stop": {"patience_s": "x"}})").starts_with("/stop/drain_s: found \"x\""));
    CHECK(problem(R"({"stop": 7})").starts_with("/stop: found 7"));
}

TEST_CASE("problem__what_a_schema_cannot_say") {
    const auto rule = [](const std::string& rest) {
        return problem(R"({"policy": {"rules": [{"name": "x", "action": "allow", )" + rest + "}]}}");
    };
    CHECK(rule(R"("remotes": ["10.0.0.0/33"])") ==
          R"(/policy/rules/0/remotes/0: found "10.0.0.0/33", allowed: an IPv4 or IPv6 address, or address/bits)");
    CHECK(rule(R"("ports": ["80", "90-80"])") ==
          R"(/policy/rules/0/ports/1: found "90-80", allowed: a port from 0 to 65535, or first-last)");
    CHECK(problem(R"({"smc": {"ueids": ["A..B"]}})") == R"(/smc/ueids/0: found "A..B", allowed: no two dots in a row)");
    CHECK_FALSE(problem(R"({"smc": {"ueids": []}})").empty());
    CHECK(problem(R"({"smc": {"ueids": [], "seid": "SYS"}})").empty());
    CHECK(problem(R"({"times": {"beat_ms": 500}})") ==
          "/times/stale_ms: found 900, allowed: three times times.beat_ms (500) or more");
    CHECK(problem(R"({"times": {"beat_ms": 500, "stale_ms": 1500, "standstill_ms": 1500}})").empty());
    CHECK(problem(R"({"times": {"look_ms": 6000}})") ==
          "/times/probe_ms: found 5000, allowed: times.look_ms (6000) or more");
}

TEST_CASE("config__a_legs_time_is_part_of_the_budget") {
    const auto leg = [](const char* text) { return std::get<Config>(parse_config(text)).leg_timeout().count(); };
    CHECK(leg("{}") == 300);
    CHECK(leg(R"({"fallback": {"budget_ms": 100}})") == 30);
    CHECK(leg(R"({"fallback": {"budget_ms": 10000}})") == 900);
    CHECK(leg(R"({"times": {"leg_ms": 50}})") == 50);
}

TEST_CASE("problem__fabrics_that_are_one") {
    const auto others = [](const std::string& list) { return problem(R"({"ism": {"others": [)" + list + "]}}"); };
    CHECK(others(R"({"provider": "ivshmem", "chid": "0xff01"}, {"provider": "local", "chid": "0xff02",
                     "directory": "/run/other"})")
              .empty());
    CHECK(others(R"({"provider": "ivshmem", "chid": "0xFF00"})") ==
          R"(/ism/others/0/chid: found "0xFF00", allowed: one that no other fabric has)");
    CHECK(others(R"({"provider": "local", "chid": "0xff01"})") ==
          "/ism/others/0: found the directory /run/smc-agent/ism again, allowed: one that no other fabric has");
    CHECK(others(R"({"provider": "ivshmem"})") == R"(/ism/others/0: found no key "chid", allowed: an object with it)");
    const std::string fabric = R"({"provider": "ivshmem", "device": "/a", "chid": "0xff0)";
    CHECK(others(fabric + "1\"}, " + fabric + "2\"}").starts_with("/ism/others/1: found the device /a again"));
}

TEST_CASE("problem__physical_networks") {
    const auto pnets = [](const std::string& list) { return problem(R"({"roce": {"pnets": [)" + list + "]}}"); };
    const std::string one =
        R"({"id": "RACK1", "devices": ["mlx5_0/1", "mlx5_1"], "networks": ["10.0.0.0/8", "fd00::/8"]})";
    CHECK(pnets(one).empty());
    CHECK(pnets(one + R"(, {"id": "RACK1", "devices": ["x"], "networks": ["::/0"]})") ==
          R"(/roce/pnets/1/id: found "RACK1", allowed: one that no other physical network has)");
    for (const char* device : {"mlx5_0", "mlx5_0/1", "mlx5_1/2"}) {
        CHECK(pnets(one + R"(, {"id": "RACK2", "devices": [")" + device + R"("], "networks": ["::/0"]})") ==
              R"(/roce/pnets/1/devices/0: found ")" + std::string(device) +
                  R"(", allowed: one that no other physical network has)");
    }
    CHECK_FALSE(pnets(R"({"id": "A", "devices": ["mlx5_0/01"], "networks": ["::/0"]})").empty());
    CHECK(pnets(one + R"(, {"id": "RACK2", "devices": ["x"], "networks": ["10.9.9.9/8"]})") ==
          R"(/roce/pnets/1/networks/0: found "10.9.9.9/8", allowed: one that stands once)");
    CHECK(pnets(one + R"(, {"id": "RACK2", "devices": ["mlx5_0/2"], "networks": ["::/0"]})").empty());
    CHECK(pnets(R"({"id": "A", "devices": ["x"], "networks": ["10.0.0.0/8", "10.0.0.0/33"]})") ==
          R"(/roce/pnets/0/networks/1: found "10.0.0.0/33", allowed: an IPv4 or IPv6 address, or address/bits)");
    CHECK(pnets(R"({"id": "rack", "devices": ["x"], "networks": ["::/0"]})").starts_with("/roce/pnets/0/id: found"));
}

TEST_CASE("cidr__contains_what_has_its_prefix") {
    const auto contains = [](const char* cidr, const char* address) {
        return parse_cidr(cidr)->contains(parse_cidr(address)->prefix);
    };
    CHECK(contains("10.1.0.0/16", "10.1.2.3"));
    CHECK_FALSE(contains("10.1.0.0/16", "10.2.2.3"));
    CHECK(contains("10.1.0.0/15", "10.0.2.3"));
    CHECK(contains("0.0.0.0/0", "10.2.2.3"));
    CHECK_FALSE(contains("0.0.0.0/0", "fd00::1"));
    CHECK_FALSE(contains("::/0", "10.2.2.3"));
    CHECK(contains("fd00::/7", "fc00::1"));
    CHECK(contains("fd00::1", "fd00::1"));
    CHECK_FALSE(contains("fd00::1", "fd00::2"));
}

TEST_CASE("config__smcd_is_on_where_a_fabric_reaches_other_machines") {
    const auto smcd = [](const char* text) { return std::get<Config>(parse_config(text)).smcd; };
    CHECK_FALSE(smcd("{}"));
    CHECK(smcd(R"({"ism": {"provider": "ivshmem"}})"));
    CHECK(smcd(R"({"ism": {"others": [{"provider": "ivshmem", "chid": "0xff01"}]}})"));
    CHECK_FALSE(smcd(R"({"ism": {"provider": "ivshmem"}, "local": {"smcd": false}})"));
}

TEST_CASE("cidr__families_and_host_bits") {
    CHECK(parse_cidr("10.1.2.3/8")->bits == 104);
    CHECK(parse_cidr("10.1.2.3/8")->prefix[13] == 0);
    CHECK(parse_cidr("::/0")->bits == 0);
    CHECK(parse_cidr("10.0.0.1")->bits == 128);
    CHECK_FALSE(parse_cidr("fd00::/129"));
    CHECK_FALSE(parse_cidr("300.0.0.1"));
}

namespace {

std::string file(const std::string& name) {
    std::ifstream in(SMC_SOURCE_DIR + name);
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
}

}  // namespace

// scripts/generate writes both files.
TEST_CASE("published__schema_and_documentation_are_what_the_keys_say") {
    CHECK(file("/deploy/smc-agent.schema.json") == print_config_schema() + "\n");
    const std::string reference = print_config_reference();
    const std::string page = file("/docs/configuration.md");
    CHECK(page.find("\n\n" + reference + "\n") != std::string::npos);
}

// An operator looks up a reason code in docs/troubleshooting.md.
TEST_CASE("reasons__each_has_a_name_and_is_in_the_documents") {
    const auto text = [](const std::string& name) {
        std::ifstream in(std::string(SMC_SOURCE_DIR) + name);
        std::stringstream all;
        all << in.rdbuf();
        return all.str();
    };
    const std::string header = text("/include/smc/wire/reason.h"), page = text("/docs/troubleshooting.md");
    std::size_t found = 0;
    for (auto at = header.find("= 0x"); at != std::string::npos; at = header.find("= 0x", at + 1)) {
        const std::string code = header.substr(at + 2, 10);
        const std::string name = reason_name(static_cast<Reason>(std::stoul(code, nullptr, 16)));
        INFO(code);
        CHECK_FALSE(name.starts_with("0x"));
        CHECK(page.find("| " + code + " | " + name + " |") != std::string::npos);
        found++;
    }
    CHECK(found > 50);
}
