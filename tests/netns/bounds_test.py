# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Limits on what an application or a pod can take or do to others: docs/security.md."""
import contextlib
import glob
import json
import os
import resource
import subprocess
import time
import unittest

from base import CLIENT, TwoNodes
from lab.basics import is_sanitized, wait_for
from lab.rawtcp import SMC_OPTION

# Begins connections that no host answers, and keeps them. Arguments: address, port, how many.
FLOOD = """
import resource, socket, sys, time
address, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_NOFILE, (count + 100, count + 100))
held = []
for _ in range(count):
    s = socket.socket(); s.setblocking(False)
    s.connect_ex((address, port)); held.append(s)
print('held', flush=True); time.sleep(60)
"""

# Runs a BPF program of the type syscall again and again. Argument: its number.
SWEEPS = """
import ctypes, platform, struct, sys
GET_FD_BY_ID, TEST_RUN, BPF = 13, 10, 321 if platform.machine() == 'x86_64' else 280
libc = ctypes.CDLL(None, use_errno=True)
def bpf(command, attributes):
    got = libc.syscall(BPF, command, ctypes.create_string_buffer(attributes), len(attributes))
    if got < 0:
        raise OSError(ctypes.get_errno(), f'bpf {command}')
    return got
program = bpf(GET_FD_BY_ID, struct.pack('I12x', int(sys.argv[1])))
clock = ctypes.create_string_buffer(24)
run = struct.pack('I36xI4xQ24x', program, len(clock), ctypes.addressof(clock))
bpf(TEST_RUN, run)
print('sweeping', flush=True)
while True:
    ctypes.memset(clock, 0, len(clock))
    bpf(TEST_RUN, run)
"""

# Sends SYNs with the option and nothing more, each from another port. Arguments: device, address, server's, option.
SYNS = """
import socket, struct, sys
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether
device, own, peer, option = sys.argv[1:]
syn = Ether(dst='ff:ff:ff:ff:ff:ff') / IP(src=own, dst=peer) / TCP(sport=0, dport=5000, flags='S', options=[
    (254, bytes.fromhex(option)[2:]), ('NOP', None), ('NOP', None)])
frame = bytearray(bytes(syn))
checksum = struct.unpack_from('!H', frame, 50)[0]
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW); s.bind((device, 0))
for port in range(2000, 60000):
    total = checksum + 0xffff - port  # as by RFC 1624, the port having been 0
    struct.pack_into('!H', frame, 34, port)
    struct.pack_into('!H', frame, 50, (total & 0xffff) + (total >> 16))
    s.send(frame)
"""

# An application that prints what it receives, and sends each line of its stdin.
TALKER = """
import socket, sys
c = socket.create_connection((sys.argv[1], 5000)); c.settimeout(10)
print(c.getsockname()[1], flush=True)
for line in sys.stdin:
    try:
        c.sendall(line.encode()); print(c.recv(100).decode().strip() or 'end', flush=True)
    except OSError as e: print(type(e).__name__, flush=True)
"""

# Prints the port of a leg, and the sequence number that it expects next. Arguments: device, the application's port.
LISTENER = """
import json, socket, struct, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800)); s.bind((sys.argv[1], 0))
print('ready', flush=True)
while True:
    f = s.recv(65536)
    if f[23] != 6: continue
    tcp = 14 + (f[14] & 15) * 4
    sport, dport, seq = struct.unpack_from('!HHI', f, tcp)
    data = struct.unpack_from('!H', f, 16)[0] + 14 - tcp - (f[tcp + 12] >> 4) * 4
    if sport == 5000 and dport != int(sys.argv[2]) and data > 0:
        print(json.dumps({'port': dport, 'next': (seq + data) % 2**32}), flush=True)
        break
"""

# Sends a RST in the application's name. Arguments: device, its address and port, the peer's address, sequence number.
FORGER = """
import sys
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether
from scapy.sendrecv import sendp
device, own, port, peer, number = sys.argv[1:]
rst = TCP(sport=int(port), dport=5000, seq=int(number), flags='R')
sendp(Ether(dst='ff:ff:ff:ff:ff:ff') / IP(src=own, dst=peer) / rst, iface=device, verbose=False)
"""


# Connects to an address and port, says something, and prints what becomes of it.
STRANGER = """
import errno, socket, sys
try:
    c = socket.create_connection((sys.argv[1], int(sys.argv[2])), 20)
    c.sendall(bytes(100)); print(c.recv(1))
except OSError as e:
    print(errno.errorcode[e.errno])
"""


