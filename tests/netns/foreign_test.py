# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Unmodified programs between two pods of a node: past TCP if they prove fit for it, and over tuned TCP.

Clients written here send and receive pieces of one file of noise, 1 B to 1 MB long and from changing offsets, with
pauses, over connections that they keep. Each byte that comes is compared. The clients run until their connections have
been seen to take the right path.
"""
import os
import random
import re
import shutil
import subprocess
import tempfile
import unittest

import bypass_pairs
from base import TwoPods
from foreign_programs import (
    ASYNCIO_CLIENT,
    ASYNCIO_SERVER,
    FILES,
    GO,
    HAPROXY,
    JAVA,
    NGINX,
    NODE_CLIENT,
    NODE_SERVER,
    PROXY,
    WAITING_CLIENT,
)
from lab.basics import wait_for

MEMBER = "SMC_MEMBER_MEMBER"
WAITS, SHORT_READS = 1, 16384  # of enum smc_habit
ENOUGH = 50  # messages past TCP, each way
PROVEN = 32  # receives: SMC_PROOF
SIZES = [1, 2, 100, 1447, 4096, 16384, 20000, 65536, 100_001, 300_000, 1 << 20]
POSTGRES = "/usr/lib/postgresql/15/bin"
WEB, BEHIND, ECHO, DATABASE = 8080, 8081, 5000, 5432

# An end of a pair that waits for edges only, and takes a read that does not fill its buffer as the end of the available
# data, as epoll(7) allows.
EDGES = f"""
import select, sys
sys.path.insert(0, {os.path.dirname(bypass_pairs.PEER)!r})
import pair_peer

class End(pair_peer.End):
    def __init__(self, sock):
        super().__init__(sock)
        self.epoll = select.epoll()
        self.epoll.register(sock, select.EPOLLIN | select.EPOLLET)

    def receive(self, count, chunk=16384):
        end = self.received + count
        while self.received < end:
            if not self.epoll.poll(3):
                raise TimeoutError(f'no edge, {{end - self.received}} are missing')
            full = True
            while full:
                try: data = self.sock.recv(chunk)
                except BlockingIOError: break
                self.check(data)
                full = len(data) == chunk
        return count

