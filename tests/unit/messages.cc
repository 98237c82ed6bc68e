// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "messages.h"

namespace smc::test {

using namespace clc;

Proposal Generator::proposal() {
    Proposal p;
    p.version = coin() ? kVersion2 : kVersion1;
    p.v1_offer = static_cast<Offer>(below(4));
    p.peer_id = array<8>();
    p.v1_gid = gid();
    p.mac = Mac{array<6>()};
    const bool v2 = p.version == kVersion2;
    if (!v2 && p.v1_offer == Offer::kNone) {
        p.v1_offer = Offer::kSmcR;
    }
    if (v2) {
        p.v2_offer = static_cast<Offer>(below(4));
        p.ism_chid = word<Chid>(16);
        p.vendor_oui = array<3>();
        p.vendor_options = array<5>();
    }
    if (v2 || offers_d(p.v1_offer)) {
        p.ism_gid = word<IsmGid>(64);
    } else if (coin()) {
        p.subnet_offset = 40;  // as Linux has it
    }
    if (p.v1_offer != Offer::kNone) {
        Subnet& subnet = p.subnet.emplace();
        subnet.mask = word<Ipv4Mask>(32);
        subnet.mask_bits = word<std::uint8_t>(5);
        for (std::uint64_t n = below(kMaxPrefixes + 1); n > 0; n--) {
            subnet.prefixes.push_back({gid(), word<std::uint8_t>(7)});
        }
    }
    if (v2 && p.v2_offer != Offer::kNone) {
        V2Extension& e = p.v2.emplace();
        e.release = word<std::uint8_t>(4);
        e.roce_gid = gid();
        e.max_connections = word<std::uint8_t>(8);
        e.max_links = word<std::uint8_t>(8);
        e.features = word<std::uint16_t>(16);
        for (std::uint64_t n = below(kMaxEids + 1); n > 0; n--) {
            e.eids.push_back(eid());
        }
        if (offers_d(p.v2_offer) && coin()) {
            SmcdExtension& smcd = e.smcd.emplace();
            e.seid_present = coin();
            smcd.seid = e.seid_present ? eid() : Eid{};
            for (std::uint64_t n = below(kMaxGids / 2 + 1); n > 0; n--) {
                if (coin()) {
                    add_ism_device(smcd, {Gid{array<16>()}, Chid{static_cast<std::uint16_t>(0xff00 + below(256))}});
                } else {
                    smcd.gids.push_back({word<IsmGid>(64), Chid{static_cast<std::uint16_t>(below(0xff00))}});
                }
            }
        }
    }
    return p;
}

FirstContact Generator::first_contact(bool smcr) {
    FirstContact f;
    f.os = word<Os>(4);
    f.host_name = HostName::padded("host" + std::to_string(below(100)));
    f.release = word<std::uint8_t>(4);
    f.link_type = smcr && coin() ? LinkType::kDirect : LinkType::kIndirect;
    f.features = word<std::uint16_t>(16);
    f.vendor_options = array<4>();
    if (smcr) {
        f.max_connections = word<std::uint8_t>(8);
        f.max_links = word<std::uint8_t>(8);
    }
    return f;
}

AcceptR Generator::accept_r() {
    AcceptR a;
    a.type = coin() ? Type::kAccept : Type::kConfirm;
    a.version = coin() ? kVersion2 : kVersion1;
    const bool v2 = a.version == kVersion2;
    a.first_contact = (v2 || a.type == Type::kAccept) && coin();
    a.rc_saved = v2 && a.type == Type::kAccept && coin();
    a.peer_id = array<8>();
    a.gid = gid();
    a.mac = Mac{array<6>()};
    a.qpn = word<Qpn>(24);
    a.rkey = word<RKey>(32);
    a.rmbe_index = word<std::uint8_t>(8);
    a.alert_token = word<AlertToken>(32);
    a.rmbe_size = word<BufferSize>(4);
    a.mtu = static_cast<Mtu>(1 + below(5));
    a.rmb_address = word<VirtualAddress>(64);
    a.psn = word<Psn>(24);
    if (v2) {
        a.eid = eid();
    }
    if (v2 && a.first_contact) {
        a.fce = first_contact(true);
        if (a.type == Type::kConfirm) {
            for (std::uint64_t n = 1 + below(kMaxGids); n > 0; n--) {
                a.gid_list.push_back(gid());
            }
        }
    }
    return a;
}

AcceptD Generator::accept_d() {
    AcceptD a;
    a.type = coin() ? Type::kAccept : Type::kConfirm;
    a.version = coin() ? kVersion2 : kVersion1;
    const bool v2 = a.version == kVersion2;
    a.first_contact = (v2 || a.type == Type::kAccept) && coin();
    a.gid = word<IsmGid>(64);
    a.token = word<DmbToken>(64);
    a.dmbe_index = word<std::uint8_t>(8);
    a.dmbe_size = word<BufferSize>(4);
    a.link_id = word<std::uint32_t>(32);
    if (v2) {
        a.chid = word<Chid>(16);
        a.eid = eid();
        a.gid_part2 = word<IsmGid>(64);
    }
    if (v2 && a.first_contact) {
        a.fce = first_contact(false);
    }
    return a;
}

Decline Generator::decline() {
    Decline d;
    d.eye_catcher = coin() ? EyeCatcher::kSmcr : EyeCatcher::kSmcd;
    d.version = coin() ? kVersion2 : kVersion1;
    d.out_of_sync = coin();
    d.peer_id = array<8>();
    d.reason = word<Reason>(32);
    d.has_types = d.version == kVersion2 && coin();
    d.os = d.version == kVersion2 ? word<Os>(4) : Os::kNone;
    if (d.has_types) {
        d.smcd_v2 = word<Reason>(32);
        d.smcd_v1 = word<Reason>(32);
        d.smcr_v2 = word<Reason>(32);
        d.smcr_v1 = word<Reason>(32);
    }
    return d;
}

clc::AnyMessage Generator::clc() {
    switch (below(4)) {
        case 0:
            return proposal();
        case 1:
            return accept_r();
        case 2:
            return accept_d();
        default:
            return decline();
    }
}

cdc::Message Generator::cdc() {
    cdc::Message m;
    m.sequence = word<std::uint16_t>(16);
    m.token = word<AlertToken>(32);
    m.producer = {word<std::uint16_t>(16), word<std::uint32_t>(32)};
    m.consumer = {word<std::uint16_t>(16), word<std::uint32_t>(32)};
    m.flags = word<std::uint8_t>(8) & 0xf8;
    m.state = word<std::uint8_t>(8) & 0xe0;
    return m;
}

llc::AnyMessage Generator::llc() {
    using namespace llc;
    const auto start = [&](auto m, bool v1, bool v2) {
        m.version = v1 && (!v2 || coin()) ? 1 : 2;
        m.reply = coin();
        m.little_endian = m.version == 2 && coin();
        return m;
    };
    const auto tokens = [&](auto& list) {
        for (std::uint64_t n = below(list.kCapacity + 1); n > 0; n--) {
            list.push_back({word<std::uint8_t>(8), word<RKey>(32), word<VirtualAddress>(64)});
        }
        return static_cast<std::uint8_t>(list.size());
    };
    switch (below(9)) {
        case 0: {
            auto m = start(ConfirmLink{}, true, true);
            m.cache_size = word<std::uint8_t>(4);
            m.mac = Mac{array<6>()};
            m.gid = gid();
            m.qpn = word<Qpn>(24);
            m.link_number = word<std::uint8_t>(8);
            m.link_id = word<LinkId>(32);
            m.max_links = word<std::uint8_t>(8);
            m.max_connections = m.version == 2 ? word<std::uint8_t>(8) : std::uint8_t{0};
            return m;
        }
        case 1: {
            auto m = start(AddLink{}, true, true);
            m.padded = m.version == 1 && coin();
            m.rejected = m.reply && coin();
            m.reason = word<AddLinkReason>(4);
            m.mac = Mac{array<6>()};
            m.gid = gid();
            m.gid.bytes[0] |= 0x80;  // figure 32 and the padded form are told apart by a GID that begins with zeros
            m.qpn = word<Qpn>(24);
            m.link_number = word<std::uint8_t>(8);
            m.mtu = static_cast<Mtu>(1 + below(5));
            m.psn = word<Psn>(24);
            if (m.version == 2 && (!m.rejected || coin())) {
                auto& large = m.large.emplace();
                large.link_type = coin() ? LinkType::kDirect : LinkType::kIndirect;
                large.target_gid = gid();
                for (std::uint64_t n = coin() ? below(3) : below(kMaxRmbs + 1); n > 0; n--) {
                    large.rkeys.push_back({word<RKey>(32), word<RKey>(32), word<VirtualAddress>(64)});
                }
            }
            return m;
        }
        case 2: {
            auto m = start(AddLinkContinuation{}, true, false);
            m.link_number = word<std::uint8_t>(8);
            for (std::uint64_t n = below(3); n > 0; n--) {
                m.rkeys.push_back({word<RKey>(32), word<RKey>(32), word<VirtualAddress>(64)});
            }
            m.tokens_left = static_cast<std::uint8_t>(m.rkeys.size());
            if (m.tokens_left == 2) {
                m.tokens_left = static_cast<std::uint8_t>(m.tokens_left + below(250));
            }
            return m;
        }
        case 3: {
            auto m = start(DeleteLink{}, true, true);
            m.all = coin();
            m.orderly = coin();
            m.link_number = word<std::uint8_t>(8);
            m.reason = word<DeleteLinkReason>(32);
            return m;
        }
        case 4: {
            auto m = start(RequestAddLink{}, false, true);
            m.rejected = coin();
            m.reason = word<std::uint8_t>(4);
            if (!m.reply) {
                for (std::uint64_t n = 1 + below(kMaxGids); n > 0; n--) {
                    m.gid_list.push_back(gid());
                }
            }
            return m;
        }
        case 5: {
            auto m = start(ConfirmRkey{}, true, true);
            m.negative = coin();
            m.retry = coin();
            m.rkey = word<RKey>(32);
            m.address = word<VirtualAddress>(64);
            m.other_tokens = tokens(m.others);
            if (m.version == 1 && m.other_tokens == 2) {
                m.other_tokens = static_cast<std::uint8_t>(m.other_tokens + below(6));
            }
            return m;
        }
        case 6: {
            auto m = start(ConfirmRkeyContinuation{}, true, false);
            m.negative = coin();
            m.tokens_left = tokens(m.others);
            return m;
        }
        case 7: {
            auto m = start(DeleteRkey{}, true, true);
            m.negative = m.reply && coin();
            std::uint64_t n = m.version == 1 ? below(9) : m.reply ? below(m.negative ? 9 : 1) : below(256);
            for (; n > 0; n--) {
                m.rkeys.push_back(word<RKey>(32));
            }
            m.count = static_cast<std::uint8_t>(m.rkeys.size());
            if (m.version == 1) {
                m.error_mask = word<std::uint8_t>(8);
            } else if (m.reply) {
                m.invalid_count = m.count;
                m.count = word<std::uint8_t>(8);
            }
            return m;
        }
        default: {
            auto m = start(TestLink{}, true, true);
            m.user_data = array<16>();
            return m;
        }
    }
}

}  // namespace smc::test
