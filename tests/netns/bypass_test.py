# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Connections between two pods of a node go past TCP, where both ends prove fit for it."""
import glob
import json
import os
import signal
import subprocess
import time
import unittest

from base import TwoPods
from lab import refusals
from lab.basics import sh, wait_for

PEER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pair_peer.py")
MEMBER, OUT = "SMC_MEMBER_MEMBER", "SMC_MEMBER_OUT"
PROOF = 40  # receives, and some more
ROUNDS = int(os.environ.get("SMC_ROUNDS", "3"))


class Pair:
    """The two ends; each method of pair_peer.End by its name."""

    def __init__(self, test, ip=None, port=5000, listen="::"):
        self.test = test
        self.server = self.start(test.two, "serve", listen, port)
        test.assertEqual(test.hear(self.server), "ready")
        self.client = self.start(test.one, "connect", ip or test.two.ip4, port)
        for end in (self.client, self.server):
            test.assertEqual(test.hear(end), "stands")

    def start(self, pod, *arguments):
        command = ["/usr/bin/python3", "-B", PEER, *map(str, arguments)]
        process = pod.popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.test.addCleanup(self.test.end_program, process)
        return process

    def tell(self, end, what, **arguments):
        self.test.tell(end, json.dumps([what, arguments]))

    def hear(self, end):
        return json.loads(self.test.hear(end))

    def ask(self, end, what, **arguments):
        self.tell(end, what, **arguments)
        return self.hear(end)

    def exchange(self, rounds, size=64):
        for _ in range(rounds):
            for sender, receiver in ((self.client, self.server), (self.server, self.client)):
                self.test.assertEqual(self.ask(sender, "send", count=size), size)
                self.test.assertEqual(self.ask(receiver, "receive", count=size), size)

    def both(self, count, **more):
        for number, end in enumerate((self.client, self.server)):
            self.tell(end, "both", out=count, come=count, seed=number, **more)
        return [self.hear(end) for end in (self.client, self.server)]


