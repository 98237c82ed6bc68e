// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/gateway/keepalives.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <optional>
#include <utility>

using namespace smc;

namespace {

constexpr KeepaliveTerms kNone, kOften{true, 10, 5, 3, 0}, kImpatient{false, 0, 0, 0, 3000};

smc_tuple app(std::uint16_t port) {
    smc_tuple tuple{};
    tuple.local_port = port;
    return tuple;
}

// A gateway and its BPF programs: the options that they have seen, and the last terms that were reported.
struct Scene {
    using Told = std::pair<std::uint64_t, KeepaliveTerms>;

    KeepaliveTerms seen;
    std::optional<Told> told;
    Keepalives keepalives{[this](const smc_tuple&) { return seen; },
                          [this](std::uint64_t id, const KeepaliveTerms& terms) {
                              told = Told{id, terms};
                          }};
};

}  // namespace

TEST_CASE("keepalives: a connection that runs is told each change, and nobody else's") {
    Scene scene;
    scene.keepalives.add(1, app(1000), true);
    scene.keepalives.add(2, app(2000), true);
    CHECK(!scene.told);  // the application has set no option
    scene.keepalives.changed(app(2000), kOften);
    CHECK(scene.told == Scene::Told{2, kOften});
    scene.keepalives.changed(app(1000), kImpatient);
    CHECK(scene.told == Scene::Told{1, kImpatient});
    scene.keepalives.changed(app(2000), kNone);
    CHECK(scene.told == Scene::Told{2, kNone});
}

TEST_CASE("keepalives: what was chosen before the connection runs is told when it does") {
    Scene scene;
    scene.seen = kOften;
    scene.keepalives.changed(app(1000), kOften);
    CHECK(!scene.told);
    scene.keepalives.add(1, app(1000), true);
    CHECK(scene.told == Scene::Told{1, kOften});
}

TEST_CASE("keepalives: the programs are not asked about a socket that they cannot have seen") {
    bool asked = false;
    Keepalives keepalives([&](const smc_tuple&) { return asked = true, KeepaliveTerms{}; },
                          [](std::uint64_t, const KeepaliveTerms&) {});
    keepalives.add(1, app(1000), false);
    CHECK_FALSE(asked);
    keepalives.add(2, app(2000), true);
    CHECK(asked);
}

TEST_CASE("keepalives: ports that are used again are the next connection's, whichever end is heard of first") {
    Scene scene;
    scene.keepalives.add(1, app(1000), true);
    scene.keepalives.add(2, app(1000), true);
    scene.keepalives.remove(1);
    scene.keepalives.changed(app(1000), kOften);
    CHECK(scene.told == Scene::Told{2, kOften});
    scene.told.reset();
    scene.keepalives.remove(2);
    scene.keepalives.remove(2);
    scene.keepalives.changed(app(1000), kNone);
    CHECK(!scene.told);
}
