# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Sockets that leave the bypass, and why; pairs when agents start, stop and die."""
import glob
import json
import os
import signal
import time
import unittest

from apiserver import ApiServer
from bypass_pairs import MEMBER, OUT, PROOF, Pair, Pairs
from lab import refusals
from lab.basics import sh, wait_for
from rogue import within

ROUNDS = int(os.environ.get("SMC_ROUNDS", "3"))


class Leave(Pairs):
    # --- sockets that leave
    def test_habits_that_do_not_go_with_it(self):
        """Each habit begins on a bypassed socket: it works as with TCP, and the pair leaves the bypass."""
        self.begin()
        pair = self.promoted()
        pair.tell(pair.server, "waiting_receive", count=10)
        self.assertEqual(pair.ask(pair.client, "send", count=10), 10)
        self.assertEqual(pair.hear(pair.server), 10)
        self.wait_until_out()
        self.assertByTcp(pair)
        for habit, arguments in (("look", {"count": 10}), ("choose", {"level": 1, "option": 18, "value": 5})):
            with self.subTest(habit=habit):
                self.end(pair)
                self.other_programs()
                pair = self.promoted()
                self.assertEqual(pair.ask(pair.client, "send", count=10), 10)
                pair.ask(pair.server, habit, **arguments)
                self.assertEqual(pair.ask(pair.client, "send", count=10), 10)
                self.assertEqual(pair.ask(pair.server, "receive", count=20), 20)
                self.wait_until_out()
                self.assertByTcp(pair)

    def test_habits_of_who_sends(self):
        """The sender's time stamps of sent data arrive, and its pacing rate is kept."""
        self.begin()
        pair = self.promoted()
        pair.ask(pair.client, "choose", level=1, option=37, value=0x12)  # SO_TIMESTAMPING: of what is sent, by software
        self.assertEqual(pair.ask(pair.client, "send", count=10), 10)
        self.assertTrue(pair.ask(pair.client, "hear_of_sending"))
        self.assertEqual(pair.ask(pair.server, "receive", count=10), 10)
        self.wait_until_out()
        self.end(pair)
        self.other_programs()
        pair = self.promoted()
        pair.ask(pair.client, "choose", level=1, option=47, value=1_000_000)  # SO_MAX_PACING_RATE
        pair.exchange(1)
        before = self.redirected()[0]
        pair.exchange(5)
        self.assertEqual(self.redirected()[0], before)
        self.wait_until_out()

    def test_a_member_whose_receives_may_wait_or_that_is_signalled_is_sent_nothing_more(self):
        """Nothing more goes past TCP to this member: it could sleep in a receive, or read too little after a signal."""
        self.begin()
        for number, change in enumerate(("block", "signalled")):
            with self.subTest(change=change):
                pair = self.promoted()
                pair.exchange(5)
                before = self.redirected()
                pair.ask(pair.server, change)
                self.assertEqual(pair.ask(pair.client, "send", count=1000), 1000)
                self.assertEqual(self.redirected()[0], before[0])
                self.assertEqual(pair.ask(pair.server, "receive", count=1000), 1000)
                self.wait_until_out()
                self.assertByTcp(pair)
                self.end(pair)
                self.other_programs()

    def test_what_waits_for_a_socket_decides_whether_it_is_a_member(self):
        self.begin()
        for waiting, arguments in (("signalled", {}), ("polled", {"edges": True})):
            with self.subTest(waiting=waiting):
                pair = Pair(self)
                pair.ask(pair.server, waiting, **arguments)
                pair.exchange(PROOF)
                self.wait_until_out()
                self.assertEqual(self.redirected(), [0, 0])
                self.end(pair)
                self.other_programs()
        pair = Pair(self)
        pair.ask(pair.server, "polled", edges=True)
        pair.exchange(PROOF)
        self.wait_until_out()
        self.end(pair)
        pair = Pair(self)  # of the same programs' cgroups: the next socket is as the last one was
        pair.exchange(PROOF)
        self.pass_rounds()
        self.assertEqual(self.states(), ["SMC_MEMBER_WATCHED"] * 2)
        self.end(pair)
        self.other_programs()
        pair = Pair(self)
        pair.ask(pair.server, "polled", edges=False)
        pair.exchange(PROOF)
        self.wait_until_members()

    def test_a_connection_that_is_half_closed_takes_no_place(self):
        self.begin()
        pair = Pair(self)
        pair.exchange(8)
        pair.ask(pair.client, "shut")
        self.assertEqual(pair.ask(pair.server, "receive", count=1), 0)
        for _ in range(PROOF):
            self.assertEqual(pair.ask(pair.server, "send", count=10), 10)
            self.assertEqual(pair.ask(pair.client, "receive", count=10), 10)
            self.assertEqual(pair.ask(pair.server, "receive", count=1), 0)
        self.wait_until_out()
        placed = lambda: self.a.agent.status()["bypass"]["sockets"]["members"]
        wait_for("their places to be free", lambda: placed() == 0, 30)

    def test_what_one_socket_does_its_program_may_do_with_the_next(self):
        self.begin()
        pair = self.promoted()
        self.assertEqual(pair.ask(pair.client, "send", count=10), 10)
        pair.ask(pair.server, "look", count=10)
        self.assertEqual(pair.ask(pair.server, "receive", count=10), 10)
        self.wait_until_out()
        self.end(pair)
        pair = Pair(self)
        pair.exchange(PROOF)
        self.pass_rounds()
        self.assertEqual(self.states(), ["SMC_MEMBER_WATCHED"] * 2)

    def test_a_stream_is_left_to_tcp(self):
        self.begin()
        pair = self.promoted()
        count = 100 << 20
        deadline = time.monotonic() + 60
        # the bytes between two rounds of the bypass depend on the machine, so this is repeated until they are enough
        while self.states() == [MEMBER] * 2 and time.monotonic() < deadline:
            pair.tell(pair.client, "send", count=count)
            self.assertEqual(pair.ask(pair.server, "receive", count=count, chunk=4096), count)
            self.assertEqual(pair.hear(pair.client), count)
        self.wait_until_out()
        pair.exchange(5)

    def test_revoked(self):
        self.begin()
        pair = self.promoted()
        self.assertEqual(pair.ask(pair.client, "send", count=1000), 1000)
        done = self.a.agent.ctl("bypass", "revoke")
        self.assertEqual(done.stdout, "Revoked for 2 sockets: they go on by TCP\n", done.stderr)
        before = self.redirected()
        self.assertEqual(pair.ask(pair.client, "send", count=1000), 1000)
        self.assertEqual(self.redirected(), before)
        self.pass_rounds()  # it stays in the map as long as there is something for it
        self.assertNotEqual(self.states(), [OUT] * 2)
        self.assertEqual(pair.ask(pair.server, "receive", count=2000), 2000)
        self.wait_until_out()
        self.assertByTcp(pair)

    def test_revoked_while_bytes_are_on_their_way(self):
        self.begin()
        pair = self.promoted()
        before = self.redirected()
        for end in (pair.client, pair.server):
            pair.tell(end, "alternate", rounds=20_000, begins=end is pair.client)
        wait_for("bytes past TCP", lambda: min(map(int.__sub__, self.redirected(), before)) > 100_000, 30)
        self.a.agent.ctl("bypass", "revoke")
        self.wait_until_out()
        after = self.redirected()
        self.assertEqual([pair.hear(end) for end in (pair.client, pair.server)], [20_000] * 2)
        self.assertEqual(self.redirected(), after)

    def test_connection_tracking_that_ends(self):
        """As by `conntrack -D`, or because it times out, since no packets of the pair are on the wire."""
        self.begin()
        rules = "table ip t { chain c { type filter hook input priority 0; ct state established accept; }; }"
        self.two.run(["nft", rules], check=True)
        pair = self.promoted()
        self.pass_rounds(12)  # its connection tracking is looked at in every fourth one
        self.assertEqual(self.states(), [MEMBER] * 2)
        self.two.run(["conntrack", "-D", "-p", "tcp", "--dport", "5000"], check=True)
        self.wait_until_out()
        self.assertByTcp(pair)

    def hold_a_lock(self):
        """A pair that cannot join the bypass, and the program that holds it up."""
        self.begin()
        holder = self.hold_lock(self.one)
        pair = Pair(self)
        pair.exchange(PROOF)
        wait_for("the agent to see that it is held up", lambda: self.held_up() == 1, 30)
        return holder, pair

    def held_up(self):
        return self.a.agent.ask("bypass")["namespaces_held_up"]

    def test_an_agent_is_replaced_while_a_program_holds_a_sockets_lock(self):
        """The agent does not wait for the lock itself."""
        holder, pair = self.hold_a_lock()
        words = "network namespace [0-9]+: no socket joins the bypass for now: a program probably holds "
        self.assertRegex(self.a.agent.log(), words)
        self.assertTrue(self.lock_helpers(self.a))
        for helper in self.lock_helpers(self.a):
            self.assertEqual(os.stat(f"/proc/{helper}/ns/net").st_ino, os.stat(f"/run/netns/{self.a.netns}").st_ino)
        done = self.a.agent.ctl("upgrade")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(self.a.agent.process.wait(60), 0)
        wait_for("the next agent to see it, too", lambda: self.held_up() == 1, 30)
        self.assertNotEqual(self.states(), [MEMBER] * 2)
        pair.exchange(5)
        self.tell(holder, "")
        self.assertEqual(self.hear(holder), "free")
        self.wait_until_members()
        wait_for("the next agent to see that it is free", lambda: self.held_up() == 0, 30)
        self.assertExchangedPastTcp(pair, 10)
        os.kill(self.a.agent.status()["agent"]["pid"], signal.SIGTERM)

    def test_an_agent_ends_while_a_program_holds_a_sockets_lock(self):
        holder, pair = self.hold_a_lock()
        helpers = self.lock_helpers(self.a)
        self.assertTrue(helpers)
        self.assertEqual(self.a.agent.stop(), 0)
        self.assertTrue(any(self.is_alive(pid) for pid in helpers))
        pair.exchange(5)
        self.tell(holder, "")
        self.assertEqual(self.hear(holder), "free")
        wait_for("the helper to end", lambda: not any(self.is_alive(pid) for pid in helpers), 30)

    def test_a_process_that_is_killed_while_it_waits_for_a_lock(self):
        """Another one takes its jobs."""
        holder, pair = self.hold_a_lock()
        for helper in self.lock_helpers(self.a):
            os.kill(helper, signal.SIGKILL)
        self.tell(holder, "")
        self.assertEqual(self.hear(holder), "free")
        wait_for("the next process", lambda: "another one does what is left" in self.a.agent.log(), 30)
        wait_for("the pair", lambda: self.states() == [MEMBER] * 2, 60)
        wait_for("nothing to be held up", lambda: self.held_up() == 0, 30)
        self.assertExchangedPastTcp(pair, 10)

    # --- agents come and go
    def test_an_agent_that_is_started_again_takes_pairs_over(self):
        self.begin()
        pair = self.promoted()
        for how in (signal.SIGTERM, *[signal.SIGKILL] * ROUNDS):
            self.assertEqual(pair.ask(pair.client, "send", count=3000), 3000)
            self.a.agent.stop(how)
            self.assertEqual(pair.ask(pair.server, "receive", count=3000), 3000)
            self.assertExchangedPastTcp(pair, 10)
            self.begin()
            self.assertTrue(self.a.agent.ask("bypass")["taken_over"])
            self.assertEqual(pair.both(1_000_000, most=5000), [True, True])
            self.assertEqual(self.states(), [MEMBER] * 2)
        self.assertEqual([c["path"] for c in self.a.agent.connections()], ["bypass"] * 2)

    def test_a_socket_that_is_used_again_when_no_agent_is_there(self):
        for how in (signal.SIGTERM, signal.SIGKILL):
            self.begin()
            pair = self.promoted()
            self.assertEqual(pair.ask(pair.server, "send", count=1000), 1000)
            self.a.agent.stop(how)
            self.assertEqual(pair.ask(pair.client, "disconnect"), 0)
            echo = self.serve(self.two, port=5001)
            self.assertEqual(pair.ask(pair.client, "connect", ip=self.two.ip4, port=5001), 0)
            self.assertEqual(pair.ask(pair.client, "send", count=1000), 1000)
            self.assertEqual(pair.ask(pair.client, "receive", count=1000), 1000)
            for end in (pair.client, pair.server, echo):
                self.end_program(end)

    def test_killed_again_and_again_under_load(self):
        self.begin()
        pair = self.promoted()
        rounds = 8000 * ROUNDS
        for end in (pair.client, pair.server):
            pair.tell(end, "alternate", rounds=rounds, begins=end is pair.client)
        for _ in range(ROUNDS):
            self.a.agent.stop(signal.SIGKILL)
            self.begin()
        self.assertEqual([pair.hear(end) for end in (pair.client, pair.server)], [rounds] * 2)
        self.assertEqual(self.states(), [MEMBER] * 2)
        self.assertGreater(min(member["messages"] for member in self.members()), rounds * 9 // 10)

    def test_another_agent_takes_the_place_under_load(self):
        self.begin()
        pair = self.promoted()
        rounds = 8000 * ROUNDS
        for end in (pair.client, pair.server):
            pair.tell(end, "alternate", rounds=rounds, begins=end is pair.client)
        for _ in range(ROUNDS):
            done = self.a.agent.ctl("upgrade")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual([pair.hear(end) for end in (pair.client, pair.server)], [rounds] * 2)
        self.assertEqual(self.states(), [MEMBER] * 2)
        self.assertTrue(self.a.agent.ask("bypass")["taken_over"])
        self.assertGreater(min(member["messages"] for member in self.members()), rounds * 9 // 10)
        os.kill(self.a.agent.status()["agent"]["pid"], signal.SIGTERM)

    def test_another_policy_or_none_ends_them(self):
        self.begin()
        pair = self.promoted()
        self.a.agent.stop()
        self.begin(policy={"rules": [{"name": "others", "action": "allow", "ports": ["9"]}]})
        self.wait_until_out()
        self.assertByTcp(pair)
        self.end(pair)
        self.a.agent.stop()
        self.begin()
        pair = self.promoted()
        self.a.agent.stop()
        self.begin(local={"bypass": "off"})
        self.wait_until_out()
        self.assertByTcp(pair)
        self.a.agent.stop()
        self.assertEqual(self.pins(), [])

    def with_pods(self, *rules):
        """Configuration of an agent with these rules for pods, and a function that sets labels of both pods."""
        api = within(self.a, lambda: ApiServer(self.a.dir))
        self.addCleanup(api.close)
        api.put("namespaces", "web")
        uids = [f"0a1b2c3d-0000-4000-8000-00000000000{n}" for n in range(2)]

        def label(**labels):
            for uid in uids:
                api.put("pods", uid, "web", uid=uid, labels=labels)

        for pod, uid in zip((self.one, self.two), uids):
            pod.apps = f"{self.a.cgroup}/kubepods/pod{uid}/container"
            os.makedirs(pod.apps)
        host = {"name": "host", "action": "allow", "cgroups": ["/apps*"]}
        how = {
            "local": {"bypass": "force"},
            "policy": {"default": "deny", "rules": [host, *rules]},
            "kubernetes": {"api": api.url, "node": "node-a", "token_file": api.token, "ca_file": api.ca},
        }
        return how, label

    def test_a_pair_that_lost_its_right_while_no_agent_looked(self):
        """Its pods have lost the label by which a rule allowed them."""
        allowed, label = self.with_pods({"name": "these", "action": "allow", "pods": [{"labels": {"smc": "on"}}]})
        label(smc="on")
        self.start(**allowed)
        pair = self.promoted()
        self.a.agent.stop()
        label()
        self.a.start_agent(**allowed)
        self.assertTrue(self.a.agent.ask("bypass")["taken_over"])
        self.wait_until_out()
        self.assertByTcp(pair)

    def wait_for_rule(self, name):
        """Waits until the agent judges programs of both pods by this rule."""
        programs = [pod.popen(["sleep", "infinity"]) for pod in (self.one, self.two)]
        asked = [(f"{self.two.ip4}:5000", "--pid", str(program.pid)) for program in programs]
        wait_for(f"rule {name}", lambda: all(self.a.agent.ask("explain", *one)["rule"] == name for one in asked))

    def test_pairs_that_come_under_a_rule_without_the_bypass(self):
        """A member leaves, and a pair that is only watched never becomes one."""
        quiet = {"name": "quiet", "action": "allow", "bypass": "off", "pods": [{"labels": {"quiet": "*"}}]}
        again, these = (
            {"name": name, "action": "allow", "pods": [{"labels": {label: "on"}}]}
            for name, label in (("again", "again"), ("these", "smc"))
        )
        rules, label = self.with_pods(again, quiet, these)
        for rounds in (PROOF, 3):
            label(smc="on")
            self.start(**rules)
            self.wait_for_rule("these")
            pair = self.promoted() if rounds == PROOF else Pair(self)
            pair.exchange(3)
            (generation,) = {member["generation"] for member in self.members()}
            label(smc="on", quiet="yes")
            wait_for("the pair to be revoked", lambda: self.generation() != generation)
            if rounds == PROOF:
                self.wait_until_out()
            before = self.redirected()
            pair.exchange(2 * PROOF)
            self.assertEqual(self.redirected(), before)
            self.assertNotIn(MEMBER, self.states())
            revoked = self.generation()
            self.end(pair)
            label(smc="on", quiet="yes", again="on")  # nothing is left to be revoked
            self.wait_for_rule("again")
            self.end(self.promoted())
            self.assertEqual(self.generation(), revoked)
            self.a.agent.stop()

    def test_nothing_stays_pinned_without_members(self):
        self.begin()
        self.assertEqual(len(self.pins()), 1)
        pair = Pair(self)
        pair.exchange(5)
        self.a.agent.stop()
        self.assertEqual(self.pins(), [])
        pair.exchange(5)

    def test_pins_of_somebody_else_stay_where_they_are(self):
        self.begin()
        pair = self.promoted()
        (place,) = self.pins()
        sh("bpftool", "map", "pin", "pinned", f"{place}/smc_paired", f"{place}/theirs")
        self.a.agent.stop(signal.SIGKILL)
        self.begin()
        self.assertIn(
            f"the bypass is not available: pinning maps: {place} holds theirs, which no smc-agent created",
            self.a.agent.log(),
        )
        self.assertTrue(os.path.exists(f"{place}/theirs"))
        self.assertEqual(self.a.agent.ctl("bypass", "revoke").returncode, 1)
        self.assertByTcp(pair)  # no agent could end the bypass any more
        os.unlink(f"{place}/theirs")

    def test_an_agent_that_may_not_have_it_switches_off_what_was_left(self):
        self.begin()
        pair = self.promoted()
        self.assertEqual(pair.ask(pair.client, "send", count=1000), 1000)
        self.a.agent.stop(signal.SIGKILL)
        self.begin(command=refusals.command("programs `sk_msg`"))
        self.assertFalse(self.a.agent.ask("bypass")["available"])
        (place,) = self.pins()
        self.assertNotEqual(place, f"{self.a.pins}-bypass")
        config = sh("bpftool", "-j", "map", "dump", "pinned", f"{place}/smc_bypass_config")
        self.assertEqual(json.loads(config)[0]["formatted"]["value"]["identity"]["off"], 1)
        self.assertEqual(pair.ask(pair.server, "receive", count=1000), 1000)
        wait_for("the pins to go", lambda: self.pins() == [], 60)
        pair.exchange(50)

    def test_members_of_another_build_leave_when_they_have_read_all(self):
        """Their programs are switched off, and removed when the last of them has left."""
        self.begin()
        pair = self.promoted()
        self.assertEqual(pair.ask(pair.client, "send", count=1000), 1000)
        self.a.agent.stop()
        (place,) = self.pins()
        config = f"{place}/smc_bypass_config"
        value = json.loads(sh("bpftool", "-j", "map", "lookup", "pinned", config, "key", "0", "0", "0", "0"))["value"]
        build = 8  # struct smc_bypass_identity: off, pad, build
        value[build] = hex(int(value[build], 16) ^ 1)
        numbers = [str(int(byte, 16)) for byte in value]
        sh("bpftool", "map", "update", "pinned", config, "key", "0", "0", "0", "0", "value", *numbers)
        self.begin()
        self.assertEqual(len(self.pins()), 2)
        self.assertFalse(self.a.agent.ask("bypass")["taken_over"])
        pair.exchange(5)
        self.promoted(port=5001)  # a new pair belongs to the new agent
        self.assertEqual(len(self.pins()), 2)
        self.assertEqual(pair.ask(pair.server, "receive", count=1000), 1000)
        wait_for("the old pins to go", lambda: len(self.pins()) == 1, 60)
        before = self.sent_by_tcp(pair)
        pair.exchange(10)
        self.assertEqual(self.sent_by_tcp(pair), [count + 640 for count in before])

    def test_another_root_of_the_cgroups(self):
        """Members below the old root need the program that is attached there; new ones need it at the new root."""
        watched = lambda: sorted(glob.glob(f"{self.a.pins}-bypass/smc_bypass_reused*"))
        self.begin()
        pair = self.promoted()
        self.assertEqual(pair.ask(pair.client, "send", count=1000), 1000)
        for root, count in ((os.path.dirname(self.a.cgroup), 2), (self.a.cgroup, 2)):
            self.a.agent.stop()
            self.begin(cgroup={"root": root})
            self.assertTrue(self.a.agent.ask("bypass")["taken_over"])
            self.assertEqual(len(watched()), count)
        roots = {json.loads(sh("bpftool", "-j", "link", "show", "pinned", name))["cgroup_id"] for name in watched()}
        self.assertEqual(roots, {os.stat(root).st_ino for root in (self.a.cgroup, os.path.dirname(self.a.cgroup))})
        self.assertEqual(pair.ask(pair.server, "receive", count=1000), 1000)

    def test_programs_of_another_build_go_also_where_there_is_no_bypass_any_more(self):
        self.begin()
        (place,) = self.pins()
        self.a.agent.stop(signal.SIGKILL)
        os.rename(place, f"{place}-0123456789abcdef")
        self.begin(local={"bypass": "off"})
        wait_for("the old pins to go", lambda: self.pins() == [], 30)


if __name__ == "__main__":
    unittest.main()
