# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Connections that are steered, and others that are not, and what applications can see of it."""
import glob
import json
import os
import signal
import socket
import struct
import unittest

from base import TwoNodes
from lab.basics import sh, test_program, wait_for
from lab.nodes import cgroup_mount
from lab.rawtcp import SMC_OPTION

IPPROTO_MPTCP = 262
TCP_MD5SIG = 14


# Listens beside the listener of an agent, and says how many connections it was given.
BESIDE = """
import socket, sys
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
s.bind(('127.0.0.1', int(sys.argv[1]))); s.listen(100); s.setblocking(False); print('ready', flush=True)
sys.stdin.readline(); given = 0
try:
    while s.accept(): given += 1
except BlockingIOError: print(given, flush=True)
"""

# An echo server whose listener has an option of the socket.
WITH_OPTION = """
import socket, sys
s = socket.socket(); s.setsockopt(int(sys.argv[2]), int(sys.argv[3]), bytes.fromhex(sys.argv[4]))
s.bind(('', int(sys.argv[1]))); s.listen(); print('ready', flush=True)
while True:
    c, _ = s.accept()
    while data := c.recv(65536): c.sendall(data)
    c.close()
"""

FAST_OPEN = """
import socket, sys
c = socket.socket(); c.sendto(b'x', socket.MSG_FASTOPEN, (sys.argv[1], 5000)); print(c.recv(1).decode())
"""

FROM_PORT = """
import socket, sys
c = socket.create_connection((sys.argv[1], 5000), 10, ('', int(sys.argv[2]))); c.sendall(b'x'); c.recv(1)
print('connected', flush=True); sys.stdin.read()
"""


