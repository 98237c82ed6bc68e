// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Captures that are difficult to read, made from those in tests/captures: the same messages must be found in both.
#include <pcap/dlt.h>
#include <zlib.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <sstream>

#include "ctl/capture/capture_file.h"
#include "ctl/capture/summary.h"
#include "smc/wire/layout.h"

using namespace smc;
using namespace smc::capture;

namespace {

using Raw = std::vector<std::uint8_t>;

const char* const kCaptures[] = {"linux612-smcrv2-first-and-subsequent-contact.pcap",
                                 "linux612-decline-no-common-eid.pcap", "linux61-client-release0.pcap"};
const char* const kContact = kCaptures[0];

Raw operator+(Raw a, const Raw& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

// A captured frame that owns its bytes.
struct Kept {
    std::int64_t time_us = 0;
    int link_type = DLT_EN10MB;
    Raw bytes;
};
using Frames = std::vector<Kept>;

std::string text(const Fields& fields);

std::string text(const Value& value) {
    if (const auto* group = std::get_if<Fields>(&value)) {
        return "{" + text(*group) + "}";
    }
    if (const auto* list = std::get_if<Values>(&value)) {
        std::string out;
        for (const Value& item : *list) {
            out += text(item) + ",";
        }
        return "[" + out + "]";
    }
    if (const auto* number = std::get_if<std::uint64_t>(&value)) {
        return std::to_string(*number);
    }
    const auto* flag = std::get_if<bool>(&value);
    return flag != nullptr ? std::to_string(static_cast<int>(*flag)) : std::get<std::string>(value);
}

std::string text(const Fields& fields) {
    std::string out;
    for (const Field& field : fields) {
        out += " " + field.name + "=" + text(field.value);
    }
    return out;
}

// A message without its frame, and without facts that were learned from other frames.
std::string text(const Event& event) {
    return event.message.layer + " " + event.message.type + text(event.message.fields) +
           (event.message.fault ? " FAULT " + event.message.fault->text() : "");
}

struct Found {
    std::vector<std::string> messages;
    std::vector<std::uint64_t> frames;
    std::vector<std::int64_t> times;
    std::optional<std::string> broken;
    Dissector dissector{[this](const Event& event) {
        messages.push_back(text(event));
        frames.push_back(event.frame);
        times.push_back(event.time_us);
    }};

    Found() = default;
    explicit Found(const Raw& file) {
        broken = read_capture(opened(file), [&](const Frame& frame) { dissector.add(frame); });
    }
    explicit Found(const Frames& kept) {
        std::uint64_t number = 0;
        for (const Kept& frame : kept) {
            dissector.add({++number, frame.time_us, frame.link_type, frame.bytes});
        }
    }
    Found(const Found&) = delete;
    Found& operator=(const Found&) = delete;

    static std::FILE* opened(const Raw& file) {
        std::FILE* out = std::tmpfile();
        REQUIRE(out != nullptr);
        REQUIRE(std::fwrite(file.data(), 1, file.size(), out) == file.size());
        std::rewind(out);
        return out;
    }
    [[nodiscard]] std::string summary() const {
        std::ostringstream out;
        print_summary(out, dissector);
        return out.str();
    }
};

Raw file_of(const char* capture) {
    std::FILE* file = std::fopen((std::string(SMC_CAPTURES "/") + capture).c_str(), "rb");
    REQUIRE(file != nullptr);
    Raw bytes(std::size_t{1} << 20);
    bytes.resize(std::fread(bytes.data(), 1, bytes.size(), file));
    std::fclose(file);
    return bytes;
}

Frames frames_of(const char* capture) {
    Frames frames;
    const auto broken = read_capture(Found::opened(file_of(capture)), [&](const Frame& frame) {
        frames.push_back({frame.time_us, frame.link_type, {frame.bytes.begin(), frame.bytes.end()}});
    });
    REQUIRE_FALSE(broken);
    return frames;
}

Raw gzip(const Raw& plain) {
    z_stream z{};
    REQUIRE(::deflateInit2(&z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) == Z_OK);
    Raw out(::deflateBound(&z, plain.size()));
    z.next_in = const_cast<Bytef*>(plain.data());
    z.avail_in = static_cast<uInt>(plain.size());
    z.next_out = out.data();
    z.avail_out = static_cast<uInt>(out.size());
    REQUIRE(::deflate(&z, Z_FINISH) == Z_STREAM_END);
    out.resize(z.total_out);
    ::deflateEnd(&z);
    return out;
}

// Writes pcapng in either byte order.
struct Pcapng {
    bool big_endian = false;
    Raw file;

    explicit Pcapng(bool big) : big_endian(big) {
        Raw body;
        put(body, 0x1a2b3c4d, 4);
        put(body, 1, 2);
        put(body, 0, 2);
        put(body, ~std::uint64_t{0}, 8);  // of unknown length
        block(0x0a0d0d0a, body);
    }
    void put(Raw& to, std::uint64_t value, std::size_t bytes) const {
        Raw big(bytes);
        wire::store_be(big.data(), bytes, value);
        to = to + (big_endian ? big : Raw(big.rbegin(), big.rend()));
    }
    void block(std::uint32_t type, Raw body) {
        body.resize((body.size() + 3) / 4 * 4);
        put(file, type, 4);
        put(file, 12 + body.size(), 4);
        file = file + body;
        put(file, 12 + body.size(), 4);
    }
    void interface(std::uint16_t link_type, const Raw& options = {}) {
        Raw body;
        put(body, link_type, 2);
        put(body, 0, 2);
        put(body, 0, 4);
        block(1, body + options);
    }
    void frame(std::uint32_t interface, std::uint64_t time, const Raw& bytes) {
        Raw body;
        put(body, interface, 4);
        put(body, time >> 32, 4);
        put(body, time & 0xffffffff, 4);
        put(body, bytes.size(), 4);
        put(body, bytes.size(), 4);
        block(6, body + bytes);
    }
};

// An Ethernet frame as `tcpdump -i any` writes it.
Raw cooked(const Raw& ethernet) {
    return Raw{0, 0, 0, 1, 0, 6} + Raw(ethernet.begin() + 6, ethernet.begin() + 12) + Raw(2) +
           Raw(ethernet.begin() + 12, ethernet.end());
}

// Frames alternate between two interfaces, whose link types, clocks and byte order differ.
Raw two_interfaces(const Frames& frames, bool big_endian) {
    constexpr std::uint16_t kEthernet = 1, kLinuxSll = 113, kWlan = 105;
    Pcapng out(big_endian);
    out.interface(kEthernet);
    Raw resolution;
    out.put(resolution, 9, 2);
    out.put(resolution, 1, 2);
    out.interface(kLinuxSll, resolution + Raw{9, 0, 0, 0});  // nanoseconds
    out.block(5, Raw(12));                                   // statistics, to be skipped
    out.interface(kWlan);
    for (std::size_t i = 0; i < frames.size(); i++) {
        const auto time = static_cast<std::uint64_t>(frames[i].time_us);
        if (i % 2 == 0) {
            out.frame(0, time, frames[i].bytes);
        } else {
            out.frame(1, time * 1000, cooked(frames[i].bytes));
        }
    }
    out.frame(2, 0, Raw(30));
    return out.file;
}

// 10.9.0.1 or 10.99.0.1 is the server, .2 the client.
bool is_from(const Kept& frame, std::uint8_t host) {
    return frame.bytes.size() > 34 && frame.bytes[26] == 10 && frame.bytes[29] == host;
}

Frames of_host(const Frames& frames, std::uint8_t host) {
    Frames out;
    std::copy_if(frames.begin(), frames.end(), std::back_inserter(out),
                 [&](const Kept& f) { return is_from(f, host); });
    return out;
}

// Replaces IPv4 and UDP by a GRH; the GIDs begin with `prefix`.
Frames as_roce_v1(Frames frames, const Raw& prefix) {
    constexpr std::size_t kIp = 14, kUdp = kIp + 20, kBth = kUdp + 8;
    for (Kept& frame : frames) {
        Raw& b = frame.bytes;
        if (b.size() < kBth || b[12] != 8 || b[13] != 0 || b[kIp + 9] != 17 ||
            wire::load_be(&b[kUdp + 2], 2) != kRoceV2Port) {
            continue;
        }
        const auto length = static_cast<std::uint16_t>(wire::load_be(&b[kUdp + 4], 2) - 8);
        const auto at = [&](std::size_t offset) { return b.begin() + static_cast<std::ptrdiff_t>(offset); };
        b = Raw(at(0), at(12)) +
            Raw{0x89, 0x15, 0x60, 0, 0, 0, static_cast<std::uint8_t>(length >> 8), static_cast<std::uint8_t>(length),
                0x1b, 64} +
            prefix + Raw(at(kIp + 12), at(kIp + 16)) + prefix + Raw(at(kIp + 16), at(kIp + 20)) +
            Raw(at(kBth), at(kBth + length));
    }
    return frames;
}

const Raw kMapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
const Raw kLinkLocal{0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x50, 0x54, 0, 0xff};

}  // namespace

TEST_CASE("gzip__a_compressed_capture_is_read") {
    for (const char* capture : kCaptures) {
        INFO(capture);
        const Raw plain = file_of(capture);
        const Found original(plain), found(gzip(plain));
        CHECK_FALSE(found.broken);
        CHECK_FALSE(original.messages.empty());
        CHECK(found.messages == original.messages);
        CHECK(found.summary() == original.summary());
    }
    const Raw plain = file_of(kContact);
    const Found original(plain);
    CHECK(original.messages.size() == 78);
    // several members, as parallel compressors write them, and padding
    const Raw two = gzip(Raw(plain.begin(), plain.begin() + 9999)) + gzip(Raw(plain.begin() + 9999, plain.end()));
    CHECK(Found(two + Raw(512)).messages == original.messages);
    CHECK_FALSE(Found(two + Raw(512)).broken);
    CHECK(Found(gzip(two_interfaces(frames_of(kContact), false))).messages == original.messages);
}

TEST_CASE("gzip__what_is_cut_off_or_damaged_is_told") {
    const Raw plain = file_of(kContact), compressed = gzip(plain);
    const Found original(plain);
    const Found cut(Raw(compressed.begin(), compressed.end() - 100));
    REQUIRE(cut.broken);
    CHECK(cut.broken->find("truncated") != std::string::npos);
    CHECK(cut.messages.size() > 50);
    CHECK(std::equal(cut.messages.begin(), cut.messages.end(), original.messages.begin()));
    Raw damaged = compressed;
    damaged[damaged.size() - 6] ^= 0xff;  // the checksum
    REQUIRE(Found(damaged).broken);
    CHECK(*Found(damaged).broken == "the compressed data is damaged");
    CHECK(Found(Raw{0x1f}).broken);
    CHECK(Found(gzip({})).broken);
}

TEST_CASE("pcapng__interfaces_of_different_link_types_are_read") {
    for (const char* capture : kCaptures) {
        for (const bool big_endian : {false, true}) {
            INFO(capture << " " << big_endian);
            const Found original(file_of(capture));
            const Found found(two_interfaces(frames_of(capture), big_endian));
            CHECK_FALSE(found.broken);
            CHECK(found.messages == original.messages);
            CHECK(found.frames == original.frames);
            CHECK(found.times == original.times);
            CHECK(found.dissector.skipped() == std::map<int, std::uint64_t>{{DLT_IEEE802_11, 1}});
            CHECK(found.summary() == original.summary() + "1 frames of link type IEEE802_11 were skipped\n");
        }
    }
}

TEST_CASE("pcapng__older_and_simple_packets_and_a_second_section") {
    const Frames frames = frames_of(kContact);
    const Found original(file_of(kContact));
    Pcapng out(false);
    out.interface(1);
    for (std::size_t i = 0; i < 100; i++) {
        Raw body;
        out.put(body, frames[i].bytes.size(), 4);
        out.block(3, body + frames[i].bytes);
    }
    Pcapng second(true);  // sections may differ in byte order, and number their interfaces anew
    second.interface(1);
    for (std::size_t i = 100; i < frames.size(); i++) {
        Raw body;
        second.put(body, 0, 2);
        second.put(body, 0, 2);
        second.put(body, 0, 8);
        second.put(body, frames[i].bytes.size(), 4);
        second.put(body, frames[i].bytes.size(), 4);
        second.block(2, body + frames[i].bytes);
    }
    const Found found(out.file + second.file);
    CHECK_FALSE(found.broken);
    CHECK(found.messages == original.messages);
    CHECK(found.frames == original.frames);
}

TEST_CASE("pcapng__broken_blocks_are_errors_and_what_was_before_them_counts") {
    const Raw whole = two_interfaces(frames_of(kContact), false);
    const Found original(whole);
    for (std::size_t cut = 13; cut < whole.size(); cut += 331) {
        const Found found(Raw(whole.begin(), whole.begin() + static_cast<long>(cut)));
        REQUIRE(found.messages.size() <= original.messages.size());
        REQUIRE(std::equal(found.messages.begin(), found.messages.end(), original.messages.begin()));
    }
    const auto broken = [](const std::function<void(Pcapng&)>& write) {
        Pcapng out(false);
        write(out);
        return Found(out.file).broken.value_or("");
    };
    CHECK(broken([](Pcapng& out) { out.frame(0, 0, Raw(4)); }) ==
          "a frame of a pcapng interface that is not described");
    CHECK(broken([](Pcapng& out) { out.block(1, {}); }) == "a pcapng interface without a description");
    CHECK(broken([](Pcapng& out) {
              out.interface(1);
              out.block(6, Raw(12) + Raw{5, 0, 0, 0, 5, 0, 0, 0} + Raw(4));
          }) == "a frame that is longer than its pcapng block");
    CHECK(broken([](Pcapng& out) { out.file = out.file + Raw{1, 0, 0, 0, 11, 0, 0, 0}; }) ==
          "a pcapng block of impossible length");
    CHECK(broken([](Pcapng& out) { out.file = out.file + Raw{1, 0, 0, 0, 0, 0, 0, 0x7f}; }) ==
          "a pcapng block of impossible length");
    CHECK(broken([](Pcapng& out) { out.file.back() ^= 1; }) == "a pcapng block with two lengths");
    CHECK(broken([](Pcapng& out) { out.file[8] = 0; }) == "a pcapng section in no byte order");
    CHECK(broken([](Pcapng& out) { out.file.pop_back(); }).starts_with("truncated"));
    // no value of any byte makes the reader leave its memory
    for (std::size_t at = 0; at < 400; at++) {
        for (const int value : {0, 1, 0x7f, 0xff}) {
            Raw wrong = whole;
            wrong[at] = static_cast<std::uint8_t>(value);
            CHECK(Found(wrong).messages.size() <= original.messages.size());
        }
    }
}

TEST_CASE("one_direction__all_of_its_messages_are_found") {
    for (const char* capture : kCaptures) {
        INFO(capture);
        const Frames frames = frames_of(capture);
        const Found original(frames), server(of_host(frames, 1)), client(of_host(frames, 2));
        CHECK_FALSE(server.messages.empty());
        CHECK_FALSE(client.messages.empty());
        std::vector<std::string> both = server.messages, all = original.messages;
        both.insert(both.end(), client.messages.begin(), client.messages.end());
        std::sort(both.begin(), both.end());
        std::sort(all.begin(), all.end());
        CHECK(both == all);
        CHECK(original.dissector.counters().one_direction == 0);
        CHECK(server.summary().find("only one direction was captured") != std::string::npos);
        CHECK(client.summary().find("only one direction was captured") != std::string::npos);
    }
    const Found server(of_host(frames_of(kContact), 1));
    CHECK(server.messages.size() == 38);
    REQUIRE(server.dissector.connections().size() == 3);
    CHECK(missing(server.dissector.connections()[0]) ==
          "everything that the client sent: only one direction was captured");
    REQUIRE(server.dissector.unnamed_qps().size() == 1);
    const UnnamedQp& qp = server.dissector.unnamed_qps()[0];
    CHECK((qp.llc == 14 && qp.cdc == 18 && qp.tokens.size() == 3));
    CHECK(qp.peer_qpn == Qpn{0x11});
    CHECK(server.dissector.counters().one_direction == 4);
    CHECK(server.dissector.counters().without_syn == 0);
}

TEST_CASE("late__whatever_is_behind_the_first_frame_is_found") {
    for (const char* capture : kCaptures) {
        const Frames frames = frames_of(capture);
        const Found original(frames);
        for (std::size_t cut = 0; cut < frames.size(); cut++) {
            INFO(capture << " from frame " << cut + 1);
            const Found found(Frames(frames.begin() + static_cast<long>(cut), frames.end()));
            const auto first =
                std::upper_bound(original.frames.begin(), original.frames.end(), cut) - original.frames.begin();
            REQUIRE(found.messages ==
                    std::vector<std::string>(original.messages.begin() + first, original.messages.end()));
        }
    }
    // after the first CLC
    const Frames frames = frames_of(kContact);
    const Found late(Frames(frames.begin() + 17, frames.end()));
    CHECK(late.dissector.counters().unnamed_qps == 2);
    CHECK(late.summary().find("the CLC of this link was not captured, or not whole\n") != std::string::npos);
    // after the SYN
    const Found begun(Frames(frames.begin() + 10, frames.end()));
    REQUIRE(begun.dissector.connections().size() == 3);
    CHECK(missing(begun.dissector.connections()[0]) == "its beginning");
    CHECK(begun.dissector.counters().without_syn == 1);
    CHECK(carried(begun.dissector.connections()[0]) == "client to server 4500, server to client 4500 (CDC cursors)");
}

TEST_CASE("roce_v1__messages_are_found_behind_a_grh") {
    const Frames frames = frames_of(kContact);
    const Found original(frames), found(as_roce_v1(frames, kMapped));
    CHECK(found.messages == original.messages);
    CHECK(found.summary() == original.summary());
    // under GIDs that no CLC here names
    const Found others(as_roce_v1(frames, kLinkLocal));
    CHECK(others.messages == original.messages);
    CHECK(others.dissector.counters().unnamed_qps == 2);
}
