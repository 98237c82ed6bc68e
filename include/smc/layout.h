// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// One table per wire structure: where each field stands, as the specification's page has it. Encoder,
// decoder and printers walk the table; nothing else knows an offset.
//
//   template <> struct Layout<Thing> {
//       static constexpr std::size_t kSize = 8;
//       static constexpr auto kFields = std::tuple{
//           field<&Thing::length>(5, 2, "length", "CLC Message Length"),
//           bits<&Thing::version>(7, 0, 4, "version", "SMC Version"),
//       };
//   };
//
// Members are unsigned integers, enumerations of them, bool, std::array<std::uint8_t, N>, or a type for
// which field_bytes() yields such an array. Numbers are big endian; bit 0 is the most significant.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <tuple>
#include <type_traits>

#include "smc/ids.h"

namespace smc::wire {

using Bytes = std::span<const std::uint8_t>;
using MutableBytes = std::span<std::uint8_t>;

template <class T>
struct Layout;

template <auto Member>
struct Field {
    std::uint16_t offset;
    std::uint16_t bytes;  // whole bytes; 1 for bit fields
    std::uint8_t bit;     // first bit, for bit fields
    std::uint8_t bits;    // 0: not a bit field
    const char* name;     // in snake_case
    const char* meaning;  // the specification's words
};

template <auto Member>
constexpr Field<Member> field(std::uint16_t offset,
                              std::uint16_t bytes,
                              const char* name,
                              const char* meaning) {
    return {offset, bytes, 0, 0, name, meaning};
}

template <auto Member>
constexpr Field<Member> bits(std::uint16_t offset,
                             std::uint8_t bit,
                             std::uint8_t count,
                             const char* name,
                             const char* meaning) {
    return {offset, 1, bit, count, name, meaning};
}

inline std::uint8_t* field_bytes(Gid& gid) {
    return gid.bytes.data();
}
inline std::uint8_t* field_bytes(Eid& eid) {
    return reinterpret_cast<std::uint8_t*>(eid.chars.data());
}
template <std::size_t N>
std::uint8_t* field_bytes(std::array<std::uint8_t, N>& array) {
    return array.data();
}
template <std::size_t N>
std::uint8_t* field_bytes(std::array<char, N>& array) {
    return reinterpret_cast<std::uint8_t*>(array.data());
}

inline std::uint64_t load_be(const std::uint8_t* from, std::size_t bytes) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < bytes; i++) {
        value = value << 8 | from[i];
    }
    return value;
}

inline void store_be(std::uint8_t* to, std::size_t bytes, std::uint64_t value) {
    for (std::size_t i = bytes; i-- > 0; value >>= 8) {
        to[i] = static_cast<std::uint8_t>(value);
    }
}

template <class T>
inline constexpr bool kIsNumber = std::is_integral_v<T> || std::is_enum_v<T>;

template <auto Member, class T>
void decode_field(const Field<Member>& f, const std::uint8_t* base, T& out) {
    auto& member = out.*Member;
    using M = std::remove_reference_t<decltype(member)>;
    if constexpr (kIsNumber<M>) {
        std::uint64_t value = load_be(base + f.offset, f.bytes);
        if (f.bits != 0) {
            value = value >> (8 - f.bit - f.bits) & ((1U << f.bits) - 1);
        }
        member = static_cast<M>(value);
    } else {
        std::memcpy(field_bytes(member), base + f.offset, f.bytes);
    }
}

template <auto Member, class T>
void encode_field(const Field<Member>& f, const T& in, std::uint8_t* base) {
    const auto& member = in.*Member;
    using M = std::remove_cvref_t<decltype(member)>;
    if constexpr (kIsNumber<M>) {
        const auto value = static_cast<std::uint64_t>(member);
        if (f.bits != 0) {
            const auto mask = static_cast<std::uint8_t>((1U << f.bits) - 1);
            base[f.offset] |= static_cast<std::uint8_t>((value & mask) << (8 - f.bit - f.bits));
        } else {
            store_be(base + f.offset, f.bytes, value);
        }
    } else {
        std::memcpy(base + f.offset, field_bytes(const_cast<M&>(member)), f.bytes);
    }
}

// Calls visit(field) for every field of table L in its order. L is the type that Layout is specialised
// for: the structure itself, or a tag where one structure is spread over several tables.
template <class L, class Visit>
constexpr void for_each_field(Visit&& visit) {
    std::apply([&](const auto&... f) { (visit(f), ...); }, Layout<L>::kFields);
}

// `from` holds at least Layout<L>::kSize bytes; the caller has checked.
template <class L, class T>
void decode_fixed(const std::uint8_t* from, T& out) {
    for_each_field<L>([&](const auto& f) { decode_field(f, from, out); });
}

// Bits are or-ed in: `to` starts as zeros, which is also what reserved fields must be.
template <class L, class T>
void encode_fixed(const T& in, std::uint8_t* to) {
    for_each_field<L>([&](const auto& f) { encode_field(f, in, to); });
}

// For static_assert beside each table: no field reaches over the end.
template <class T>
constexpr bool fields_fit() {
    bool fit = true;
    for_each_field<T>([&](const auto& f) {
        fit = fit && f.offset + f.bytes <= Layout<T>::kSize && f.bit + f.bits <= 8;
    });
    return fit;
}

}  // namespace smc::wire