class Steering(TwoNodes):
    def test_addresses_are_those_of_plain_tcp(self):
        self.start_agents()
        self.serve(ip="::")
        for ip in (self.b.ip4, self.b.ip6, "::ffff:" + self.b.ip4):
            seen = self.connect(ip)
            self.assertTrue(seen["ok"], seen)
            self.assertEqual(seen["peer"], f"{ip} 5000")
            self.assertEqual(seen["own"].split()[-1], seen["who"].split()[-1])
            self.assertIn(self.a.ip6 if ip == self.b.ip6 else self.a.ip4, seen["own"])
        self.assertPath(self.a, "smcd", at_least=3)
        self.assertPath(self.b, "smcd", at_least=3)

    def test_a_listener_older_than_the_agent_is_served(self):
        self.serve()
        self.start_agents()
        self.assertTrue(self.connect()["ok"])
        self.assertPath(self.b, "smcd")

    def test_syn_cookies(self):
        self.start_agents()
        self.serve()
        self.b.run(["sysctl", "-qw", "net.ipv4.tcp_syncookies=2"], check=True)
        for _ in range(3):
            self.assertTrue(self.connect()["ok"])
        self.assertPath(self.b, "smcd", at_least=3)
        for name in ("TcpExtSyncookiesSent", "TcpExtSyncookiesRecv"):
            shown = json.loads(self.b.run(["nstat", "-jasz", name], check=True).stdout)
            self.assertGreaterEqual(shown["kernel"][name], 6)  # three CLC sockets and three legs
        # Before the entries age, which is after two minutes.
        wait_for("what is not needed to be forgotten", lambda: not self.table(self.b, "smc_inbound"), 60)

    def late_end_with_a_syn_cookie(self, meanwhile=lambda: None, times={}, **more):
        """A client without an agent. Its CLC socket ends at the agent, not at the application, which would read CLC."""
        self.b.start_agent(times=times)
        self.serve()
        self.b.run(["sysctl", "-qw", "net.ipv4.tcp_syncookies=2"], check=True)
        self.assertTrue(self.connect()["ok"])  # a listener takes no cookie unless it has sent one lately
        rubbish = "e2d4c3d9" + "61" * 96
        script = json.dumps({"options": SMC_OPTION, "send": [rubbish], "ack_after": 6, "listen_s": 15, **more})
        client = self.raw(self.a, "10.77.0.50", "client", self.b.ip4, 5000, script)
        wait_for("the SYN-ACK", lambda: self.b.agent.decisions()["SMC_OPTION_SYNACK"])
        meanwhile()
        (seen,) = self.raw_results(client)
        self.assertEqual((seen["received"], seen["ended"]), ("", "rst"))
        self.assertEqual(self.accepted(), 1)

    def test_a_late_end_of_a_handshake_with_a_syn_cookie(self):
        self.late_end_with_a_syn_cookie()
        self.assertPath(self.b, "refused", "protocol_error")

    def test_the_same_when_the_agent_has_died(self):
        self.late_end_with_a_syn_cookie(lambda: self.b.agent.stop(signal.SIGKILL))

    def test_the_same_when_the_agent_is_stopped(self):
        self.late_end_with_a_syn_cookie(lambda: self.b.agent.stop(), {"requests_ms": 10_000})

    def test_the_same_when_another_agent_takes_over(self):
        def upgrade():
            done = self.b.agent.ctl("upgrade")
            self.assertEqual((done.returncode, done.stderr), (0, ""))

        self.late_end_with_a_syn_cookie(upgrade, {"requests_ms": 10_000, "settle_ms": 20_000})
        os.kill(self.b.agent.status()["agent"]["pid"], signal.SIGTERM)

    def test_the_same_when_the_syn_comes_again_and_would_not_be_taken_now(self):
        self.late_end_with_a_syn_cookie(lambda: self.b.agent.ctl("drain"), again_after=3)
        self.assertEqual(self.b.agent.decisions()["SMC_IN_AGENT_FULL"], 1)

    def test_the_same_when_the_syn_comes_again_and_the_agent_has_died(self):
        self.late_end_with_a_syn_cookie(lambda: self.b.agent.stop(signal.SIGKILL), again_after=3)

    def test_time_stamps_of_when_a_device_sends(self):
        """Time stamps of a driver do not come, because no driver sees packets of a leg. Those of TCP itself come."""
        stamping, on_software, of_device, of_ack = 37, 16, 2, 512
        self.start_agents()
        self.serve()
        for count, stamps in enumerate((of_device | of_ack, of_device), start=1):
            self.assertTrue(self.connect(options=[(1, stamping, stamps | on_software)])["ok"])
            self.assertEqual(self.a.agent.decisions()["SMC_OUT_TIMESTAMPING"], count)
        self.assertEqual(self.a.agent.totals(), {})
        self.assertTrue(self.connect(options=[(1, stamping, of_ack | on_software)])["ok"])
        self.assertPath(self.a, "smcd")

    def test_a_rate_of_the_socket(self):
        """Where a device has fq, TCP leaves the rate to that, which never sees the packets of a leg."""
        self.start_agents()
        self.serve()
        rate = socket.SOL_SOCKET, 47, 1_000_000  # SO_MAX_PACING_RATE
        self.assertTrue(self.connect(options=[rate])["ok"])
        self.assertEqual(self.a.agent.decisions()["SMC_OUT_PACED"], 1)
        self.assertEqual(self.a.agent.totals(), {})

    def test_nobody_listens(self):
        self.start_agents()
        self.assertEqual(self.connect()["error"], "ECONNREFUSED")
        self.assertEqual(self.connect(self.b.ip6)["error"], "ECONNREFUSED")
        self.assertGreater(self.b.agent.decisions()["SMC_IN_NO_LISTENER"], 0)
        self.assertEqual(self.b.agent.totals(), {})

    def test_a_syn_that_a_node_forwards_is_not_that_nodes(self):
        """Even if the node itself listens on the same port, on all addresses."""
        r = self.lab.node("r")
        self.lab.link(self.a, r)
        near4, near6 = r.ip4, r.ip6
        self.lab.link(r, self.b)
        for there, back, near, far in ((self.b.ip4, self.a.ip4, near4, r.ip4), (self.b.ip6, self.a.ip6, near6, r.ip6)):
            self.a.run(["ip", "route", "add", there, "via", near], check=True)
            self.b.run(["ip", "route", "add", back, "via", far], check=True)
        r.run(["sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"], check=True)
        self.start_agents()
        r.start_agent()
        self.serve(ip="::")
        self.serve(ip="::", node=r)
        for ip in (self.b.ip4, self.b.ip6):
            self.assertTrue(self.connect(ip)["ok"])
        self.assertPath(self.b, "smcd", at_least=2)
        before = r.agent.decisions()
        self.assertEqual(before["SMC_IN_STEERED"], 0)
        self.assertGreaterEqual(before["SMC_IN_FORWARDED"], 2)
        self.assertEqual(self.table(r, "smc_inbound"), [])
        for ip in (near4, near6):  # its own addresses
            self.assertTrue(self.connect(ip)["ok"])
        self.assertPath(r, "smcd", at_least=2)
        self.assertEqual(r.agent.decisions()["SMC_IN_FORWARDED"], before["SMC_IN_FORWARDED"])

    def test_rules_decide_in_order(self):
        rules = [
            {"name": "not-5001", "action": "deny", "ports": ["5001"]},
            {"name": "apps", "action": "allow", "cgroups": ["/apps"], "remotes": ["10.77.0.0/24"]},
        ]
        self.start_agents(policy={"default": "deny", "rules": rules})
        for port in (5000, 5001):
            self.serve(port=port)
            self.assertTrue(self.connect(port=port)["ok"])
        self.assertEqual(self.a.agent.totals(), {("smcd", "none"): 1})
        self.assertEqual(self.a.agent.decisions()["SMC_OUT_DENIED"], 1)

        explained = json.loads(self.a.agent.ctl("explain", f"{self.b.ip4}:5001", "--json").stdout)
        self.assertEqual((explained["rule"], explained["steered"]), ("not-5001", False))
        pid = self.a.popen(["sleep", "infinity"]).pid
        text = self.a.agent.ctl("explain", f"{self.b.ip4}:5000", "--pid", str(pid)).stdout
        self.assertIn('rule "apps": allow', text)
        self.assertIn("is offered SMC", text)
        text = self.a.agent.ctl("explain", "10.88.0.1:80", "--pid", str(pid)).stdout
        self.assertIn("no rule matches", text)
        outside = self.a.agent.ctl("explain", f"{self.b.ip4}:5000", "--pid", str(os.getpid())).stdout
        self.assertIn("is plain TCP", outside)
        self.assertEqual(self.a.agent.ctl("explain", "nonsense").returncode, 1)
        self.assertEqual(self.a.agent.ctl("explain").returncode, 2)

    def test_smcd_within_a_node_only_where_both_ends_want_it(self):
        wanted = {"rules": [{"name": "wanted", "action": "allow", "ports": ["5000"], "smcd": True}]}
        self.a.start_agent(local={"smcd": False}, policy={"default": "allow", **wanted})
        self.b.start_agent(local={"smcd": False}, policy={"default": "allow"})
        for port in (5000, 5001):
            self.serve(port=port)
            self.assertTrue(self.connect(port=port)["ok"])
            self.assertEqual(self.a.agent.status()["connections"], [])
        at_client, at_server = self.a.agent.decisions(), self.b.agent.decisions()
        self.assertEqual([at_client[d] for d in ("SMC_OUT_ASKED", "SMC_OUT_NO_DEVICE")], [1, 1])
        self.assertEqual([at_server[d] for d in ("SMC_IN_STEERED", "SMC_IN_NO_DEVICE")], [0, 1])
        told = self.a.agent.ctl("explain", f"{self.b.ip4}:5001").stdout
        self.assertIn("SMC-R has no RoCE device, and SMC-D is off for this connection (local.smcd)", told)
        self.b.agent.stop()
        self.b.start_agent(local={"smcd": False}, policy=wanted)
        self.assertTrue(self.connect(port=5000)["ok"])
        self.assertPath(self.a, "smcd")

    def test_inbound_rules(self):
        self.a.start_agent()
        self.b.start_agent(
            policy={"default": "deny", "rules": [{"name": "out-only", "action": "allow", "direction": "outbound"}]}
        )
        self.serve()
        self.assertTrue(self.connect()["ok"])
        self.assertEqual(self.b.agent.decisions()["SMC_IN_DENIED"], 1)
        self.assertEqual(self.a.agent.decisions()["SMC_ANSWER_PLAIN"], 1)

    def test_sockets_that_are_never_eligible(self):
        self.start_agents()
        self.serve()
        options = [[socket.IPPROTO_IP, socket.IP_OPTIONS, "01010100"]]  # three NOPs and the end
        self.assertTrue(self.connect(options=options)["ok"])
        self.assertEqual(self.a.agent.decisions()["SMC_OUT_HEADERS"], 1)

        address = struct.pack("!HH4s8x", 0, 0, socket.inet_aton(self.b.ip4))
        address = struct.pack("H", socket.AF_INET) + address[2:] + bytes(112)
        md5 = address + struct.pack("BBHI80s", 0, 0, 3, 0, b"key")
        self.connect(timeout=0.5, options=[[socket.IPPROTO_TCP, TCP_MD5SIG, md5.hex()]])  # the server has no key
        self.assertEqual(self.a.agent.decisions()["SMC_OUT_TCP_SIGNED"], 1)

        self.assertEqual(self.a.agent.totals(), {})

    def test_listeners_that_are_never_eligible(self):
        self.start_agents()
        other = struct.pack("H2s4s120x", socket.AF_INET, bytes(2), socket.inet_aton("192.0.2.1"))
        md5 = other + struct.pack("BBHI80s", 0, 0, 3, 0, b"key")
        stamps = struct.pack("I", 2 | 16)  # SO_TIMESTAMPING: of the kernel, when something is sent
        for port, option, decision in (
            (5001, (socket.IPPROTO_TCP, TCP_MD5SIG, md5), "SMC_IN_TCP_SIGNED"),
            (5002, (socket.SOL_SOCKET, 37, stamps), "SMC_IN_TIMESTAMPING"),
        ):
            with self.subTest(decision=decision):
                level, name, value = option
                self.program(self.b, WITH_OPTION, port, level, name, value.hex(), says="ready")
                self.assertTrue(self.connect(port=port)["ok"])
                self.assertEqual(self.b.agent.decisions()[decision], 1)
        self.assertEqual(self.a.agent.totals(), {})

    def test_a_syn_of_tcp_fast_open(self):
        self.start_agents()
        self.serve()
        self.assertEqual(self.a.python(FAST_OPEN, self.b.ip4).stdout, "x\n")
        self.assertEqual(self.a.agent.decisions()["SMC_OUT_FAST_OPEN"], 1)
        self.assertEqual(self.a.agent.totals(), {})

    def test_a_bridge_and_its_port_see_one_syn(self):
        self.use_bridge(self.a)
        self.a.start_agent()
        self.serve()
        for _ in range(2):
            self.assertAtOnce(self.connect())
        decisions = self.a.agent.decisions()
        self.assertEqual([decisions[d] for d in ("SMC_OUT_ASKED", "SMC_ANSWER_PLAIN")], [2, 2])
        self.assertEqual([decisions[d] for d in ("SMC_SYN_AGAIN", "SMC_ANSWER_LOST")], [0, 0])
        self.assertEqual(self.table(self.a, "smc_servers"), [])
        self.b.start_agent()
        self.assertAtOnce(self.connect())
        self.assertPath(self.a, "smcd")

    def test_a_syn_is_judged_by_its_first_device_alone(self):
        """A request belongs to that device. On a lower one the judgement might be another."""
        self.use_bridge(self.a)
        self.a.start_agent(policy={"default": "allow", "rules": [{"name": "not", "action": "deny", "ports": ["5000"]}]})
        self.serve()
        for _ in range(3):
            self.assertTrue(self.connect()["ok"])
        self.assertEqual(self.a.agent.decisions()["SMC_OUT_DENIED"], 3)

    def test_a_server_with_three_devices_on_top_of_each_other_hears_one_syn(self):
        stack = [
            ["link", "add", "br0", "type", "bridge"],
            ["addr", "flush", "dev", self.b.device],
            ["link", "set", self.b.device, "master", "br0"],
            ["link", "set", "br0", "up"],
            ["link", "add", "mv0", "link", "br0", "type", "macvlan", "mode", "bridge"],
            ["addr", "add", f"{self.b.ip4}/24", "dev", "mv0"],
            ["link", "set", "mv0", "up"],
        ]
        for step in stack:
            sh("ip", "-n", self.b.netns, *step)
        self.start_agents()
        devices = lambda: self.b.agent.status()["namespaces"][0]["devices"]
        wait_for("all three to have programs", lambda: len(devices()) == 3)
        self.serve()
        for _ in range(2):
            seen = self.connect()
            self.assertTrue(seen["ok"], seen)
            self.assertEqual(seen["own"].split()[-1], seen["who"].split()[-1])
        self.assertEqual(self.b.agent.totals(), {("smcd", "none"): 2})
        # A request and two CLC sockets. Two devices or more would make it six at least; TCP may have repeated one SYN.
        self.assertLess(self.b.agent.decisions()["SMC_IN_STEERED"], 6)

    def test_a_listener_beside_the_agents_own_gets_nothing(self):
        """Any process of user 0 can listen on its address and port, but clients are not handed to that."""
        self.start_agents(http={"listen": ""})
        self.serve()
        lines = self.b.run(["ss", "-Hltnp", "src", "127.0.0.1"]).stdout.splitlines()
        (port,) = (line.split()[3].split(":")[-1] for line in lines if "smc-agent" in line)
        thief = self.program(self.b, BESIDE, port, says="ready")
        for _ in range(30):
            self.assertTrue(self.connect()["ok"])
        self.assertEqual(self.b.agent.totals(), {("smcd", "none"): 30})
        self.tell(thief, "stop")
        self.assertEqual(self.hear(thief), "0")

    def test_a_client_does_not_choose_which_ports_of_the_servers_host_are_used(self):
        """The leg has the client's port only if that is one that any connection may get."""
        self.start_agents()
        self.serve()
        for port, taken in ((777, False), (40000, True)):
            client = self.program(self.a, FROM_PORT, self.b.ip4, port, says="connected")
            self.assertPath(self.b, "smcd")
            used = self.b.run(["ss", "-Htn", "src", f"{self.b.ip4}:{port}"]).stdout
            self.assertEqual(bool(used), taken, used)
            self.end_program(client)

    def test_mptcp_is_left_alone(self):
        self.start_agents()
        self.serve()
        try:
            socket.socket(socket.AF_INET, socket.SOCK_STREAM, IPPROTO_MPTCP).close()
        except OSError as error:
            self.skipTest(f"this kernel has no MPTCP: {error}")
        done = self.a.python(
            f"import socket; c = socket.socket(socket.AF_INET, socket.SOCK_STREAM, {IPPROTO_MPTCP}); "
            f"c.connect(('{self.b.ip4}', 5000)); c.sendall(b'x'); print(c.recv(1))"
        )
        self.assertEqual(done.stdout, "b'x'\n", done.stderr)
        self.assertEqual(self.a.agent.decisions()["SMC_OUT_MPTCP"], 1)
        self.assertEqual(self.a.agent.totals(), {})

    def test_ipsec_policy_keeps_tcp(self):
        self.start_agents()
        self.serve()
        self.a.run(
            [
                "ip",
                "xfrm",
                "policy",
                "add",
                "src",
                "10.99.0.0/16",
                "dst",
                "10.98.0.0/16",
                "dir",
                "out",
                "tmpl",
                "proto",
                "esp",
                "mode",
                "transport",
            ]
        )
        count = self.a.run(["ip", "xfrm", "policy", "count"]).stdout
        if "OUT 1" not in count.replace("Out", "OUT"):
            self.skipTest(f"this kernel keeps no xfrm policies: {count.strip()}")
        self.assertTrue(self.connect()["ok"])
        self.assertEqual(self.a.agent.decisions()["SMC_OUT_IPSEC"], 1)
        self.assertEqual(self.a.agent.totals(), {})

    def test_the_agents_own_sockets_and_foreign_cgroups_are_left_alone(self):
        self.start_agents()
        self.serve()
        done = self.program(
            self.a,
            f"""
import socket
c = socket.create_connection(('{self.b.ip4}', 5000)); c.sendall(b'x'); print(c.recv(1), flush=True)""",
            cgroup=cgroup_mount() + "/" + self.lab.tag,
        )
        self.assertEqual(self.hear(done), "b'x'")
        self.assertEqual(self.a.agent.totals(), {})

    def test_a_cgroup_and_a_namespace_that_appear_later(self):
        self.start_agents()
        pod = self.lab.node("pod")  # a namespace of its own, cgroup below node a
        self.lab.link(pod, self.b)
        pod.apps = f"{self.a.cgroup}/pods/pod1"
        os.makedirs(pod.apps)
        pod.popen(["sleep", "infinity"])
        wait_for("the pod's namespace", lambda: self.a.agent.prepared() == 2)
        self.serve()
        self.assertTrue(self.connect(self.b.ip4, node=pod)["ok"])
        self.assertPath(self.a, "smcd")
        self.assertEqual([c["client"].split(":")[0] for c in self.a.agent.connections(ended=True)], [pod.ip4])

        # and the other way: a server in the pod
        self.serve(node=pod, port=5005)
        self.assertTrue(self.connect(pod.ip4, 5005, node=self.b)["ok"])
        self.assertPath(self.b, "smcd", at_least=2)

        for process in self.lab.processes[-3:]:
            process.kill()
            process.wait()
        self.lab._kill_cgroup(pod.apps)
        wait_for("the namespace to be let go", lambda: len(self.a.agent.status()["namespaces"]) == 1)
        self.assertNotIn("smc_", sh("nsenter", f"--net=/run/netns/{pod.netns}", "bpftool", "net", "show"))
        self.assertNotIn("smc-agent", sh("nsenter", f"--net=/run/netns/{pod.netns}", "ss", "-Hltnp"))

    def test_a_static_binary(self):
        self.start_agents()
        peer = test_program("smc-bench-peer")
        self.assertNotIn("INTERP", sh("readelf", "-lW", peer))  # no dynamic loader, nothing to preload into
        self.b.popen([peer, "serve", "7000", "1"])
        wait_for("the server", lambda: ":7000 " in self.b.run(["ss", "-Hltn"]).stdout)
        done = self.a.run([peer, "roundtrip", self.b.ip4, "7000", "64", "0.1"])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.a.agent.totals(), {("smcd", "none"): 1})

    def test_status_names_the_programs(self):
        self.a.start_agent()
        programs = self.a.agent.status()["programs"]
        shown = sh("bpftool", "cgroup", "show", self.a.cgroup)
        self.assertIn("smc_app_sockops", programs)
        self.assertEqual([p for p in programs if p not in shown and p != "smc_clc_ops"], [])
        self.assertIn("smc_app_sockops", self.a.agent.ctl("status").stdout)

    def test_the_loopback_device_is_not_needed(self):
        self.start_agents()
        self.serve()
        for node in (self.a, self.b):
            sh("ip", "-n", node.netns, "link", "set", "lo", "down")
        self.assertTrue(self.connect()["ok"])
        self.assertPath(self.a, "smcd")

    def test_a_device_that_comes_up_late(self):
        sh("ip", "-n", self.a.netns, "link", "set", self.a.device, "down")
        self.start_agents()
        self.serve()
        space = self.a.agent.status()["namespaces"][0]
        self.assertEqual((space["ipv4"], space["ipv4_obstacle"]), (False, "no device is up"))
        self.assertIn("no device is up", self.a.agent.ctl("status").stdout)
        sh("ip", "-n", self.a.netns, "link", "set", self.a.device, "up")
        wait_for("the device", lambda: self.a.agent.status()["namespaces"][0]["ipv4"])
        self.assertTrue(self.connect()["ok"])
        self.assertPath(self.a, "smcd")

    def test_the_wire_socket_belongs_to_the_applications_user(self):
        self.start_agents()
        self.serve()
        self.program(
            self.a,
            f"""
import os, socket, time
os.setgid(1235); os.setuid(1234)
c = socket.create_connection(('{self.b.ip4}', 5000)); c.sendall(b'x'); c.recv(1)
print('up', flush=True); time.sleep(3600)""",
            says="up",
        )
        self.assertPath(self.a, "smcd")
        wire = self.a.run(["ss", "-Htne", "dst", f"{self.b.ip4}:5000"]).stdout
        self.assertIn("uid:1234", wire)

    def test_a_device_that_appears_later(self):
        self.start_agents()
        self.lab.link(self.a, self.b)
        for node in (self.a, self.b):
            wait_for("the new device", lambda: node.device in node.agent.status()["namespaces"][0]["devices"])
        self.serve()
        self.assertTrue(self.connect(self.b.ip4)["ok"])
        self.assertPath(self.b, "smcd")

    def test_clsact_where_there_is_no_tcx(self):
        self.a.start_agent()
        self.b.start_agent(bpf={"tc": "clsact"})
        self.serve()
        self.assertTrue(self.connect()["ok"])
        self.assertPath(self.b, "smcd")
        for side in ("ingress", "egress"):
            self.assertIn("smc_", sh("tc", "-n", self.b.netns, "filter", "show", "dev", self.b.device, side))
        self.assertEqual(self.b.agent.stop(), 0)
        for side in ("ingress", "egress"):
            self.assertNotIn("smc_", sh("tc", "-n", self.b.netns, "filter", "show", "dev", self.b.device, side))

    def test_maps_can_be_read_by_a_person(self):
        self.start_agents()
        self.serve()
        keep = self.program(
            self.a,
            f"""
import socket, time
c = socket.create_connection(('{self.b.ip4}', 5000)); c.sendall(b'x'); c.recv(1)
print('up', flush=True); time.sleep(3600)""",
            says="up",
        )
        # P1.
        hairpins = self.table(self.a, "smc_hairpins")
        keys = [entry["key"] for entry in hairpins]
        self.assertEqual([(key["remote_ip"][12:], key["remote_port"]) for key in keys], [([10, 77, 0, 2], 5000)] * 2)
        ports = {entry["key"]["local_port"]: entry["value"]["to_port"] for entry in hairpins}
        one, other = ports
        self.assertEqual((ports[one], ports[other]), (other, one))
        servers = self.table(self.a, "smc_servers")
        self.assertEqual(servers[0]["value"]["knowledge"], "SMC_SERVER_CAPABLE")
        counters = sh("bpftool", "map", "dump", "pinned", f"{self.a.pins}/smc_counters")
        self.assertIn("SMC_OUT_ASKED", counters)
        self.assertEqual([c["pid"] for c in self.a.agent.connections()], [keep.pid])
        names = {os.path.basename(p) for p in glob.glob(self.a.pins + "/*")}
        self.assertLessEqual(
            {
                "smc_config",
                "smc_rules",
                "smc_cgroups",
                "smc_netns",
                "smc_devices",
                "smc_servers",
                "smc_requests",
                "smc_hairpins",
                "smc_inbound",
                "smc_counters",
                "smc_heartbeat",
            },
            names,
        )


if __name__ == "__main__":
    unittest.main()
