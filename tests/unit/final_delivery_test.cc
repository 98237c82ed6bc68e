// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Bytes of a connection that has failed, and an application that reads them late, slowly or not at all.
#include "datapath/final_delivery.h"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>

using namespace smc;
using namespace std::chrono_literals;

namespace {

const TimePoint kStart = TimePoint() + 1h;
constexpr std::uint32_t kRing = 1000;

// An application's socket that takes `capacity` bytes, of which the test reads some.
class SlowLeg final : public Leg {
 public:
    explicit SlowLeg(std::uint32_t capacity) : capacity_(capacity) {}
    void application_reads(std::uint32_t bytes) { unread_ -= std::min(bytes, unread_); }
    [[nodiscard]] std::uint32_t taken() const { return taken_; }

    bool start(Poller&, Poller::Source&) override { return true; }
    void detach() override {}
    void heard(bool, bool) override {}
    Read read(Pieces) override { return {}; }
    Written write(Pieces from, bool) override {
        std::size_t offered = 0;
        for (int i = 0; i < from.count; i++) {
            offered += from.part[i].iov_len;
        }
        const auto bytes = static_cast<std::uint32_t>(std::min<std::size_t>(offered, capacity_ - unread_));
        unread_ += bytes;
        taken_ += bytes;
        return bytes == 0 ? Written{Outcome::kNothing, 0} : Written{Outcome::kBytes, bytes};
    }
    [[nodiscard]] std::uint32_t unsent() const override { return unread_; }
    void look_for_its_end() override {}
    [[nodiscard]] bool has_more() const override { return false; }
    [[nodiscard]] bool was_reset() const override { return false; }
    void end_writing() override {}
    void close() override {}
    void reset() override {}

 private:
    std::uint32_t capacity_, unread_ = 0, taken_ = 0;
};

struct Failed {
    std::array<std::uint8_t, kRing> ring{};
    ConnectionStats stats;
    FinalDelivery delivery;

    explicit Failed(std::uint32_t bytes) : delivery(holding(bytes), ring, ended(), 10s) {}
    static flow::Receiving holding(std::uint32_t bytes) {
        flow::Receiving left(kRing);
        left.peer_produced({{0, bytes}, 0, 0}, {});
        return left;
    }
    static flow::End ended() { return {Reason::kPeerReset, flow::End::How::kDeliver, false}; }
};

}  // namespace

TEST_CASE("final_delivery__waits_as_long_as_the_application_reads_F8") {
    Failed failed(500);
    SlowLeg leg(100);
    TimePoint now = kStart;
    CHECK_FALSE(failed.delivery.run(leg, failed.stats, now));
    for (int n = 0; n < 49; n++) {  // for minutes
        leg.application_reads(10);
        CHECK_FALSE(failed.delivery.run(leg, failed.stats, now += 9s));
    }
    CHECK(leg.taken() == 500);
    leg.application_reads(10);
    CHECK(failed.delivery.run(leg, failed.stats, now + 9s));
}

TEST_CASE("final_delivery__does_not_wait_for_an_application_that_has_stopped_reading_F8") {
    Failed failed(500);
    SlowLeg leg(100);
    CHECK_FALSE(failed.delivery.run(leg, failed.stats, kStart));
    leg.application_reads(10);
    CHECK_FALSE(failed.delivery.run(leg, failed.stats, kStart + 9s));
    CHECK_FALSE(failed.delivery.run(leg, failed.stats, kStart + 18s));
    CHECK(failed.delivery.run(leg, failed.stats, kStart + 19s));
}
