// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "smc/flow/receiving.h"

#include <algorithm>

namespace smc::flow {

// D3, for cursors of either transport.
bool Receiving::can_be(cdc::Cursor produced) const {
    return cdc::is_sane(consumed_, produced, size_) && cdc::distance(consumed_, produced, size_) >= available();
}

bool Receiving::was(cdc::Cursor produced) const {
    return produced != produced_.cursor && cdc::is_sane(produced, produced_.cursor, size_) &&
           cdc::distance(produced, produced_.cursor, size_) <= lookback_;
}

void Receiving::peer_produced(const cdc::Producer& produced, std::optional<cdc::Cursor> urgent) {
    lookback_ = std::min(size_, lookback_ + cdc::distance(produced_.cursor, produced.cursor, size_));
    produced_ = produced;
    // A mark is ignored if its byte was consumed already or has not been produced.
    if (urgent && urgent->count < size_) {
        const std::uint32_t ahead = cdc::distance(consumed_, *urgent, size_);
        if (ahead > 0 && ahead <= available()) {
            urgent_ = urgent;
        }
    }
}

Receiving::Piece Receiving::next() const {
    const std::uint32_t to_mark = urgent_ ? cdc::distance(consumed_, *urgent_, size_) : 0;
    if (to_mark == 0) {
        return {consumed_, available(), false};
    }
    return to_mark == 1 ? Piece{consumed_, 1, true} : Piece{consumed_, to_mark - 1, false};
}

void Receiving::delivered(std::uint32_t bytes) {
    consumed_ = cdc::advance(consumed_, bytes, size_);
    if (urgent_ == consumed_) {
        urgent_.reset();
    }
}

}  // namespace smc::flow
