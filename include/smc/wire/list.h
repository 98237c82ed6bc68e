// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A list of at most N elements that lives inside its owner: what a message can hold, without allocation.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

namespace smc {

template <class T, std::size_t N>
class List {
 public:
    static constexpr std::size_t kCapacity = N;
    using value_type = T;

    constexpr List() = default;
    // Items that do not fit are dropped.
    constexpr List(std::initializer_list<T> items) {
        for (const T& item : items) {
            push_back(item);
        }
    }

    [[nodiscard]] constexpr std::size_t size() const { return size_; }
    [[nodiscard]] constexpr bool empty() const { return size_ == 0; }
    [[nodiscard]] constexpr T* begin() { return items_.data(); }
    [[nodiscard]] constexpr T* end() { return items_.data() + size_; }
    [[nodiscard]] constexpr const T* begin() const { return items_.data(); }
    [[nodiscard]] constexpr const T* end() const { return items_.data() + size_; }
    constexpr T& operator[](std::size_t i) { return items_[i]; }
    constexpr const T& operator[](std::size_t i) const { return items_[i]; }

    // False when the list is full.
    constexpr bool push_back(const T& item) {
        if (size_ == N) {
            return false;
        }
        items_[size_++] = item;
        return true;
    }
    // A `size` beyond the capacity becomes the capacity; new elements keep the values that they had last.
    constexpr void resize(std::size_t size) { size_ = static_cast<std::uint16_t>(size < N ? size : N); }

    constexpr bool operator==(const List& other) const {
        return std::equal(begin(), end(), other.begin(), other.end());
    }

 private:
    std::array<T, N> items_{};
    std::uint16_t size_ = 0;
};

}  // namespace smc