pair_peer.End = End
pair_peer.main()
"""


# The same with reads of exactly what it expects. It reads on after each, because that was full.
EDGES_BY_PIECES = EDGES.replace("full = True", "chunk = min(chunk, count); full = True")


class PairOfEdges(bypass_pairs.Pair):
    source = EDGES

    def start(self, pod, *arguments):
        return self.test.program(pod, self.source, *arguments)


class PairOfPieces(PairOfEdges):
    source = EDGES_BY_PIECES


class Programs:
    """Each test runs in both classes below, which set the path and how it is recognised."""

    def setUp(self):
        super().setUp()
        self.files = tempfile.mkdtemp(prefix="smc-foreign-")
        self.addCleanup(shutil.rmtree, self.files, ignore_errors=True)
        os.chmod(self.files, 0o755)  # PostgreSQL runs as another user
        os.mkdir(f"{self.files}/www")
        self.noise = random.Random(7).randbytes(3 << 20)
        for name in ("noise", "www/noise"):
            self.write(name, self.noise)
        self.begin()

    def write(self, name, content):
        with open(f"{self.files}/{name}", "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())
        return name

    def pieces(self, count):
        for n in range(count):
            at = n * 7919 % (1 << 20)
            yield self.noise[at : at + SIZES[n % len(SIZES)]]

    def server(self, pod, port, *command):
        process = pod.popen(command, stdout=subprocess.DEVNULL, cwd=self.files)
        self.addCleanup(lambda: (process.terminate(), process.wait(10)))
        wait_for(f"{command[0]} on {port}", lambda: f":{port} " in pod.run(["ss", "-Hltn"]).stdout, 60)

    def client(self, *command):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        process = self.one.popen(command, cwd=self.files, **pipes)
        self.addCleanup(self.end_program, process)
        return process

    def finish(self, process, told=None):
        """The program's output; it must have ended with status 0."""
        out, _ = process.communicate(told, timeout=60)
        self.assertEqual(process.returncode, 0)
        return out

    def ask(self, *command, look, sizes=SIZES):
        """Runs a client that sends pieces, until its connections were looked at."""
        process = self.client(*command, *map(str, sizes))
        look(process)
        self.assertRegex(self.finish(process, "stop\n"), r"^\d+ good\n$")

    # --- HTTP
    def nginx(self, pod, port, what, **more):
        self.write(f"nginx-{port}.conf", NGINX.format(port=port, more=what.format(port=port, **more)))
        self.server(pod, port, "nginx", "-e", "stderr", "-p", self.files, "-c", f"nginx-{port}.conf")

    def haproxy(self):
        """Runs HAProxy in pod two, in front of a server in pod one."""
        config = self.write("haproxy.cfg", HAPROXY.format(port=WEB, ip=self.one.ip4, behind=BEHIND))
        self.server(self.two, WEB, "haproxy", "-q", "-db", "-f", config)

    def ask_by_http(self, how, look):
        self.ask("node", "-e", NODE_CLIENT, self.two.ip4, str(WEB), how, look=look)

    # It waits for edges, and trusts a short read, or FIONREAD.
    def test_nginx(self):
        self.nginx(self.two, WEB, FILES)
        self.ask_by_http("ranges", look=self.is_left_alone(WEB, SHORT_READS))

    def test_nginx_that_is_sent_much(self):
        self.nginx(self.two, WEB, FILES)
        self.ask_by_http("files", look=self.is_left_alone(WEB, SHORT_READS))

    def test_nginx_between(self):
        self.server(self.one, BEHIND, "node", "-e", NODE_SERVER, str(BEHIND))
        self.nginx(self.two, WEB, PROXY, ip=self.one.ip4, behind=BEHIND)
        self.ask_by_http("echo", look=self.is_left_alone(WEB, SHORT_READS))

    def test_haproxy_before_nginx(self):
        self.nginx(self.one, BEHIND, FILES)
        self.haproxy()
        self.ask_by_http("ranges", look=self.goes_by(WEB))

    def test_haproxy_before_node(self):
        self.server(self.one, BEHIND, "node", "-e", NODE_SERVER, str(BEHIND))
        self.haproxy()
        self.ask_by_http("echo", look=self.goes_by(WEB, BEHIND))

    def test_go(self):
        self.write("main.go", GO)
        choices = {"CGO_ENABLED": "0", "GOFLAGS": "-mod=mod", "GOPROXY": "off", "GOCACHE": f"{self.files}/cache"}
        build = ["go", "build", "-o", "talk", "main.go"]
        subprocess.run(build, cwd=self.files, env={**os.environ, **choices}, check=True)
        program = f"{self.files}/talk"
        self.server(self.two, WEB, program, "serve", str(WEB))
        # It waits for edges, but reads once more before it waits; with short messages the number of reads shows that.
        self.ask(program, "ask", f"{self.two.ip4}:{WEB}", look=self.goes_by(WEB), sizes=SIZES[:5])

    # --- a database
    def postgres(self):
        """Runs a server; arguments for its clients, which follow the name of the program."""
        data, user = f"{self.files}/data", "setpriv --reuid postgres --regid postgres --clear-groups".split()
        os.mkdir(data)
        shutil.chown(data, "postgres", "postgres")
        self.two.run([*user, f"{POSTGRES}/initdb", "-A", "trust", "--no-sync", "-D", data], check=True)
        with open(f"{data}/pg_hba.conf", "a") as file:
            file.write("host all all 10.0.0.0/8 trust\n")
        choices = ["listen_addresses=*", "unix_socket_directories=", "fsync=off", "log_min_messages=fatal"]
        options = [word for choice in choices for word in ("-c", choice)]
        self.server(self.two, DATABASE, *user, f"{POSTGRES}/postgres", "-D", data, *options)
        where = ["-h", self.two.ip4, "-U", "postgres"]
        wait_for("the database", lambda: self.one.run([f"{POSTGRES}/pg_isready", *where]).returncode == 0, 60)
        return where

    def psql(self, where, *statements):
        self.write("statements", "\n".join(statements))
        return self.client(f"{POSTGRES}/psql", *where, "-qAtX", "-v", "ON_ERROR_STOP=1", "-f", "statements")

    def test_pgbench(self):
        where = self.postgres()
        self.one.run([f"{POSTGRES}/pgbench", *where, "-iq", "postgres"], check=True)
        bench = self.client(f"{POSTGRES}/pgbench", *where, "-n", "-c4", "-T10", "postgres")
        self.goes_by(DATABASE)(bench)
        done = re.search(r"actually processed: (\d+)\n.*failed transactions: 0 ", self.finish(bench))[1]
        found = self.psql(
            where,
            "SELECT count(*), sum(delta) FROM pgbench_history; SELECT sum(abalance) FROM pgbench_accounts;",
            "SELECT sum(bbalance) FROM pgbench_branches; SELECT sum(tbalance) FROM pgbench_tellers;",
        )
        history, accounts, branches, tellers = self.finish(found).split()
        self.assertEqual([history, branches, tellers], [f"{done}|{accounts}", accounts, accounts])

    def test_psql(self):
        """Pieces there and back, each a statement; before that small ones, until the connection was observed."""
        where = self.postgres()
        pieces = [piece.hex() for piece in self.pieces(3 * len(SIZES))]
        waits = ["SELECT pg_sleep(0.005);"] * 1500
        process = self.psql(where, *waits, *[f"SELECT '{piece}';" for piece in pieces])
        self.goes_by(DATABASE)(process)
        self.assertEqual(self.finish(process).split(), pieces)

    # --- echoes
    def java(self, what, look):
        self.write("Echo.java", JAVA)
        java = "java", "-XX:TieredStopAtLevel=1", "-Xmx256m", "Echo.java"
        self.server(self.two, ECHO, *java, "serve", str(ECHO))
        self.ask(*java, what, self.two.ip4, str(ECHO), look=look)

    def test_java_with_a_selector(self):
        self.java("ask", look=self.goes_by(ECHO))

    def test_java_that_waits(self):
        self.java("wait", look=self.is_left_alone(ECHO, WAITS))

    def python(self, client, look):
        python = "/usr/bin/python3", "-c"
        self.server(self.two, ECHO, *python, ASYNCIO_SERVER, str(ECHO))
        self.ask(*python, client, self.two.ip4, str(ECHO), look=look)

    def test_python_with_asyncio(self):
        self.python(ASYNCIO_CLIENT, look=self.goes_by(ECHO))

    def test_python_that_waits(self):
        self.python(WAITING_CLIENT, look=self.is_left_alone(ECHO, WAITS))

    def test_who_waits_for_edges(self):
        self.wait_for_edges(PairOfEdges(self))

    def test_who_waits_for_edges_and_reads_pieces(self):
        self.wait_for_edges(PairOfPieces(self))

    def wait_for_edges(self, pair):
        """While it has unread data that came past TCP, more comes by TCP, for which there is no further edge."""
        pair.exchange(bypass_pairs.PROOF)
        self.is_left_alone(ECHO, SHORT_READS)(pair.client)
        pair.exchange(1)
        count = 30_000  # 300 messages: more than may be on their way past TCP
        self.assertEqual(pair.ask(pair.client, "send", count=count, chunk=100), count)

        def acknowledged():
            (line,) = self.one.run(["ss", "-Htn", f"dport = :{ECHO}"]).stdout.splitlines()
            return line.split()[2] == "0"

        wait_for("TCP's to have come", acknowledged, 60)
        self.assertEqual(pair.ask(pair.server, "receive", count=count), count)