class Bounds(TwoNodes):
    def test_who_asks_too_much_leaves_requests_to_the_others(self):
        self.start_agents(limits={"cgroup_percent": 20})
        self.serve()
        others = f"{self.a.cgroup}/others"
        os.makedirs(others)
        most = 32768 * 20 // 100
        self.sweep_meanwhile(lambda: self.flood([9000], 8000))
        asked = self.a.agent.decisions()["SMC_OUT_ASKED"]
        self.assertAlmostEqual(asked, most, delta=2)  # each processor may be between two counts
        self.assertEqual(self.a.agent.decisions()["SMC_OUT_REQUESTS_FULL"], 8000 - asked)
        self.assertTrue(self.connect()["ok"])
        self.assertEqual(self.a.agent.decisions()["SMC_OUT_REQUESTS_FULL"], 8001 - asked)
        self.assertEqual(self.a.agent.totals(), {})

        def accelerated():
            done = self.a.python(CLIENT, self.b.ip4, 5000, 10, cgroup=others)
            self.assertTrue(json.loads(done.stdout)["ok"])
            return ("smcd", "none") in self.a.agent.totals()

        wait_for("another cgroup to be accelerated", accelerated)
        # A request that is answered, by a RST here, does not count.
        for _ in range(3):
            done = self.a.python(CLIENT, self.b.ip4, 5001, 10, cgroup=others)
            self.assertEqual(json.loads(done.stdout)["error"], "ECONNREFUSED")
        counts = [entry["value"]["now"] for entry in self.table(self.a, "smc_req_counts")]
        self.assertEqual(max(counts), asked)
        self.assertLessEqual(sum(counts) - asked, 1)  # the accelerated connection, for a while

    def programs_of(self, pid):
        """The BPF programs for which the process has a descriptor."""
        found = set()
        for path in glob.glob(f"/proc/{pid}/fdinfo/*"):
            with contextlib.suppress(FileNotFoundError), open(path) as file:
                found |= {int(line.split()[1]) for line in file if line.startswith("prog_id:")}
        return found

    def sweep_meanwhile(self, do):
        """Sweeps the tables of a's BPF programs without a pause, meanwhile."""
        shown = subprocess.run(["bpftool", "-j", "prog", "show", "name", "smc_sweep"], check=True, capture_output=True)
        all_agents = {program["id"] for program in json.loads(shown.stdout)}
        [mine] = all_agents & self.programs_of(self.a.agent.pid)
        sweeps = self.program(self.a, SWEEPS, mine, says="sweeping")
        do()
        self.assertIsNone(sweeps.poll())
        self.end_program(sweeps)

    def flood(self, ports, each):
        """Makes a's applications send SYNs that no host answers."""
        self.b.run(["nft", "add table ip t; add chain ip t c { type filter hook input priority 0; }"], check=True)
        self.b.run(["nft", "add rule ip t c tcp dport 9000-9099 drop"], check=True)
        for flood in [self.program(self.a, FLOOD, self.b.ip4, port, each) for port in ports]:
            self.assertEqual(self.hear(flood), "held")

    def test_who_fills_the_table_of_requests_leaves_tcp_to_the_others(self):
        self.start_agents(limits={"cgroup_percent": 100})
        self.serve()

        def left_alone():  # a cgroup whose quota is the whole table meets its quota first
            return sum(self.a.agent.decisions()[name] for name in ("SMC_OUT_TABLE_FULL", "SMC_OUT_REQUESTS_FULL"))

        # More than the table holds; if the machine is so slow that the first have expired by then, still more.
        for port in range(9000, 9012, 2):
            self.flood([port, port + 1], 16500)
            if before := left_alone():
                break
        self.assertGreater(before, 0)
        self.assertTrue(self.connect(timeout=5)["ok"])
        self.assertGreater(left_alone(), before)
        self.assertEqual(self.a.agent.totals(), {})

    def test_syns_that_ask_and_no_more_leave_plain_tcp_to_the_others(self):
        self.start_agents()
        self.serve()
        full = lambda: self.b.agent.decisions()["SMC_IN_TABLE_FULL"]
        flood = ["/usr/bin/python3", "-B", "-c", SYNS, self.a.device, "10.77.0.50", self.b.ip4, SMC_OPTION]
        self.a.run(flood, check=True)
        self.assertGreater(full(), 0)
        self.assertTrue(self.connect(timeout=10)["ok"])

        def accelerated():
            self.assertTrue(self.connect(timeout=10)["ok"])
            return ("smcd", "none") in self.a.agent.totals()

        wait_for("the table to be swept", accelerated, 20)

    def use_up_descriptors(self, agent):
        """Leaves the process no more descriptors. Returns the limits that it had."""
        used = {int(fd) for fd in os.listdir(f"/proc/{agent.pid}/fd")}
        lowest_free = min(set(range(len(used) + 1)) - used)
        return resource.prlimit(agent.pid, resource.RLIMIT_NOFILE, (lowest_free, 20000))

    @unittest.skipIf(is_sanitized(), "a sanitizer that finds no descriptor tells of faults that are none")
    def test_a_server_without_descriptors_says_yes_no_more(self):
        self.start_agents(fallback={"cache_s": 1})
        self.serve()
        self.assertTrue(self.connect()["ok"])
        wait_for("its end", lambda: not self.b.agent.connections())
        before = self.use_up_descriptors(self.b.agent)
        self.assertTrue(self.connect(timeout=5)["ok"])  # the server is remembered, so no query could deny it
        full = lambda: self.decisions(self.b)["SMC_IN_AGENT_FULL"]

        def asked_in_vain():
            self.assertAtOnce(self.connect())
            return full()

        wait_for("it to be asked again", asked_in_vain, 60)
        resource.prlimit(self.b.agent.pid, resource.RLIMIT_NOFILE, before)
        known = self.a.agent.totals()[("smcd", "none")]

        def accelerated():
            self.assertTrue(self.connect()["ok"])
            return self.a.agent.totals()[("smcd", "none")] > known

        wait_for("it to be itself again", accelerated, 10)

    @unittest.skipIf(is_sanitized(), "a sanitizer that finds no descriptor tells of faults that are none")
    def test_an_agent_without_descriptors_leaves_tcp_alone_and_serves_again(self):
        self.start_agents(fallback={"cache_s": 1})
        self.serve()
        self.assertTrue(self.connect()["ok"])
        agent = self.a.agent
        strangers = agent.decisions()["SMC_OUT_NOT_ENROLLED"]
        before = self.use_up_descriptors(agent)
        os.mkdir(f"{self.a.cgroup}/one-more")  # so that it looks for cgroups
        wait_for("the agent to miss descriptors", lambda: "new cgroups are not found for now" in self.a.agent_log())
        with self.subTest("it does not turn in circles"):
            began = self.processor_time(agent.pid)
            time.sleep(1)
            self.assertLess(self.processor_time(agent.pid) - began, 0.5)
        self.assertTrue(self.connect()["ok"])
        resource.prlimit(agent.pid, resource.RLIMIT_NOFILE, before)
        self.know(f"{self.a.cgroup}/one-more")
        self.assertNotIn("closed", self.a.agent_log())
        self.assertEqual(
            agent.decisions()["SMC_OUT_NOT_ENROLLED"], strangers
        )  # cgroups that it could not look at stay enrolled
        self.assertEqual(agent.totals()[("smcd", "none")], 1)

        def accelerated():
            self.assertTrue(self.connect()["ok"])
            return agent.totals()[("smcd", "none")] > 1

        wait_for("steering to go on", accelerated, 20)

    def test_the_agents_listener_takes_nobody_by_its_own_port(self):
        self.start_agents()
        self.serve()
        listeners = self.b.run(["ss", "-Hltn"], check=True).stdout.splitlines()
        ports = {int(line.split()[3].rsplit(":", 1)[1]) for line in listeners} - {5000}
        self.assertTrue(ports)
        for port in ports:
            script = json.dumps({"options": SMC_OPTION, "send": ["00" * 100], "listen_s": 5})
            seen = self.raw_results(self.raw(self.a, "10.77.0.50", "client", self.b.ip4, port, script))
            self.assertIn(seen[0]["ended"], ("rst", "refused"))
            self.assertEqual(seen[0]["received"], "")
            self.assertFalse(self.connect(port=port, timeout=5)["ok"])
        # Only programs of its own host reach it.
        lines = self.b.run(["ss", "-Hltnp"], check=True).stdout.splitlines()
        local = [line.split()[3].rsplit(":", 1) for line in lines if "smc-agent" in line]
        own = [(ip.strip("[]"), int(port)) for ip, port in local if int(port) != 7609]
        self.assertEqual({ip for ip, _ in own}, {"127.0.0.1", "::1"})
        for ip, port in own:
            self.assertEqual(self.b.python(STRANGER, ip, port, timeout=30).stdout, "ECONNRESET\n")
        self.assertEqual((self.b.agent.connections(), self.b.agent.totals()), ([], {}))

    def test_packets_of_a_leg_are_not_forged_by_another_pod(self):
        self.start_agents()
        self.serve()
        server = self.b.ip4
        pod = self.pod()
        talker = self.program(self.a, TALKER, server)
        port = int(self.hear(talker))

        def say(word):
            self.tell(talker, word)
            return self.hear(talker)

        self.assertEqual(say("one"), "one")
        self.assertPath(self.a, "smcd")
        listener = self.program(self.a, LISTENER, self.a.device, port, says="ready")
        self.assertEqual(say("two"), "two")
        leg = json.loads(self.hear(listener))
        forged = ["/usr/bin/python3", "-B", "-c", FORGER]
        pod.run([*forged, pod.device, self.a.ip4, str(port), server, str(leg["next"])], check=True)
        self.assertEqual(say("three"), "three")

        # from its own namespace it is the application's own packet
        number = str((leg["next"] + len("three\n")) % 2**32)
        self.a.run([*forged, self.a.device, self.a.ip4, str(port), server, number], check=True)
        wait_for("the leg to be reset", lambda: not self.a.agent.connections())


if __name__ == "__main__":
    unittest.main()
