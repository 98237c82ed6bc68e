// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How links of a group are deleted, and what follows when one is lost.
#include "smc/llc/group_llc.h"

namespace smc::llc {

using Adding = AddLinkFlow::State;

// Takes a link that works out of use.
void GroupLlc::retire(Actions& actions, LinkLlc& link) {
    if (link.state == LinkLlc::State::kUp) {
        link.state = LinkLlc::State::kRetired;
        actions.push_back(LinkRetired{link.terms.number});
    }
}

Actions GroupLlc::delete_link(std::uint8_t number, DeleteLinkReason reason, TimePoint now) {
    Actions actions;
    const auto it = links_.find(number);
    if (state_ != State::kActive || it == links_.end() || it->second.state != LinkLlc::State::kUp || up().size() <= 1) {
        return actions;
    }
    retire(actions, it->second);
    delete_link_.want({number, reason, true});
    proceed(actions, now);
    return actions;
}

// Removes a link, and all that is known of it.
void GroupLlc::forget(Actions& actions, std::uint8_t number, const std::string& why) {
    delete_link_.done(number);
    const auto it = links_.find(number);
    if (it == links_.end()) {
        return;
    }
    const bool told = it->second.state == LinkLlc::State::kDown;  // M5
    links_.erase(it);
    restart_elsewhere(actions, number);
    // The peer's RMBs keep their tokens of this link: a connection that moves finds its RMB by them.
    own_rmbs_.forget_link(number);
    if (!told) {
        actions.push_back(LinkGone{number, why});
    }
}

// Exchanges under way over this link will not be answered: they start again over another link, or have failed.
void GroupLlc::restart_elsewhere(Actions& actions, std::uint8_t number) {
    if (own_rmbs_.under_way() && own_rmbs_.carrier() == number) {
        own_rmbs_.restart();
    }
    if (delete_link_.deleting() && delete_link_.carrier() == number) {
        delete_link_.restart();
    }
    const bool agreeing =
        add_link_.under_way() && add_link_.state() != Adding::kWanted && add_link_.state() != Adding::kAwaited;
    if (agreeing && add_link_.carrier() == number) {
        adding_failed(actions, "link lost during ADD LINK", false);
    }
}

// A link has failed: the peer is told over another link, on which the exchanges that it carried start again (C.7.1).
void GroupLlc::lose(Actions& actions, std::uint8_t number, const std::string& why) {
    const auto it = links_.find(number);
    if (state_ == State::kOver || it == links_.end() || it->second.state == LinkLlc::State::kDown) {
        return;
    }
    if (add_link_.under_way() && number == add_link_.number() && it->second.state == LinkLlc::State::kConfirming) {
        return adding_failed(actions, why, false);
    }
    const bool may_decline = awaits_confirm_link();
    it->second.state = LinkLlc::State::kDown;
    if (carrier() == nullptr) {
        return finish(actions, {Reason::kLinkDown, why, may_decline});
    }
    actions.push_back(LinkGone{number, why});
    restart_elsewhere(actions, number);
    if (state_ == State::kOver) {
        return;
    }
    delete_link_.want({number, DeleteLinkReason::kLostPath, false});
}

Actions GroupLlc::link_down(std::uint8_t number, const std::string& why, TimePoint now) {
    Actions actions;
    const bool adding = add_link_.under_way() && add_link_.number() == number && add_link_.state() != Adding::kWanted &&
                        add_link_.state() != Adding::kAwaited;
    const auto it = links_.find(number);
    const bool only_asked_for = adding && (it == links_.end() || it->second.state == LinkLlc::State::kConfirming);
    if (state_ == State::kEnding && it != links_.end()) {
        links_.erase(it);
        restart_elsewhere(actions, number);
        if (const LinkLlc* left = carrier(); left == nullptr) {
            finish(actions, {Reason::kNone, why});
        } else if (delete_link_.end_carrier() == number) {
            delete_link_.end_elsewhere(out(actions, *left));
        }
        return actions;
    }
    if (only_asked_for && add_link_.state() == Adding::kChoosing) {
        return reject_link(AddLinkReason::kNoAlternatePath, now);
    }
    if (only_asked_for) {
        adding_failed(actions, why, false);
    } else {
        lose(actions, number, why);
    }
    proceed(actions, now);
    return actions;
}

void GroupLlc::on(Actions& actions, LinkLlc& link, const DeleteLink& m, TimePoint) {
    const auto others = up();
    const bool last = others.empty() || (others.size() == 1 && others.front() == m.link_number);
    const bool all = m.all || (!m.reply && last && links_.contains(m.link_number));
    if (all && !(m.reply && !delete_link_.ending())) {
        return finish(actions, delete_link_.ended(m, terms_, out(actions, link)));
    }
    if (m.reply) {
        // The client's reply to the server's request, or the reply of a server that does not know the link.
        if (delete_link_.deleting() && delete_link_.deleting()->number == m.link_number) {
            forget(actions, m.link_number, "DELETE LINK: " + text(delete_link_.deleting()->reason));
        }
        return;
    }
    on_delete_request(actions, link, m);
}

void GroupLlc::on_delete_request(Actions& actions, LinkLlc& link, const DeleteLink& m) {
    const std::uint8_t number = m.link_number;
    const auto it = links_.find(number);
    const bool being_added = add_link_.under_way() && add_link_.number() == number && add_link_.peer_counts_on_it();
    if (!terms_.server) {
        DeleteLink reply = LinkOut::reply(m);
        const bool known = it != links_.end() || being_added || delete_link_.concerns(number);
        reply.reason = known ? m.reason : DeleteLinkReason::kUnknownLink;
        // The other end of a lost path takes nothing more: connections leave it at once. The link that brings the
        // request works, whatever the reason says.
        if (it != links_.end() && (m.reason != DeleteLinkReason::kLostPath || number == link.terms.number)) {
            retire(actions, it->second);
        }
        out(actions, link).send(reply);
        if (being_added) {
            adding_failed(actions, "DELETE LINK: " + text(m.reason), false);
        }
        return forget(actions, number, "DELETE LINK: " + text(m.reason));
    }
    if (delete_link_.concerns(number)) {
        return;  // its deletion is queued or under way
    }
    if (being_added) {
        return adding_failed(actions, "DELETE LINK: " + text(m.reason), false);
    }
    if (it == links_.end()) {
        DeleteLink reply = LinkOut::reply(m);
        reply.reason = DeleteLinkReason::kUnknownLink;
        return out(actions, link).send(reply);
    }
    // The server answers with a request of its own. Linux sets the orderly flag for a lost path, too.
    if (m.orderly && m.reason != DeleteLinkReason::kLostPath) {
        retire(actions, it->second);
        return delete_link_.want({number, m.reason, true});
    }
    lose(actions, number, "DELETE LINK: " + text(m.reason));
}

}  // namespace smc::llc