class PastTcp(Programs, TwoPods):
    members = bypass_pairs.Pairs.members

    def begin(self):
        self.start(local={"bypass": "force"})

    def ends(self, port):
        return [m for m in self.members() if port in (m["app"]["local_port"], m["app"]["remote_port"])]

    def until(self, what, process, condition):
        def so():
            self.assertIsNone(process.poll(), f"it has ended before {what}")
            return condition()

        return wait_for(what, so, 60)

    # --- ports whose connections are left alone
    def goes_by(self, *ports):
        def enough(port, client):
            ends = [m for m in self.ends(port) if m["client"] == client and m["state"] == MEMBER]
            return sum(m["messages"] for m in ends) >= ENOUGH

        def look(process):
            for port in ports:
                self.until(f"messages past TCP, port {port}", process, lambda: enough(port, 0) and enough(port, 1))

        return look

    def is_left_alone(self, port, habit):
        """Its ends have received often enough to be fit, and the agent has noticed the obstacle."""

        def seen():
            ends = self.ends(port)
            enough = len(ends) >= 2 and all(m["received"] >= PROVEN for m in ends)
            return enough and any(m["habits"] & habit for m in ends) and ends

        def look(process):
            found = self.until(f"habit {habit} at port {port}", process, seen)
            self.assertEqual({m["messages"] for m in found}, {0})

        return look


class Tuned(Programs, TwoPods):
    def begin(self):
        for pod in (self.one, self.two):
            pod.run(["sysctl", "-qw", "net.ipv4.tcp_congestion_control=bbr"], check=True)
        self.start(local={"bypass": "off"})

    def goes_by(self, *ports):
        """The connection is tuned: neither end is paced."""

        def both_ends(port):
            return {c["role"] for c in self.a.agent.connections(port)} == {"client", "server"}

        def look(_):
            for port in ports:
                wait_for("connections", lambda: both_ends(port), 60)
                self.assertEqual({c["path"] for c in self.a.agent.connections(port)}, {"tuned"})
                for pod in (self.one, self.two):
                    said = pod.run(["ss", "-Htin", f"( sport = :{port} or dport = :{port} )"]).stdout
                    self.assertRegex(said, r"\breno\b")
                    self.assertNotRegex(said, r"\bbbr\b")

        return look

    def is_left_alone(self, port, _):
        return self.goes_by(port)


if __name__ == "__main__":
    unittest.main()
