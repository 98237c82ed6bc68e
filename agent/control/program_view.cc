// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/control/program_view.h"

#include <nlohmann/json.hpp>
#include <system_error>

namespace smc {

using nlohmann::json;

json programs(const IntrospectionParts& parts) {
    json list = json::array();
    for (const auto* states : {&parts.programs.states(), &parts.bypass_programs}) {
        for (const bpf::ProgramState& one : *states) {
            list.push_back({{"program", one.name},
                            {"hook", one.hook},
                            {"purpose", one.purpose},
                            {"lost", one.lost},
                            {"state", one.loaded       ? "loaded"
                                      : one.error != 0 ? "refused"
                                                       : "not needed"},
                            {"error", one.error != 0 ? std::generic_category().message(one.error) : ""}});
        }
    }
    return list;
}

json left_out(const IntrospectionParts& parts) {
    json all = programs(parts);
    json list = json::array();
    for (json& one : all) {
        if (one["state"] == "refused") {
            list.push_back(std::move(one));
        }
    }
    return list;
}

}  // namespace smc
