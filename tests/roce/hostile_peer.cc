// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The RoCE half of a peer that breaks rules: carries out commands, one per line, and answers each with one line.
//
//   open ADDRESS                 -> GID MAC QPN PSN RKEY ADDRESS      (hexadecimal; an RMB of 256 KiB)
//   connect GID MAC QPN PSN MTU  -> ok
//   send HEX                     -> ok | full | broken
//   write RKEY ADDRESS HEX       -> ok | full | broken
//   recv MILLISECONDS            -> HEX | none | broken WHY
#include <poll.h>

#include <chrono>
#include <deque>
#include <iostream>
#include <sstream>

#include "datapath/roce/rc_link.h"

using namespace smc;
using namespace smc::roce;

namespace {

template <class Range>
std::string hex(const Range& bytes) {
    std::string out;
    for (const std::uint8_t byte : bytes) {
        constexpr char kDigits[] = "0123456789abcdef";
        out += kDigits[byte >> 4];
        out += kDigits[byte & 15];
    }
    return out;
}

std::vector<std::uint8_t> unhex(const std::string& text) {
    std::vector<std::uint8_t> out;
    for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
        out.push_back(static_cast<std::uint8_t>(std::stoul(text.substr(i, 2), nullptr, 16)));
    }
    return out;
}

std::uint64_t number(const std::string& text) {
    return std::stoull(text, nullptr, 16);
}

struct Peer final : smcr::LinkHandler {
    RegisteredMemory rmb, source;
    std::unique_ptr<RcLink> link;
    std::deque<std::vector<std::uint8_t>> messages;
    std::string broken;

    void on_message(wire::Bytes message) override { messages.emplace_back(message.begin(), message.end()); }
    void on_broken(const std::string& why) override { broken = why; }

    void drive() {
        while (link && link->poll(*this, true, true)) {
        }
    }

    std::string open(const std::string& address) {
        const auto found = ports();
        const auto choice = port_for(*found, *RoceGid::parse(address));
        const auto pd = *ProtectionDomain::allocate(*Context::open(choice->port->device));
        link = *RcLink::create(pd, *choice->port, choice->gid, {});
        rmb = *RegisteredMemory::allocate(pd, 256 * 1024, Memory::Access::kRemoteWrite);
        source = *RegisteredMemory::allocate(pd, 65536, Memory::Access::kLocal);
        messages.clear();
        broken.clear();
        const QpEnd& own = link->end();
        std::ostringstream out;
        out << hex(own.gid.bytes) << ' ' << hex(own.mac.bytes) << ' ' << std::hex << static_cast<std::uint32_t>(own.qpn)
            << ' ' << static_cast<std::uint32_t>(own.psn) << ' ' << static_cast<std::uint32_t>(rmb.rkey()) << ' '
            << static_cast<std::uint64_t>(rmb.address());
        return out.str();
    }

    std::string connect(std::istream& in) {
        std::string gid, mac, qpn, psn, mtu;
        in >> gid >> mac >> qpn >> psn >> mtu;
        QpEnd peer;
        const auto bytes = unhex(gid);
        std::copy(bytes.begin(), bytes.end(), peer.gid.bytes.begin());
        peer.qpn = Qpn{static_cast<std::uint32_t>(number(qpn))};
        peer.psn = Psn{static_cast<std::uint32_t>(number(psn))};
        peer.mtu = static_cast<clc::Mtu>(number(mtu));
        const auto connected = link->connect(peer);
        return connected ? "ok" : connected.error().text();
    }

    static std::string text(smcr::Link::Posted posted) {
        return posted == smcr::Link::Posted::kYes ? "ok" : posted == smcr::Link::Posted::kFull ? "full" : "broken";
    }

    std::string receive(int ms) {
        const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(ms);
        for (;;) {
            drive();
            if (!messages.empty()) {
                const auto message = messages.front();
                messages.pop_front();
                return hex(message);
            }
            if (!broken.empty()) {
                return "broken " + broken;
            }
            if (std::chrono::steady_clock::now() >= end) {
                return "none";
            }
            pollfd waiting{link->fd(), POLLIN, 0};
            ::poll(&waiting, 1, 20);
        }
    }

    std::string obey(const std::string& line) {
        std::istringstream in(line);
        std::string command, a, b, c;
        in >> command;
        if (command == "open") {
            in >> a;
            return open(a);
        }
        if (command == "connect") {
            return connect(in);
        }
        drive();
        if (command == "send") {
            in >> a;
            return text(link->send(unhex(a)));
        }
        if (command == "write") {
            in >> a >> b >> c;
            const auto bytes = unhex(c);
            std::copy(bytes.begin(), bytes.end(), source.bytes().begin());
            const auto posted = link->write(source.bytes().first(bytes.size()), source.lkey(),
                                            RKey{static_cast<std::uint32_t>(number(a))}, VirtualAddress{number(b)});
            link->flush();
            return text(posted);
        }
        in >> a;
        return receive(std::stoi(a));
    }
};

}  // namespace

int main() {
    Peer peer;
    for (std::string line; std::getline(std::cin, line);) {
        std::cout << peer.obey(line) << std::endl;
    }
}
