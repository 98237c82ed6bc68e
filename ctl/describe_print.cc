// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "ctl/describe_print.h"

#include <algorithm>
#include <ostream>

#include "ctl/table.h"

namespace smc::ctl {

namespace {

using nlohmann::ordered_json;

template <class... F>
struct Overloaded : F... {
    using F::operator()...;
};
template <typename... F>
Overloaded(F...) -> Overloaded<F...>;  // clang before 17 needs this guide

ordered_json to_json(const Value& value) {
    return std::visit(Overloaded{[](const Fields& group) { return ctl::to_json(group); },
                                 [](const Values& list) {
                                     ordered_json out = ordered_json::array();
                                     for (const Value& item : list) {
                                         out.push_back(to_json(item));
                                     }
                                     return out;
                                 },
                                 [](const auto& plain) { return ordered_json(plain); }},
                      static_cast<const Value::variant&>(value));
}

std::string plain_text(const Value& value) {
    return std::visit(
        Overloaded{[](std::uint64_t number) { return std::to_string(number); },
                   [](bool flag) { return std::string(flag ? "yes" : "no"); },
                   [](const std::string& text) { return printable(text); }, [](const Fields&) { return std::string(); },
                   [](const Values& list) { return list.empty() ? std::string("none") : std::string(); }},
        static_cast<const Value::variant&>(value));
}

}  // namespace

ordered_json to_json(const Fields& fields) {
    ordered_json out = ordered_json::object();
    for (const Field& field : fields) {
        out[field.name] = to_json(field.value);
        if (!field.text.empty()) {
            out[field.name + "_text"] = field.text;
        }
    }
    return out;
}

ordered_json to_json(const Fault& fault) {
    return {{"field", fault.field},
            {"offset", fault.offset},
            {"found", fault.found},
            {"expected", fault.expected},
            {"verdict", text(fault.verdict)}};
}

void print_fields(std::ostream& out, const Fields& fields, unsigned indent) {
    std::size_t width = 0;
    for (const Field& field : fields) {
        width = std::max(width, field.name.size());
    }
    const std::string blanks(indent, ' ');
    for (const Field& field : fields) {
        out << blanks << field.name;
        if (const std::string text = field.text.empty() ? plain_text(field.value) : field.text; !text.empty()) {
            out << std::string(width - field.name.size() + 2, ' ') << text;
        }
        if (!field.wrong.empty()) {
            out << "  <- wrong: expected " << field.wrong;
        }
        out << "\n";
        if (const auto* group = std::get_if<Fields>(&field.value)) {
            print_fields(out, *group, indent + 2);
        }
        if (const auto* list = std::get_if<Values>(&field.value)) {
            for (const Value& item : *list) {
                if (const auto* group = std::get_if<Fields>(&item)) {
                    out << blanks << "  -\n";
                    print_fields(out, *group, indent + 4);
                } else {
                    out << blanks << "  - " << plain_text(item) << "\n";
                }
            }
        }
    }
}

std::string title(const Description& message) {
    std::string out = message.layer;
    if (message.type != message.layer) {
        out += " " + (message.type.empty() ? "message" : message.type);
    }
    if (message.version != 0) {
        out += ", version " + std::to_string(message.version);
    }
    if (message.fault) {
        out += ": " + message.fault->text() + " (" + text(message.fault->verdict) + ")";
    }
    return out;
}

}  // namespace smc::ctl
