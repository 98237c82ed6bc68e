// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Result<T>: a value, or an Error of the environment (a system call, libbpf, a device). A refusal by a peer is not an
// Error but a value of the protocol library.
#pragma once

#include <cerrno>
#include <string>
#include <system_error>
#include <tl/expected.hpp>
#include <utility>

namespace smc {

struct Error {
    int code = 0;       // errno value
    std::string doing;  // "binding the rendezvous socket /run/x"

    [[nodiscard]] std::string text() const { return doing + ": " + std::generic_category().message(code); }
};

// The current errno, with what was being done.
[[nodiscard]] inline Error last_error(std::string doing) {
    return Error{errno, std::move(doing)};
}

// A class and not an alias, for two things only: `return error;`, and a compiler warning where a Result is dropped.
template <class T>
class [[nodiscard]] Result : public tl::expected<T, Error> {
 public:
    using tl::expected<T, Error>::expected;
    // NOLINTNEXTLINE(google-explicit-constructor): `return error;` is what a Result is for
    Result(Error error) : tl::expected<T, Error>(tl::unexpected<Error>(std::move(error))) {}
};

}  // namespace smc
