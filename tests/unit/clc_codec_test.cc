// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// CLC Accept, Confirm and Decline on the wire, and rules that all messages share (RFC 7609 A.2, SMC v2.1).
#include "clc_messages.h"

using namespace smc;
using namespace smc::clc;
using namespace smc::test::clc_messages;
using smc::test::bytes;

TEST_CASE("accept_smcd__fields_stand_where_the_specification_says") {
    const auto b = bytes(encode(smcd_accept()));
    REQUIRE(b.size() == 130);
    CHECK(at(b, 0, 4) == 0xe2d4c3c4);
    CHECK(at(b, 7, 1) == 0x29);  // version 2, first contact, SMC-Dv2
    CHECK(at(b, 8, 8) == 0x0011223344554677);
    CHECK(at(b, 16, 8) == 0x0102030405060708);
    CHECK(at(b, 25, 1) == 0x40);
    CHECK(at(b, 28, 4) == 77);
    CHECK(at(b, 32, 2) == 0xff00);
    CHECK(std::memcmp(&b[34], "FIRST ", 6) == 0);
    CHECK(at(b, 66, 8) == 0x8899aabbccddeeff);
    CHECK(at(b, 75, 1) == 0x21);  // Linux, release 1
    CHECK(std::memcmp(&b[78], "server.example  ", 16) == 0);
    CHECK(at(b, 112, 2) == 1);
    CHECK(at(b, 126, 4) == 0xe2d4c3c4);

    AcceptD subsequent = smcd_accept();
    subsequent.first_contact = false;
    subsequent.fce.reset();
    CHECK(encode(subsequent).size == 78);
    subsequent.version = kVersion1;
    CHECK(encode(subsequent).size == 48);
}

TEST_CASE("confirm_smcr__fields_stand_where_the_specification_says") {
    const auto b = bytes(encode(smcr_confirm()));
    REQUIRE(b.size() == 156 + 4 + 32 + 4);
    CHECK(at(b, 0, 4) == 0xe2d4c3d9);
    CHECK(at(b, 4, 1) == 3);
    CHECK(at(b, 7, 1) == 0x28);
    CHECK(at(b, 8, 8) == 0x483d525400000001);
    CHECK(at(b, 26, 6) == 0xffff0a090001);
    CHECK(at(b, 32, 6) == 0x525400000001);
    CHECK(at(b, 38, 3) == 0x11);
    CHECK(at(b, 41, 4) == 0x39b);
    CHECK(at(b, 45, 1) == 1);
    CHECK(at(b, 46, 4) == 0x01020304);
    CHECK(at(b, 50, 1) == 0x23);
    CHECK(at(b, 52, 8) == 0xff24ff3544b00000);
    CHECK(at(b, 61, 3) == 0x0e65b3);
    CHECK(std::memcmp(&b[64], "TESTEID ", 8) == 0);
    CHECK(at(b, 104, 1) == 0x80);  // direct
    CHECK(at(b, 105, 1) == 0x21);
    CHECK(at(b, 140, 1) == 255);
    CHECK(at(b, 141, 1) == 2);
    CHECK(at(b, 142, 2) == 1);
    CHECK(at(b, 144, 4) == 0x09080706);
    CHECK(at(b, 156, 1) == 2);
    CHECK(at(b, 170, 6) == 0xffff0a090001);
    CHECK(at(b, 176, 2) == 0xfd00);

    AcceptR a = smcr_confirm();
    a.type = Type::kAccept;
    CHECK(encode(a).size == 160);  // the GID list is the client's
    a.fce.reset();
    a.first_contact = false;
    CHECK(encode(a).size == 108);
    a.version = kVersion1;
    CHECK(encode(a).size == 68);
}

