// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "ctl/tap_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <iostream>
#include <nlohmann/json.hpp>
#include <system_error>

namespace smc::ctl {

using nlohmann::json;

namespace {

constexpr std::uint16_t kLinkIpv4 = 228, kLinkIpv6 = 229;  // LINKTYPE_IPV4, LINKTYPE_IPV6
constexpr std::size_t kLongest = 32768;                    // payload of a segment
constexpr std::size_t kTcpHeader = 20;

// pcapng has the byte order of its writer, packet headers have network byte order.
template <class Number>
void host(std::string& to, Number value) {
    to.append(reinterpret_cast<const char*>(&value), sizeof value);
}
void net16(std::string& to, std::uint32_t value) {
    to += {static_cast<char>(value >> 8), static_cast<char>(value)};
}
void net32(std::string& to, std::uint32_t value) {
    net16(to, value >> 16);
    net16(to, value & 0xffff);
}

std::uint32_t sum(const std::string& bytes, std::uint32_t from = 0) {
    for (std::size_t i = 0; i < bytes.size(); i++) {
        const auto byte = static_cast<unsigned char>(bytes[i]);
        from += i % 2 == 0 ? static_cast<std::uint32_t>(byte) << 8 : byte;
        from = (from & 0xffff) + (from >> 16);
    }
    return from;
}
void put_checksum(std::string& in, std::size_t at, std::uint32_t sum) {
    const std::uint32_t checksum = ~sum & 0xffff;
    in[at] = static_cast<char>(checksum >> 8);
    in[at + 1] = static_cast<char>(checksum);
}

std::string address(const Endpoint& end) {
    const auto* bytes = reinterpret_cast<const char*>(end.ip.data());
    return end.is_v4() ? std::string(bytes + 12, 4) : std::string(bytes, 16);
}

std::string packet(const Endpoint& from, const Endpoint& to, std::uint32_t sequence, std::uint32_t acknowledged,
                   const std::string& payload) {
    std::string tcp;
    net16(tcp, from.port);
    net16(tcp, to.port);
    net32(tcp, sequence);
    net32(tcp, acknowledged);
    net16(tcp, 5U << 12 | 0x18);  // no options; PSH, ACK
    net16(tcp, 65535);
    net32(tcp, 0);
    tcp += payload;
    std::string pseudo = address(from) + address(to);
    net32(pseudo, static_cast<std::uint32_t>(tcp.size()));
    net32(pseudo, IPPROTO_TCP);
    put_checksum(tcp, 16, sum(tcp, sum(pseudo)));

    std::string ip;
    if (from.is_v4()) {
        net16(ip, 0x4500);
        net16(ip, static_cast<std::uint32_t>(20 + tcp.size()));
        net32(ip, 0x4000);  // do not fragment
        net16(ip, 64U << 8 | IPPROTO_TCP);
        net16(ip, 0);
        ip += address(from) + address(to);
        put_checksum(ip, 10, sum(ip));
    } else {
        net32(ip, 0x60000000);
        net16(ip, static_cast<std::uint32_t>(tcp.size()));
        net16(ip, static_cast<std::uint32_t>(IPPROTO_TCP) << 8 | 64);
        ip += address(from) + address(to);
    }
    return ip + tcp;
}

std::string unhex(const std::string& text) {
    std::string bytes;
    bytes.reserve(text.size() / 2);
    for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
        bytes += static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
    }
    return bytes;
}

}  // namespace

std::string TapFile::open(const std::string& path) {
    path_ = path;
    if (path == "-") {
        out_ = &std::cout;
        return "";
    }
    // The file holds data of applications. Only the user may read it, and a symbolic link, which another user may have
    // put there, is not followed. Links to this process's open files come from its shell: /dev/stdout, >(program).
    const bool own = path.starts_with("/dev/") || path.starts_with("/proc/self/fd/");
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | (own ? 0 : O_NOFOLLOW), S_IRUSR | S_IWUSR);
    if (fd < 0) {
        return "writing " + path + ": " +
               (errno == ELOOP ? "it is a symbolic link" : std::generic_category().message(errno));
    }
    struct stat status {};
    const bool is_file = ::fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
    if (is_file && !own && status.st_uid != ::geteuid()) {
        ::close(fd);
        return "writing " + path + ": it is another user's file";
    }
    if (is_file && !own) {
        ::fchmod(fd, S_IRUSR | S_IWUSR);  // the file may have existed, with another mode
    }
    file_.open("/proc/self/fd/" + std::to_string(fd), std::ios::binary);
    ::close(fd);
    out_ = &file_;
    return file_ ? "" : "writing " + path + ": " + std::generic_category().message(errno);
}

void TapFile::block(std::uint32_t type, const std::string& body) {
    std::string padded = body;
    padded.resize((padded.size() + 3) / 4 * 4);
    std::string text;
    host(text, type);
    host(text, static_cast<std::uint32_t>(padded.size() + 12));
    text += padded;
    host(text, static_cast<std::uint32_t>(padded.size() + 12));
    *out_ << text;
}

void TapFile::begin(bool v6) {
    std::string section;
    host(section, std::uint32_t{0x1a2b3c4d});
    host(section, std::uint16_t{1});
    host(section, std::uint16_t{0});
    host(section, std::int64_t{-1});
    block(0x0a0d0d0a, section);
    std::string interface;
    host(interface, v6 ? kLinkIpv6 : kLinkIpv4);
    host(interface, std::uint16_t{0});
    host(interface, std::uint32_t{0});
    block(1, interface);
}

void TapFile::segment(bool from_client, std::uint64_t us, std::uint32_t sequence, std::uint32_t acknowledged,
                      const std::string& payload) {
    const std::string data =
        packet(from_client ? client_ : server_, from_client ? server_ : client_, sequence, acknowledged, payload);
    std::string body;
    host(body, std::uint32_t{0});
    host(body, static_cast<std::uint32_t>(us >> 32));
    host(body, static_cast<std::uint32_t>(us));
    host(body, static_cast<std::uint32_t>(data.size()));
    host(body, static_cast<std::uint32_t>(data.size()));
    block(6, body + data);
    packets_++;
}

std::string TapFile::write(const json& answer, std::uint64_t most) {
    const auto client = Endpoint::parse(answer.value("client", "")),
               server = Endpoint::parse(answer.value("server", ""));
    if (!begun_ && client && server) {
        client_ = *client;
        server_ = *server;
        begin(!client_.is_v4());
        begun_ = true;
    }
    const bool is_client = answer.value("role", "client") == "client";
    for (const auto& piece : answer.at("pieces")) {
        const std::string all = unhex(piece.at("hex").get<std::string>());
        const bool from_client = piece.at("sent").get<bool>() == is_client;
        const auto base = 1 + static_cast<std::uint32_t>(piece.at("offset").get<std::uint64_t>());
        for (std::size_t at = 0; at < all.size() && bytes_ < most; at += kLongest) {
            const std::string payload = all.substr(at, std::min<std::uint64_t>(kLongest, most - bytes_));
            std::uint32_t& next = next_[from_client ? 0 : 1];
            next = base + static_cast<std::uint32_t>(at);
            segment(from_client, piece.at("us").get<std::uint64_t>(), next, next_[from_client ? 1 : 0], payload);
            next += static_cast<std::uint32_t>(payload.size());
            bytes_ += payload.size();
        }
    }
    *out_ << std::flush;
    return *out_ ? "" : "writing " + path_ + ": " + std::generic_category().message(errno);
}

}  // namespace smc::ctl
