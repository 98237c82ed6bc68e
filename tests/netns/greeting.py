# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""A server that greets, clients that check the greeting, and foreign BPF programs."""
import json
import os

from base import TIME_ENOUGH, TwoNodes
from lab.basics import sh, wait_for

# A server that greets every client with 100 bytes, and expects a token of 4 bytes. When its stdin ends, it prints how
# many connections ended in which way. Arguments: backlog, seconds between two accept(), "close" if it closes first.
GREETER = """
import collections, json, socket, sys, threading, time
ends, backlog, pause = collections.Counter(), int(sys.argv[1]), float(sys.argv[2])
s = socket.socket(socket.AF_INET6); s.setsockopt(41, 26, 0); s.setsockopt(1, 2, 1); s.bind(('::', 5000))
s.listen(backlog); print('ready', flush=True)
def serve(c, _):
    token = b''
    try:
        c.sendall(b'x' * 100); token = c.recv(4)
        while sys.argv[3] != 'close' and token and c.recv(100): pass
        how = 'ended' if token else 'ended without a token'
    except OSError: how = 'failed' if token else 'failed without a token'
    c.close(); ends[how] += 1
def accept():
    while True:
        threading.Thread(target=serve, args=s.accept(), daemon=True).start(); ends['accepted'] += 1; time.sleep(pause)
threading.Thread(target=accept, daemon=True).start(); sys.stdin.read(); print(json.dumps(ends), flush=True)
"""

# Clients of it: {"to": address, "threads": n, "count": connections of each, "told": fewer if stdin ends before, "own":
# [port, ...], "last": closes last}. Prints how many ended in which way, and the times of connect(), the longest first.
CLIENTS = """
import collections, errno, json, socket, struct, sys, threading, time
spec, ends, times, stop = json.loads(sys.argv[1]), collections.Counter(), [0], threading.Event()
if spec.get('told'): threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
def name(e): return errno.errorcode.get(e.errno, str(e))
def once(own):
    c = socket.socket(socket.AF_INET6 if ':' in spec['to'] else socket.AF_INET)
    c.settimeout(spec.get('timeout', 15)); got = 0
    if own:
        c.setsockopt(1, 2, 1); c.setsockopt(1, 13, struct.pack('ii', 1, 0)); c.bind(('', own))
    began = time.monotonic()
    try: c.connect((spec['to'], 5000))
    except OSError as e: return 'connect: ' + name(e)
    finally: times.append(time.monotonic() - began)
    try:
        c.sendall(b'tokn')
        while got < 100 or spec.get('last'):
            data = c.recv(1000)
            if not data: break
            got += len(data)
        return 'ok' if got == 100 else 'clean end after %d bytes' % got
    except OSError as e: return name(e)
    finally: c.close()
def many(owns):
    for own in owns:
        if not stop.is_set(): ends[once(own)] += 1
owns = spec.get('own') or [None] * spec['count']
threads = [threading.Thread(target=many, args=(owns,)) for _ in range(spec.get('threads', 1))]
[t.start() for t in threads]; [t.join() for t in threads]
print(json.dumps({'ends': ends, 'longest': sorted(times, reverse=True)[:20]}))
"""

PROGRAMS = """
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
SEC("%s") int program(void *ctx) { %s }
char _license[] SEC("license") = "GPL";
"""


class Greeting(TwoNodes):
    def greeter(self, backlog=4096, pause=0.0, how="wait"):
        return self.program(self.b, GREETER, backlog, pause, how, says="ready")

    def all_ok(self, expected, within=1.0, **spec):
        """One connect() in a hundred may take longer, as it does when an agent gets no processor for a while."""
        done = self.a.python(CLIENTS, json.dumps({"to": self.b.ip4, **spec}), timeout=200)
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads(done.stdout)
        self.assertEqual(found["ends"], {"ok": expected})
        self.assertLess(found["longest"][expected // 100], within, found["longest"])

    def start_agents(self, **overrides):
        """Starts agents whose timeouts are long enough to accelerate every connection."""
        super().start_agents(**{**TIME_ENOUGH, **overrides})

    def still_smcd(self, count=1, **spec):
        before = self.a.agent.totals().get(("smcd", "none"), 0)
        self.all_ok(count, count=count, **spec)
        self.assertEqual(self.a.agent.totals().get(("smcd", "none"), 0), before + count)

    def known_gap(self, scene):
        """How often the effect of the gap, which scene() counts, occurs without agents (hardly ever) and with them
        (more often). On a busy machine a single scene may show something else, so each is tried up to five times."""
        plain = next((n for n in (scene() for _ in range(5)) if n <= 5), None)
        self.assertIsNotNone(plain, "it happens with plain TCP")
        self.start_agents()
        found = next((n for n in (scene() for _ in range(5)) if n > plain), None)
        self.assertIsNotNone(found, f"it happens no more often than with plain TCP, {plain}: is the gap closed?")
        return plain, found

    def nothing_left(self):
        """Agents have no connections, and the only sockets are listeners and those in TIME_WAIT."""
        for node in (self.a, self.b):
            wait_for("the agent's connections to end", lambda: not node.agent.connections(), 60)
            state = ["state", "connected", "exclude", "time-wait"]
            wait_for("sockets to go", lambda: not node.run(["ss", "-Htn", *state]).stdout, 60)

    def foreign(self, kind, section, body):
        """Compiles, loads and pins a foreign program."""
        source = self.a.write("foreign.c", PROGRAMS % (section, body))
        machine = f"-I/usr/include/{os.uname().machine}-linux-gnu"
        sh("clang-14", "-O2", "-target", "bpf", machine, "-c", source, "-o", source[:-1] + "o")
        pins = f"/sys/fs/bpf/{self.lab.tag}-foreign"
        os.makedirs(pins, exist_ok=True)
        sh("bpftool", "prog", "load", source[:-1] + "o", f"{pins}/{section}", "type", kind)
        return f"{pins}/{section}"