TEST_CASE("accept__lengths_and_the_fce_belong_together") {
    AcceptD d = smcd_accept();
    d.fce.reset();
    CHECK(fault_of(decode_acceptance(encode(d).view(), Type::kAccept)) == "clc_message_length");
    AcceptR r = smcr_confirm();
    r.fce.reset();
    CHECK(fault_of(decode_acceptance(encode(r).view(), Type::kConfirm)) == "clc_message_length");

    // an FCE without the flag is tolerated and ignored
    d = smcd_accept();
    d.first_contact = false;
    const auto ignored = decode_acceptance(encode(d).view(), Type::kAccept);
    CHECK_FALSE(std::get<AcceptD>(std::get<Acceptance>(ignored)).fce);
    r = smcr_confirm();
    r.first_contact = false;
    CHECK_FALSE(smcr(encode(r), Type::kConfirm).fce);
    CHECK(smcr(encode(r), Type::kConfirm).gid_list.empty());

    // in release 0 the FCE of SMC-D is short, that of SMC-R is not
    d = smcd_accept();
    d.fce->bytes = kShortFce;
    d.fce->release = 0;
    CHECK(encode(d).size == 114);
    CHECK(fault_of(decode_acceptance(encode(d).view(), Type::kAccept)) == "none");
    d.fce->release = 1;
    CHECK(fault_of(decode_acceptance(encode(d).view(), Type::kAccept)) == "clc_message_length");
    r = smcr_confirm();
    r.type = Type::kAccept;
    r.fce->bytes = kShortFce;
    CHECK(encode(r).size == 160);
    r.first_contact = false;
    r.fce.reset();
    Raw cut = longer(encode(r), 36);
    CHECK(fault_of(decode_acceptance(cut, Type::kAccept)) == "none");  // its place is unused: it is ignored
    cut[7] |= 8;
    CHECK(fault_of(decode_acceptance(cut, Type::kAccept)) == "clc_message_length");
    r = smcr_confirm();
    r.type = Type::kAccept;

    CHECK(fault_of(decode_acceptance(encode(smcd_accept()).view(), Type::kConfirm)) == "clc_message_type");
}

