// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Typed access to a BPF map by descriptor. Does not own it.
#pragma once

#include <bpf/bpf.h>

#include <cerrno>
#include <cstddef>
#include <optional>
#include <utility>
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
    // An absent key is no error.
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
    // Takes an entry out of a hash.
    [[nodiscard]] std::optional<Value> take_one(const Key& key) const {
        Value value{};
        return bpf_map_lookup_and_delete_elem(fd_, &key, &value) == 0 ? std::optional(value) : std::nullopt;
    }
    // Takes up to `most` entries out of a hash.
    [[nodiscard]] std::vector<std::pair<Key, Value>> take(std::size_t most) const {
        std::vector<std::pair<Key, Value>> taken;
        std::pair<Key, Value> one{};
        while (taken.size() < most && bpf_map_get_next_key(fd_, nullptr, &one.first) == 0 &&
               bpf_map_lookup_and_delete_elem(fd_, &one.first, &one.second) == 0) {
            taken.push_back(one);
        }
        return taken;
    }
    // Copies up to `most` entries of a hash.
    [[nodiscard]] std::vector<std::pair<Key, Value>> entries(std::size_t most) const {
        constexpr __u32 kAtOnce = 4096;
        std::vector<std::pair<Key, Value>> all;
        std::vector<Key> keys(kAtOnce);
        std::vector<Value> values(kAtOnce);
        __u32 position = 0, count = 0;
        for (void* from = nullptr; all.size() < most; from = &position) {
            count = kAtOnce;
            const bool more =
                bpf_map_lookup_batch(fd_, from, &position, keys.data(), values.data(), &count, nullptr) == 0;
            if (!more && errno != ENOENT) {
                break;
            }
            for (__u32 i = 0; i < count && all.size() < most; i++) {
                all.emplace_back(keys[i], values[i]);
            }
            if (!more) {
                break;
            }
        }
        return all;
    }

 private:
    int fd_ = -1;
};

}  // namespace smc::bpf
