// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Every message that Linux 6.12 and 6.1 sent in the captures: decoded, compared with the values in the capture, and
// encoded again to the same bytes.
#include <catch2/catch.hpp>
#include <fstream>
#include <map>
#include <sstream>

#include "messages.h"
#include "smc/wire/cdc.h"
#include "smc/wire/clc.h"
#include "smc/wire/llc.h"

using namespace smc;
using smc::test::bytes;

namespace {

using Raw = std::vector<std::uint8_t>;
const char* const kContact = "linux612-smcrv2-first-and-subsequent-contact";
const char* const kDecline = "linux612-decline-no-common-eid";
const char* const kRelease0 = "linux61-client-release0";

std::map<std::pair<std::string, int>, Raw> messages() {
    std::ifstream file(SMC_CAPTURES "/linux-messages.hex");
    REQUIRE(file);
    std::map<std::pair<std::string, int>, Raw> out;
    for (std::string line; std::getline(file, line);) {
        std::istringstream words(line);
        std::string capture, hex;
        int frame = 0;
        if (line.starts_with("#") || !(words >> capture >> frame >> hex)) {
            continue;
        }
        Raw& raw = out[{capture, frame}];
        for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
            raw.push_back(static_cast<std::uint8_t>(std::stoul(hex.substr(i, 2), nullptr, 16)));
        }
    }
    return out;
}

template <class M>
M clc_message(int frame, const char* capture = kContact) {
    return std::get<M>(std::get<clc::AnyMessage>(clc::decode(messages().at({capture, frame}))));
}

template <class M>
M llc_message(int frame) {
    return std::get<M>(std::get<llc::AnyMessage>(llc::decode(messages().at({kContact, frame}))));
}

}  // namespace

TEST_CASE("round_trip__every_captured_message") {
    std::map<std::string, int> seen;
    for (const auto& [where, raw] : messages()) {
        INFO(where.first << " frame " << where.second);
        if (raw[0] == kEyeCatcherR >> 24) {
            const auto decoded = clc::decode(raw);
            REQUIRE(std::holds_alternative<clc::AnyMessage>(decoded));
            CHECK(bytes(encode(std::get<clc::AnyMessage>(decoded))) == raw);
            seen["clc"]++;
        } else if (raw[0] == cdc::kType) {
            const auto decoded = cdc::decode(raw);
            REQUIRE(std::holds_alternative<cdc::Message>(decoded));
            CHECK(bytes(encode(std::get<cdc::Message>(decoded))) == raw);
            seen["cdc"]++;
        } else {
            const auto decoded = llc::decode(raw);
            REQUIRE(std::holds_alternative<llc::AnyMessage>(decoded));
            CHECK(bytes(encode(std::get<llc::AnyMessage>(decoded))) == raw);
            seen["llc"]++;
        }
    }
    CHECK(seen == std::map<std::string, int>{{"clc", 15}, {"cdc", 36}, {"llc", 29}});
}

TEST_CASE("linux__proposal") {
    const auto p = clc_message<clc::Proposal>(12);
    CHECK(p.version == 2);
    CHECK(p.v2_offer == clc::Offer::kSmcR);
    CHECK(p.v1_offer == clc::Offer::kNone);
    CHECK(p.v2_offset == 28);
    CHECK(p.v2->release == 1);
    CHECK(p.v2->roce_gid.text() == "::ffff:10.9.0.2");
    CHECK(p.v2->max_connections == 255);
    CHECK(p.v2->max_links == 2);
    CHECK(p.v2->features == clc::kFeatureEmulatedIsm);
    REQUIRE(p.v2->eids.size() == 1);
    CHECK(p.v2->eids[0].text() == "TESTEID");
    CHECK_FALSE(p.v2->smcd);
    CHECK_FALSE(p.subnet);
}

TEST_CASE("linux__accept_and_confirm_of_first_and_subsequent_contact") {
    const auto accept = clc_message<clc::AcceptR>(14);
    CHECK(accept.first_contact);
    CHECK(text(accept.peer_id) == "0x483d525400000001");
    CHECK(accept.mac.text() == "52:54:00:00:00:01");
    CHECK(accept.qpn == Qpn{0x11});
    CHECK(accept.rkey == RKey{0x39b});
    CHECK(accept.rmbe_index == 1);
    CHECK(accept.alert_token == AlertToken{1});
    CHECK(bytes_of(accept.rmbe_size) == 65536);
    CHECK(accept.mtu == clc::Mtu::k1024);
    CHECK(accept.rmb_address == VirtualAddress{0xff24ff3544b00000});
    CHECK(accept.psn == Psn{0x0e65b3});
    CHECK(accept.eid.text() == "TESTEID");
    REQUIRE(accept.fce);
    CHECK(accept.fce->link_type == clc::LinkType::kDirect);
    CHECK(accept.fce->os == clc::Os::kLinux);
    CHECK(accept.fce->release == 1);
    CHECK(accept.fce->host_name.text() == "(none)");
    CHECK(accept.fce->max_connections == 255);
    CHECK(accept.fce->max_links == 2);

    const auto confirm = clc_message<clc::AcceptR>(16);
    CHECK(confirm.type == clc::Type::kConfirm);
    REQUIRE(confirm.gid_list.size() == 1);
    CHECK(confirm.gid_list[0].text() == "::ffff:10.9.0.2");

    const auto again = clc_message<clc::AcceptR>(88);
    CHECK_FALSE(again.first_contact);
    CHECK_FALSE(again.fce);
    CHECK(again.qpn == accept.qpn);
}

