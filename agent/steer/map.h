// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Typed access to a BPF map by descriptor. Does not own it.
#pragma once

#include <bpf/bpf.h>

#include <optional>
#include <vector>

#include "os/result.h"

namespace smc::bpf {

template <class Key, class Value>
class Map {
 public:
    Map() = default;
    explicit Map(int fd) : fd_(fd) {}

    [[nodiscard]] int fd() const { return fd_; }

    Result<void> put(const Key& key, const Value& value) const {
        return bpf_map_update_elem(fd_, &key, &value, BPF_ANY) == 0 ? Result<void>()
                                                                    : Result<void>(last_error("updating a BPF map"));
    }
    // Absent is not an error.
    void erase(const Key& key) const { bpf_map_delete_elem(fd_, &key); }
    [[nodiscard]] std::optional<Value> get(const Key& key) const {
        Value value{};
        return bpf_map_lookup_elem(fd_, &key, &value) == 0 ? std::optional(value) : std::nullopt;
    }
    [[nodiscard]] std::vector<Key> keys() const {
        std::vector<Key> all;
        Key key{};
        Key* previous = nullptr;
        while (bpf_map_get_next_key(fd_, previous, &key) == 0) {
            all.push_back(key);
            previous = &key;
        }
        return all;
    }

 private:
    int fd_ = -1;
};

}  // namespace smc::bpf
