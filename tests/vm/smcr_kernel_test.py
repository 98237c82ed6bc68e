# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Agents and the Linux kernel's own net/smc over SMC-Rv2.1: ordinary programs on the agent's side, AF_SMC programs on
the kernel's, each direction and each role. The agent runs on a kernel as our users have it, without net/smc."""
import json
import os
import unittest

from lab import captures, netsmc
from lab.basics import wait_for
from lab.machines import VmLab
from lab.netsmc import UEID
from programs import NATIVE, PRELOAD, TCP


class Case(unittest.TestCase):
    config = {}

    @classmethod
    def setUpClass(cls):
        cls.lab = cls.enterClassContext(VmLab("smcr"))
        cls.linux, cls.node = cls.lab.machine("linux", "6.12"), cls.lab.machine(
            "node", os.environ.get("SMC_VM_KERNEL", "7")
        )
        cls.lab.boot()
        netsmc.make_ready(cls.linux)
        cls.agent = cls.node.start_agent(cls.config)
        cls.port = 7000

    def setUp(self):
        type(self).port += 1
        # The side of each role: machine, its address, the command of its programs.
        kernel, agent = (self.linux, NATIVE), (self.node, TCP)
        self.roles = {"agent connects": (agent, kernel), "kernel connects": (kernel, agent)}

    def serve(self, side, *arguments):
        machine, program = side
        type(self).port += 1
        return machine.start_server(
            [*program, *[str(a).replace("PORT", str(self.port)) for a in arguments]], f"{self.port}.log"
        )

    def assert_smcr(self, count=1):
        """Checks that the agent's connections to this port were SMC-R, and ended in order."""
        ended = self.agent.ended(self.port, count)
        self.assertEqual({(c["path"], c["reason"]["name"]) for c in ended}, {("smcr", "none")})
        return ended


