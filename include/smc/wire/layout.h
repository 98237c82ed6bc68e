// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// One table per wire structure: where each field stands, as the specification's page has it. Encoder,
// decoder, printer (describe.h) and JSON walk the table; nothing else knows an offset.
//
//   template <> struct Layout<Thing> {
//       static constexpr std::size_t kSize = 8;
//       static constexpr auto kFields = std::tuple{
//           field<&Thing::length>(5, 2, "length", "CLC Message Length"),
//           bits<&Thing::version>(7, 0, 4, "version", "SMC Version"),
//       };
//   };
//
// Numbers are big endian; bit 0 is the most significant. A field's member is an unsigned integer, an
// enumeration of one, bool, or a type for which field_bytes() yields the bytes. Reserved bytes have no entry: they
// are zero when encoded and not looked at when decoded (RFC 7609 A.2).
//
//   field   whole bytes                       part   a structure with a table of its own
//   bits    some bits of a byte               count  how many elements a list has
//   flag    one bit of a mask member          list   elements in a row that follow the fixed fields
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>

#include "smc/wire/fault.h"
#include "smc/wire/ids.h"
#include "smc/wire/list.h"

namespace smc::wire {

using Bytes = std::span<const std::uint8_t>;
using MutableBytes = std::span<std::uint8_t>;

template <class T>
struct Layout;

enum class Kind : std::uint8_t { kField, kBits, kFlag, kPart, kCount, kList };

// One row of a table. `name` is the specification's in snake_case; the name of a part goes before the names of its
// fields. `bytes` is 0 if the member's own layout tells it.
template <auto Member, Kind K, std::uint64_t Mask = 0>
struct Row {
    static constexpr auto kMember = Member;
    static constexpr Kind kKind = K;
    static constexpr std::uint64_t kMask = Mask;
    std::uint16_t offset;
    std::uint16_t bytes;
    std::uint8_t bit;
    std::uint8_t bits;
    const char* name;
    const char* meaning;  // the specification's words
    const char* expected = "";

