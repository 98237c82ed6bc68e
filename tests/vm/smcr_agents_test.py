# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Agent to agent over SMC-R, on a kernel without net/smc: both versions, both address families, the life of link
groups, limits, and peers that break the rules."""
import os
import unittest

from lab import captures
from lab.basics import test_program, wait_for
from lab.machines import VmLab
from programs import HERE, TCP

KERNEL = os.environ.get("SMC_VM_KERNEL", "7")
HOSTILE = test_program("smc-hostile-peer")


class Agents(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.lab = cls.enterClassContext(VmLab("agents"))
        cls.a, cls.b = cls.lab.machine("a", KERNEL), cls.lab.machine("b", KERNEL)
        cls.lab.boot()
        cls.port, cls.agents, cls.config = 7200, None, None

    def start(self, roce=None, command=()):
        """Starts agents with this configuration, unless they run with it already."""
        if self.config != (roce, command):
            self.stop()
            type(self).config = (roce, command)
            type(self).agents = [
                m.start_agent({"roce": roce or {}}, f"agent{self.port}", command) for m in (self.a, self.b)
            ]
        return self.agents

    def stop(self):
        for agent in self.agents or []:
            self.assertEqual(agent.stop(), 0, agent.log()[-2000:])
        type(self).agents = type(self).config = None

    def serve(self, *arguments):
        type(self).port += 1
        return self.b.start_server(
            [*TCP, *[str(x).replace("PORT", str(self.port)) for x in arguments]], f"serve{self.port}.log"
        )

    def exchange(self, size, count=1, address=None):
        server = self.serve("serve", "PORT", count)
        done = self.a.run([*TCP, "client", address or self.b.ip4, self.port, size, count])
        self.assertEqual(done.stdout, f"{size * count} bytes\n")
        self.assertEqual(server.wait(), 0, server.text())
        return self.agents[0].ended(self.port, count)

    def is_not_asked(self):
        """Without a device, a client does not ask."""
        server = self.serve("serve", "PORT", 1)
        self.assertEqual(self.a.run([*TCP, "client", self.b.ip4, self.port, 1000]).stdout, "1000 bytes\n")
        self.assertEqual(server.wait(), 0, server.text())
        self.assertEqual(self.agents[0].decisions()["SMC_OUT_NO_DEVICE"], 1)

    def registers(self, agent, size):
        """Memory stays registered until the queue pair of its link is destroyed, after the link group has ended."""
        wait_for("memory to be given back", lambda: agent.status()["roce"]["registered_bytes"] == size, 30)

    def groups(self):
        return [agent.smcr_groups() for agent in self.agents]

    def histories(self, kind):
        return [s for s in captures.histories(self.a.capture) if s["kind"] == kind]

    def test_1_both_families_share_nothing_but_the_device(self):
        self.start()
        for address in (self.b.ip4, self.b.ip6):
            for size, count in ((1, 1), (1_000_000, 1), (3000, 40)):
                with self.subTest(address=address, size=size):
                    ended = self.exchange(size, count, address)
                    self.assertEqual(
                        {(c["path"], c["reason"]["name"], c["bytes_received"]) for c in ended}, {("smcr", "none", size)}
                    )
        for ours, theirs in zip(*self.groups()):
            self.assertEqual((ours["role"], theirs["role"]), ("CLNT", "SERV"))
            self.assertEqual(
                (ours["links"][0]["link_uid"], ours["links"][0]["peer_uid"]),
                (theirs["links"][0]["peer_uid"], theirs["links"][0]["link_uid"]),
            )
            self.assertTrue(ours["direct"])
            self.assertEqual(theirs["eid"], "SMC-AGENT.DEFAULT")
        self.assertEqual(len(self.groups()[0]), 2)

    def test_2_urgent_data_half_closes_and_resets(self):
        self.start()
        script = """
import select, socket, sys, time
server = sys.argv[1] == "server"
if server:
    l = socket.create_server(("", int(sys.argv[2]))); print("listening", flush=True); c, _ = l.accept()
else:
    c = socket.create_connection((sys.argv[1], int(sys.argv[2])))
c.settimeout(20)
if not server:
    for round in range(3):
        c.sendall(b"before" * 1000); c.send(b"!", socket.MSG_OOB); c.sendall(b"behind" * 1000)
        assert c.recv(2, socket.MSG_WAITALL) == b"ok"
    print("done")
