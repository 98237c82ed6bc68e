// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Finds an action among those that a state machine has returned.
#pragma once

#include <variant>
#include <vector>

// The first action of this kind; nullptr if there is none.
template <class T, class... Kinds>
const T* find(const std::vector<std::variant<Kinds...>>& actions) {
    for (const auto& action : actions) {
        if (const auto* wanted = std::get_if<T>(&action)) {
            return wanted;
        }
    }
    return nullptr;
}
