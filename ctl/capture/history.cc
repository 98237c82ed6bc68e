// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "ctl/capture/history.h"

#include <algorithm>
#include <cstdio>

namespace smc::capture {

namespace {

std::string join(const std::vector<std::string>& items, const char* between) {
    std::string out;
    for (const auto& item : items) {
        out += (out.empty() ? "" : between) + item;
    }
    return out;
}

std::string variant(char kind, unsigned version, unsigned release) {
    return std::string("SMC-") + kind + "v" + std::to_string(version) +
           (version >= 2 && release != 0 ? "." + std::to_string(release) : "");
}

template <class T>
std::string eids(const T& list) {
    std::vector<std::string> texts;
    for (const Eid& eid : list) {
        texts.push_back(eid.text());
    }
    return join(texts, ", ");
}

std::string without_release(const std::string& variant) {
    return variant.substr(0, variant.find('.'));
}

// Why the server chose this variant. Releases are not compared, because they are negotiated down.
std::string why(const Connection& c) {
    const auto all = offers(*c.proposal);
    const std::string taken = without_release(chosen(*c.accept));
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const auto& offer) { return without_release(offer) == taken; });
    if (found == all.end()) {
        return "which was not offered";
    }
    if (all.size() == 1) {
        return "the only type offered";
    }
    const std::vector<std::string> passed(all.begin(), found);
    return passed.empty() ? "first in the order of selection" : "passing over " + join(passed, " and ");
}

std::string eid_choice(const Eid& eid, const Connection& c) {
    const auto& v2 = c.proposal->v2;
    if (!v2) {
        return {};
    }
    const auto found = std::find(v2->eids.begin(), v2->eids.end(), eid);
    if (found != v2->eids.end()) {
        return "EID " + eid.text() + ", " +
               (v2->eids.size() == 1 ? "the only one offered"
                                     : "number " + std::to_string(found - v2->eids.begin() + 1) + " of those offered");
    }
    return "EID " + eid.text() +
           (v2->smcd && v2->smcd->seid == eid ? ", the client's SEID" : ", which was not offered");
}

std::string accepted(const Connection& c, const LinkGroup* group) {
    const bool first = std::visit([](const auto& half) { return half.first_contact; }, *c.accept);
    std::string text = "ACCEPT of " + chosen(c, group);
    if (c.proposal) {
        text += " (" + why(c) + ")";
    }
    text += first ? "; first contact" : "; subsequent contact";
    std::visit(
        [&](const auto& half) {
            if (half.version >= clc::kVersion2) {
                text += "; " + (c.proposal ? eid_choice(half.eid, c) : "EID " + half.eid.text());
            }
        },
        *c.accept);
    return text;
}

std::string declined(const Connection::Declined& d) {
    char code[12];
    std::snprintf(code, sizeof code, "0x%08x", static_cast<unsigned>(d.message.reason));
    std::string text =
        std::string(d.late ? "late " : "") + "DECLINE by the " + (d.by_server ? "server" : "client") + ": " + code;
    if (const std::string meaning = clc::reason_meaning(d.message, d.message.reason); !meaning.empty()) {
        text += " (" + meaning + ")";
    } else if (d.message.version >= clc::kVersion2) {
        text += " (a code of " + clc::text(d.message.os) + ")";
    }
    return text + (d.message.out_of_sync ? ", out of sync" : "");
}

}  // namespace

std::vector<std::string> offers(const clc::Proposal& p) {
    const unsigned release = p.v2 ? p.v2->release : 0;
    std::vector<std::string> all;
    if (p.version >= clc::kVersion2 && offers_d(p.v2_offer)) {
        all.push_back(variant('D', 2, release));
    }
    if (offers_d(p.v1_offer)) {
        all.push_back(variant('D', 1, 0));
    }
    if (p.version >= clc::kVersion2 && offers_r(p.v2_offer)) {
        all.push_back(variant('R', 2, release));
    }
    if (offers_r(p.v1_offer)) {
        all.push_back(variant('R', 1, 0));
    }
    return all;
}

std::string chosen(const clc::Acceptance& a) {
    const char kind = std::holds_alternative<clc::AcceptD>(a) ? 'D' : 'R';
    return std::visit(
        [&](const auto& half) {
            const unsigned release = half.fce ? half.fce->release : 0;
            return variant(kind, half.version, release);
        },
        a);
}

std::string chosen(const Connection& c, const LinkGroup* group) {
    const bool first = std::visit([](const auto& half) { return half.first_contact; }, *c.accept);
    return group != nullptr && !first ? group->variant : chosen(*c.accept);
}

