# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""No bytes of a peer are lost, and resources that are no longer used are given back."""
import json
import os
import signal
import unittest

import base
from base import TIME_ENOUGH, TwoNodes
from lab.basics import sh, wait_for
from lab.sockets import waits_of

# Answers each request with "413" and a body of so many bytes, and closes with the request unread. Argument: body.
HASTY = """
import socket, sys
s = socket.socket(); s.setsockopt(1, 2, 1); s.bind(('0.0.0.0', 5000)); s.listen(100); print('ready', flush=True)
while True:
    c, _ = s.accept()
    c.recv(1, socket.MSG_PEEK); c.sendall(b'413' + b'x' * int(sys.argv[1])); c.close()
"""

# Uploads to HASTY so many times, and prints how many answers came whole, and how the connections ended.
UPLOADS = """
import collections, errno, json, socket, sys
whole, ends = 0, collections.Counter()
for _ in range(int(sys.argv[2])):
    c = socket.create_connection((sys.argv[1], 5000), 10); got = 0
    try: c.sendall(b'r' * int(sys.argv[3]))
    except OSError: pass
    try:
        while data := c.recv(65536): got += len(data)
        ends['end'] += 1
    except OSError as e: ends[errno.errorcode.get(e.errno, str(e))] += 1
    c.close(); whole += got == 3 + int(sys.argv[4])
print(json.dumps([whole, ends]))
"""

# Keeps every connection open, whatever its client does.
KEEPER = """
import socket
s = socket.socket(); s.setsockopt(1, 2, 1); s.bind(('0.0.0.0', 5000)); s.listen(100); print('ready', flush=True)
kept = []
while True:
    c, _ = s.accept(); kept.append(c)
    while c.recv(100): pass
    print('ended', flush=True)
"""


# Connects, sets options of its socket, sends at most so much without waiting, and prints how the connection ended.
PATIENT = """
import errno, json, select, socket, sys
c = socket.create_connection((sys.argv[1], 5000)); c.sendall(b'x')
for level, option, value in json.loads(sys.argv[2]): c.setsockopt(level, option, value)
c.setblocking(False); left = int(sys.argv[3]); poll = select.poll(); poll.register(c, select.POLLOUT)
while left > 0 and poll.poll(1000):
    try: left -= c.send(b'y' * 4096)
    except BlockingIOError: pass
print('ready', flush=True); sys.stdin.readline(); c.setblocking(True)
try: print(c.recv(10))
except OSError as e: print(errno.errorcode[e.errno])
"""

# Answers once, waits for more, and prints what came.
WAITER = """
import errno, socket
s = socket.socket(); s.setsockopt(1, 2, 1); s.bind(('0.0.0.0', 5000)); s.listen(100); print('ready', flush=True)
c, _ = s.accept(); c.sendall(c.recv(100)); c.settimeout(30)
try: print(c.recv(100), flush=True)
except TimeoutError: print('nothing', flush=True)
except OSError as e: print(errno.errorcode[e.errno], flush=True)
"""

# Sets keepalive on or off, and its time, by lines of stdin.
UNDECIDED = """
import socket, sys
c = socket.create_connection((sys.argv[1], 5000), 10); c.sendall(b'x'); c.recv(1); print('ready', flush=True)
for line in sys.stdin:
    on, idle = map(int, line.split())
    c.setsockopt(1, 9, on); c.setsockopt(6, 4, idle); print('chosen', flush=True)
"""


# Closes each connection at once.
CLOSES = """
import socket
s = socket.create_server(('::', 5000), family=socket.AF_INET6, dualstack_ipv6=True); print('ready', flush=True)
while True: s.accept()[0].close()
"""

# Reads the end of its connection, and when it is told to, writes until it hears of an error.
POOL = """
import errno, select, socket, sys
c = socket.create_connection((sys.argv[1], 5000), 10)
print('data' if c.recv(1) else 'end', flush=True); sys.stdin.readline(); c.send(bytes(100_000))
poll = select.poll(); poll.register(c, 0)
if not poll.poll(20000): print('nothing', flush=True)
try: c.send(b'x')
except OSError as e: print(errno.errorcode[e.errno], flush=True)
"""


# Reads when it is told to, and prints how many bytes there were, and how the stream ended.
LATE_READER = """
import errno, socket, sys
s = socket.socket(); s.setsockopt(1, 2, 1); s.bind(('0.0.0.0', 5000)); s.listen(); print('ready', flush=True)
c, _ = s.accept(); sys.stdin.readline(); got, end = 0, 'end'
try:
    while d := c.recv(65536): got += len(d)
except OSError as e: end = errno.errorcode[e.errno]
print(got, end, flush=True)
"""