// v2.1 "Migration, toleration"; Linux, too, reads bytes beyond the fields that it knows, and ignores them.
TEST_CASE("clc__what_a_later_release_appends_is_not_looked_at") {
    AcceptR accept = smcr_confirm();
    accept.type = Type::kAccept;
    AcceptD later = smcd_accept();
    later.first_contact = false;
    later.fce.reset();
    Decline shorter;
    shorter.has_types = false;
    const std::size_t extra = GENERATE(as<std::size_t>{}, 1, 15, 16, 17, 500, 60'000);
    for (const Message& message : {encode(everything()), encode(smcd_proposal()), encode(accept),
                                   encode(smcr_confirm()), encode(smcd_accept()), encode(later), encode(Decline{})}) {
        INFO(text(std::get<Header>(decode_header(message.view())).type) << " and " << extra << " bytes");
        const auto decoded = decode(longer(message, extra));
        REQUIRE(fault_of(decoded) == "none");
        CHECK(bytes(encode(std::get<AnyMessage>(decoded))) == bytes(message));
    }
    CHECK(std::get<Decline>(decode_decline(longer(encode(shorter), 12))).reason == shorter.reason);
}

TEST_CASE("clc__version_1_has_one_length_for_each_message") {
    AcceptR r = smcr_confirm();
    AcceptD d = smcd_accept();
    Decline decline;
    r.version = d.version = decline.version = kVersion1;
    r.type = Type::kAccept;
    r.fce.reset();
    d.fce.reset();
    for (const Message& message : {encode(r), encode(d), encode(decline)}) {
        INFO(text(std::get<Header>(decode_header(message.view())).type));
        CHECK(fault_of(decode(bytes(message))) == "none");
        CHECK(fault_of(decode(longer(message, 1))) == "clc_message_length");
        CHECK(fault_of(decode(longer(message, 1000))) == "clc_message_length");
    }
}

TEST_CASE("accept__the_type_must_be_that_of_the_format") {
    const auto verdict = [](const Message& message, std::uint8_t flags) {
        Raw b = bytes(message);
        b[7] = flags;
        const auto decoded = decode(b);
        const auto* fault = std::get_if<Fault>(&decoded);
        return fault == nullptr ? "none" : std::string(fault->field) + ": " + text(fault->verdict);
    };
    const auto d = encode(smcd_accept());
    CHECK(verdict(d, 0x29) == "none");
    CHECK(verdict(d, 0x28) == "smcv2_type: treat as data");
    CHECK(verdict(d, 0x2a) == "smcv2_type: decline");
    CHECK(verdict(d, 0x2b) == "smcv2_type: decline");
    const auto r = encode(smcr_confirm());
    CHECK(verdict(r, 0x28) == "none");
    CHECK(verdict(r, 0x29) == "smcv2_type: treat as data");
    CHECK(verdict(r, 0x2b) == "smcv2_type: decline");
}

TEST_CASE("accept__what_is_wrong_otherwise_is_never_declined") {
    Raw b = bytes(encode(smcr_confirm()));
    b[50] = 0x20;  // a reserved MTU, and
    b[156] = 9;    // a GID list that cannot be
    const auto decoded = decode(b);
    REQUIRE(fault_of(decoded) == "gid_list_no_of_entries");
    CHECK(std::get<Fault>(decoded).verdict == Verdict::kTreatAsData);
}

TEST_CASE("version_1__reserved_bits_are_zero") {
    AcceptR r = smcr_confirm();
    r.version = kVersion1;
    r.rc_saved = true;
    CHECK(bytes(encode(r))[7] == 0x10);
    AcceptD d = smcd_accept();
    d.version = kVersion1;
    CHECK(bytes(encode(d))[7] == 0x19);
    d.type = Type::kConfirm;
    CHECK(bytes(encode(d))[7] == 0x11);
}

TEST_CASE("confirm_smcr__the_gid_list_has_one_to_eight_entries_that_are_there") {
    const auto good = encode(smcr_confirm());
    CHECK(smcr(good, Type::kConfirm).gid_list.size() == 2);
    CHECK(blamed(good, 156, 0) == "gid_list_no_of_entries");
    CHECK(blamed(good, 156, 3) == "gid_list_no_of_entries");
    CHECK(blamed(good, 156, 9) == "gid_list_no_of_entries");
}

TEST_CASE("accept_smcr__a_reserved_mtu_declines_on_first_contact_only") {
    AcceptR a = smcr_confirm();
    a.type = Type::kAccept;
    for (const unsigned mtu : {0U, 6U, 15U}) {
        a.mtu = static_cast<Mtu>(mtu);
        const auto decoded = decode_acceptance(encode(a).view(), Type::kAccept);
        REQUIRE(fault_of(decoded) == "mtu_size");
        CHECK(std::get<Fault>(decoded).verdict == Verdict::kDecline);
        CHECK(std::get<Fault>(decoded).found == mtu);
    }
    a.first_contact = false;
    a.fce.reset();
    CHECK(fault_of(decode_acceptance(encode(a).view(), Type::kAccept)) == "none");
    CHECK(bytes_of(Mtu::k256) == 256);
    CHECK(bytes_of(Mtu::k4096) == 4096);
}

TEST_CASE("accept__a_later_version_declines") {
    auto b = bytes(encode(smcd_accept()));
    b[7] = 0x39;
    const auto decoded = decode_acceptance(b, Type::kAccept);
    REQUIRE(fault_of(decoded) == "smc_version");
    CHECK(std::get<Fault>(decoded).verdict == Verdict::kDecline);
}

TEST_CASE("decline__has_28_bytes_in_version_1_and_44_in_version_2") {
    Decline d;
    d.peer_id = {9, 8, 7, 6, 5, 4, 3, 2};
    d.reason = d.smcd_v2 = Reason::kNoUeid;
    d.smcr_v2 = Reason::kNoSmcrDevice;
    d.smcd_v1 = Reason{1};
    d.smcr_v1 = Reason{2};
    const auto b = bytes(encode(d));
    REQUIRE(b.size() == 44);
    CHECK(at(b, 7, 1) == 0x20);
    CHECK(at(b, 16, 4) == 0x03030008);
    CHECK(at(b, 20, 1) == 0x20);
    CHECK(at(b, 24, 4) == 0x03030008);
    CHECK(at(b, 28, 4) == 1);
    CHECK(at(b, 32, 4) == 0x03030002);
    CHECK(at(b, 36, 4) == 2);
    d.version = 1;
    d.out_of_sync = true;
    const auto v1 = bytes(encode(d));
    REQUIRE(v1.size() == 28);
    CHECK(at(v1, 7, 1) == 0x18);
    CHECK(at(v1, 20, 4) == 0);
    CHECK(at(v1, 24, 4) == 0xe2d4c3d9);

    // v2.1, notes 1 and 3: either eye catcher, and the short form
    d.version = 2;
    d.has_types = false;
    d.eye_catcher = EyeCatcher::kSmcd;
    REQUIRE(encode(d).size == 28);
    const auto shorter = std::get<Decline>(decode_decline(encode(d).view()));
    CHECK(shorter.os == Os::kLinux);
    CHECK_FALSE(shorter.has_types);
    CHECK(blamed(encode(d), 7, 0x10) == "none");
    CHECK(blamed(encode(Decline{}), 7, 0x10) == "clc_message_length");  // 44 bytes in version 1
}

TEST_CASE("header__bad_values_are_named") {
    const auto b = encode(smcd_accept());
    CHECK(blamed(b, 0, 0x53) == "eye_catcher");
    CHECK(blamed(b, 4, 0) == "clc_message_type");
    CHECK(blamed(b, 4, 9) == "clc_message_type");
    CHECK(blamed(b, 5, 0xff) == "clc_message_length");
    CHECK(blamed(b, 6, 131) == "clc_message_length");
    CHECK(blamed(b, 7, 0x09) == "smc_version");
    CHECK(blamed(b, 129, 0xd9) == "eye_catcher_message_end");
    CHECK(blamed(b, 4, 1) == "eye_catcher");  // a Proposal is SMCR
    const auto decoded = decode(bytes(b));
    CHECK(fault_of(decoded) == "none");
    const Fault fault{"eid_number", 80, 9, "0 to 8"};
    CHECK(fault.text() == "eid_number at offset 80 is 0x9, expected 0 to 8");
    CHECK(fault.verdict == Verdict::kTreatAsData);
}

TEST_CASE("clc_round_trip__every_generated_message") {
    test::Generator generator(7609);
    for (int i = 0; i < 20000; i++) {
        const auto message = encode(generator.clc());
        const auto decoded = decode(message.view());
        if (const auto* fault = std::get_if<Fault>(&decoded)) {
            FAIL(i << ": " << fault->text());
        }
        REQUIRE(bytes(encode(std::get<AnyMessage>(decoded))) == bytes(message));
    }
}

TEST_CASE("clc_truncation__every_shorter_prefix_is_refused") {
    test::Generator generator(254);
    for (int i = 0; i < 200; i++) {
        const auto message = encode(generator.clc());
        for (std::size_t n = 0; n < message.size; n++) {
            // a copy of exactly that size, so that a sanitizer notices a read beyond it
            const Raw prefix(message.bytes.begin(), message.bytes.begin() + static_cast<std::ptrdiff_t>(n));
            const auto decoded = decode(prefix);
            REQUIRE(fault_of(decoded) != "none");
            // the checks must also hold if the length is right but the contents are not
            if (n >= 12) {
                Raw relabelled = prefix;
                wire::store_be(&relabelled[5], 2, n);
                wire::store_be(&relabelled[n - 4], 4, wire::load_be(relabelled.data(), 4));
                const auto any = decode(relabelled);
                if (const auto* m = std::get_if<AnyMessage>(&any)) {
                    REQUIRE(encode(*m).size <= kMaxMessage);
                    REQUIRE(fault_of(decode(encode(*m).view())) == "none");
                }
            }
        }
    }
}