class Together(Case):
    def test_1_every_byte_in_either_role(self):
        before = netsmc.counters(self.linux)
        for what, (client, server) in self.roles.items():
            for size in (1, 100_000, 3_000_000):
                with self.subTest(what, size=size):
                    echo = self.serve(server, "serve", "PORT", 1)
                    done = client[0].run([*client[1], "client", server[0].ip4, self.port, size])
                    self.assertEqual(done.stdout, f"{size} bytes\n")
                    self.assertEqual(echo.wait(), 0)
                    connection = self.assert_smcr()[0]
                    self.assertEqual((connection["bytes_sent"], connection["bytes_received"]), (size, size))
        after = netsmc.counters(self.linux)
        self.assertEqual((after["server"] - before["server"], after["client"] - before["client"]), (3, 3))
        self.assertEqual(after["fallbacks"], before["fallbacks"])
        roles = [g["role"] for g in self.agent.smcr_groups()]
        self.assertEqual(roles, ["CLNT", "SERV"])  # one link group for each role
        history = [
            s
            for s in captures.histories(self.linux.capture)
            if s["kind"] == "connection" and "as smc-agent does after a request" not in s["answered"]
        ]
        self.assertIn("ACCEPT of SMC-Rv2.1 (the only type offered); first contact", history[0]["answered"])
        self.assertIn("subsequent contact", history[1]["answered"])
        self.assertEqual(history[2]["bytes_client_to_server"], 3_000_000)

    def test_2_100_mb_both_ways_with_slow_readers(self):
        size = 10_000_000 if os.environ.get("SMC_VM_CORE") else 100_000_000
        for what, (client, server) in self.roles.items():
            with self.subTest(what):
                other = self.serve(server, "duplex", "serve", "PORT", size)
                done = client[0].run([*client[1], "duplex", server[0].ip4, self.port, size], timeout=150)
                self.assertEqual(done.stdout, f"{size} bytes\n")
                self.assertEqual(other.wait(), 0, other.text())
                self.assertIn(f"{size} bytes", other.text())
                self.assertGreater(self.assert_smcr()[0]["blocked"], 0)

    def test_3_more_connections_than_a_link_group_takes(self):
        for what, (client, server) in self.roles.items():
            with self.subTest(what):
                before = {g["id"] for g in self.agent.smcr_groups()}
                echo = self.serve(server, "serve", "PORT", 260)
                busy = client[0].start(
                    [*client[1], "client", server[0].ip4, self.port, 2000, 260], f"many{self.port}.log"
                )
                role = "CLNT" if what == "agent connects" else "SERV"

                def groups():
                    return [g for g in self.agent.smcr_groups() if g["role"] == role]

                wait_for("a second link group", lambda: len(groups()) == 2, 300)
                self.assertLessEqual(max(g["connections"] for g in groups()), 255)
                self.assertEqual(busy.wait(300), 0, busy.text())
                self.assertIn("520000 bytes", busy.text())
                self.assertEqual(echo.wait(), 0)
                # The agent remembers only so many. Linux declines some now and then, whose buffer it cannot register.
                declined = [c for c in self.agent.ended(self.port, 255) if c["path"] != "smcr"]
                self.assertLess(len(declined), 5)
                for connection in declined:
                    self.assertEqual(connection["peer_reason"]["name"], "rmb_not_registered")
                self.assertEqual(len({g["id"] for g in groups()} - before), 1)
                wait_for("everybody to have left", lambda: not any(g["connections"] for g in groups()))

    def test_4_closes_in_every_order(self):
        order = "none"
        # Linux notes the error of an abort and then the end of the stream. Its application nearly always reads the end,
        # also when its peer is Linux, and the error only if it looks in between.
        aborted = "(eof|error ECONNRESET)"
        # steps on the agent's side and on the kernel's, what each prints, and how the agent calls the end
        cases = [
            (
                ["send:1000", "shut", "recv:500", "eof", "close"],
                ["recv:1000", "eof", "send:500", "close"],
                "eof",
                "eof",
                order,
            ),
            (
                ["recv:1000", "eof", "send:500", "close"],
                ["send:1000", "shut", "recv:500", "eof", "close"],
                "eof",
                "eof",
                order,
            ),
            (["send:1000", "close"], ["recv:1000", "eof", "close"], "done", "eof", order),
            (["recv:1000", "eof", "close"], ["send:1000", "close"], "eof", "done", order),
            (["recv:70000", "eof", "close"], ["send:70000", "close"], "eof", "done", order),
            (["recv:10", "send:10", "shut", "eof"], ["send:10", "shut", "recv:10", "eof"], "eof", "eof", order),
            (["send:20", "error"], ["recv:10", "close"], "error ECONNRESET", "done", "peer_aborted"),  # unread data
            (["recv:10", "close"], ["send:20", "error"], "done", aborted, "application_reset"),
            (["recv:10", "abort"], ["send:10", "error"], "done", aborted, "application_reset"),
            (["send:10", "wait:/job/gone", "fill"], ["recv:10", "close"], "fill E", "done", None),
            (["recv:10", "close"], ["send:10", "wait:/job/gone", "fill"], "done", "fill E", None),
        ]
        for kernel_connects in (False, True):
            for ours, theirs, told, heard, reason in cases:
                with self.subTest(kernel_connects=kernel_connects, agent=ours, kernel=theirs):
                    for machine in (self.linux, self.node):
                        machine.sh("rm -f /job/gone")
                    server, client = [self.node, TCP, ours], [self.linux, NATIVE, theirs]
                    if not kernel_connects:
                        server, client = client, server
                    waiting = self.serve(server[:2], "steps", "serve", "PORT", *server[2])
                    calling = client[0].start(
                        [*client[1], "steps", server[0].ip4, self.port, *client[2]], f"client{self.port}.log"
                    )
                    agents, kernels = (waiting, calling) if kernel_connects else (calling, waiting)
                    if "fill" in ours + theirs:  # goes on when the other side has closed
                        (kernels if "fill" in ours else agents).wait()
                        (agents if "fill" in ours else kernels).machine.sh("touch /job/gone")
                    self.assertEqual((agents.wait(), kernels.wait()), (0, 0))
                    self.assertRegex(agents.text(), f"connected\n{told}", kernels.text())
                    self.assertRegex(kernels.text(), f"connected\n{heard}", agents.text())
                    ended = self.agent.ended(self.port)[0]
                    self.assertEqual(ended["path"], "smcr")
                    if reason is not None:
                        self.assertEqual(ended["reason"]["name"], reason)

    def test_4b_urgent_data(self):
        """The mark stays where it was set, even if other messages follow the one that announces it."""
        # The writer sends only after the reader has set SO_OOBINLINE: an urgent byte that came before that is never
        # readable in Linux, and its reader would wait for it.
        send = ["recv:1", *["send:6000", "oob", "send:6000", "recv:2"] * 3]
        read = ["inline", "send:1", *["mark:6000", "recv:6001", "send:2"] * 3]
        for what, (client, server) in self.roles.items():
            for mine, theirs in ((send, read), (read, send)):
                with self.subTest(what, client=mine[0]):
                    other = self.serve(server, "steps", "serve", "PORT", *theirs, "shut", "eof")
                    done = client[0].run(
                        [*client[1], "steps", server[0].ip4, self.port, *mine, "shut", "eof"], timeout=40
                    )
                    self.assertEqual(other.wait(), 0, other.text())
                    self.assertEqual((done.stdout + other.text()).count("mark at 6000"), 3, done.stdout + other.text())
                    self.assertIn("eof", done.stdout)
                    self.assert_smcr()

    def test_5_programs_of_debian(self):
        """The kernel's side runs them over AF_SMC, the agent's side runs them unchanged."""
        native = ["env", f"LD_PRELOAD={PRELOAD}"]
        before = netsmc.counters(self.linux)
        self.node.sh(
            "mkdir -p /run/www /run/empty; head -c 3000000 /dev/urandom > /run/www/file; cp /run/www/file /job/file"
        )
        conf = (
            "daemon off; pid /run/nginx.pid; error_log /dev/stderr; events {} http { access_log off; "
            "server { listen 8080; root /run/www; } }"
        )
        self.node.sh(f"echo '{conf}' > /run/nginx.conf")
        programs = [
            self.node.start(["nginx", "-c", "/run/nginx.conf"], "nginx.log"),
            self.node.start(["redis-server", "--port", "6379", "--save", "", "--protected-mode", "no"], "redis.log"),
            self.node.start(["iperf3", "-s", "-p", "5201"], "iperf.log"),
            self.linux.start([*native, "iperf3", "-s", "-4", "-p", "5201"], "iperf.log"),
            self.linux.start(
                [*native, "redis-server", "--port", "6379", "--save", "", "--protected-mode", "no"], "redis.log"
            ),
        ]
        for machine, ports in ((self.node, (8080, 6379, 5201)), (self.linux, (6379, 5201))):
            for port in ports:
                wait_for(f"port {port}", lambda: f":{port:04X} " in machine.sh("cat /proc/net/tcp /proc/net/tcp6"))
        # agent's side serves
        self.linux.run([*native, "curl", "-sSf", "-o", "/run/got", f"http://{self.node.ip4}:8080/file"])
        with open(os.path.join(self.node.job, "file"), "rb") as file:
            wanted = file.read()
        self.linux.sh("cp /run/got /job/got")
        with open(os.path.join(self.linux.job, "got"), "rb") as file:
            self.assertEqual(file.read(), wanted)
        self.assertEqual(self.linux.run([*native, "redis-cli", "-h", self.node.ip4, "set", "k", "v"]).stdout, "OK\n")
        self.assertEqual(self.linux.run([*native, "redis-cli", "-h", self.node.ip4, "get", "k"]).stdout, "v\n")
        moved = json.loads(self.linux.run([*native, "iperf3", "-J", "-4", "-c", self.node.ip4, "-n", "5M"]).stdout)
        # its server stops reading when the client reports, on another connection, that it has sent everything
        self.assertGreaterEqual(moved["end"]["sum_received"]["bytes"], 4_000_000)
        # agent's side connects
        self.assertEqual(self.node.run(["redis-cli", "-h", self.linux.ip4, "set", "k", "w"]).stdout, "OK\n")
        self.assertEqual(self.node.run(["redis-cli", "-h", self.linux.ip4, "get", "k"]).stdout, "w\n")
        moved = json.loads(self.node.run(["iperf3", "-J", "-c", self.linux.ip4, "-n", "5M", "-R"]).stdout)
        self.assertGreaterEqual(moved["end"]["sum_received"]["bytes"], 4_000_000)
        for program in programs:
            program.send_signal(15)
        after = netsmc.counters(self.linux)
        self.assertGreaterEqual(after["client"] - before["client"], 5)
        self.assertGreaterEqual(after["server"] - before["server"], 4)
        self.assertEqual(after["fallbacks"], before["fallbacks"])

    def test_6_what_smcctl_shows(self):
        other = self.serve((self.linux, NATIVE), "steps", "serve", "PORT", "recv:1", "eof")
        held = self.node.start([*TCP, "steps", self.linux.ip4, self.port, "send:1", "wait:/run/shown"], "held.log")
        wait_for("the connection", lambda: [c for c in self.agent.connections(self.port) if c["path"] == "smcr"])
        sockets = self.agent.ctl("ss", "--smcr").stdout.splitlines()
        self.assertEqual(
            sockets[0].split(),
            "State UID Inode Local Address Peer Address Intf Mode Role IB-device Port Linkid GID " "Peer-GID".split(),
        )
        row = sockets[1].split()
        self.assertEqual(
            [row[0], row[1], row[4], row[5], row[6], row[7], row[8]],
            ["ACTIVE", "0", f"{self.linux.ip4}:{self.port}", "eth0", "SMCR", "CLNT", "rxe0"],
        )
        links = self.agent.ctl("linkgroup", "link-show", "-dd", "--smcr").stdout.splitlines()
        self.assertEqual(
            links[1].split(),
            "LG-ID LG-Role LG-Type Net-Dev Link-State #Conns Link-UID Peer-UID IB-Dev IB-P "
            "Local-GID Peer-GID".split(),
        )
        self.assertIn("LINK_ACTIVE", links[2])
        # the kernel's link user ID is what the kernel itself says
        shown = netsmc.ask(self.linux, "show")
        for group in self.agent.smcr_groups():
            uid = int(group["links"][0]["peer_uid"], 16)
            self.assertTrue(
                any(uid.to_bytes(4, order).hex() in json.dumps(shown["links"]) for order in ("big", "little")), shown
            )
        for arguments, head in (
            (["linkgroup"], "LG-ID     LG-Role  LG-Type  VLAN  #Conns  PNET-ID"),
            (["linkgroup", "-d"], "LG-Role    : CLNT"),
            (["ss", "-d"], "rxprod-Cursor  rxcons-Cursor  rxFlags"),
            (["ss", "-D"], "Peer-GID  Peer-Token  Linkid"),
            (["device", "-d"], "FID  PCI-ID  PCHID"),
        ):
            self.assertIn(head, self.agent.ctl(*arguments).stdout)
        self.assertEqual(self.agent.ctl("linkgroup", "link-show", "-D").returncode, 2)
        devices = self.agent.ctl("device").stdout.splitlines()
        self.assertEqual(devices[1].split(), "Net-Dev IB-Dev IB-P IB-State Type Crit #Links PNET-ID".split())
        self.assertEqual(devices[2].split()[:6], ["eth0", "rxe0", "1", "ACTIVE", "RoCEv2", "Yes"])
        self.node.sh("touch /run/shown")
        self.assertEqual((held.wait(), other.wait()), (0, 0), held.text() + other.text())

    def test_7_declines_keep_the_connection(self):
        netsmc.ask(self.linux, "flush")
        netsmc.ask(self.linux, "ueid", "ANOTHER.EID")
        try:
            for what, (client, server) in self.roles.items():
                with self.subTest(what):
                    echo = self.serve(server, "serve", "PORT", 1)
                    done = client[0].run([*client[1], "client", server[0].ip4, self.port, 100_000])
                    self.assertEqual(done.stdout, "100000 bytes\n")
                    self.assertEqual(echo.wait(), 0)
                    connection = self.agent.ended(self.port)[0]
                    self.assertEqual(connection["path"], "fallback")
                    self.assertEqual(
                        connection["reason"]["name"], "peer_declined" if what == "agent connects" else "no_ueid"
                    )
        finally:
            netsmc.ask(self.linux, "flush")
            netsmc.ask(self.linux, "ueid", UEID)

    def test_8_indirect_links(self):
        """Each side reaches the other's address by a gateway, which is the other side itself; they have no addresses in
        one network any more."""
        far = {self.linux: "10.97.0.1", self.node: "10.98.0.1"}
        for machine, other in ((self.linux, self.node), (self.node, self.linux)):
            network = f"{far[other].rsplit('.', 1)[0]}.0/24"
            machine.sh(
                f"""ip addr add {far[machine]}/24 dev eth0
                           ip addr del {machine.ip4}/24 dev eth0
                           ip route add 192.0.2.{other.index}/32 dev eth0
                           ip route add {network} via 192.0.2.{other.index} src {far[machine]}
                           ip neigh add 192.0.2.{other.index} lladdr {other.mac} dev eth0"""
            )
        wait_for("the GID", lambda: f"::ffff:{far[self.node]}" in self.agent.smcr_devices()[0]["gids"])
        for what, (client, server) in self.roles.items():
            with self.subTest(what):
                echo = self.serve(server, "serve", "PORT", 1)
                done = client[0].run([*client[1], "client", far[server[0]], self.port, 300_000])
                self.assertEqual((done.stdout, echo.wait()), ("300000 bytes\n", 0))
                connection = self.assert_smcr()[0]
                self.assertEqual(connection["smcr"]["gid"], f"::ffff:{far[self.node]}")
                group = next(g for g in self.agent.smcr_groups() if g["id"] == connection["smcr"]["group"])
                self.assertFalse(group["direct"])
        for machine in far:
            machine.sh(f"ip addr add {machine.ip4}/24 dev eth0; ip addr del {far[machine]}/24 dev eth0")

    def test_9_every_message_was_understood(self):
        self.assertEqual(captures.faults(self.linux.capture), [])

    def test_9_z_the_agent_leaves_nothing(self):
        self.assertEqual(self.agent.stop(), 0, self.agent.log()[-2000:])
        wait_for(
            "the kernel to have seen the end of the link groups",
            lambda: not netsmc.ask(self.linux, "show")["link_groups"],
        )
        self.assertEqual(self.node.run(["rdma", "resource", "show", "qp", "link", "rxe0/1"]).stdout.count("type RC"), 0)


if __name__ == "__main__":
    unittest.main()
