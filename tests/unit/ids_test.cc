// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "smc/wire/ids.h"

#include <catch2/catch.hpp>

#include "smc/wire/ebcdic.h"

using namespace smc;

TEST_CASE("eid__rules") {
    CHECK(Eid::parse("A"));
    CHECK(Eid::parse("0-A.B"));
    CHECK(Eid::parse(std::string(32, 'A')));
    CHECK_FALSE(Eid::parse(""));
    CHECK_FALSE(Eid::parse("a"));
    CHECK_FALSE(Eid::parse("-A"));
    CHECK_FALSE(Eid::parse(".A"));
    CHECK_FALSE(Eid::parse("A B"));
    CHECK_FALSE(Eid::parse("A..B"));
    CHECK_FALSE(Eid::parse(std::string(33, 'A')));
    CHECK(Eid::parse("TESTEID")->text() == "TESTEID");
    Eid hostile = *Eid::parse("A");
    hostile.chars[1] = '\x1b';
    CHECK(hostile.text() == "A\\x1b");
}

TEST_CASE("roce_gid__an_ipv4_address_has_two_notations") {
    const auto mapped = RoceGid::from_ipv4({10, 9, 0, 2});
    const auto right = RoceGid::from_ipv4_right_aligned({10, 9, 0, 2});
    CHECK(mapped.text() == "::ffff:10.9.0.2");
    CHECK(right.text() == "::10.9.0.2");
    CHECK(mapped != right);
    CHECK(mapped.normalised() == right.normalised());
    CHECK(mapped.is_v4());
    CHECK(right.is_v4());
    const auto v6 = *RoceGid::parse("fd00::1");
    CHECK_FALSE(v6.is_v4());
    CHECK(v6.normalised() == v6);
    CHECK_FALSE(RoceGid{}.is_v4());
    CHECK_FALSE(RoceGid::parse("::1")->is_v4());
    CHECK(RoceGid::parse("10.9.0.2") == mapped);
    CHECK_FALSE(RoceGid::parse("10.9.0"));
}

TEST_CASE("ebcdic__every_character_of_a_name_goes_there_and_back") {
    for (const char c : std::string("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.- ")) {
        CHECK(ascii_of(ebcdic_of(c)) == c);
    }
    CHECK(ebcdic_of('\n') == 0);
    CHECK(ascii_of(0x41) == '\0');
}

TEST_CASE("host_name__is_padded_cut_translated_and_never_an_error") {
    CHECK(HostName::padded("node-1.example").text() == "node-1.example");
    CHECK(HostName::padded(std::string(40, 'x')).text() == std::string(32, 'x'));
    CHECK(HostName::padded("first second").text() == "first");  // a blank ends the name
    CHECK(HostName::padded("").text().empty());
    CHECK(HostName{}.text().empty());
    // z/OS's "MVS1", in EBCDIC and padded with its blanks
    HostName ebcdic;
    ebcdic.chars.fill('\x40');
    const std::uint8_t mvs1[] = {0xd4, 0xe5, 0xe2, 0xf1};
    std::copy(std::begin(mvs1), std::end(mvs1), reinterpret_cast<std::uint8_t*>(ebcdic.chars.data()));
    CHECK(ebcdic.text() == "MVS1");
    CHECK(HostName::padded("@foo").text() == "@foo");  // x'40' is EBCDIC's blank, but this is ASCII
    CHECK(HostName::padded("a\nb\\").text() == "a\\x0ab\\x5c");
}

TEST_CASE("buffer_size__is_compressed_as_the_specification_says") {
    // RFC 7609 A.2.3: 2^(x + 4) KiB
    for (std::uint8_t x = 0; x <= 5; x++) {
        CHECK(bytes_of(BufferSize{x}) == (1U << (x + 4)) * 1024);
        CHECK(compress_size(bytes_of(BufferSize{x})) == BufferSize{x});
    }
    CHECK(bytes_of(BufferSize{5}) == 512 * 1024);  // the largest size that the specification allows
    CHECK(compress_size(65535) == BufferSize{1});
    CHECK(compress_size(~0U) == BufferSize{15});
    CHECK(text(BufferSize{2}) == "2 (64 KiB)");
    CHECK(text(BufferSize{6}) == "6 (1 MiB)");
}

TEST_CASE("text__is_how_people_write_them") {
    CHECK(text(Qpn{0x11}) == "0x000011");
    CHECK(text(RKey{0x39b}) == "0x0000039b");
    CHECK(text(VirtualAddress{0xff24ff3544b00000}) == "0xff24ff3544b00000");
    CHECK(Mac{{0x52, 0x54, 0, 0, 0, 1}}.text() == "52:54:00:00:00:01");
    CHECK(text(PeerId{0x48, 0x3d, 0x52, 0x54, 0, 0, 0, 1}) == "0x483d525400000001");
}
