# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Peers that are broken or worse. Afterwards the agent works, and nothing has leaked."""
import json
import os
import random
import unittest

from base import TwoNodes
from lab.basics import wait_for

RAW_IP = "10.77.0.50"
EYE_R, EYE_D = "e2d4c3d9", "e2d4c3c4"


def proposal(length=None, **patch):
    """A Proposal for SMC-Dv2.1 that is good but for the patch {offset: byte}."""
    eid = b"SMC-AGENT.DEFAULT".ljust(32).hex()
    body = bytearray.fromhex(
        EYE_R
        + "01"
        + "0000"
        + "26"
        + "01" * 8
        + "00" * 34
        + "001c"
        + "00" * 28  # base, 80 bytes
        + "01"
        + "02"
        + "00"
        + "10"
        + "0000"
        + "0040"
        + "00" * 18
        + "0001"
        + "00" * 12
        + eid  # V2 extension
        + "00" * 48
        + "11" * 8
        + "ff00"
        + "22" * 8
        + "ff00"
        + EYE_R
    )
    body[5:7] = (length or len(body)).to_bytes(2, "big")
    for offset, value in patch.items():
        body[int(offset[1:])] = value
    return bytes(body).hex()


class Hostile(TwoNodes):
    LIMITS = {"handshakes": 10000, "namespace_percent": 100, "cgroup_percent": 100}

    def setUp(self):
        super().setUp()
        at_once = self._testMethodName.endswith("at_once")  # there, many slow handshakes are what is wanted
        self.b.start_agent(smc={"step_timeout_ms": 20000 if at_once else 1000}, limits=self.LIMITS)
        self.serve()

    def resources(self):
        pid = self.b.agent.pid
        with open(f"/proc/{pid}/maps") as maps:
            dmbs = sum("smc-dmb" in line for line in maps)
        status = self.b.agent.status()
        return {
            "fds": len(os.listdir(f"/proc/{pid}/fd")),
            "dmbs": dmbs,
            "registered": status["ism"]["dmbs"],
            "connections": len(status["connections"]),
        }

    def attack(self, expect, reason, count=1, timeout=60, **script):
        before = self.resources()
        text = json.dumps({"count": count, "listen_s": 15, **script})
        results = self.raw_results(self.raw(self.a, RAW_IP, "client", self.b.ip4, 5000, text), timeout)
        self.assertEqual({r["ended"] for r in results}, {expect}, results[:3])
        self.assertEqual(len(results), count)
        wait_for("everything to be given back", lambda: self.resources() == before, 15)
        self.assertPath(self.b, "refused", reason, count)
        self.assertIn(f"reason {reason}", self.b.agent_log())
        return results

    def still_works(self):
        self.a.start_agent()
        self.assertTrue(self.connect()["ok"])
        self.assertPath(self.b, "smcd")

    def test_random_bytes(self):
        rnd = random.Random(7)
        for _ in range(5):
            self.attack("rst", "protocol_error", send=[rnd.randbytes(rnd.randrange(8, 400)).hex()])
        self.still_works()

    def test_wrong_eye_catchers_and_lengths(self):
        bad = {
            "eye catcher at the start": proposal(_0=0x53),
            "eye catcher at the end": proposal()[:-2] + "00",
            "type": proposal(_4=9),
            "an Accept instead": proposal(_4=2),
            "length 0": proposal(length=0)[:10] + "0000" + proposal()[14:],
            "length beyond every message": proposal(length=60000),
            "offset outside": proposal(_51=0xFF),
            "nine EIDs": proposal(_80=9),
            "reserved CHID not repeated": proposal(_219=0x01),
        }
        for what, message in bad.items():
            with self.subTest(what):
                self.attack("rst", "protocol_error", send=[message])
        self.still_works()

    def test_truncated(self):
        self.attack("rst", "handshake_timeout", send=[proposal()[:100]])
        self.attack("rst", "peer_closed", send=[proposal()[:100]], close="fin")

    def test_says_nothing(self):
        self.attack("rst", "handshake_timeout")

    def test_trickles(self):
        self.attack("rst", "handshake_timeout", send=[proposal()], trickle=0.3)

    def test_dies_between_messages(self):
        self.attack("rst", "peer_closed", close="rst")

    def test_a_gid_that_is_not_on_the_fabric_is_declined(self):
        results = self.raw_results(
            self.raw(
                self.a,
                RAW_IP,
                "client",
                self.b.ip4,
                5000,
                json.dumps({"send": [proposal() + b"who".hex()], "listen_s": 3}),
            )
        )
        received = bytes.fromhex(results[0]["received"])
        self.assertEqual(received[:8].hex(), EYE_R + "04002c20")
        self.assertEqual(received[16:20].hex(), "03030007")
        # the connection goes on as TCP; the client's own port has the agent's CLC socket
        ip, port = received[44:].decode().split()
        self.assertEqual(ip, RAW_IP)
        self.assertGreaterEqual(int(port), 61000)
        self.assertPath(self.b, "fallback", "no_smcd_v2_device")

    def test_two_thousand_silent_connections(self):
        self.attack("rst", "handshake_timeout", count=2000, timeout=90)
        self.assertLess(self.b.agent_log().count("reason handshake_timeout"), 200)  # the log is not flooded
        self.still_works()

    def two_thousand(self):
        done = self.a.python(
            f"""
import resource, select, socket
resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 8192))
poller, socks = select.epoll(), {{}}
for i in range(2000):
    s = socket.socket(); s.setblocking(False); s.connect_ex(('{self.b.ip4}', 5000))
    socks[s.fileno()] = (s, b'%04d' % i)
    poller.register(s.fileno(), select.EPOLLOUT)
good = 0
while socks:
    ready = poller.poll(30)
    if not ready:
        print(len(socks), "without an answer"); break
    for fd, event in ready:
        s, word = socks[fd]
        try:
            if event & select.EPOLLOUT and not event & select.EPOLLIN:
                s.send(word); poller.modify(fd, select.EPOLLIN)
            else:
                got = s.recv(10)
                if got == word: good += 1
                else: print(word, "came back as", got, "event", event)
                poller.unregister(fd); del socks[fd]; s.close()
        except OSError as e:
            print(e); poller.unregister(fd); del socks[fd]
print(good)
""",
            timeout=120,
        )
        self.assertEqual(
            done.stdout, "2000\n", f"{done.stderr} client {self.a.agent.totals()} server {self.b.agent.totals()}"
        )

    def test_a_burst_is_accelerated_as_far_as_it_can_be_in_time(self):
        self.a.start_agent(limits={"handshakes": 100, "cgroup_percent": 100})
        self.two_thousand()
        totals = self.a.agent.totals()
        self.assertGreaterEqual(totals[("smcd", "none")], 75)
        self.assertEqual(set(totals), {("smcd", "none"), ("fallback", "limit")})
        self.assertTrue(self.a.agent.status()["agent"]["serving"])
        self.connect()
        self.assertEqual(self.a.agent.totals()[("smcd", "none")], totals[("smcd", "none")] + 1)

    def test_two_thousand_connections_at_once(self):
        self.a.start_agent(limits=self.LIMITS, fallback={"budget_ms": 30000})
        before = self.resources()
        self.two_thousand()
        # a full request queue of the fabric is waited for, not taken for its failure
        for node in (self.a, self.b):
            self.assertFalse([key for key in node.agent.totals() if key[1] == "fabric"], node.agent.totals())
        self.assertGreater(self.b.agent.totals()[("smcd", "none")], 1000)
        # what stays is the one fabric connection each way
        wait_for(
            "everything to be given back",
            lambda: {**self.resources(), "fds": 0} == {**before, "fds": 0}
            and self.resources()["fds"] <= before["fds"] + 4,
            20,
        )


if __name__ == "__main__":
    unittest.main()
