// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// CLC messages from a TCP stream, which may arrive in pieces of any size (RFC 7609 A.2 and C.6).
#include "smc/clc/framer.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "messages.h"

using namespace smc;
using namespace smc::clc;

namespace {

using Octets = std::vector<std::uint8_t>;

// A stream, and a framer that reads it.
struct Reader {
    Octets stream;
    std::size_t at = 0;  // bytes of it that were read
    Framer framer{};

    // At most `most` bytes of the stream arrive.
    std::optional<Decoded<Message>> arrive(std::size_t most) {
        const auto space = framer.free_space();
        REQUIRE_FALSE(space.empty());
        const std::size_t n = std::min({most, space.size(), stream.size() - at});
        std::copy_n(stream.begin() + static_cast<std::ptrdiff_t>(at), n, space.begin());
        at += n;
        return framer.filled(n);
    }
    // The first message or fault when `piece()` bytes arrive at a time; nothing: the stream ended before.
    template <class Piece>
    std::optional<Decoded<Message>> read(Piece piece) {
        std::optional<Decoded<Message>> out;
        while (!out && at < stream.size()) {
            out = arrive(piece());
        }
        return out;
    }
    std::optional<Decoded<Message>> read() {
        return read([] { return std::size_t{100'000}; });
    }
};

Octets message_of(const std::optional<Decoded<Message>>& read) {
    REQUIRE(read);
    REQUIRE(std::holds_alternative<Message>(*read));
    return test::bytes(std::get<Message>(*read));
}

// The field that the framer finds wrong; empty: the bytes are the beginning of a message.
std::string blamed(const Octets& first8) {
    Reader reader{first8};
    const auto read = reader.read();
    if (!read) {
        return "";
    }
    REQUIRE(std::holds_alternative<Fault>(*read));
    CHECK(std::get<Fault>(*read).verdict == Verdict::kTreatAsData);  // C.6: out of step, not a message to decline
    return std::get<Fault>(*read).field;
}

Octets header(Type type, std::size_t length, std::uint8_t version = 0x20) {
    Octets out = {0xe2, 0xd4, 0xc3, 0xd9, 0, 0, 0, version};
    out[4] = static_cast<std::uint8_t>(type);
    wire::store_be(&out[5], 2, length);
    return out;
}

Octets operator+(Octets a, const Octets& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

const Octets kApplicationData = {'G', 'E', 'T', ' ', '/'};

}  // namespace

TEST_CASE("framer__a_message_is_the_same_however_it_is_cut") {
    test::Generator random(1);
    for (int i = 0; i < 300; i++) {
        const Octets sent = test::bytes(encode(random.clc()));
        CHECK(message_of(Reader{sent}.read()) == sent);
        CHECK(message_of(Reader{sent}.read([] { return std::size_t{1}; })) == sent);
        CHECK(message_of(Reader{sent}.read([&] { return 1 + random.below(9); })) == sent);
    }
}

TEST_CASE("framer__nothing_comes_out_before_the_last_byte") {
    const Octets sent = test::bytes(encode(Decline{}));
    Reader reader{sent};
    for (std::size_t i = 1; i < sent.size(); i++) {
        REQUIRE_FALSE(reader.arrive(1));
    }
    CHECK(message_of(reader.arrive(1)) == sent);
}

// After a Decline the stream belongs to the application: it would lose a byte that is read too far.
TEST_CASE("framer__not_a_byte_behind_a_message_is_read") {
    test::Generator random(2);
    for (int i = 0; i < 100; i++) {
        const Octets decline = test::bytes(encode(random.decline()));
        for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, std::size_t{1000}}) {
            Reader reader{decline + kApplicationData};
            CHECK(message_of(reader.read([&] { return piece; })) == decline);
            CHECK(reader.at == decline.size());
        }
    }
}

TEST_CASE("framer__messages_in_a_row_come_out_one_by_one") {
    test::Generator random(3);
    // A long message, then a short one: no byte of the first may be left.
    const std::vector<Octets> sent = {test::bytes(encode(random.accept_r())), test::bytes(encode(Decline{})),
                                      test::bytes(encode(random.accept_d()))};
    Reader reader{sent[0] + sent[1] + sent[2]};
    for (const Octets& one : sent) {
        CHECK(reader.framer.free_space().size() == kHeaderBytes);
        const auto read = reader.read();
        CHECK(message_of(read) == one);
        CHECK(std::holds_alternative<AnyMessage>(decode(std::get<Message>(*read).view())));
    }
    CHECK(reader.at == reader.stream.size());
}

TEST_CASE("framer__rubbish_behind_the_eye_catcher_is_told_after_8_bytes_and_no_more_are_read") {
    Reader reader{{0xe2, 0xd4, 0xc3, 0xd9}};
    reader.stream.resize(1000, 'x');
    for (std::size_t i = 1; i < kHeaderBytes; i++) {
        REQUIRE_FALSE(reader.arrive(1));  // until the header is complete it may be a message
    }
    const auto read = reader.arrive(1000);
    REQUIRE(read);
    REQUIRE(std::holds_alternative<Fault>(*read));
    CHECK_FALSE(is_no_clc(std::get<Fault>(*read)));
    CHECK(reader.at == kHeaderBytes);
}

TEST_CASE("framer__each_part_of_the_header_is_looked_at") {
    const Octets good = header(Type::kAccept, 68);
    CHECK(blamed(good).empty());
    Octets ism = good;
    ism[3] = 0xc4;  // SMCD
    CHECK(blamed(ism).empty());
    for (const std::uint8_t last : {std::uint8_t{'R'}, std::uint8_t{0xd8}, std::uint8_t{0xc5}}) {
        Octets other = good;
        other[3] = last;
        CHECK(blamed(other) == "eye_catcher");
    }
    for (const std::uint8_t type : {std::uint8_t{0}, std::uint8_t{5}, std::uint8_t{0xff}}) {
        Octets other = good;
        other[4] = type;
        CHECK(blamed(other) == "clc_message_type");
    }
    Octets no_version = good;
    no_version[7] = 0x0f;
    CHECK(blamed(no_version) == "smc_version");
    Octets new_version = good;  // the handshake decides how to answer it, not the framer
    new_version[7] = 0xf0;
    CHECK(blamed(new_version).empty());
}

TEST_CASE("framer__a_length_that_the_message_cannot_have_is_not_waited_for") {
    struct Limits {
        Type type;
        std::size_t shortest, longest_v1;
    };
    for (const auto& [type, shortest, longest_v1] : {
             Limits{Type::kProposal, 52, kMaxMessage},
             Limits{Type::kAccept, 48, kMaxMessage},
             Limits{Type::kConfirm, 48, kMaxMessage},
             Limits{Type::kDecline, 28, 28},
         }) {
        INFO(text(type));
        for (const std::uint8_t version : {std::uint8_t{0x10}, std::uint8_t{0x20}}) {
            for (const std::size_t length : {std::size_t{0}, kHeaderBytes - 1, kHeaderBytes, shortest - 1}) {
                CHECK(blamed(header(type, length, version)) == "clc_message_length");
            }
            for (const std::size_t length : {shortest, longest_v1}) {
                Reader reader{header(type, length, version) + Octets(length, 0xee)};
                CHECK_FALSE(reader.arrive(kHeaderBytes));
                CHECK(reader.framer.free_space().size() == length - kHeaderBytes);
                CHECK(message_of(reader.read()).size() == length);
            }
        }
        for (const std::size_t length : {longest_v1 + 1, std::size_t{0xffff}}) {
            CHECK(blamed(header(type, length, 0x10)) == "clc_message_length");
            CHECK(blamed(header(type, length, 0x20)).empty());
        }
    }
}

TEST_CASE("framer__of_a_message_that_is_longer_than_any_known_the_beginning_and_the_end_are_kept") {
    const std::size_t length = GENERATE(kMaxMessage + 1, kMaxMessage + 3, kMaxMessage + 600, std::size_t{0xffff});
    const std::size_t piece = GENERATE(as<std::size_t>{}, 1, 3, 100, 100'000);
    INFO(length << " bytes, " << piece << " at a time");
    Octets sent = header(Type::kProposal, length);
    while (sent.size() < length) {
        sent.push_back(static_cast<std::uint8_t>(sent.size() * 7));
    }
    const Octets next = test::bytes(encode(Decline{}));
    Reader reader{sent + next + kApplicationData};
    const Octets kept = message_of(reader.read([&] { return piece; }));
    CHECK(reader.at == length);
    Octets expected(sent.begin(), sent.begin() + kMaxMessage - kTrailerBytes);
    expected.insert(expected.end(), sent.end() - kTrailerBytes, sent.end());
    CHECK(kept == expected);
    CHECK(message_of(reader.read([&] { return piece; })) == next);
}

TEST_CASE("framer__what_is_kept_of_a_long_message_is_a_message") {
    Octets sent = test::bytes(encode(Decline{}));
    const std::size_t length = 5000;
    sent.insert(sent.end() - kTrailerBytes, length - sent.size(), 0);
    wire::store_be(&sent[5], 2, length);
    const Octets kept = message_of(Reader{sent}.read());
    CHECK(std::holds_alternative<AnyMessage>(decode(kept)));
    sent.back() ^= 1;
    const auto bad = decode(message_of(Reader{sent}.read()));
    REQUIRE(std::holds_alternative<Fault>(bad));
    CHECK(std::string(std::get<Fault>(bad).field) == "eye_catcher_message_end");
}

TEST_CASE("framer__the_longest_proposal_there_is_fits") {
    Proposal p;
    p.v1_offer = p.v2_offer = Offer::kBoth;
    Subnet& subnet = p.subnet.emplace();
    while (subnet.prefixes.push_back({*RoceGid::parse("2001:db8::1"), 64})) {
    }
    V2Extension& v2 = p.v2.emplace();
    while (v2.eids.push_back(*Eid::parse("EID"))) {
    }
    SmcdExtension& smcd = v2.smcd.emplace();
    while (smcd.gids.push_back({IsmGid{1}, Chid{1}})) {
    }
    const Octets sent = test::bytes(encode(p));
    CHECK(sent.size() == kMaxMessage);
    CHECK(message_of(Reader{sent + kApplicationData}.read()) == sent);
}

// The framer checks the first 8 bytes; it must pass on a message whose end is wrong, and not read the bytes after it.
TEST_CASE("framer__what_is_wrong_behind_the_header_is_left_to_the_decoder") {
    Octets sent = test::bytes(encode(Decline{}));
    sent.back() ^= 1;
    Reader reader{sent + kApplicationData};
    const auto read = reader.read();
    CHECK(message_of(read) == sent);
    CHECK(reader.at == sent.size());
    const auto decoded = decode(std::get<Message>(*read).view());
    REQUIRE(std::holds_alternative<Fault>(decoded));
    CHECK(std::get<Fault>(decoded).field == std::string("eye_catcher_message_end"));
}

TEST_CASE("framer__what_cannot_become_a_message_is_told_from_its_first_byte_on") {
    const Octets begins{0xe2, 0xd4, 0xc3, 0xd9};
    for (std::size_t right = 0; right < begins.size(); right++) {
        Reader reader{{begins.begin(), begins.begin() + static_cast<std::ptrdiff_t>(right)}};
        reader.stream.push_back('G');
        const auto read = reader.read([] { return std::size_t{1}; });
        REQUIRE(read);
        REQUIRE(std::holds_alternative<Fault>(*read));
        CHECK(is_no_clc(std::get<Fault>(*read)));
        CHECK(std::ranges::equal(reader.framer.begun(), reader.stream));  // they are not CLC
    }
}
