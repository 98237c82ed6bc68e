// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A program of a user of an installed libsmc: both sides of an SMC-D handshake, without a socket.
#include <smc/clc/client_handshake.h>
#include <smc/clc/server_handshake.h>
#include <smc/session/client.h>
#include <smc/session/server.h>
#include <cstdio>
#include <variant>

using namespace smc;

namespace {

clc::LocalNode node(std::uint8_t id) {
    clc::LocalNode node;
    node.ism = {{{}, Chid{0xff00}}};
    node.ism[0].gid.bytes.fill(id);
    node.ueids = {*Eid::parse("INSTALLED")};
    return node;
}

template <typename Action>
const Action* find(const clc::Actions& actions) {
    for (const auto& action : actions) {
        if (const auto* found = std::get_if<Action>(&action)) {
            return found;
        }
    }
    return nullptr;
}

}  // namespace

int main() {
    const auto us = node(1), them = node(2);
    const TimePoint now{};
    clc::ClientHandshake client(us, clc::Means{.smcd = true});
    clc::ServerHandshake server(them, clc::Means{.smcd = true}, now);
    const auto proposal = client.start(now);
    const auto wanted = server.message(find<clc::Send>(proposal)->message.view(), now);
    if (!find<clc::CreateDmb>(wanted)) {
        return 1;
    }
    (void)server.application_ready(now);
    const auto accept = server.dmb_ready({DmbToken{5}, BufferSize{4}}, true, 1, now);
    const auto attach = client.message(find<clc::Send>(accept)->message.view());
    std::printf("Proposal %zu bytes, Accept %zu bytes, %s\n", find<clc::Send>(proposal)->message.view().size(),
                find<clc::Send>(accept)->message.view().size(),
                find<clc::AttachDmb>(attach) ? "the client attaches the server's DMB" : "nothing to attach");
    return 0;
}