std::string qp_text(const RoceGid& gid, std::optional<Qpn> qpn) {
    return Endpoint{gid.normalised().bytes, 0}.ip_text() + " qp " + (qpn ? text(*qpn) : "unknown");
}

std::string proposed(const Connection& c) {
    if (!c.proposal) {
        const bool declined = c.decline && !c.decline->by_server && !c.accept && !c.confirm;
        return declined && c.from_start && !c.has_hole ? "nothing: the client sent a Decline in place of a Proposal"
                                                       : "no Proposal was seen";
    }
    const clc::Proposal& p = *c.proposal;
    std::vector<std::string> parts{join(offers(p), " and ")};
    if (p.v2) {
        if (!p.v2->eids.empty()) {
            parts.push_back((p.v2->eids.size() == 1 ? "EID " : "EIDs ") + eids(p.v2->eids));
        }
        if (p.v2->seid_present && p.v2->smcd) {
            parts.push_back("SEID " + p.v2->smcd->seid.text());
        }
        if (offers_r(p.v2_offer)) {
            parts.push_back("RoCEv2 GID " + p.v2->roce_gid.text());
            if (p.v2->release >= clc::kRelease1) {
                parts.push_back("at most " + std::to_string(p.v2->max_connections) + " connections and " +
                                std::to_string(p.v2->max_links) + " links");
            }
        }
    }
    return join(parts, "; ");
}

std::string answered(const Connection& c, const LinkGroup* group) {
    if (!c.server_answered && !c.confirm && !c.decline && !c.data_follows) {
        return "no SYN-ACK was seen";
    }
    if (c.server_answered && !c.server_has_option) {
        return "the server did not answer TCP option 254";
    }
    if (!c.proposal && c.reset_by_server && !*c.reset_by_server) {
        return "the server speaks SMC; the client reset the connection before a Proposal, as smc-agent does after a "
               "request";
    }
    std::vector<std::string> parts;
    if (c.accept) {
        parts.push_back(accepted(c, group));
        if (c.confirm || !c.decline) {
            parts.push_back(c.confirm ? "confirmed" : "no Confirm was seen");
        }
    }
    if (c.decline) {
        parts.push_back(declined(*c.decline));
    }
    if (!c.broken.empty()) {
        parts.push_back(c.broken);
    }
    if (c.data_follows) {
        parts.push_back("TCP data follows, as after a Decline that was not captured");
    }
    if (parts.empty()) {
        parts.push_back(c.confirm ? "confirmed, but the Accept is not in the capture" : "no answer was seen");
    }
    if (c.has_hole || c.client_waits || c.server_waits) {
        parts.push_back("part of its TCP stream is not in the capture");
    }
    return join(parts, "; ");
}

std::string carried(const Connection& c) {
    if (c.decline || c.data_follows || (c.server_answered && !c.server_has_option)) {
        return "by TCP";
    }
    if (c.confirm && std::holds_alternative<clc::AcceptD>(*c.confirm)) {
        return "in shared memory, which no capture shows";
    }
    if (!c.client_half.producer && !c.server_half.producer) {
        return "not known: no CDC message of this connection was seen";
    }
    const auto bytes = [](const Half& half) { return half.producer ? std::to_string(half.received) : "not known"; };
    return "client to server " + bytes(c.server_half) + ", server to client " + bytes(c.client_half) + " (CDC cursors)";
}

std::string ended(const Connection& c) {
    const auto by = [](bool server) { return std::string(server ? "server" : "client"); };
    if (c.aborted_by_server) {
        return "aborted by the " + by(*c.aborted_by_server);
    }
    if (c.client_half.closed && c.server_half.closed) {
        return "closed by both";
    }
    if (c.reset_by_server) {
        return "TCP reset by the " + by(*c.reset_by_server);
    }
    if (c.client_half.closed || c.server_half.closed) {
        return "closed by the " + by(c.server_half.closed) + " only";
    }
    if (c.client_fin && c.server_fin) {
        return "TCP closed by both";
    }
    if (c.client_fin || c.server_fin) {
        return "TCP closed by the " + by(c.server_fin) + " only";
    }
    return {};
}

bool one_direction(const Connection& c) {
    return !c.client_seen || (!c.server_seen && c.client_acked);
}

std::string missing(const Connection& c) {
    if (one_direction(c)) {
        return std::string("everything that the ") + (c.client_seen ? "server" : "client") +
               " sent: only one direction was captured";
    }
    return c.from_start ? "" : "its beginning";
}

}  // namespace smc::capture
