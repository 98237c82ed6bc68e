// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// ADD LINK: adds a link to a group (RFC 7609 sections 3.5.1.6, 3.5.5.1.1, 3.5.5.2.3 and C.7.1, A.3.2 and A.3.3; SMC
// v2.1). The server offers the link, each side tells the other how its RMBs are reached over it, and CONFIRM LINK over
// the new link completes it. Here is the exchange over the existing link; CONFIRM LINK is in confirm_link.h.
//
//   server                                                client
//   kIdle        want                -> kWanted           kIdle        await    -> kAwaited (first contact)
//   kWanted      offer               -> ADD LINK, kOffered             ADD LINK -> kChoosing, LinkOffered
//   kOffered     rejection           -> kIdle             kChoosing    reject   -> rejection, kIdle
//                reply, version 2    -> kConnecting                    accept   -> reply, kConfirming (version 2)
//                reply, version 1    -> CONTINUATION,                              reply, kExchanging (version 1)
//                                       kExchanging       kExchanging  CONTINUATION -> its reply, until neither side
//   kExchanging  CONTINUATION's reply, until neither                   has tokens left -> kConfirming
//                side has tokens left -> kConnecting      kConfirming  CONFIRM LINK -> kIdle
//   kConnecting  link_connected      -> kConfirming
//   kConfirming  CONFIRM LINK's reply -> kIdle
#pragma once

#include <optional>

#include "smc/llc/link_out.h"
#include "smc/llc/rkeys.h"

namespace smc::llc {

class AddLinkFlow {
 public:
    enum class State : std::uint8_t {
        kIdle,
        kWanted,
        kAwaited,
        kOffered,
        kChoosing,
        kExchanging,
        kConnecting,
        kConfirming,
    };

    // --- server
    void want(TimePoint deadline);
    void offer(const LinkTerms& own, const RoceGid& target, std::vector<RTokenPair> pairs, const LinkOut& out,
               TimePoint deadline);
    // --- client
    void await(TimePoint deadline);
    void choose(const AddLink& request, std::uint8_t over, TimePoint deadline);
    void accept(const LinkTerms& own, std::vector<RTokenPair> pairs, const LinkOut& out, TimePoint deadline);
    void reject(AddLinkReason reason, const LinkOut& out);

    // The client's reply to the offer (not a rejection), or a CONTINUATION. False: the message does not fit.
    [[nodiscard]] bool on_reply(const AddLink& reply, const LinkOut& out, TimePoint deadline);
    [[nodiscard]] bool on(const AddLinkContinuation& message, const LinkOut& out, TimePoint deadline);
    // Server.
    void connecting(TimePoint deadline) { enter(State::kConnecting, deadline); }
    void confirming(TimePoint deadline);
    void done();

    [[nodiscard]] State state() const { return state_; }
    [[nodiscard]] bool under_way() const { return state_ != State::kIdle; }
    [[nodiscard]] TimePoint deadline() const { return deadline_; }
    // The number of the new link, and that of the link that carries this exchange.
    [[nodiscard]] std::uint8_t number() const { return terms_.number; }
    [[nodiscard]] std::uint8_t carrier() const { return carrier_; }
    [[nodiscard]] const LinkTerms& terms() const { return terms_; }
    // The peer counts on the new link: it was told of the link and did not reject it.
    [[nodiscard]] bool peer_counts_on_it() const {
        return state_ == State::kExchanging || state_ == State::kConnecting || state_ == State::kConfirming;
    }
    // At the client: the server's request that is being answered.
    [[nodiscard]] const AddLink& request() const { return request_; }
    // The peer's tokens that have come since the last call.
    [[nodiscard]] std::vector<RTokenPair> take_pairs() { return std::exchange(learnt_, {}); }

 private:
    void enter(State state, TimePoint deadline);
    void send_tokens(AddLinkContinuation message, const LinkOut& out);

    State state_ = State::kIdle;
    TimePoint deadline_ = kNever;
    std::uint8_t carrier_ = 0;
    LinkTerms terms_;
    AddLink request_;
    std::vector<RTokenPair> untold_, learnt_;
    std::optional<unsigned> peers_left_;  // tokens that the peer has yet to tell; empty: not known yet
};

}  // namespace smc::llc
