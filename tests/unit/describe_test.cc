// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What people read of a message, right or wrong (smc/wire/describe.h).
#include "smc/wire/describe.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "messages.h"

using namespace smc;
using namespace smc::test;

namespace {

using Raw = std::vector<std::uint8_t>;

// The value of a field at the top, or in the group `in`.
Value value(const Fields& fields, const std::string& name) {
    const auto found = std::ranges::find(fields, name, &Field::name);
    INFO(name);
    REQUIRE(found != fields.end());
    return found->value;
}
std::uint64_t number(const Fields& fields, const std::string& name) {
    return std::get<std::uint64_t>(value(fields, name));
}
Fields group(const Fields& fields, const std::string& name) {
    return std::get<Fields>(value(fields, name));
}

// "offset:bytes" of each run of unknown bytes.
std::vector<std::string> unknown(const Description& message) {
    std::vector<std::string> out;
    if (std::ranges::count(message.fields, "unknown_bytes", &Field::name) != 0) {
        const auto runs = std::get<Values>(value(message.fields, "unknown_bytes"));
        for (const Value& run : runs) {
            const Fields& at = std::get<Fields>(run);
            out.push_back(std::to_string(number(at, "offset")) + ":" + std::get<std::string>(value(at, "bytes")));
        }
    }
    return out;
}

clc::AcceptR accept() {
    clc::AcceptR a;
    a.first_contact = true;
    a.fce.emplace();
    return a;
}

}  // namespace

TEST_CASE("describe__numbers_are_numbers") {
    clc::AcceptR a = accept();
    a.rmbe_size = BufferSize{2};
    a.mtu = clc::Mtu::k1024;
    const Fields fields = describe_clc(bytes(encode(a))).fields;
    CHECK((number(fields, "rmbe_size") == 2 && number(fields, "rmbe_bytes") == 65536));
    CHECK((number(fields, "mtu_size") == 3 && number(fields, "mtu_bytes") == 1024));
    llc::DeleteLink del;
    del.reason = llc::DeleteLinkReason::kLostPath;
    const Fields deleted = describe_llc(bytes(encode(del))).fields;
    CHECK(number(deleted, "reason_code") == 0x00010000);
    CHECK(std::ranges::find(deleted, "reason_code", &Field::name)->text == "0x00010000 (lost path)");
    clc::Decline decline;
    decline.reason = Reason::kNoUeid;
    const Fields declined = describe_clc(bytes(encode(decline))).fields;
    CHECK(number(declined, "sender_diagnosis_information") == 0x03030008);
    CHECK(std::ranges::find(declined, "sender_diagnosis_information", &Field::name)->text ==
          "0x03030008 (no EID in common)");
}

TEST_CASE("describe__bytes_that_no_field_is_known_for_are_shown") {
    Raw message = bytes(encode(accept()));
    CHECK(unknown(describe_clc(message)).empty());
    message[51] = 0x7f;    // reserved, between the MTU and the RMB's address
    message[104] |= 0x08;  // a reserved bit beside the link type
    CHECK(unknown(describe_clc(message)) == std::vector<std::string>{"51:0x7f", "104:0x08"});
    // what a later release appends, in front of the trailer
    message = bytes(encode(accept()));
    message.insert(message.end() - 4, {0, 1, 2, 0});
    wire::store_be(&message[5], 2, message.size());
    const Description longer = describe_clc(message);
    CHECK(!longer.fault);
    CHECK(unknown(longer) == std::vector<std::string>{"157:0x0102"});
    Raw llc = bytes(encode(llc::TestLink{}));
    llc[43] = 0xff;
    CHECK(unknown(describe_llc(llc)) == std::vector<std::string>{"43:0xff"});
    Raw cdc = bytes(encode(cdc::Message{}));
    cdc[24] |= 0x01;  // a reserved producer flag
    CHECK(unknown(describe_cdc(cdc)) == std::vector<std::string>{"24:0x01"});
}

TEST_CASE("describe__of_a_faulty_message_everything_that_is_there_is_shown") {
    Raw message = bytes(encode(accept()));
    message.resize(120);  // the middle of the First Contact Extension
    const Description cut = describe_clc(message);
    REQUIRE(cut.fault);
    CHECK(cut.type == "ACCEPT");
    CHECK(number(cut.fields, "rmbe_index") == 0);
    CHECK(number(group(cut.fields, "first_contact_extension"), "smc_version_release_number") == 1);
    CHECK(std::ranges::find(cut.fields, "clc_message_length", &Field::name)->wrong == "the length of the message");

    message = bytes(encode(accept()));
    message[7] = static_cast<std::uint8_t>((message[7] & 0x0f) | 0x30);
    const Description version3 = describe_clc(message);
    REQUIRE(version3.fault);
    CHECK((version3.type == "ACCEPT" && version3.version == 3));
    CHECK(number(group(version3.fields, "first_contact_extension"), "max_links_per_lg") == 0);
    CHECK(std::ranges::find(version3.fields, "smc_version", &Field::name)->wrong == "1 or 2");
}

TEST_CASE("describe__a_count_that_is_too_high_is_shown_as_it_is") {
    llc::RequestAddLink ask;
    ask.gid_list = {*RoceGid::parse("fd00::1"), *RoceGid::parse("fd00::2")};
    Raw message = bytes(encode(ask));
    message[24] = 9;
    const Description wrong = describe_llc(message);
    REQUIRE(wrong.fault);
    CHECK(number(wrong.fields, "gid_list_no_of_entries") == 9);
    const auto gids = std::get<Values>(value(wrong.fields, "gid_list_array_area"));
    REQUIRE(gids.size() == 2);  // those that are there
    CHECK(std::get<std::string>(gids[1]) == "fd00::2");
    CHECK(std::ranges::find(wrong.fields, "gid_list_no_of_entries", &Field::name)->wrong == "1 to 8");
}

TEST_CASE("describe__llc_types_that_are_not_known_are_shown_as_bytes") {
    for (const std::uint8_t type : Raw{0x0a, 0x80, 0x8a}) {
        Raw message(44, 0);
        message[0] = type;
        message[1] = 44;
        message[5] = 7;
        const Description shown = describe_llc(message);
        REQUIRE(shown.fault);
        CHECK(shown.type.empty());
        CHECK(std::get<bool>(value(shown.fields, "type_code_unsupported")) == (type >= 0x80));
        CHECK(unknown(shown) == std::vector<std::string>{"1:0x2c00000007"});
    }
}