class Bypass(TwoPods):
    def begin(self, **more):
        self.start(**{"local": {"bypass": "force"}, **more})

    def pins(self):
        return sorted(glob.glob(f"{self.a.pins}-bypass*"))

    def members(self):
        """What is known of every socket that may be bypassed, the client's first."""
        dumped = json.loads(sh("bpftool", "-j", "map", "dump", "pinned", f"{self.a.pins}-bypass/smc_bypass"))
        return sorted((entry["formatted"]["value"] for entry in dumped), key=lambda m: -m["client"])

    def states(self):
        return [m["state"] for m in self.members()]

    def redirected(self):
        return [m["redirected"] for m in self.members()]

    def other_programs(self):
        """In the pods, from here on: other cgroups, of which nothing is known."""
        for pod in (self.one, self.two):
            pod.apps += "-next"
            os.makedirs(pod.apps)

    def promoted(self, ip=None, **more):
        pair = Pair(self, ip, **more)
        pair.exchange(PROOF)
        wait_for("both to be members", lambda: self.states() == [MEMBER] * 2, 30)
        return pair

    def assertExchangedPastTcp(self, pair, rounds):
        pair.exchange(1)  # once in ten seconds a message goes by TCP: perhaps this one, perhaps one of those below
        before = self.redirected()
        pair.exchange(rounds)
        for was, now in zip(before, self.redirected()):
            self.assertIn(now - was, (rounds * 64, (rounds - 1) * 64))

    def wait_until_out(self):
        wait_for("both to be out", lambda: self.states() == [OUT] * 2, 30)

    def assertByTcp(self, pair):
        """It goes on, past nothing."""
        before = self.redirected()
        pair.exchange(20)
        self.assertEqual(self.redirected(), before)

    # --- who is bypassed
    def test_ipv4_and_ipv6(self):
        self.begin()
        for ip in (self.two.ip4, self.two.ip6):
            pair = self.promoted(ip)
            self.assertExchangedPastTcp(pair, 100)
            shown = [c for c in self.a.agent.connections() if c["path"] == "bypass"]
            self.assertEqual({c["role"] for c in shown}, {"client", "server"})
            self.assertEqual({c["bytes_sent"] for c in shown}, {(101 + PROOF) * 64})
            self.assertIn("TCP bypass", self.a.agent.ctl("ss").stdout)
            for end in (pair.client, pair.server):
                self.end_program(end)
            wait_for("their entries to go", lambda: not self.members(), 30)

    def test_through_an_address_that_is_translated_and_syn_cookies(self):
        self.two.run(["sysctl", "-qw", "net.ipv4.tcp_syncookies=2"], check=True)
        self.begin()
        pair = self.promoted(self.translate())
        pair.exchange(50)
        self.assertGreater(min(self.redirected()), 0)

    def test_only_by_rule_and_where_automatic_rules_have_it(self):
        rules = [
            {"name": "forced", "action": "allow", "ports": ["5001"], "bypass": "force"},
            {"name": "off", "action": "allow", "ports": ["5002"], "bypass": "off"},
            {"name": "denied", "action": "deny", "ports": ["5003"]},
            {"name": "all", "action": "allow"},
        ]
        self.start(policy={"rules": rules})
        automatic = self.a.agent.ask("probe")["automatic"]
        for port, bypassed in ((5000, automatic), (5001, True), (5002, False), (5003, False)):
            pair = Pair(self, port=port)
            pair.exchange(PROOF)
            if bypassed:
                wait_for("both to be members", lambda: self.states() == [MEMBER] * 2, 30)
            else:
                self.assertEqual(self.members(), [])
            for end in (pair.client, pair.server):
                self.end_program(end)
            wait_for("their entries to go", lambda: not self.members(), 30)

    def test_not_where_the_servers_end_has_no_rule(self):
        self.begin(policy={"rules": [{"name": "out", "action": "allow", "direction": "outbound"}]})
        pair = Pair(self)
        pair.exchange(PROOF)
        self.assertEqual(self.members(), [])
        self.assertEqual(self.a.agent.decisions()["SMC_BYPASS_WATCHED"], 0)

    def test_who_waits_in_a_receive_is_not_bypassed(self):
        self.begin()
        pair = Pair(self)
        pair.exchange(PROOF // 2)
        pair.tell(pair.server, "waiting_receive", count=10)
        self.assertEqual(pair.ask(pair.client, "send", count=10), 10)
        self.assertEqual(pair.hear(pair.server), 10)
        pair.exchange(PROOF)
        time.sleep(1)  # four turns of the agent's
        pair.exchange(5)
        self.assertEqual(self.redirected(), [0, 0])

    # --- what goes past TCP
    def test_every_byte_once_and_in_order(self):
        self.begin()
        pair = self.promoted()
        for most, count, pause in ((64, 100_000, 0), (4096, 5_000_000, 5), (1 << 20, 100_000_000, 5)):
            self.assertEqual(pair.both(count, most=most, pause_ms=pause), [True, True])
        client, server = self.members()
        self.assertEqual([client["consumed"], server["consumed"]], [105_100_000 + PROOF * 64] * 2)
        self.assertGreater(min(client["redirected"], server["redirected"]), 100_000)

    def test_what_tcp_holds_goes_first(self):
        """The server has not read what came before it became a member."""
        self.begin()
        pair = Pair(self)
        pair.exchange(30)  # nearly enough
        for _ in range(PROOF):  # the server receives all of it but the last
            self.assertEqual(pair.ask(pair.client, "send", count=10), 10)
            self.assertEqual(pair.ask(pair.server, "receive", count=10), 10)
        self.assertEqual(pair.ask(pair.client, "send", count=5000), 5000)
        for _ in range(PROOF):
            self.assertEqual(pair.ask(pair.server, "send", count=10), 10)
            self.assertEqual(pair.ask(pair.client, "receive", count=10), 10)
        wait_for("both to be members", lambda: self.states() == [MEMBER] * 2, 30)
        before = self.redirected()[0]
        self.assertEqual(pair.ask(pair.client, "send", count=5000), 5000)
        self.assertEqual(self.redirected()[0], before)
        self.assertEqual(pair.ask(pair.server, "receive", count=10000), 10000)
        self.assertExchangedPastTcp(pair, 10)

    def test_who_does_not_read_stops_the_sender(self):
        self.begin()
        pair = self.promoted()
        taken = pair.ask(pair.client, "stuff", most=64 << 20)
        self.assertLess(taken, 16 << 20)
        client, _ = self.members()
        self.assertLessEqual(client["redirected"], 256 << 10)
        self.assertEqual(pair.ask(pair.server, "receive", count=taken), taken)
        pair.exchange(10)

    def test_the_end_comes_behind_the_last_byte(self):
        self.begin()
        pair = self.promoted()
        self.assertEqual(pair.ask(pair.client, "send", count=100_000), 100_000)
        pair.ask(pair.client, "shut")
        self.assertEqual(pair.ask(pair.server, "receive", count=200_000), 100_000)
        self.assertEqual(pair.ask(pair.server, "send", count=100_000), 100_000)
        pair.ask(pair.server, "close")
        self.assertEqual(pair.ask(pair.client, "receive", count=200_000), 100_000)

    def test_who_reads_late_misses_nothing(self):
        """Its peer is long gone, and forgotten."""
        self.begin()
        pair = self.promoted()
        before = self.redirected()[0]
        self.assertEqual(pair.ask(pair.client, "send", count=100_000), 100_000)
        self.assertEqual(self.redirected()[0], before + 100_000)
        pair.ask(pair.client, "close")
        wait_for("the client's entry to go", lambda: [m["client"] for m in self.members()] == [0], 30)
        wait_for("the backlog to show", lambda: self.a.agent.status()["bypass"]["backlog_bytes"] == 100_000, 30)
        time.sleep(1)  # four turns of the agent's
        self.assertNotEqual(self.states(), [OUT])
        self.assertEqual(pair.ask(pair.server, "receive", count=200_000), 100_000)
        wait_for("it to be out", lambda: self.states() == [OUT], 30)

    def test_what_nobody_has_read_yet_shows(self):
        self.begin()
        pair = self.promoted()
        backlog = lambda: self.a.agent.status()["bypass"]["backlog_bytes"]
        self.assertEqual(pair.ask(pair.client, "send", count=100_000), 100_000)
        wait_for("it to show", lambda: backlog() == 100_000, 30)
        self.assertIn("100000 bytes now", self.a.agent.ctl("bypass").stdout)
        self.assertEqual(pair.ask(pair.server, "receive", count=100_000), 100_000)
        wait_for("it to be read", lambda: backlog() == 0, 30)

    def test_an_agent_that_stands_still_forgets_those_that_ended_and_nobody_else(self):
        self.begin()
        ending = self.promoted()
        staying = Pair(self, port=5001)
        staying.exchange(PROOF)
        wait_for("all to be members", lambda: self.states() == [MEMBER] * 4, 30)
        self.a.agent.send_signal(signal.SIGSTOP)
        staying.exchange(10)
        for end in (ending.client, ending.server):
            self.end_program(end)
        self.a.agent.send_signal(signal.SIGCONT)
        wait_for("those that ended to go", lambda: self.states() == [MEMBER] * 2, 30)
        self.assertExchangedPastTcp(staying, 10)

    def test_a_socket_that_is_used_again(self):
        """What it had not read of its first connection is not of its second."""
        self.begin()
        pair = self.promoted()
        self.assertEqual(pair.ask(pair.server, "send", count=1000), 1000)
        self.assertEqual(pair.ask(pair.client, "disconnect"), 0)
        self.serve(self.two, port=5001)
        self.assertEqual(pair.ask(pair.client, "connect", ip=self.two.ip4, port=5001), 0)
        self.assertEqual(pair.ask(pair.client, "send", count=1000), 1000)
        self.assertEqual(pair.ask(pair.client, "receive", count=1000), 1000)

    def test_now_and_then_the_wire_sees_it(self):
        self.begin()
        pair = self.promoted()
        pair.exchange(5)
        before = self.redirected()
        time.sleep(10.5)
        pair.exchange(2)  # the first of them by TCP
        self.assertEqual(self.redirected(), [n + 64 for n in before])

    def test_who_closes_with_bytes_that_are_not_read_resets(self):
        self.begin()
        for first, second in (("client", "server"), ("server", "client")):
            pair = self.promoted()
            sender, closer = getattr(pair, first), getattr(pair, second)
            before = sum(self.redirected())
            self.assertEqual(pair.ask(sender, "send", count=1000), 1000)
            self.assertEqual(sum(self.redirected()), before + 1000)
            pair.ask(closer, "close")
            self.assertEqual(pair.ask(sender, "receive", count=1), {"failed": "ECONNRESET"})
            for end in (pair.client, pair.server):
                self.end_program(end)
            wait_for("their entries to go", lambda: not self.members(), 30)

    def test_a_process_that_dies(self):
        self.begin()
        pair = self.promoted()
        self.assertEqual(pair.ask(pair.client, "send", count=1000), 1000)
        pair.client.send_signal(signal.SIGKILL)
        self.assertEqual(pair.ask(pair.server, "receive", count=2000), 1000)
        self.assertEqual(pair.ask(pair.server, "send", count=1), 1)

    # --- programs that know nothing of it
    def run_over_it(self, server, port, client, patience=60):
        """The client's output. Its connections are bypassed, sooner or later; then its stdin ends."""
        self.begin()
        process = self.two.popen(server, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(lambda: (process.kill(), process.wait()))
        wait_for("the server", lambda: f":{port} " in self.two.run(["ss", "-Hltn"]).stdout, 60)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        asker = self.one.popen(client, **pipes)
        self.addCleanup(lambda: (asker.kill(), asker.wait()))

        def bypassed():
            ended = asker.poll() is not None
            enough = self.a.agent.ask("bypass")["redirected_messages"] > 1000
            self.assertTrue(enough or not ended, f"it has ended with {asker.returncode}")
            return enough

        wait_for("messages past TCP", bypassed, 60)
        out, err = asker.communicate(timeout=patience)
        self.assertEqual(asker.returncode, 0, err)
        return out

    def test_redis(self):
        server = "redis-server --port 6379 --bind 0.0.0.0 --protected-mode no --save".split()
        client = f"redis-benchmark -h {self.two.ip4} -c 10 -n 200000 -t set,get --csv".split()
        rows = self.run_over_it([*server, "", "--dir", "/tmp"], 6379, client).splitlines()
        self.assertEqual([row.split(",")[0] for row in rows[1:]], ['"SET"', '"GET"'])

    def test_node(self):
        """Requests one after the other, on connections that are kept, with bodies of 1 B to 20 kB, until it is told."""
        server = "require('http').createServer((q, s) => q.pipe(s)).listen(8080)"
        client = """
            const http = require('http'), agent = new http.Agent({keepAlive: true, maxSockets: 4});
            let told = false;
            process.stdin.on('end', () => told = true).resume();
            const body = n => Buffer.alloc(1 + n * 37 % 20000, String(n));
            const ask = n => new Promise((good, bad) => {
                const q = http.request({host: process.argv[1], port: 8080, method: 'POST', agent}, s => {
                    const parts = [];
                    s.on('data', d => parts.push(d));
                    s.on('end', () => Buffer.concat(parts).equals(body(n)) ? good() : bad(new Error(`reply ${n}`)));
                });
                q.on('error', bad);
                q.end(body(n));
            });
            const work = async () => {
                let n = 0;
                while (!told) await Promise.all([n++, n++, n++, n++].map(ask));
                console.log('all good');
                agent.destroy();
            };
            work();
        """
        out = self.run_over_it(["node", "-e", server], 8080, ["node", "-e", client, self.two.ip4])
        self.assertEqual(out, "all good\n")

    # --- who leaves
    def test_habits_that_do_not_go_with_it(self):
        """Each shows itself on a socket that is bypassed: it does what it does with TCP, and the pair leaves."""
        self.begin()
        pair = self.promoted()
        pair.tell(pair.server, "waiting_receive", count=10)
        self.assertEqual(pair.ask(pair.client, "send", count=10), 10)
        self.assertEqual(pair.hear(pair.server), 10)
        self.wait_until_out()
        self.assertByTcp(pair)
        for habit, arguments in (("look", {"count": 10}), ("choose", {"level": 1, "option": 18, "value": 5})):
            with self.subTest(habit=habit):
                for end in (pair.client, pair.server):
                    self.end_program(end)
                wait_for("their entries to go", lambda: not self.members(), 30)
                self.other_programs()
                pair = self.promoted()
                self.assertEqual(pair.ask(pair.client, "send", count=10), 10)
                pair.ask(pair.server, habit, **arguments)
                self.assertEqual(pair.ask(pair.client, "send", count=10), 10)
                self.assertEqual(pair.ask(pair.server, "receive", count=20), 20)
                self.wait_until_out()
                self.assertByTcp(pair)

    def test_what_one_socket_does_its_program_may_do_with_the_next(self):
        self.begin()
        pair = self.promoted()
        self.assertEqual(pair.ask(pair.client, "send", count=10), 10)
        pair.ask(pair.server, "look", count=10)
        self.assertEqual(pair.ask(pair.server, "receive", count=10), 10)
        self.wait_until_out()
        for end in (pair.client, pair.server):
            self.end_program(end)
        wait_for("their entries to go", lambda: not self.members(), 30)
        pair = Pair(self)
        pair.exchange(PROOF)
        time.sleep(1)  # four turns of the agent's
        self.assertEqual(self.states(), ["SMC_MEMBER_WATCHED"] * 2)

    def test_a_stream_is_left_to_tcp(self):
        self.begin()
        pair = self.promoted()
        pair.tell(pair.client, "send", count=400 << 20)
        self.assertEqual(pair.ask(pair.server, "receive", count=400 << 20, chunk=16384), 400 << 20)
        self.assertEqual(pair.hear(pair.client), 400 << 20)
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
        time.sleep(1)  # it stays in the map as long as there is something for it
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
        """As it does by `conntrack -D`, or when it times out: nothing of the pair is on the wire."""
        self.begin()
        rules = "table ip t { chain c { type filter hook input priority 0; ct state established accept; }; }"
        self.two.run(["nft", rules], check=True)
        pair = self.promoted()
        time.sleep(2)  # two looks of the agent's
        self.assertEqual(self.states(), [MEMBER] * 2)
        self.two.run(["conntrack", "-D", "-p", "tcp", "--dport", "5000"], check=True)
        self.wait_until_out()
        self.assertByTcp(pair)

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
        for end in (pair.client, pair.server):
            self.end_program(end)
        wait_for("their entries to go", lambda: not self.members(), 30)
        self.a.agent.stop()
        self.begin()
        pair = self.promoted()
        self.a.agent.stop()
        self.begin(local={"bypass": "off"})
        self.wait_until_out()
        self.assertByTcp(pair)
        self.a.agent.stop()
        self.assertEqual(self.pins(), [])

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
        (place,) = self.pins()
        sh("bpftool", "map", "pin", "pinned", f"{place}/smc_paired", f"{place}/theirs")
        self.a.agent.stop(signal.SIGKILL)
        self.begin()
        self.assertIn(f"no bypass: pinning maps: {place} holds theirs, which is not ours", self.a.agent.log())
        self.assertTrue(os.path.exists(f"{place}/theirs"))
        self.assertEqual(self.a.agent.ctl("bypass", "revoke").returncode, 1)
        os.unlink(f"{place}/theirs")

    def test_an_agent_that_may_not_have_it_switches_off_what_was_left(self):
        self.begin()
        pair = self.promoted()
        self.a.agent.stop(signal.SIGKILL)
        self.begin(command=refusals.command("programs `sk_msg`"))
        self.assertFalse(self.a.agent.ask("bypass")["there"])
        (place,) = self.pins()
        self.assertNotEqual(place, f"{self.a.pins}-bypass")
        config = sh("bpftool", "-j", "map", "dump", "pinned", f"{place}/smc_bypass_config")
        self.assertEqual(json.loads(config)[0]["formatted"]["value"]["identity"]["off"], 1)
        pair.exchange(50)

    def test_programs_of_another_build_are_left_to_their_pairs(self):
        """They are switched off, and their pins go with the last of their sockets."""
        self.begin()
        pair = self.promoted()
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
        pair.exchange(50)
        self.promoted(port=5001)  # a new one is the new agent's
        for end in (pair.client, pair.server):
            self.end_program(end)
        self.a.agent.stop()
        self.begin()
        wait_for("the old pins to go", lambda: len(self.pins()) == 1, 30)


if __name__ == "__main__":
    unittest.main()
