# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""The control socket: clients that try to use it up, and smcctl's view of connections and link groups."""
import contextlib
import json
import os
import re
import select
import socket
import stat
import subprocess
import threading
import unittest

import rogue
from base import TwoNodes
from lab.basics import CTL, sh, wait_for

KIB = 1024

# A connection that stays.
HOLD = """
import socket, sys, time
c = socket.create_connection((sys.argv[1], 5000)); c.sendall(b'x'); c.recv(1); print('up', flush=True); time.sleep(600)
"""


class ControlSocket(TwoNodes):
    def setUp(self):
        super().setUp()
        self.b.start_agent()
        self.before = self.resources()

    def tearDown(self):
        """After each test the agent answers, and holds nothing of the test's clients."""
        self.assertTrue(self.b.agent.status()["agent"]["serving"])
        self.assertGivenBack(self.before)

    def client(self):
        client = socket.socket(socket.AF_UNIX)
        self.addCleanup(client.close)
        client.connect(self.b.control)  # waits while the backlog is full
        client.settimeout(20)
        return client

    def answer(self, client):
        """All bytes until the agent closes."""
        said = b""
        try:
            while data := client.recv(65536):
                said += data
        except ConnectionResetError:  # it has not read everything
            pass
        return said

    def ask(self, request):
        client = self.client()
        client.sendall(request)
        return json.loads(self.answer(client))

    def closed(self, clients):
        """The sockets that the agent has closed, or sent something to."""
        return select.select(clients, [], [], 0)[0]

    def test_names_do_not_move_the_terminals_cursor(self):
        name = "d\x1b[2J"
        sh("ip", "-n", self.b.netns, "link", "add", name, "type", "veth", "peer", "name", "peer")
        sh("ip", "-n", self.b.netns, "link", "set", name, "up")
        sh("ip", "-n", self.b.netns, "link", "set", "peer", "up")
        wait_for("the device", lambda: "d?[2J" in self.b.agent.ctl("status").stdout)
        self.assertNotIn("\x1b", self.b.agent.ctl("status").stdout)

    def test_arguments_that_are_not_utf8(self):
        for arguments in (("explain", b"\xff:1"), ("ueid", "add", b"\xff")):
            done = subprocess.run([CTL, "--socket", self.b.control, *arguments], capture_output=True, timeout=10)
            self.assertEqual(done.returncode, 1, done)
            self.assertEqual((done.stdout, done.stderr.count(b"\n")), (b"", 1), done)

    def test_output_that_nobody_gets_is_a_failure(self):
        for command in ("status", "ueid", "device"):
            with open("/dev/full", "w") as full:
                command = [CTL, "--socket", self.b.control, command]
                done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=10)
            self.assertEqual((done.returncode, done.stderr), (1, "Error: cannot write the output\n"))

    def answered(self, answers, *command):
        """Runs smcctl against a socket that answers its requests with these answers."""
        path = os.path.join(self.b.dir, "answers")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen()
            listener.settimeout(20)
            started = subprocess.Popen(
                [CTL, "--socket", path, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            self.addCleanup(started.kill)
            for answer in answers:
                with listener.accept()[0] as asked:
                    asked.makefile().readline()
                    asked.sendall(json.dumps(answer).encode())
            out, error = started.communicate(timeout=20)
        os.unlink(path)
        return started.returncode, out, error

    def test_what_is_no_agents_answer(self):
        for answer in ([], {"error": 5}, "text"):
            code, _, error = self.answered([answer], "status")
            self.assertEqual((code, error.count("\n")), (3, 1), error)
            self.assertIn("is no smc-agent", error)

    def test_an_agent_of_another_version_may_leave_things_out(self):
        commands = (
            "status",
            "connections",
            "ss",
            "top -n 1",
            "device",
            "probe",
            "stats",
            "explain 10.0.0.1:1",
            "dry-run",
        )
        for command in commands:
            for answer in ({}, {"agent": {}}):
                with self.subTest(command=command, answer=answer):
                    code, _, error = self.answered([answer], *command.split())
                    self.assertEqual((code, error.count("\n")), (3, 1), error)
                    self.assertIn("is no smc-agent of this version", error)

    def test_a_dry_run_is_put_together_of_all_its_pieces(self):
        def piece(netns, **more):
            space = {"netns": netns, "outbound": 0, "inbound": 0, "left_out": 0, "offered": 0, "servers": []}
            return {"namespaces": [space], **more}

        code, out, _ = self.answered([piece(7, more=True), piece(9, more=True), piece(12)], "dry-run", "--json")
        self.assertEqual((code, [space["netns"] for space in json.loads(out)["namespaces"]]), (0, [7, 9, 12]))
        failed = {"namespaces": [{"netns": 7, "failed": "listing sockets: no memory"}, *piece(9)["namespaces"]]}
        code, out, _ = self.answered([failed], "dry-run")
        self.assertIn("Namespace 7: its sockets cannot be listed: listing sockets: no memory\n", out)
        self.assertIn("Namespace 9: of 0 connections", out)

    def test_top_shows_no_rate_where_a_connection_changes_its_path(self):
        def seen(path, sent):
            ends = {"role": "client", "client": "10.0.0.1:1", "server": "10.0.0.2:2"}
            return {"connections": [{"id": 5, "path": path, **ends, "bytes_sent": sent, "bytes_received": 0}]}

        answers = [seen("bypass", 10_000), seen("tuned", 10**10), seen("tuned", 10**10 + 5000)]
        _, out, _ = self.answered(answers, "top", "-n", "2", "--json")
        rates = [json.loads(line)["connections"][0]["sent_per_s"] for line in out.splitlines()]
        self.assertEqual(rates[0], 0)
        self.assertAlmostEqual(rates[1], 5000, delta=2500)

    def test_others_may_ask_for_status_and_learn_nothing_of_connections(self):
        self.a.start_agent()
        self.serve()
        holder = self.program(self.a, HOLD, self.b.ip4, says="up")
        self.assertTrue(stat.S_ISSOCK(os.stat(self.b.control).st_mode))
        self.assertIn("connections", self.ask(b'{"command": "status"}\n'))

        def ask_as_nobody(request):
            client = rogue.as_nobody(self.client)
            client.sendall(json.dumps(request).encode() + b"\n")
            return json.loads(self.answer(client))

        seen = ask_as_nobody({"command": "status"})
        self.assertTrue(seen["agent"]["serving"])
        self.assertNotIn("connections", seen)
        self.assertNotIn(self.a.ip4, json.dumps(seen))
        for command in (
            *("connections", "explain", "linkgroups", "devices", "probe", "bypass", "events", "dry-run"),
            *("bypass-revoke", "drain", "ueid", "seid", "capture", "upgrade", "leave", "nonsense", None),
        ):
            with self.subTest(command):
                refused = ask_as_nobody({"command": command, "what": "flush", "address": "10.0.0.1:80", "id": 1})
                self.assertEqual(list(refused), ["error"])
        self.assertEqual(self.ask(b'{"command": "ueid"}\n'), {"ueids": ["SMC-AGENT.DEFAULT"]})
        self.assertFalse(self.b.agent.status()["agent"]["draining"])
        self.end_program(holder)
        self.before["fds"] += 2  # one fabric connection each way

    def test_others_who_ask_all_the_time_keep_nobody_waiting(self):
        self.a.start_agent(fallback={"budget_ms": 5000})
        self.serve()
        ask = (
            "import os, socket, sys\n"
            "os.setuid(65534)\n"
            "while True:\n"
            "    s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n"
            "    try:\n"
            '        s.sendall(b\'{"command": "status"}\\n\')\n'
            "        while s.recv(65536): pass\n"
            "    except OSError: pass\n"
        )
        askers = [subprocess.Popen(["/usr/bin/python3", "-c", ask, self.b.control]) for _ in range(4)]
        try:
            for _ in range(20):  # most of them by SMC: an agent that is late answers no request
                self.assertTrue(self.connect()["ok"])
        finally:
            for asker in askers:
                asker.kill()
                asker.wait()
        self.assertPath(self.a, "smcd", at_least=15)
        self.before["fds"] += 2  # one fabric connection each way

    def test_others_cannot_take_all_places(self):
        others = [rogue.as_nobody(self.client) for _ in range(64)]
        self.assertTrue(self.b.agent.status()["agent"]["serving"])
        closed = self.closed(others)
        self.assertEqual(len(closed), 64 - 16)
        for client in others:
            client.close()

    def test_silent_clients_are_thrown_out(self):
        self.a.start_agent()
        self.serve()
        silent = [self.client() for _ in range(64)]
        self.assertTrue(self.connect()["ok"])
        self.assertPath(self.a, "smcd")
        # All places are taken: a client that is answered now has the place of a client that was thrown out.
        self.assertTrue(self.b.agent.status()["agent"]["serving"])
        self.assertNotEqual(self.closed(silent), [])
        self.assertEqual({self.answer(client) for client in silent}, {b""})
        self.assertPath(self.b, "smcd")
        self.before["fds"] += 2  # one fabric connection each way

    def test_some_silent_clients_are_nobody_elses_business(self):
        silent = [self.client() for _ in range(63)]
        self.assertTrue(self.b.agent.status()["agent"]["serving"])
        self.assertEqual(self.closed(silent), [])
        for client in silent:
            client.close()

    def test_a_request_that_is_too_long(self):
        silent, too_long = self.client(), self.client()
        too_long.sendall(b" " * (70 * KIB))
        self.assertEqual(self.answer(too_long), b"")
        self.assertEqual(self.closed([silent]), [])  # it was not closed by a timeout
        silent.close()
        self.assertIn("agent", self.ask(b" " * (60 * KIB) + b'{"command": "status"}\n'))

    def test_clients_that_never_stop_sending(self):
        self.a.start_agent()
        self.serve()
        stop, cut_off = threading.Event(), []

        def send():
            while not stop.is_set():
                with contextlib.suppress(OSError), self.client() as client:
                    while True:
                        client.sendall(b" " * 4096)
                cut_off.append(True)

        senders = [threading.Thread(target=send) for _ in range(4)]
        for sender in senders:
            sender.start()
        try:
            for _ in range(20):
                self.assertTrue(self.connect()["ok"])
                self.assertTrue(self.b.agent.status()["agent"]["serving"])
        finally:
            stop.set()
            for sender in senders:
                sender.join()
        self.assertPath(self.a, "smcd")
        self.assertGreater(len(cut_off), 100)
        self.before["fds"] += 2  # one fabric connection each way

    def test_a_request_in_pieces(self):
        client = self.client()
        for piece in (b'{"comm', b'and": "sta', b'tus"}'):
            client.sendall(piece)
        self.assertEqual(self.closed([client]), [])
        client.sendall(b"\n")
        self.assertIn("agent", json.loads(self.answer(client)))

    def test_a_client_that_does_not_wait_for_its_answer(self):
        for _ in range(200):
            client = self.client()
            client.sendall(b'{"command": "status"}\n')
            client.close()

    def test_malformed_requests(self):
        for request in (
            b'{"command": 1}',
            b'{"command": null}',
            b'{"command": "nonsense"}',
            b'{"command": "connections", "ended": "x"}',
            b'{"command": "explain", "pid": "x"}',
            b'{"command": "explain", "address": "10.0.0.1:80", "pid": "x"}',
            b'{"command": "explain", "address": "10.0.0.1:80", "pid": -1}',
            b'{"command": "explain", "address": 1}',
            b'{"command": "events", "after": "x"}',
            b'{"command": "drain", "on": 1}',
            b'{"command": "ueid", "what": "add", "eid": "a lower one"}',
            b'{"command": "ueid", "what": "del", "eid": "NOT.THERE"}',
            b'{"command": "seid", "what": "enable"}',
            b'{"command": "capture", "id": 99}',
            b'{"command": "capture", "id": "x"}',
            b'{"command": "explain", "address": "\xff"}',
            b'{"command": ' + b"[" * 20000 + b"]" * 20000 + b"}",
            b"[" * 30000,
            b"[]",
            b"{}",
            b"1",
            b'"status"',
            b"not json",
            b"",
        ):
            with self.subTest(request[:60]):
                answer = self.ask(request + b"\n")
                self.assertEqual(list(answer), ["error"])
                self.assertIsInstance(answer["error"], str)
        self.assertEqual(self.b.agent.status()["agent"]["pid"], self.b.agent.pid)


class Shown(TwoNodes):
    """smcctl's output while a server has an SMC-D connection, and one that fell back."""

    SS = ["State", "UID", "Inode", "Local Address", "Peer Address", "Intf", "Mode"]
    SS_SMCD = ["GID", "Token", "Peer-GID", "Peer-Token", "Linkid"]
    SS_SMCR = ["Role", "IB-device", "Port", "Linkid", "GID", "Peer-GID"]
    SS_DETAILS = [
        *["Shutd", "Token", "Sndbuf", "Rcvbuf", "Peerbuf", "rxprod-Cursor", "rxcons-Cursor", "rxFlags"],
        *["txprod-Cursor", "txcons-Cursor", "txFlags", "txprep-Cursor", "txsent-Cursor", "txfin-Cursor"],
    ]
    GROUPS_SMCR = ["LG-ID", "LG-Role", "LG-Type", "VLAN", "#Conns", "PNET-ID"]
    GROUPS_SMCD = ["LG-ID", "VLAN", "#Conns", "PNET-ID"]
    GROUPS_SMCD_DETAILS = ["Peer-GID", "CHID", "EID", "Peer-Host"]

    def setUp(self):
        super().setUp()
        self.start_agents()
        self.serve()
        self.program(self.a, HOLD, self.b.ip4, says="up")
        clients = rogue.Clients(self.a, "10.77.0.50", self.b.ip4)
        self.addCleanup(clients.close)
        clients.connect(bytes.fromhex(rogue.proposal()))
        wait_for("the fallback", lambda: ("fallback", "no_smcd_v2_device") in self.b.agent.totals())
        self.gid = {node: node.agent.status()["ism"]["gid"] for node in (self.a, self.b)}
        (self.at_client,) = self.a.agent.connections()
        self.at_server, self.fallen_back = sorted(self.b.agent.connections(), key=lambda c: c["path"], reverse=True)
        self.assertEqual((self.at_server["path"], self.fallen_back["path"]), ("smcd", "fallback"))

    def text(self, node, *arguments):
        """The output of smcctl, split into lines and columns."""
        done = node.agent.ctl(*arguments)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return [re.split(r" {2,}", line) if line else [] for line in done.stdout.splitlines()]

    def json(self, node, *arguments):
        done = node.agent.ctl(*arguments, "--json")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return json.loads(done.stdout)

    def misused(self, *arguments):
        done = self.b.agent.ctl(*arguments)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        return done.stderr

    def test_ss(self):
        client = self.at_server["client"]
        smcd = ["ACTIVE", "-", "-", f"{self.b.ip4}:5000", client, "-", "SMCD"]
        plain = ["ACTIVE", "-", "-", f"{self.b.ip4}:5000", self.fallen_back["client"], "-", "TCP 0x03030007"]
        self.assertEqual(self.text(self.b, "ss"), [self.SS, smcd, plain])
        # the other end has its own address first, and knows the user
        seen = ["ACTIVE", "0", "-", client, f"{self.b.ip4}:5000", "-", "SMCD"]
        self.assertEqual(self.text(self.a, "ss"), [self.SS, seen])

    def test_ss_of_one_kind(self):
        head, only = self.text(self.b, "ss", "-D")
        self.assertEqual(head, self.SS + self.SS_SMCD)
        self.assertEqual(only[-6:-4], ["SMCD", "-"])
        theirs = self.at_client["smcd"]
        self.assertEqual(only[-4:], [theirs["peer_token"], self.gid[self.a], theirs["token"], "00000001"])
        self.assertEqual(self.text(self.b, "ss", "-R"), [self.SS + self.SS_SMCR])
        self.assertEqual(self.text(self.b, "ss", "--smcr"), [self.SS + self.SS_SMCR])
        self.assertIn("excludes", self.misused("ss", "-D", "-R"))

    def test_ss_with_details(self):
        head, smcd, plain = self.text(self.b, "ss", "-d")
        self.assertEqual(head, self.SS + self.SS_DETAILS)
        shown = dict(zip(head, smcd))
        self.assertEqual(len(smcd), len(head))
        self.assertEqual(shown["Shutd"], "<->")
        self.assertEqual(shown["Token"], self.at_client["smcd"]["peer_token"])
        self.assertEqual((shown["Sndbuf"], shown["Rcvbuf"], shown["Peerbuf"]), ("-", str(KIB * KIB), str(KIB * KIB)))
        self.assertEqual((shown["rxprod-Cursor"], shown["txprod-Cursor"]), ("0000:00000001", "0000:00000001"))
        self.assertEqual(plain[len(self.SS) :], ["-"] * len(self.SS_DETAILS))
        head, only = self.text(self.b, "ss", "-D", "--details")
        self.assertEqual(head, self.SS + self.SS_DETAILS + self.SS_SMCD)
        self.assertEqual(only[6], "SMCD")

    def test_ss_as_json(self):
        def kept(*arguments):
            return [c["id"] for c in self.json(self.b, "ss", *arguments)]

        self.assertEqual(sorted(kept()), sorted([self.at_server["id"], self.fallen_back["id"]]))
        self.assertEqual(kept("-D"), [self.at_server["id"]])
        self.assertEqual(kept("-D", "-d"), [self.at_server["id"]])
        self.assertEqual(self.json(self.b, "ss", "-R"), [])
        (only,) = self.json(self.b, "ss", "-D")
        self.assertEqual((only["path"], only["smcd"]), ("smcd", self.at_server["smcd"]))
        self.assertEqual(only["smcd"]["peer_token"], self.at_client["smcd"]["token"])

    def test_linkgroup(self):
        smcr, none = ["SMC-R link groups"], [[]]
        smcd, group = ["SMC-D link groups"], ["00000001", "-", "1", "-"]
        heads = [smcr, self.GROUPS_SMCR, *none, smcd, self.GROUPS_SMCD]
        self.assertEqual(self.text(self.b, "linkgroup"), [*heads, group])
        self.assertEqual(self.text(self.b, "linkgroup", "-R"), [smcr, self.GROUPS_SMCR])
        self.assertEqual(self.text(self.b, "linkgroup", "-D"), [smcd, self.GROUPS_SMCD, group])
        more = [self.gid[self.a], "0xff00", "SMC-AGENT.DEFAULT", self.a.netns]
        detailed = [smcd, self.GROUPS_SMCD + self.GROUPS_SMCD_DETAILS, group + more]
        self.assertEqual(self.text(self.b, "linkgroup", "-d"), [smcr, *none, *detailed])
        self.assertEqual(self.text(self.b, "linkgroup", "-D", "-d"), detailed)

    def test_linkgroup_as_json(self):
        group = {"id": 1, "peer_gid": self.gid[self.a], "chid": "0xff00", "eid": "SMC-AGENT.DEFAULT"}
        group.update(host_name=self.a.netns, connections=1)
        self.assertEqual(self.json(self.b, "linkgroup"), {"smcr": [], "smcd": [group]})
        self.assertEqual(self.json(self.b, "linkgroup", "-d"), {"smcr": [], "smcd": [group]})
        self.assertEqual(self.json(self.b, "linkgroup", "--smcr"), {"smcr": []})
        self.assertEqual(self.json(self.b, "linkgroup", "--smcd"), {"smcd": [group]})
        self.assertEqual(self.json(self.b, "linkgroup", "link-show"), {"smcr": []})

    def test_links(self):
        heads = ["LG-ID", "LG-Role", "LG-Type", "Net-Dev", "Link-State", "#Conns"]
        self.assertEqual(self.text(self.b, "linkgroup", "link-show"), [["SMC-R link groups"], heads])
        heads += ["Link-UID", "Peer-UID", "IB-Dev", "IB-P"]
        self.assertEqual(self.text(self.b, "linkgroup", "link-show", "-d")[1], heads)
        heads += ["Local-GID", "Peer-GID"]
        self.assertEqual(self.text(self.b, "linkgroup", "link-show", "-dd")[1], heads)
        self.assertIn("SMC-D link groups have no links", self.misused("linkgroup", "link-show", "-D"))
        self.misused("linkgroup", "nonsense")


if __name__ == "__main__":
    unittest.main()
