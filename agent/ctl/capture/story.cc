// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/ctl/capture/story.h"

#include <algorithm>

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

const std::optional<clc::FirstContact>& fce_of(const clc::Acceptance& a) {
    return std::visit([](const auto& half) -> const std::optional<clc::FirstContact>& { return half.fce; }, a);
}

std::string first_of_order(const Connection& c) {
    const auto all = offers(*c.proposal);
    const auto found = std::find(all.begin(), all.end(), chosen(*c.accept, c.proposal));
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
               (v2->eids.size() == 1 ? "the only one offered" : "number " + std::to_string(found - v2->eids.begin() + 1) + " of those offered");
    }
    return "EID " + eid.text() + (v2->smcd && v2->smcd->seid == eid ? ", the client's SEID" : ", which was not offered");
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

std::string chosen(const clc::Acceptance& a, const std::optional<clc::Proposal>& proposal) {
    const char kind = std::holds_alternative<clc::AcceptD>(a) ? 'D' : 'R';
    const unsigned version = std::visit([](const auto& half) -> unsigned { return half.version; }, a);
    const auto& fce = fce_of(a);
    // Without an FCE the release is the link group's; what was offered is the best guess.
    const unsigned release = fce ? fce->release : proposal && proposal->v2 ? proposal->v2->release : 0;
    return variant(kind, version, release);
}

std::string proposed(const Connection& c) {
    if (!c.proposal) {
        return "no Proposal was seen";
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

std::string answered(const Connection& c) {
    if (!c.server_answered) {
        return "no SYN-ACK was seen";
    }
    if (!c.server_has_option) {
        return "the server did not answer TCP option 254: plain TCP";
    }
    std::string text;
    if (c.accept && c.proposal) {
        text = "ACCEPT of " + chosen(*c.accept, c.proposal) + " (" + first_of_order(c) + ")";
        std::visit(
            [&](const auto& half) {
                text += half.first_contact ? "; first contact" : "; subsequent contact";
                if (half.version >= clc::kVersion2) {
                    text += "; " + eid_choice(half.eid, c);
                }
            },
            *c.accept);
        text += c.confirm ? "; confirmed" : c.decline ? "" : "; no Confirm was seen";
    }
    if (c.decline) {
        const auto& d = *c.decline;
        text += (text.empty() ? "" : "; ") + std::string(d.late ? "late " : "") + "DECLINE by the " +
                (d.by_server ? "server" : "client") + ": ";
        char code[12];
        std::snprintf(code, sizeof code, "0x%08x", static_cast<unsigned>(d.message.reason));
        text += code;
        const bool known = d.message.version < clc::kVersion2 || d.message.os == clc::Os::kLinux;
        text += known ? " (" + std::string(reason_text(d.message.reason)) + ")" : " (a code of " + clc::text(d.message.os) + ")";
        text += d.message.out_of_sync ? ", out of sync" : "";
    }
    if (c.broken) {
        text += (text.empty() ? "" : "; ") + *c.broken;
    }
    return text.empty() ? "no answer was seen" : text;
}

std::string ended(const Connection& c) {
    const auto by = [](bool server) { return std::string(server ? "server" : "client"); };
    if (c.client_half.aborted || c.server_half.aborted) {
        return "aborted by the " + by(c.server_half.aborted);
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
    return "not in this capture";
}

}  // namespace smc::capture