// Linux 6.1 knows only SMC v2.0; 6.12 answers with what both know.
TEST_CASE("linux__release_0") {
    const auto proposal = clc_message<clc::Proposal>(4, kRelease0);
    CHECK(proposal.v2->release == 0);
    CHECK(proposal.v2->max_connections == 0);
    const auto accept = clc_message<clc::AcceptR>(6, kRelease0);
    REQUIRE(accept.fce);
    CHECK(accept.fce->release == 0);
    CHECK(accept.fce->max_links == 0);
    const auto confirm = clc_message<clc::AcceptR>(8, kRelease0);
    REQUIRE(confirm.fce);
    CHECK(confirm.fce->release == 0);
    CHECK(confirm.gid_list.size() == 1);
    const auto late = clc_message<clc::Decline>(14, kRelease0);
    CHECK(late.reason == Reason::kTimeoutConfirmLink);
}

TEST_CASE("linux__decline") {
    const auto d = clc_message<clc::Decline>(13, kDecline);
    CHECK(d.version == 2);
    CHECK(d.has_types);
    CHECK(d.os == clc::Os::kLinux);
    CHECK(static_cast<unsigned>(d.reason) == 0x03030000);
}

TEST_CASE("linux__llc") {
    const auto confirm = llc_message<llc::ConfirmLink>(18);
    CHECK(confirm.version == 2);
    CHECK(confirm.little_endian);
    CHECK(confirm.cache_size == 3);
    CHECK(confirm.link_number == 1);
    CHECK(confirm.link_id == LinkId{0x101});
    CHECK(confirm.max_links == 2);
    CHECK(confirm.max_connections == 255);
    CHECK(llc_message<llc::ConfirmLink>(20).reply);

    const auto add = llc_message<llc::AddLink>(22);
    REQUIRE(add.large);
    CHECK(add.large->link_type == clc::LinkType::kDirect);
    CHECK(add.gid.text() == "::ffff:10.9.0.1");
    CHECK(add.qpn == Qpn{0x12});
    CHECK(add.link_number == 2);
    CHECK(add.psn == Psn{0x2bde5f});
    REQUIRE(add.large->rkeys.size() == 1);
    CHECK(add.large->rkeys[0] == llc::RTokenPair{RKey{0x39b}, RKey{0x5d7}, VirtualAddress{0xff24ff3544b00000}});
    const auto rejection = llc_message<llc::AddLink>(24);
    CHECK(rejection.reply);
    CHECK(rejection.rejected);
    CHECK(rejection.reason == llc::AddLinkReason::kNone);  // Linux has none in version 2
    CHECK_FALSE(rejection.large);

    CHECK(llc_message<llc::ConfirmRkey>(80).rkey == RKey{0x628});
    CHECK(llc_message<llc::ConfirmRkey>(84).reply);
    const auto del = llc_message<llc::DeleteRkey>(85);
    REQUIRE(del.rkeys.size() == 1);
    CHECK(del.rkeys[0] == RKey{0x326});
    CHECK(llc_message<llc::DeleteRkey>(89).count == 1);
    CHECK(llc_message<llc::DeleteRkey>(89).rkeys.empty());
    const auto end = llc_message<llc::DeleteLink>(237);
    CHECK(end.all);
    CHECK(end.reason == llc::DeleteLinkReason::kOperator);
}

TEST_CASE("linux__cdc") {
    const auto first = std::get<cdc::Message>(cdc::decode(messages().at({kContact, 26})));
    CHECK(first.sequence == 1);
    CHECK(first.token == AlertToken{1});
    CHECK(first.producer == cdc::Cursor{0, 300});
    CHECK(first.consumer == cdc::Cursor{0, 0});
    const auto last = std::get<cdc::Message>(cdc::decode(messages().at({kContact, 72})));
    CHECK(last.producer == cdc::Cursor{0, 4500});
    CHECK(last.state == cdc::kConnectionClosed);
}
