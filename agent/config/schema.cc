// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// valijson decides; this file turns its verdict into the operator's one line.
#include "agent/config/schema.h"

#include <fmt/format.h>
#include <algorithm>
#include <nlohmann/json.hpp>
#include <valijson/adapters/nlohmann_json_adapter.hpp>
#include <valijson/schema.hpp>
#include <valijson/schema_parser.hpp>
#include <valijson/validation_results.hpp>
#include <valijson/validator.hpp>

#include "agent/config/keys.h"

namespace smc {

namespace {

using nlohmann::json;

// Makes a JSON pointer from valijson's context, whose elements are <root>, [key], [3].
json::json_pointer pointer_of(const std::vector<std::string>& context) {
    json::json_pointer pointer;
    for (std::size_t i = 1; i < context.size(); i++) {
        std::string step = context[i];
        if (step.size() >= 2 && step.front() == '[' && step.back() == ']') {
            step = step.substr(1, step.size() - 2);
        }
        pointer /= step;
    }
    return pointer;
}

// The schema of a member of an object; nullptr: the key is unknown. A map has one schema for all its members.
const json* schema_of(const json& object, const std::string& key) {
    if (const auto known = object.find("properties"); known != object.end() && known->contains(key)) {
        return &known->at(key);
    }
    const auto others = object.find("additionalProperties");
    return others != object.end() && others->is_object() ? &*others : nullptr;
}

const json* schema_at(const json& schema, const json& document, const json::json_pointer& pointer) {
    std::vector<std::string> steps;
    for (auto p = pointer; !p.empty(); p.pop_back()) {
        steps.insert(steps.begin(), p.back());
    }
    const json* node = &schema;
    const json* value = &document;
    for (const std::string& step : steps) {
        if (value->is_array()) {
            node = &node->at("items");
            value = &value->at(std::stoul(step));
        } else {
            node = schema_of(*node, step);
            if (node == nullptr) {
                return nullptr;
            }
            value = &value->at(step);
        }
    }
    return node;
}

std::vector<std::string> keys(const json& object) {
    std::vector<std::string> names;
    for (const auto& [key, unused] : object.items()) {
        names.push_back(key);
    }
    return names;
}

std::string allowed(const json& node) {
    if (node.contains("anyOf")) {
        return allowed(node["anyOf"][0]) + " or " + allowed(node["anyOf"][1]);
    }
    if (node.contains("enum")) {
        std::vector<std::string> values;
        std::transform(node["enum"].begin(), node["enum"].end(), std::back_inserter(values),
                       [](const json& v) { return v.dump(); });
        return fmt::format("{}", fmt::join(values, ", "));
    }
    std::string text = node.value("type", "any value");
    const auto bound = [&](const char* key, const char* words) {
        if (node.contains(key)) {
            text += std::string(" ") + words + " " + node[key].dump();
        }
    };
    bound("minimum", "from");
    bound("maximum", "to");
    bound("minLength", "of at least this many characters:");
    bound("maxLength", "of at most this many characters:");
    bound("minItems", "of at least this many items:");
    bound("maxItems", "of at most this many items:");
    bound("minProperties", "of at least this many keys:");
    text += node.value("uniqueItems", false) ? ", each once" : "";
    bound("pattern", "matching");
    return text;
}

std::string shortened(const json& value) {
    std::string text = value.dump();
    return text.size() > 80 ? text.substr(0, 77) + "..." : text;
}

ConfigProblem explain(const json& schema, const json& document, const json::json_pointer& pointer) {
    const json& value = document.at(pointer);
    const json* node = schema_at(schema, document, pointer);
    if (node == nullptr) {
        return {pointer.to_string(), "found " + shortened(value) + ", which the schema does not allow"};
    }
    if (value.is_object() && node->contains("properties")) {
        const auto& properties = (*node)["properties"];
        for (const auto& [key, unused] : value.items()) {
            if (!properties.contains(key)) {
                return {(pointer / key).to_string(),
                        fmt::format("found an unknown key, allowed: {}", fmt::join(keys(properties), ", "))};
            }
        }
        for (const auto& key : node->value("required", json::array())) {
            if (!value.contains(key.get<std::string>())) {
                return {pointer.to_string(), "found no key " + key.dump() + ", allowed: an object with it"};
            }
        }
    }
    return {pointer.to_string(), "found " + shortened(value) + ", allowed: " + allowed(*node)};
}

// A row each, of the keys to start with or of the others.
std::string table_of(bool first) {
    std::string out = "| key | default | meaning |\n|---|---|---|\n";
    for (const ConfigKey& key : config_keys()) {
        if (key.first != first) {
            continue;
        }
        const auto value = key.get({});
        const bool is_objects = value.is_array() && !value.empty() && value.front().is_object();
        out += "| `" + key.section + "." + key.name + "` | " +
               (is_objects ? "`" + value.front()["name"].get<std::string>() + "`" : "`" + value.dump() + "`") + " | " +
               key.meaning + " |\n";
    }
    return out;
}

}  // namespace

std::string print_config_schema() {
    using nlohmann::ordered_json;
    ordered_json sections = {
        {"$schema", {{"type", "string"}, {"description", "Ignored; lets editors find this file."}}}};
    for (const ConfigKey& key : config_keys()) {
        ordered_json& section = sections[key.section];
        if (section.is_null()) {
            section = {{"type", "object"}, {"additionalProperties", false}, {"properties", ordered_json::object()}};
        }
        ordered_json& property = section["properties"][key.name];
        property = key.schema;
        property["description"] = key.meaning;
    }
    const ordered_json schema = {
        {"$schema", "http://json-schema.org/draft-07/schema#"},
        {"$id", "smc-agent.schema.json"},
        {"title", "smc-agent configuration"},
        {"description", "Every key is optional; smc-agent --print-default-config --all shows the defaults."},
        {"type", "object"},
        {"additionalProperties", false},
        {"properties", sections}};
    return schema.dump(2);
}

std::string print_config_reference() {
    return "### Start with these\n\n" + table_of(true) + "\n### For experts\n\n" + table_of(false);
}

std::optional<ConfigProblem> check_schema(const json& document) {
    const json schema_text = json::parse(print_config_schema());
    valijson::Schema schema;
    valijson::SchemaParser parser;
    parser.populateSchema(valijson::adapters::NlohmannJsonAdapter(schema_text), schema);

    valijson::Validator validator;
    valijson::ValidationResults results;
    const valijson::adapters::NlohmannJsonAdapter target(document);
    if (validator.validate(schema, target, &results)) {
        return std::nullopt;
    }
    valijson::ValidationResults::Error error;
    std::vector<std::string> deepest;
    while (results.popError(error)) {
        if (error.context.size() > deepest.size()) {
            deepest = error.context;
        }
    }
    return explain(schema_text, document, pointer_of(deepest));
}

}  // namespace smc
