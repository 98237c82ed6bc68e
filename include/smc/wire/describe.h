// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Messages for people and for JSON: names and values of all fields, taken from the tables. Allocates; not for the
// data path.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "smc/wire/layout.h"

namespace smc {

struct Field;
struct Value;
using Fields = std::vector<Field>;
using Values = std::vector<Value>;

// A number (counts, lengths, sizes, cursors, reason codes), a flag, a text (identifiers and keys, in hexadecimal;
// addresses, enumerations), a group, or a list.
struct Value : std::variant<std::uint64_t, bool, std::string, Fields, Values> {
    using variant::variant;
};

struct Field {
    std::string name;     // the specification's, in snake_case
    std::string meaning;  // the specification's words
    Value value;
    std::string text{};      // readable form of a code, if the number alone says too little
    std::size_t offset = 0;  // bytes from the start of the message
    std::string wrong{};     // what the fault expected here, if it is in this field
};

struct Description {
    std::string layer;  // "CLC", "LLC", "CDC", "TCP"
    std::string type;   // "PROPOSAL", "CONFIRM LINK", ...; empty: not even the type is known
    std::uint8_t version = 0;
    Fields fields;
    // If set, `fields` has the fields that lie inside the message, and the wrong one is marked (Field::wrong).
    std::optional<Fault> fault;
};

// A whole message of that layer. Bytes that are not zero and that no field is known for are in the last field,
// "unknown_bytes": reserved ones, or what a later release or another vendor put there.
Description describe_clc(wire::Bytes message);
Description describe_llc(wire::Bytes message);
Description describe_cdc(wire::Bytes message);
// The control area at the start of an SMC-D DMB.
Description describe_smcd_cdc(wire::Bytes memory);
// A TCP option of kind 254.
Description describe_tcp_option(wire::Bytes option);
// The payload of a SEND over a link: LLC or CDC.
Description describe_send(wire::Bytes message);
// Describes the bytes as the kind of message that their first byte and their length suggest.
Description describe_any(wire::Bytes bytes);

}  // namespace smc