class Loss(TwoNodes):
    def start(self, script, *arguments):
        return self.program(self.b, script, *arguments, says="ready")

    def uploads(self, count, request, body):
        done = self.a.python(UPLOADS, self.b.ip4, str(count), str(request), str(body), timeout=200)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_an_answer_before_a_close_with_the_request_unread(self):
        self.start(HASTY, "20")
        plain, _ = self.uploads(100, 1000, 20)
        self.assertEqual(plain, 100)
        self.start_agents(**TIME_ENOUGH)
        whole, ends = self.uploads(300, 1000, 20)
        self.assertEqual((whole, ends), (300, {"ECONNRESET": 300}))
        self.assertPath(self.a, "smcd", at_least=300)

    def test_an_answer_to_an_upload_that_is_not_read(self):
        self.start(HASTY, "2000")
        self.start_agents(**TIME_ENOUGH)
        whole, _ = self.uploads(40, 20_000_000, 2000)
        self.assertEqual(whole, 40)
        self.assertPath(self.a, "smcd", at_least=40)

    def test_a_half_closed_connection_whose_client_has_gone(self):
        """It is forgotten as by TCP after FIN-WAIT-2, whose length is set in the client's namespace."""
        sh("ip", "netns", "exec", self.a.netns, "sysctl", "-qw", "net.ipv4.tcp_fin_timeout=2")
        self.start_agents()
        server = self.start(KEEPER)
        done = self.a.python(f"import socket; socket.create_connection(('{self.b.ip4}', 5000)).send(b'x')")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.hear(server), "ended")
        for node in (self.a, self.b):
            wait_for("the connection to be forgotten", lambda: not node.agent.connections(), 30)
            self.assertPath(node, "smcd")

    def test_a_reader_that_is_late_for_a_client_that_has_gone(self):
        """For a late reader TCP keeps bytes that were written before close(), even after the client's FIN-WAIT-2."""
        sh("ip", "netns", "exec", self.a.netns, "sysctl", "-qw", "net.ipv4.tcp_fin_timeout=2")
        self.start_agents(smc={"close_timeout_ms": 1000})
        server = self.start(LATE_READER)
        write = f"import socket; socket.create_connection(('{self.b.ip4}', 5000), 10).sendall(b'x' * 900_000)"
        self.assertEqual(self.a.python(write).returncode, 0)
        self.assertPath(self.a, "smcd")
        # the client's FIN-WAIT-2, and with it the CLOSE-WAIT of the leg
        wait_for("the client's own socket to be forgotten", lambda: "WAIT" not in self.a.run(["ss", "-Htan"]).stdout)
        self.tell(server, "read")
        self.assertEqual(self.hear(server), "900000 end")
        for node in (self.a, self.b):
            wait_for("the connection to end", lambda: not node.agent.connections())

    def abandoned(self):
        return any("existing connections go on" in n["ipv4_obstacle"] for n in self.a.agent.status()["namespaces"])

    def test_a_writer_that_was_the_last_process_of_its_namespace(self):
        """Its socket still has bytes, which go to a reader that is late."""
        self.start_agents()
        server = self.start(LATE_READER)
        pod = self.pod()
        (sleeper,) = [p for p in self.lab.processes if p.args == ["sleep", "infinity"]]
        write = f"import socket; socket.create_connection(('{self.b.ip4}', 5000), 10).sendall(b'x' * 900_000)"
        self.assertEqual(pod.python(write).returncode, 0)
        self.assertPath(self.a, "smcd")
        sleeper.kill()
        sleeper.wait()
        wait_for("its namespace to be without processes", self.abandoned)
        self.tell(server, "read")
        self.assertEqual(self.hear(server), "900000 end")
        for node in (self.a, self.b):
            wait_for("the connection to end", lambda: not node.agent.connections())
        wait_for("its namespace to be closed", lambda: self.a.agent.prepared() == 1)

    def test_a_rule_that_does_not_select_an_application_any_more(self):
        """As for a pod that loses its label: its connections go on, and new ones are TCP until it is selected again."""
        elsewhere = f"{self.lab.cgroup}/elsewhere"
        os.makedirs(elsewhere)
        self.start_agents()
        self.serve()
        pod = self.pod()
        (sleeper,) = [p for p in self.lab.processes if p.args == ["sleep", "infinity"]]
        talk = self.program(pod, base.TALK, self.b.ip4, says="up")

        def move(cgroup):
            for process in (sleeper, talk):
                with open(f"{cgroup}/cgroup.procs", "w") as file:
                    file.write(str(process.pid))

        def is_smc():
            self.assertTrue(self.connect(node=pod)["ok"])
            return self.a.agent.totals()[("smcd", "none")] > 1

        self.assertEqual(self.a.agent.totals(), {("smcd", "none"): 1})
        move(elsewhere)
        wait_for("its namespace to be without processes", self.abandoned)
        self.tell(talk, "still")
        self.assertEqual(self.hear(talk), "still")
        move(pod.apps)
        wait_for("its namespace to be served again", lambda: not self.abandoned())
        wait_for("new connections to be SMC", is_smc)
        self.tell(talk, "again")
        self.assertEqual(self.hear(talk), "again")

    def test_a_writer_that_comes_back_after_its_peer_has_gone(self):
        """As with an idle connection of a pool: its peer has closed, and neither agent has anything left of it."""
        for node in (self.a, self.b):
            node.run(["sysctl", "-qw", "net.ipv4.tcp_fin_timeout=1"], check=True)
        self.start_agents(smc={"close_timeout_ms": 200})
        self.program(self.b, CLOSES, says="ready")
        pools = [self.program(self.a, POOL, ip, says="end") for ip in (self.b.ip4, self.b.ip6)]
        self.assertPath(self.a, "smcd", at_least=2)
        for node in (self.a, self.b):
            wait_for("both agents to forget them", lambda: not node.agent.connections())
            wait_for("their hairpins to go", lambda: not self.table(node, "smc_hairpins"), 60)
        for pool in pools:
            self.tell(pool, "write")
            self.assertEqual(self.hear(pool), "EPIPE")
        self.assertGreaterEqual(self.decisions(self.a)["SMC_LEG_GONE"], 2)

    def cut_off(self, options, size):
        """How a connection ends when the wire is cut, if its application has chosen a timeout of a few seconds."""
        self.start_agents(smc={"keepalive_s": 600})
        self.start(
            "import socket, time; s = socket.create_server(('0.0.0.0', 5000)); print('ready', flush=True)\n"
            "k = s.accept(); time.sleep(3600)"
        )
        client = self.program(self.a, PATIENT, self.b.ip4, json.dumps(options), size, says="ready")
        self.assertPath(self.a, "smcd")
        timers = ["ss", "-Htno", "state", "established", "dport", "5000"]
        wait_for("it to be passed on", lambda: "min" not in self.a.run(timers).stdout, 60)
        rules = "table inet cut { chain c { type filter hook prerouting priority -300; tcp dport 5000 drop; }; }"
        sh("ip", "netns", "exec", self.b.netns, "nft", rules)
        return client.communicate("\n", timeout=40)[0]

    def test_keepalive_of_an_application_holds_on_the_wire(self):
        options = [(1, 9, 1), (6, 4, 1), (6, 5, 1), (6, 6, 2)]  # SO_KEEPALIVE, TCP_KEEPIDLE, _KEEPINTVL, _KEEPCNT
        self.assertEqual(self.cut_off(options, 0), "ECONNRESET\n")

    def test_keepalive_follows_an_application_that_changes_its_mind(self):
        self.start_agents(smc={"keepalive_s": 600})
        self.serve()
        client = self.program(self.a, UNDECIDED, self.b.ip4, says="ready")
        self.assertPath(self.a, "smcd")
        for chosen, on_the_wire in (("1 77", [1, 77]), ("1 99", [1, 99]), ("0 99", [1, 600]), ("1 77", [1, 77])):
            self.tell(client, chosen)
            self.assertEqual(self.hear(client), "chosen")
            found = lambda: [waits[:2] for waits in waits_of(self.a.agent.pid, 5000)]
            wait_for(f"{chosen} to be passed on", lambda: on_the_wire in found())

    def test_a_user_timeout_of_an_application_holds_on_the_wire(self):
        # As much as the ring takes: for bytes that wait before it, the application's own TCP may time out first.
        self.assertEqual(self.cut_off([(6, 18, 3000)], 900_000), "ECONNRESET\n")

    def test_a_reset_that_finds_no_neighbour_is_made_up_for(self):
        """The client's host disappears from the Ethernet at once, as in a power failure: it answers no ARP either."""
        self.start_agents()
        server = self.start(WAITER)
        self.program(self.a, PATIENT, self.b.ip4, "[]", 0, says="ready")
        wait_for("the server's agent to have it", lambda: ("smcd", "none") in self.b.agent.totals())
        self.a.run(["sysctl", "-w", f"net.ipv4.conf.{self.a.device}.arp_ignore=8"], check=True)
        self.b.run(["ip", "neigh", "del", self.a.ip4, "dev", self.b.device], check=True)
        self.a.agent.send_signal(signal.SIGKILL)
        self.assertEqual(self.hear(server), "ECONNABORTED")
        wait_for("the log to tell", lambda: "half-open: ended the application's socket " in self.b.agent_log())

    def test_a_half_closed_connection_that_is_used(self):
        sh("ip", "netns", "exec", self.a.netns, "sysctl", "-qw", "net.ipv4.tcp_fin_timeout=2")
        self.start_agents()
        self.b.popen(
            [
                "/usr/bin/python3",
                "-c",
                "import socket, time; s = socket.create_server(('0.0.0.0', 5000)); c, _ = s.accept()\n"
                "while c.recv(100): pass\n"
                "time.sleep(8); c.sendall(b'late')",  # longer than the keepalive probes of the half-closed leg
            ]
        )
        done = self.a.python(
            f"""
import socket, time
while True:
    try: c = socket.create_connection(('{self.b.ip4}', 5000)); break
    except ConnectionRefusedError: time.sleep(0.01)
c.send(b'x'); c.shutdown(socket.SHUT_WR); print(c.recv(10))
"""
        )
        self.assertEqual(done.stdout, "b'late'\n", done.stderr)
        self.assertPath(self.a, "smcd")


if __name__ == "__main__":
    unittest.main()