    template <class T>
    static constexpr auto& in(T& object) {
        return object.*Member;
    }
};

template <auto M>
constexpr auto field(std::uint16_t offset, std::uint16_t bytes, const char* name, const char* meaning) {
    return Row<M, Kind::kField>{offset, bytes, 0, 0, name, meaning};
}
template <auto M>
constexpr auto bits(std::uint16_t offset, std::uint8_t bit, std::uint8_t count, const char* name, const char* meaning) {
    return Row<M, Kind::kBits>{offset, 1, bit, count, name, meaning};
}
template <auto M, std::uint64_t Mask>
constexpr auto flag(std::uint16_t offset, const char* name, const char* meaning) {
    return Row<M, Kind::kFlag, Mask>{offset, 1, 0, 0, name, meaning};
}
template <auto M>
constexpr auto part(std::uint16_t offset, const char* name, const char* meaning) {
    return Row<M, Kind::kPart>{offset, 0, 0, 0, name, meaning};
}
// `expected` is what a fault says when the list cannot hold so many: "0 to 8".
template <auto M>
constexpr auto count(std::uint16_t offset, std::uint16_t bytes, const char* name, const char* meaning,
                     const char* expected) {
    return Row<M, Kind::kCount>{offset, bytes, 0, 0, name, meaning, expected};
}
template <auto M>
constexpr auto list(std::uint16_t offset, const char* name, const char* meaning) {
    return Row<M, Kind::kList>{offset, 0, 0, 0, name, meaning};
}

inline std::uint8_t* field_bytes(Gid& gid) {
    return gid.bytes.data();
}
inline std::uint8_t* field_bytes(RoceGid& gid) {
    return gid.bytes.data();
}
inline std::uint8_t* field_bytes(Mac& mac) {
    return mac.bytes.data();
}
inline std::uint8_t* field_bytes(Eid& eid) {
    return reinterpret_cast<std::uint8_t*>(eid.chars.data());
}
inline std::uint8_t* field_bytes(HostName& name) {
    return reinterpret_cast<std::uint8_t*>(name.chars.data());
}
template <std::size_t N>
std::uint8_t* field_bytes(std::array<std::uint8_t, N>& array) {
    return array.data();
}

// Written out by width: GCC 12 turns these into a load and a byte swap, but not a loop.
inline std::uint64_t load_be(const std::uint8_t* from, std::size_t bytes) {
    const auto swapped = [&]<class T>(T value) {
        std::memcpy(&value, from, sizeof value);
        if constexpr (std::endian::native == std::endian::big) {
            return value;
        } else if constexpr (sizeof value == 2) {
            return __builtin_bswap16(value);
        } else if constexpr (sizeof value == 4) {
            return __builtin_bswap32(value);
        } else {
            return __builtin_bswap64(value);
        }
    };
    switch (bytes) {
        case 1:
            return *from;
        case 2:
            return swapped(std::uint16_t{});
        case 4:
            return swapped(std::uint32_t{});
        case 8:
            return swapped(std::uint64_t{});
        default: {
            std::uint64_t value = 0;
            for (std::size_t i = 0; i < bytes; i++) {
                value = value << 8 | from[i];
            }
            return value;
        }
    }
}

inline void store_be(std::uint8_t* to, std::size_t bytes, std::uint64_t value) {
    for (std::size_t i = bytes; i-- > 0; value >>= 8) {
        to[i] = static_cast<std::uint8_t>(value);
    }
}

template <class T>
concept Number = std::is_integral_v<T> || std::is_enum_v<T>;
template <class T>
concept Structure = requires { Layout<T>::kSize; };

// Bytes that one element of a list takes.
template <class E>
constexpr std::size_t element_size() {
    if constexpr (Structure<E>) {
        return Layout<E>::kSize;
    } else {
        return sizeof(E);
    }
}

// Calls visit(row) for every row of table L in its order. L is the type that Layout is specialised for: the
// structure itself, or a tag where one structure is spread over several tables.
template <class L, class Visit>
constexpr void for_each_row(Visit&& visit) {
    std::apply([&](const auto&... row) { (visit(row), ...); }, Layout<L>::kFields);
}

// Name and place of a row of table L, for a fault. It is the member's first row: for a list, that of its count.
struct Field {
    const char* name = "";
    std::uint16_t offset = 0;  // from the start of the table
    std::uint16_t bytes = 0;
};
template <auto>
struct Constant {};
template <class L, auto Member>
consteval Field field_of() {
    Field field;
    bool found = false;
    for_each_row<L>([&](const auto& row) {
        using R = std::remove_cvref_t<decltype(row)>;
        if constexpr (std::is_same_v<Constant<R::kMember>, Constant<Member>>) {
            if (!found) {
                field = {row.name, row.offset, row.bytes};
                found = true;
            }
        }
    });
    return found ? field : throw "no such row in this table";
}
// Where the elements of a list begin.
template <class L, auto Member>
consteval std::size_t list_offset() {
    std::size_t offset = 0;
    for_each_row<L>([&](const auto& row) {
        using R = std::remove_cvref_t<decltype(row)>;
        if constexpr (R::kKind == Kind::kList && std::is_same_v<Constant<R::kMember>, Constant<Member>>) {
            offset = row.offset;
        }
    });
    return offset != 0 ? offset : throw "no such list in this table";
}
// A fault of that row, in a table that begins at `start` of the message.
template <class L, auto Member>
Fault fault_at(std::size_t start, std::uint64_t found, const char* expected, Verdict verdict = Verdict::kTreatAsData) {
    constexpr Field kField = field_of<L, Member>();
    return {kField.name, start + kField.offset, found, expected, verdict};
}

template <class L, class T>
void decode_fixed(const std::uint8_t* from, T& out);
template <class L, class T>
void encode_fixed(const T& in, std::uint8_t* to);

template <class T>
void decode_value(const std::uint8_t* from, std::size_t bytes, T& out) {
    if constexpr (Structure<T>) {
        decode_fixed<T>(from, out);
    } else if constexpr (Number<T>) {
        out = static_cast<T>(load_be(from, bytes));
    } else {
        std::memcpy(field_bytes(out), from, bytes);
    }
}

template <class T>
void encode_value(const T& in, std::size_t bytes, std::uint8_t* to) {
    if constexpr (Structure<T>) {
        encode_fixed<T>(in, to);
    } else if constexpr (Number<T>) {
        store_be(to, bytes, static_cast<std::uint64_t>(in));
    } else {
        std::memcpy(to, field_bytes(const_cast<T&>(in)), bytes);
    }
}

template <class R, class T>
void decode_row(const R& row, const std::uint8_t* base, T& object) {
    auto& member = R::in(object);
    using M = std::remove_reference_t<decltype(member)>;
    const std::uint8_t* at = base + row.offset;
    if constexpr (R::kKind == Kind::kBits) {
        member = static_cast<M>(*at >> (8 - row.bit - row.bits) & ((1U << row.bits) - 1));
    } else if constexpr (R::kKind == Kind::kFlag) {
        member = static_cast<M>((member & ~R::kMask) | (*at & R::kMask));
    } else if constexpr (R::kKind == Kind::kCount) {
        member.resize(load_be(at, row.bytes));
    } else if constexpr (R::kKind == Kind::kField || R::kKind == Kind::kPart) {
        decode_value(at, row.bytes, member);
    }
}

template <class R, class T>
void encode_row(const R& row, const T& object, std::uint8_t* base) {
    const auto& member = R::in(object);
    std::uint8_t* at = base + row.offset;
    if constexpr (R::kKind == Kind::kBits) {
        const auto mask = static_cast<std::uint8_t>((1U << row.bits) - 1);
        *at |= static_cast<std::uint8_t>((static_cast<std::uint8_t>(member) & mask) << (8 - row.bit - row.bits));
    } else if constexpr (R::kKind == Kind::kFlag) {
        *at |= static_cast<std::uint8_t>(member & R::kMask);
    } else if constexpr (R::kKind == Kind::kCount) {
        store_be(at, row.bytes, member.size());
    } else if constexpr (R::kKind == Kind::kField || R::kKind == Kind::kPart) {
        encode_value(member, row.bytes, at);
    }
}

// Decodes the fixed fields. `from` holds at least Layout<L>::kSize bytes; the caller has checked. A list gets the size
// that its count says, at most its capacity; its elements are left alone.
template <class L, class T>
void decode_fixed(const std::uint8_t* from, T& out) {
    for_each_row<L>([&](const auto& row) { decode_row(row, from, out); });
}

// Encodes the fixed fields into `to`, which must hold zeros: bits are or-ed in, and reserved fields must be zero.
template <class L, class T>
void encode_fixed(const T& in, std::uint8_t* to) {
    for_each_row<L>([&](const auto& row) { encode_row(row, in, to); });
}

// The field that holds the place of an area or its number of elements: a fault names it if part of the area is missing.
struct Pointer {
    const char* field;
    std::size_t offset;
    std::uint64_t value;
};
template <class L, auto Member>
Pointer pointer_at(std::size_t start, std::uint64_t value) {
    constexpr Field kField = field_of<L, Member>();
    return {kField.name, start + kField.offset, value};
}

// Decodes the fixed fields and lists of table L, which starts at `start` of `message`; nothing outside `message` is
// read. If the count of a list is not in this table, `out` has the list's size already, and `counted` is the field that
// told it. `cuts`: a list whose count exceeds the message is cut to the elements that the message holds.
template <class L, class T>
std::optional<Fault> decode_area(Bytes message, std::size_t start, Pointer pointer, T& out,
                                 std::optional<Pointer> counted = {}, bool cuts = false) {
    if (start > message.size() || Layout<L>::kSize > message.size() - start) {
        return Fault{pointer.field, pointer.offset, pointer.value, "the whole area inside the message"};
    }
    const std::uint8_t* base = message.data() + start;
    std::optional<Fault> fault;
    Pointer count = counted.value_or(pointer);
    for_each_row<L>([&](const auto& row) {
        using R = std::remove_cvref_t<decltype(row)>;
        if (fault) {
            return;
        }
        auto& member = R::in(out);
        using M = std::remove_cvref_t<decltype(member)>;
        if constexpr (R::kKind == Kind::kCount) {
            count = {row.name, start + row.offset, load_be(base + row.offset, row.bytes)};
            if (count.value > M::kCapacity) {
                fault = Fault{count.field, count.offset, count.value, row.expected};
                return;
            }
        }
        if constexpr (R::kKind == Kind::kList) {
            constexpr std::size_t kEach = element_size<typename M::value_type>();
            const std::size_t room = (message.size() - start - row.offset) / kEach;
            if (member.size() > room && cuts) {
                member.resize(room);
            }
            if (member.size() > room) {
                fault = Fault{count.field, count.offset, count.value, "no more elements than the message holds"};
                return;
            }
            for (std::size_t i = 0; i < member.size(); i++) {
                decode_value(base + row.offset + i * kEach, kEach, member[i]);
            }
        } else {
            decode_row(row, base, out);
        }
    });
    return fault;
}

// Writes table L to `to`, which holds zeros and has room; returns how many bytes it takes, lists included.
template <class L, class T>
std::size_t encode_area(const T& in, std::uint8_t* to) {
    std::size_t end = Layout<L>::kSize;
    for_each_row<L>([&](const auto& row) {
        using R = std::remove_cvref_t<decltype(row)>;
        if constexpr (R::kKind == Kind::kList) {
            const auto& member = R::in(in);
            constexpr std::size_t kEach = element_size<typename std::remove_cvref_t<decltype(member)>::value_type>();
            for (std::size_t i = 0; i < member.size(); i++) {
                encode_value(member[i], kEach, to + row.offset + i * kEach);
            }
            end = row.offset + member.size() * kEach > end ? row.offset + member.size() * kEach : end;
        } else {
            encode_row(row, in, to);
        }
    });
    return end;
}

// Member type of a row in structures of type T.
template <class R, class T>
using MemberOf = std::remove_cvref_t<decltype(R::in(std::declval<T&>()))>;

// For static_assert beside each table of structure T: fixed fields and parts end inside it, bits inside their byte, and
// an array is as wide as its field.
template <class L, class T = L>
constexpr bool fields_fit() {
    bool fit = true;
    for_each_row<L>([&](const auto& row) {
        using R = std::remove_cvref_t<decltype(row)>;
        using M = MemberOf<R, T>;
        std::size_t bytes = row.bytes;
        if constexpr (R::kKind == Kind::kPart) {
            bytes = Layout<M>::kSize;
        } else if constexpr (R::kKind == Kind::kField && !Number<M>) {
            fit = fit && bytes == sizeof(M);
        }
        fit = fit && row.offset + bytes <= Layout<L>::kSize && row.bit + row.bits <= 8;
    });
    return fit;
}

// An encoded message of at most N bytes.
template <std::size_t N>
struct Encoded {
    std::array<std::uint8_t, N> bytes{};
    std::size_t size = 0;

    [[nodiscard]] Bytes view() const { return {bytes.data(), size}; }
};

}  // namespace smc::wire