else:
    c.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)
    SIOCATMARK = 0x8905
    import fcntl, struct
    for round in range(3):
        got, mark = b"", None
        while len(got) < 12001:
            select.select([c], [], [], 20)  # a recv() that waits at the mark would read across it
            if struct.unpack("i", fcntl.ioctl(c, SIOCATMARK, b"\\0" * 4))[0]:
                mark = len(got)
            data = c.recv(12001 - len(got)); assert data; got += data
        assert got == b"before" * 1000 + b"!" + b"behind" * 1000, round
        print("mark", mark, flush=True)
        c.sendall(b"ok")
"""
        with open(os.path.join(self.a.job, "oob.py"), "w") as a, open(os.path.join(self.b.job, "oob.py"), "w") as b:
            a.write(script)
            b.write(script)
        type(self).port += 1
        server = self.b.start_server(["python3", "/job/oob.py", "server", self.port], "oob-server.log")
        client = self.a.run(["python3", "/job/oob.py", self.b.ip4, self.port])
        self.assertEqual((client.stdout, server.wait()), ("done\n", 0), server.text())
        self.assertEqual(server.text().count("mark 6000"), 3, server.text())
        self.assertEqual(self.agents[0].ended(self.port)[0]["path"], "smcr")
        for mine, theirs, told in (
            (["send:9", "abort"], ["error"], "error ECONNRESET"),
            (["send:9", "shut", "eof"], ["recv:9", "eof"], "eof"),
        ):
            server = self.serve("steps", "serve", "PORT", *theirs)
            self.a.run([*TCP, "steps", self.b.ip4, self.port, *mine])
            self.assertEqual(server.wait(), 0)
            self.assertIn(told, server.text())

    def test_3_rmbs_come_and_go(self):
        """With one RMBE in each RMB, as in Linux, every connection after the first needs CONFIRM RKEY."""
        self.start({"rmbes_per_rmb": 1, "group_idle_s": 18, "test_link_s": 1, "rmbe_kib": 64})
        with self.subTest("an application that is gone when the first link is there"):
            server = self.serve("serve", "PORT", 1)
            # a SYN that waits for a neighbour leaves after its socket has ended, and is no request
            self.a.sh(f"ip neigh replace {self.b.ip4} lladdr {self.b.mac} dev eth0 nud permanent")
            connect = "import socket, sys; s = socket.socket(); s.setblocking(False); s.connect_ex((sys.argv[1], "
            self.a.run(["python3", "-c", connect + "int(sys.argv[2]))); s.close()", self.b.ip4, self.port])
            self.assertEqual(self.agents[0].ended(self.port)[0]["reason"]["name"], "application_gone")
            self.assertEqual(self.agents[1].ended(self.port)[0]["path"], "refused")
            # the server has not seen it: it ends after the one connection that it accepts
            self.assertEqual(self.a.run([*TCP, "client", self.b.ip4, self.port, 9, 1]).stdout, "9 bytes\n")
            self.assertEqual(server.wait(), 0, server.text())
        self.assertEqual({c["path"] for c in self.exchange(50_000, 12)}, {"smcr"})
        self.assertEqual([g[0]["rmbs"] for g in self.groups()], [12, 12])
        wait_for("DELETE RKEY", lambda: [g[0]["rmbs"] for g in self.groups() if g] == [1, 1], 60)
        wait_for("the idle link groups to end", lambda: self.groups() == [[], []], 30)
        for agent in self.agents:
            self.registers(agent, 0)
        types = [m["type"] for m in captures.decode(self.a.capture) if m["layer"] == "LLC"]
        for kind in ("CONFIRM RKEY", "DELETE RKEY", "TEST LINK", "DELETE LINK"):
            self.assertIn(kind, types)
        self.assertIn("inactivity", self.histories("link_group")[-1]["ended"])

    def test_4_version_1(self):
        self.start({"versions": [1], "rmbe_kib": 16})
        for address in (self.b.ip4, self.b.ip6):
            with self.subTest(address=address):
                for size in (1, 500_000):
                    connection = self.exchange(size, 1, address)[0]
                    self.assertEqual((connection["path"], connection["smcr"]["version"]), ("smcr", 1))
        history = self.histories("connection")[-1]
        self.assertIn("ACCEPT of SMC-Rv1", history["answered"])
        self.assertEqual(history["bytes_client_to_server"], 500_000)
        self.assertEqual(captures.faults(self.a.capture), [])

    def test_5_limits_are_met_by_tcp(self):
        self.start(
            {"memory_mib": 5, "max_connections": 16, "rmbe_kib": 64}
        )  # 1 MiB an RMB with its send buffer, 1.6 a link
        server = self.serve("serve", "PORT", 60)
        self.assertEqual(self.a.run([*TCP, "client", self.b.ip4, self.port, 1000, 60]).stdout, "60000 bytes\n")
        self.assertEqual(server.wait(), 0)
        ended = self.agents[0].ended(self.port, 17)  # the destination is in the negative cache for a while
        self.assertEqual({c["path"] for c in ended}, {"smcr", "fallback"})
        reasons = {c["reason"]["name"] for c in ended if c["path"] == "fallback"}
        self.assertLessEqual(reasons, {"peer_declined", "out_of_memory"})
        self.assertLessEqual(self.agents[1].status()["roce"]["registered_bytes"], 5 << 20)
        self.assertLessEqual(max(g["max_connections"] for g in self.groups()[0]), 16)

    def test_6_too_little_locked_memory_is_said_at_the_start(self):
        self.start(None, ("setpriv", "--bounding-set=-ipc_lock", "prlimit", "--memlock=65536"))
        self.is_not_asked()
        line = next(line for line in self.agents[0].log().splitlines() if "device rxe0 is not used" in line)
        self.assertIn("ulimit -l is 64 KiB", line)
        self.assertRegex(line, r"a link group takes \d{4} KiB")

    def test_7_devices_by_name(self):
        self.start({"devices": ["mlx5_0"]})
        self.is_not_asked()
        self.assertEqual(
            self.agents[0].ask("device"),
            {**self.agents[0].ask("device"), "smcr": [], "refused": {"mlx5_0": "there is no such device"}},
        )
        self.assertEqual(self.agents[0].log().count("roce.devices names mlx5_0"), 1)
        self.start({"devices": ["rxe0"], "versions": [1, 2]})  # and both versions: the server takes the second
        self.assertEqual([(c["path"], c["smcr"]["version"]) for c in self.exchange(1000)], [("smcr", 2)])

    def attack(self, name, number, steps):
        """Runs an attack: the hostile peer's result, the attacked application, the link group, if it still exists."""
        before = max(g["id"] for g in self.agents[1].smcr_groups())
        server = self.serve("steps", "serve", "PORT", *steps, "error")
        address = f"10.99.0.{100 + number}"
        # The peer is gone when its attack is over, and answers no ARP, so no reset would come to the application.
        self.b.sh(f"ip neigh replace {address} lladdr {self.a.mac} dev eth0 nud permanent")
        seen = self.a.sh(f"echo {address} {self.port} {name} > /run/order; cat /run/seen").strip()
        group = [g for g in self.agents[1].smcr_groups() if g["id"] > before]
        return seen, server, group[0] if group else None

    def test_8_hostile_peers_harm_nobody_else(self):
        self.start({"llc_timeout_ms": 3000, "test_link_s": 10})
        honest = self.serve("steps", "serve", "PORT", "recv:10", "send:10", "eof")
        honest_port = self.port
        honest_client = self.a.start(
            [*TCP, "steps", self.b.ip4, self.port, "wait:/run/attacks-over", "send:10", "recv:10"], "honest.log"
        )
        wait_for(
            "the honest connection", lambda: [c for c in self.agents[1].connections(honest_port) if c["path"] == "smcr"]
        )
        one_group = self.agents[1].status()["roce"]["registered_bytes"]
        peer = os.path.join(HERE, "hostile_peer.py")
        hostile = self.a.start_server(["python3", peer, HOSTILE, "eth0", self.a.ip4, self.b.ip4], "hostile.log")
        # attacks that break the link, and attacks that break only their connection
        link = ["llc-type", "foreign-rkey", "llc-length", "llc-confirm-link-again", "cdc-length", "outside-rmb"]
        connection = ["cursor-beyond", "consumer-beyond", "cursor-lap"]
        if os.environ.get("SMC_VM_CORE"):
            link, connection = link[:2], connection[:2]
        for number, name in enumerate(link + connection):
            with self.subTest(name):
                _, server, group = self.attack(name, number, ["recv:5"])
                self.assertEqual(server.wait(), 0)
                self.assertIn("error ECONNRESET", server.text())
                ended = self.agents[1].ended(self.port)[0]
                self.assertEqual(
                    (ended["path"], ended["reason"]["name"]), ("smcr", "link_down" if name in link else "bad_cursor")
                )
                self.assertEqual(group is None, name in link)
        harmless = ["unknown-token", "rkey-flood", "cursor-back"]
        for number, name in enumerate(harmless, 20):
            with self.subTest(name):  # the connection is not harmed, and continues
                seen, server, group = self.attack(name, number, ["recv:10"])
                self.assertEqual(seen, "sent ok, tcp open")
                self.assertEqual(group["links"][0]["unknown_tokens"], 49 if name == "unknown-token" else 0)
                # its process is gone now, as TEST LINK finds out
                self.assertEqual(server.wait(60), 0)
                self.assertEqual(self.agents[1].ended(self.port)[0]["bytes_received"], 10)
        with self.subTest("one of two connections on a link"):
            other = self.b.start_server([*TCP, "steps", "serve", self.port + 2, "recv:5", "recv:5", "error"], "two.log")
            seen, server, group = self.attack("one-of-two", 28, ["recv:5"])
            self.assertEqual(seen, "rst open")
            self.assertEqual(server.wait(), 0)
            self.assertEqual(self.agents[1].ended(self.port)[0]["reason"]["name"], "bad_cursor")
            self.assertIsNotNone(group)
            self.assertEqual(group["links"][0]["unknown_tokens"], 0)  # C1
            self.assertEqual(other.wait(60), 0, other.text())  # its peer is gone in the end
            type(self).port += 1
            ended = self.agents[1].ended(self.port)[0]
            self.assertEqual((ended["path"], ended["bytes_received"]), ("smcr", 10))
        with self.subTest("test-flood"):  # at the latest when it is gone
            _, server, _ = self.attack("test-flood", 29, ["recv:5"])
            self.assertEqual(server.wait(60), 0)
        with self.subTest("wrong-qpn"):
            seen, server, group = self.attack("wrong-qpn", 30, [])
            self.assertEqual((seen, group), ("declined", None))
            server.send_signal(9)
            server.wait()
        hostile.send_signal(9)
        self.a.sh("touch /run/attacks-over")
        self.assertEqual((honest.wait(), honest_client.wait()), (0, 0), honest.text() + honest_client.text())
        self.assertIn("eof", honest.text())
        self.assertEqual(self.agents[1].ended(honest_port)[0]["reason"]["name"], "none")
        wait_for("the strangers' link groups to end", lambda: len(self.agents[1].smcr_groups()) == 1)
        self.registers(self.agents[1], one_group)
        ends = [line for line in self.agents[1].log().splitlines() if "link group" in line and " ended" in line]
        self.assertEqual(
            len(ends), len(link) + len(connection) + len(harmless) + 3, ends
        )  # one line for each group (C3)

    def test_8b_other_agents_take_the_place(self):
        """Queue pairs stay with their agent until their connections have ended."""
        self.start({"rmbe_kib": 64})
        server = self.serve("steps", "serve", "PORT", "recv:1000", "send:1000", "recv:200000", "send:1000", "eof")
        steps = ["send:1000", "recv:1000", "wait:/run/upgraded", "send:200000", "recv:1000", "shut", "eof"]
        client = self.a.start([*TCP, "steps", self.b.ip4, self.port, *steps], f"held{self.port}.log")
        held = self.port
        wait_for("the connection", lambda: [c for c in self.agents[0].connections(held) if c["path"] == "smcr"])
        wait_for("its first bytes", lambda: self.agents[0].connections(held)[0]["bytes_received"] == 1000)
        for agent in self.agents:
            done = agent.ctl("upgrade")
            self.assertEqual((done.returncode, done.stderr), (0, ""), agent.log()[-2000:])
            self.assertIn("0 over SMC-D, 1 over SMC-R", done.stdout)
            wait_for("the next agent to serve", agent.prepared)
        ended = self.exchange(100_000)
        self.assertEqual([(c["path"], c["reason"]["name"]) for c in ended], [("smcr", "none")])
        self.a.sh("touch /run/upgraded")
        self.assertEqual((client.wait(), server.machine.sh("true")), (0, ""), client.text())
        self.assertIn("eof\ndone", client.text())
        for machine, agent in zip((self.a, self.b), self.agents):
            self.assertEqual(agent.process.wait(20), 0, agent.log()[-2000:])
            machine.sh(f"kill {agent.status()['agent']['pid']}")
        type(self).agents = type(self).config = None

    def test_9_the_agents_leave_nothing(self):
        self.stop()
        for machine in (self.a, self.b):
            self.assertEqual(machine.run(["rdma", "resource", "show", "mr"]).stdout, "")


if __name__ == "__main__":
    unittest.main()
