// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Result<T>: a value, or what the environment refused (a system call, libbpf). Member names follow
// std::expected, which GCC 12 has only outside C++20. A peer's refusal is not an Error but a value.
#pragma once

#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace smc {

struct Error {
    int code = 0;         // errno value
    std::string doing;    // "binding the rendezvous socket /run/x"

    [[nodiscard]] std::string text() const {
        return doing + ": " + std::strerror(code);
    }
};

// The current errno, with what was being done.
[[nodiscard]] inline Error last_error(std::string doing) {
    return Error{errno, std::move(doing)};
}

template <class T>
class [[nodiscard]] Result {
 public:
    // NOLINTNEXTLINE(google-explicit-constructor): `return value;` is the point of the type
    Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
    // NOLINTNEXTLINE(google-explicit-constructor): and so is `return error;`
    Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

    [[nodiscard]] bool has_value() const { return state_.index() == 0; }
    explicit operator bool() const { return has_value(); }
    T& operator*() & { return std::get<0>(state_); }
    const T& operator*() const& { return std::get<0>(state_); }
    T&& operator*() && { return std::get<0>(std::move(state_)); }
    T* operator->() { return &std::get<0>(state_); }
    const T* operator->() const { return &std::get<0>(state_); }
    [[nodiscard]] const Error& error() const { return std::get<1>(state_); }

 private:
    std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
    Result() = default;
    // NOLINTNEXTLINE(google-explicit-constructor)
    Result(Error error) : error_(std::move(error)) {}

    [[nodiscard]] bool has_value() const { return !error_; }
    explicit operator bool() const { return has_value(); }
    [[nodiscard]] const Error& error() const { return *error_; }

 private:
    std::optional<Error> error_;
};

}  // namespace smc
