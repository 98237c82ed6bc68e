// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/clc/handshake.h"

namespace smc::clc {

AcceptD own_half(Type type, const LocalNode& node, const Peer& peer, const LocalDmb& own) {
    AcceptD half;
    half.type = type;
    half.first_contact = peer.first_contact;
    half.gid = first_part(node.gid);
    half.gid_part2 = second_part(node.gid);
    half.token = own.token;
    half.dmbe_size = own.size;
    half.chid = peer.chid;
    half.eid = peer.eid;
    if (peer.first_contact) {
        FirstContact& fce = half.fce.emplace();
        fce.release = peer.release;
        fce.features = kFeatureEmulatedIsm;
        fce.host_name = HostName::padded(node.host_name);
    }
    return half;
}

}  // namespace smc::clc
