# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Everything that keeps a connection on TCP, with nothing lost."""
import json
import unittest

from base import TwoNodes
from lab.basics import sh, wait_for
from lab.rawtcp import SMC_OPTION

RAW_IP = "10.77.0.50"


class Fallback(TwoNodes):
    def test_no_agent_at_the_server_then_the_cache_then_its_age(self):
        self.a.start_agent(fallback={"cache_s": 2})
        self.serve()
        self.assertTrue(self.connect()["ok"])
        self.assertPath(self.a, "fallback", "peer_no_smc")
        self.assertTrue(self.connect()["ok"])
        self.assertEqual(self.a.agent.decisions()["SMC_OUT_INCAPABLE"], 1)
        self.assertEqual(self.a.agent.totals(), {("fallback", "peer_no_smc"): 1})
        self.assertIn("negative cache", self.a.agent.ctl("explain", f"{self.b.ip4}:5000").stdout)
        wait_for(
            "the entry to age", lambda: "negative cache" not in self.a.agent.ctl("explain", f"{self.b.ip4}:5000").stdout
        )
        self.assertTrue(self.connect()["ok"])
        self.assertEqual(self.a.agent.totals(), {("fallback", "peer_no_smc"): 2})

    def test_the_cache_is_bounded(self):
        self.a.start_agent(fallback={"cache_entries": 16})
        server = self.b.popen(
            [
                "/usr/bin/python3",
                "-c",
                """
import select, socket
socks = [socket.create_server(('0.0.0.0', 5000 + i)) for i in range(60)]
print('ready', flush=True)
while True:
    for s in select.select(socks, [], [])[0]: s.accept()[0].close()""",
            ],
            stdout=-1,
            text=True,
        )
        self.addCleanup(server.stdout.close)
        self.assertEqual(server.stdout.readline(), "ready\n")
        done = self.a.python(
            f"""
import socket
for i in range(60): socket.create_connection(('{self.b.ip4}', 5000 + i)).recv(1)"""
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.a.agent.totals(), {("fallback", "peer_no_smc"): 60})
        entries = json.loads(sh("bpftool", "-j", "map", "dump", "pinned", f"{self.a.pins}/smc_incapable"))
        self.assertTrue(0 < len(entries) <= 16, len(entries))

    def test_decline_without_a_common_eid(self):
        self.a.start_agent(smc={"ueids": ["BLUE"]})
        self.b.start_agent(smc={"ueids": ["GREEN"]})
        self.serve()
        self.assertTrue(self.connect()["ok"])
        self.assertPath(self.a, "fallback", "peer_declined")
        self.assertPath(self.b, "fallback", "no_ueid")
        ended = self.a.agent.connections(ended=True)[0]
        self.assertIn("no_ueid", ended["detail"])
        self.assertTrue(self.connect()["ok"])
        self.assertEqual(self.a.agent.totals(), {("fallback", "peer_declined"): 1})

    def test_decline_on_another_fabric(self):
        self.a.start_agent()
        self.b.start_agent(ism={"chid": "0xff01"})
        self.serve()
        self.assertTrue(self.connect()["ok"])
        self.assertPath(self.b, "fallback", "no_smcd_v2_device")

    def test_seid_alone_is_enough(self):
        self.start_agents(smc={"ueids": [], "seid": "THIS-HOST"})
        self.serve()
        self.assertTrue(self.connect()["ok"])
        self.assertPath(self.a, "smcd")

    def peer(self, options, send=(), seconds=8):
        """A server on RAW_IP that answers SYNs with these options and then says what it is told."""
        script = '{"options": "%s", "send": [%s], "listen_s": %d}' % (
            options,
            ", ".join(f'"{s}"' for s in send),
            seconds,
        )
        process = self.raw(self.b, RAW_IP, "server", 6000, script)
        self.assertEqual(process.stdout.readline(), "listening\n")
        return process

    def talk(self):
        """Connects to the raw peer, sends one line; what the application saw."""
        return self.a.python(
            f"""
import socket
c = socket.create_connection(('{RAW_IP}', 6000), 12); c.sendall(b'GET /'); c.settimeout(1)
try: print('got', c.recv(100))
except OSError as e: print('got', type(e).__name__)
""",
            timeout=30,
        )

    def test_a_peer_that_echoes_unknown_options_gets_plain_tcp(self):
        self.a.start_agent()
        peer = self.peer("echo")
        self.assertEqual(self.talk().stdout, "got TimeoutError\n")
        self.assertPath(self.a, "fallback", "peer_echoes")
        results = self.raw_results(peer)
        self.assertEqual([bytes.fromhex(r["received"]) for r in results], [b"GET /"])  # and not one byte of CLC

    def test_a_peer_that_has_the_option_but_never_answers(self):
        self.a.start_agent(smc={"step_timeout_ms": 500})
        peer = self.peer(SMC_OPTION)
        self.assertEqual(self.talk().stdout, "got TimeoutError\n")
        self.assertPath(self.a, "fallback", "handshake_timeout")
        results = self.raw_results(peer)
        self.assertEqual(results[0]["ended"], "rst")  # the connection with the Proposal
        self.assertEqual(bytes.fromhex(results[1]["received"]), b"GET /")

    def test_a_peer_that_answers_the_proposal_with_application_data(self):
        self.a.start_agent()
        peer = self.peer(SMC_OPTION, [b"220 welcome to a server that speaks first\r\n".hex()])
        self.assertEqual(self.talk().stdout, "got b'220 welcome to a server that speaks first\\r\\n'\n")
        self.assertPath(self.a, "fallback", "protocol_error")
        results = self.raw_results(peer)
        self.assertEqual(bytes.fromhex(results[1]["received"]), b"GET /")

    def test_a_path_that_drops_syns_with_unknown_options(self):
        self.a.start_agent()
        process = self.raw(
            self.b, RAW_IP, "server", 6000, '{"options": "", "deaf_to": "%s", "listen_s": 9}' % SMC_OPTION
        )
        self.assertEqual(process.stdout.readline(), "listening\n")
        self.assertEqual(self.talk().stdout, "got TimeoutError\n")
        self.assertPath(self.a, "fallback", "peer_no_smc")
        self.assertEqual([bytes.fromhex(r["received"]) for r in self.raw_results(process)], [b"GET /"])

    def test_what_follows_a_decline_is_the_applications(self):
        decline = "e2d4c3d904001c10" + "00" * 8 + "03030008" + "00" * 4 + "e2d4c3d9"
        self.a.start_agent()
        peer = self.peer(SMC_OPTION, [decline + b"banner".hex()])
        self.assertEqual(self.talk().stdout, "got b'banner'\n")
        self.assertPath(self.a, "fallback", "peer_declined")
        received = bytes.fromhex(self.raw_results(peer)[0]["received"])
        self.assertTrue(received.startswith(bytes.fromhex("e2d4c3d901")) and received.endswith(b"GET /"))


if __name__ == "__main__":
    unittest.main()
