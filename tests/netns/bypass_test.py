# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Connections between two pods of a node go past TCP if both ends prove fit for it. Sockets that cease to be fit are in
bypass_leave_test.py."""
import json
import re
import signal
import subprocess
import time
import unittest
import urllib.request

from bypass_pairs import MEMBER, OUT, PROOF, Pair, Pairs
from lab.basics import wait_for
from rogue import within


class Bypass(Pairs):
    def test_memory_decides_how_many_are_members(self):
        self.begin(local={"bypass": "force", "bypass_mib": 1}, limits={"cgroup_percent": 5})
        limits = self.a.agent.ask("bypass")["limits"]
        self.assertEqual((limits["members"], limits["cgroup_members"]), (64, 3))  # 8 KiB each, and as much for overhead
        pairs = [Pair(self, port=5000 + number) for number in range(4)]
        for pair in pairs:
            pair.exchange(PROOF)
        wait_for("three pairs", lambda: self.states().count(MEMBER) == 6, 30)
        self.pass_rounds()
        self.assertEqual((self.states().count(MEMBER), self.states().count("SMC_MEMBER_WATCHED")), (6, 2))
        for pair in pairs:
            pair.exchange(2)
        for pair in pairs[:2]:  # one of them is a member, so the fourth pair may take its place
            for end in (pair.client, pair.server):
                self.end_program(end)
        wait_for("the pairs that are left", lambda: self.states() == [MEMBER] * 4, 30)

    # --- sockets that are bypassed
    def test_ipv4_and_ipv6(self):
        self.begin()
        for ip in (self.two.ip4, self.two.ip6):
            pair = self.promoted(ip)
            self.assertExchangedPastTcp(pair, 100)
            shown = [c for c in self.a.agent.connections() if c["path"] == "bypass"]
            self.assertEqual({c["role"] for c in shown}, {"client", "server"})
            self.assertEqual({c["bytes_sent"] for c in shown}, {(100 + PROOF) * 64})
            self.assertIn("TCP bypass", self.a.agent.ctl("ss").stdout)
            self.end(pair)

    def fetch(self, path):
        def ask():
            with urllib.request.urlopen(f"http://127.0.0.1:7609{path}", timeout=10) as answer:
                return answer.read().decode()

        return within(self.a, ask)

    def counted(self):
        """The number of sockets that were bypassed, and of their bytes that went past TCP."""
        text = self.fetch("/metrics")
        values = {name: float(value) for name, value in re.findall(r'^(\w+){path="bypass"} (\S+)$', text, re.M)}
        sent, received = (values[f"smc_agent_{which}_bytes_total"] for which in ("sent", "received"))
        self.assertEqual(sent, received)
        return values["smc_agent_connections_total"], sent

    def test_counters_and_the_page_have_it(self):
        self.begin()
        self.assertEqual(self.counted(), (0, 0))
        pair = self.promoted()
        pair.exchange(100)
        moved = sum(self.redirected())
        wait_for("a round", lambda: self.counted() == (2, moved), 30)
        pods = json.loads(self.fetch("/api/overview"))["applications"]
        self.assertEqual([pod["bypass"] for pod in pods], [1, 1])
        self.assertEqual([sum(pod[way] for pod in pods) for way in ("sent", "received")], [moved, moved])
        self.assertIn("Bypass", self.a.agent.ctl("stats", "--absolute").stdout)
        self.end(pair)
        self.assertEqual(self.counted(), (2, moved))  # the counters do not fall when connections end

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
                self.wait_until_members()
            else:
                self.assertEqual(self.members(), [])
            self.end(pair)

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
        self.pass_rounds()
        pair.exchange(5)
        self.assertEqual(self.redirected(), [0, 0])

    # --- data that goes past TCP
    def test_every_byte_once_and_in_order(self):
        self.begin()
        pair = self.promoted()
        for most, count, pause in ((64, 100_000, 0), (4096, 5_000_000, 5), (1 << 20, 100_000_000, 5)):
            self.assertEqual(pair.both(count, most=most, pause_ms=pause), [True, True])
        client, server = self.members()
        self.assertEqual([client["consumed"], server["consumed"]], [105_100_000 + PROOF * 64] * 2)
        self.assertGreater(min(client["redirected"], server["redirected"]), 100_000)

    def test_what_tcp_holds_goes_first(self):
        """The server has not read the bytes that came before it became a member."""
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
        self.wait_until_members()
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

    def test_a_receive_buffer_that_was_chosen_is_not_exceeded(self):
        """Otherwise TCP would drop the bytes that follow, and retransmit them late."""
        self.begin()
        pair = self.promoted()
        pair.ask(pair.server, "choose", level=1, option=8, value=30_000)  # SO_RCVBUF
        before = self.redirected()[0]
        taken = pair.ask(pair.client, "stuff", most=64 << 20)
        self.assertLessEqual(self.redirected()[0] - before, 60_000)  # the kernel doubles it
        self.assertEqual(pair.ask(pair.server, "receive", count=taken), taken)

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
        """The socket reads long after its peer was closed and forgotten."""
        self.begin()
        pair = self.promoted()
        before = self.redirected()[0]
        self.assertEqual(pair.ask(pair.client, "send", count=100_000), 100_000)
        self.assertEqual(self.redirected()[0], before + 100_000)
        pair.ask(pair.client, "close")
        wait_for("the client's entry to go", lambda: [m["client"] for m in self.members()] == [0], 30)
        wait_for("the backlog to show", lambda: self.a.agent.status()["bypass"]["backlog_bytes"] == 100_000, 30)
        self.pass_rounds()
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
        """Bytes of its first connection that it had not read do not appear in its second."""
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
            for _ in range(2):  # once in ten seconds a message goes by TCP: then the next one does not
                if sum(self.redirected()) == before:
                    self.assertEqual(pair.ask(sender, "send", count=1000), 1000)
            self.assertEqual(sum(self.redirected()), before + 1000)
            pair.ask(closer, "close")
            self.assertEqual(pair.ask(sender, "receive", count=1), {"failed": "ECONNRESET"})
            self.end(pair)

    def test_a_process_that_dies(self):
        self.begin()
        pair = self.promoted()
        self.assertEqual(pair.ask(pair.client, "send", count=1000), 1000)
        pair.client.send_signal(signal.SIGKILL)
        self.assertEqual(pair.ask(pair.server, "receive", count=2000), 1000)
        self.assertEqual(pair.ask(pair.server, "send", count=1), 1)

    # --- unmodified programs
    def run_over_it(self, server, port, client, timeout=60):
        """Runs a client until its connections are bypassed, then ends its stdin; the client's output."""
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
        out, err = asker.communicate(timeout=timeout)
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


if __name__ == "__main__":
    unittest.main()
