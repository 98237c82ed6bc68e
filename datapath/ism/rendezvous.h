// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The protocol by which agents of one host ask each other for DMBs: messages on SOCK_SEQPACKET sockets, which have
// names in a directory.
#pragma once

#include <cstdint>
#include <string>

#include "os/result.h"
#include "os/unique_fd.h"
#include "smc/wire/ids.h"

namespace smc::ism {

inline constexpr std::uint32_t kMagic = 0x534d4932;  // "SMI2": version of this protocol

struct Request {
    std::uint32_t magic = kMagic;
    std::uint16_t chid = 0;
    std::uint16_t pad = 0;
    std::uint64_t number = 0;
    std::uint64_t token = 0;
    std::uint8_t gid[16] = {};  // of the agent that asks
};

// Carries two descriptors (memory, the peer's end of the doorbell) if status is 0.
struct Reply {
    std::uint32_t magic = kMagic;
    std::int32_t status = 0;  // errno value
    std::uint64_t number = 0;
};

// DIRECTORY/<GID>.ism
std::string socket_path(const std::string& directory, const Gid& gid);
// Creates the directory if need be, removes stale sockets, and listens.
Result<UniqueFd> listen_in(const std::string& directory, const Gid& gid);
Result<UniqueFd> connect_to(const std::string& path);
// Whether the process at the other end runs as the same user.
bool same_user(int fd);

// None of these functions blocks. False: errno is EAGAIN, or says how the connection ended.
bool send_request(int fd, const Request& request);
bool receive_request(int fd, Request& request);
// `memory` and `doorbell` are -1 in a refusal. A reply whose descriptors could not be received is one, too: EMFILE.
bool send_reply(int fd, const Reply& reply, int memory, int doorbell);
bool receive_reply(int fd, Reply& reply, UniqueFd& memory, UniqueFd& doorbell);

}  // namespace smc::ism
