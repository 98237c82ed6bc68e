# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Stock programs on two nodes (network namespaces with a cgroup and an smc-agent each), none of them changed.

Each workload runs over SMC-D and, in turn, from a cgroup that is not enrolled, which is plain TCP over the same
veth. Then the same against a node without an agent.
"""
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile

from lab.arguments import Arguments, set_up
from lab.basics import CTL, wait_for
from lab.nodes import Lab

FILE_BYTES = 1 << 30
IPERF_SECONDS = 3

# Sets and reads back values of many sizes; prints how many came back wrong.
REDIS_CHECK = """
import os, random, socket, sys
c = socket.create_connection((sys.argv[1], 6379)); f = c.makefile('rb'); r = random.Random(1); wrong = 0
for i in range(300):
    v = r.randbytes(r.randrange(1, 200000))
    c.sendall(b'*3\\r\\n$3\\r\\nSET\\r\\n$1\\r\\nk\\r\\n$%d\\r\\n' % len(v) + v + b'\\r\\n'); f.readline()
    c.sendall(b'*2\\r\\n$3\\r\\nGET\\r\\n$1\\r\\nk\\r\\n')
    n = int(f.readline()[1:]); wrong += f.read(n) != v; f.readline()
print(wrong)
"""


class Demo:
    def __init__(self, lab, client, server, scratch):
        self.lab, self.client, self.server, self.scratch = lab, client, server, scratch
        self.outside = lab.cgroup  # below no agent's root: plain TCP

    def call(self, command, steered, timeout=60):
        done = self.client.run(command, timeout=timeout, cgroup=None if steered else self.outside)
        if done.returncode != 0:
            raise RuntimeError(f"{command[0]} failed: {done.stdout[-300:]} {done.stderr[-300:]}")
        return done.stdout

    # --- the servers -----------------------------------------------------------------------------------
    def start_servers(self):
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        conf = f"{self.scratch}/nginx-{self.server.name}.conf"
        with open(conf, "w") as file:
            file.write(
                f"daemon off; pid {conf}.pid; error_log /dev/null; worker_processes 1; user root;\n"
                f"events {{ worker_connections 512; }}\n"
                f"http {{ access_log off; sendfile on; client_body_temp_path {self.scratch}/t;\n"
                f"server {{ listen 0.0.0.0:8080; root {self.scratch}/www; }} }}\n"
            )
        self.server.popen(["nginx", "-c", conf], **quiet)
        self.server.popen(
            [
                "redis-server",
                "--port",
                "6379",
                "--save",
                "",
                "--appendonly",
                "no",
                "--protected-mode",
                "no",
                "--dir",
                self.scratch,
            ],
            **quiet,
        )
        self.server.popen(["iperf3", "-s", "-p", "5201"], **quiet)
        for port in (8080, 6379, 5201):
            wait_for(f"port {port}", lambda p=port: f":{p} " in self.server.run(["ss", "-Hltn"]).stdout)

    # --- the workloads: each returns {metric value, mismatches, bytes} ------------------------------------
    def redis(self, steered):
        out = self.call(
            ["redis-benchmark", "-h", self.server.ip4, "-n", "60000", "-c", "20", "-t", "set,get", "--csv"], steered
        )
        rates = [
            float(line.split(",")[1].strip('"')) for line in out.splitlines() if line.startswith(('"SET"', '"GET"'))
        ]
        wrong = int(self.call(["/usr/bin/python3", "-c", REDIS_CHECK, self.server.ip4], steered))
        return {"value": sum(rates) / len(rates), "mismatches": wrong}

    def nginx(self, steered):
        url = f"http://{self.server.ip4}:8080/file"
        speed = float(self.call(["curl", "-sS", "-o", "/dev/null", "-w", "%{speed_download}", url], steered))
        got = self.call(["sh", "-c", f"curl -sS {url} | sha256sum"], steered).split()[0]
        return {"value": speed / 1e9, "mismatches": int(got != self.file_hash)}

    def iperf(self, steered, *reverse):
        out = json.loads(
            self.call(["iperf3", "-J", "-c", self.server.ip4, "-t", str(IPERF_SECONDS), *reverse], steered)
        )
        end = out["end"]
        short = end["sum_sent"]["bytes"] < end["sum_received"]["bytes"]
        return {"value": end["sum_received"]["bits_per_second"] / 8e9, "mismatches": int(short)}

    def workloads(self):
        return [
            ("redis set+get", "requests", "req/s", self.redis),
            ("nginx 1 GiB file", "throughput", "GB/s", self.nginx),
            ("iperf3 client sends", "throughput", "GB/s", lambda s: self.iperf(s)),
            ("iperf3 server sends", "throughput", "GB/s", lambda s: self.iperf(s, "-R")),
        ]

    # --- what the agent says about it ---------------------------------------------------------------------
    def snapshot(self):
        totals, decisions = self.client.agent.totals(), self.client.agent.decisions()
        seen = {c["id"]: c for c in self.client.agent.connections(ended=True) + self.client.agent.connections()}
        return totals, decisions, seen

    def measure(self, name, metric, unit, work, expected):
        totals0, decisions0, seen0 = self.snapshot()
        accelerated = work(True)
        wait_for("connections to end", lambda: not self.client.agent.connections())
        totals1, decisions1, seen1 = self.snapshot()
        plain = work(False)
        new = {
            path: sum(n for (p, _), n in totals1.items() if p == path)
            - sum(n for (p, _), n in totals0.items() if p == path)
            for path in ("smcd", "fallback", "refused")
        }
        new["plain"] = decisions1["SMC_ANSWER_PLAIN"] - decisions0["SMC_ANSWER_PLAIN"]
        paths = [path for path, count in new.items() if count > 0]
        fresh = [c for i, c in seen1.items() if i not in seen0 and c["path"] == paths[0]]
        row = {
            "name": name,
            "path": "+".join(paths) or "none",
            "connections": sum(new.values()),
            "bytes": sum(c["bytes_sent"] + c["bytes_received"] for c in fresh),
            "mismatches": accelerated["mismatches"] + plain["mismatches"],
            "metric": metric,
            "unit": unit,
            "accelerated": round(accelerated["value"], 3),
            "tcp": round(plain["value"], 3),
            "ratio": round(accelerated["value"] / plain["value"], 3),
        }
        row["ok"] = row["path"] == expected and row["mismatches"] == 0
        return row


def human(n):
    for unit in ("B", "KiB", "MiB", "GiB"):
        if n < 1024 or unit == "GiB":
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1024


def print_rows(title, rows, left, right):
    print(f"\n{title}")
    head = ["workload", "path", "conns", "payload", "wrong", left, right, "ratio", ""]
    table = [head] + [
        [
            r["name"],
            r["path"],
            str(r["connections"]),
            human(r["bytes"]) if r["bytes"] else "-",
            str(r["mismatches"]),
            f"{r['accelerated']:,.6g} {r['unit']}",
            f"{r['tcp']:,.6g} {r['unit']}",
            f"{r['ratio']:.2f}x",
            "ok" if r["ok"] else "WRONG",
        ]
        for r in rows
    ]
    widths = [max(len(row[i]) for row in table) for i in range(len(head))]
    for i, row in enumerate(table):
        print(
            "  "
            + "  ".join(
                cell.ljust(w) if j < 2 else cell.rjust(w) for j, (cell, w) in enumerate(zip(row, widths))
            ).rstrip()
        )
        if i == 0:
            print("  " + "  ".join("-" * w for w in widths[:-1]))


def make_file(path):
    digest = hashlib.sha256()
    with open(path, "wb") as file:
        block = os.urandom(16 << 20)
        for i in range(FILE_BYTES // len(block)):
            piece = i.to_bytes(8, "big") + block[8:]
            digest.update(piece)
            file.write(piece)
    return digest.hexdigest()


def run(lab, scratch):
    a, b, c = lab.node("a"), lab.node("b"), lab.node("c")
    lab.link(a, c)
    lab.link(a, b)
    os.makedirs(f"{scratch}/www")
    file_hash = make_file(f"{scratch}/www/file")
    a.start_agent(log={"level": "info"})
    b.start_agent(log={"level": "info"})
    both = []
    for server in (b, c):
        demo = Demo(lab, a, server, scratch)
        demo.file_hash = file_hash
        demo.start_servers()
        rows = []
        for name, metric, unit, work in demo.workloads():
            if server is c:
                name += ", no agent there"
            rows.append(demo.measure(name, metric, unit, work, "smcd" if server is b else "plain"))
            print(f"  {rows[-1]['name']}: {'ok' if rows[-1]['ok'] else 'WRONG'}", file=sys.stderr, flush=True)
        both.append(rows)
    print_rows("Both nodes run smc-agent: the payload travels by SMC-Dv2.1", both[0], "SMC-D", "plain TCP")
    print_rows("The server's node has no agent: connections stay plain TCP", both[1], "enrolled", "not enrolled")
    print("\nThe client node's agent, in its own words (smcctl status)\n")
    print("\n".join("  " + line for line in a.agent.ctl("status").stdout.split("\nConnections now")[0].splitlines()))
    return both[0] + both[1]


# Of the shell: smcctl asks this node's agent.
SHELL = """
PS1='first node# '
smcctl() {{ command {ctl} --socket {socket} "$@"; }}
echo 'Two nodes with an smc-agent each. You are on the first; redis, nginx (8080) and iperf3 -s run on the second,'
echo '{ip4} or {ip6}. Here smcctl asks the agent of this node. Try: redis-cli -h {ip4}; exit ends it all.'
"""


def shell(lab, scratch):
    a, b = lab.node("a"), lab.node("b")
    lab.link(a, b)
    os.makedirs(f"{scratch}/www")
    for node in (a, b):
        node.start_agent(log={"level": "info"})
    Demo(lab, a, b, scratch).start_servers()
    rc = a.write("shell", SHELL.format(ctl=CTL, socket=a.control, ip4=b.ip4, ip6=b.ip6))
    return a.popen(["bash", "--rcfile", rc, *([] if sys.stdin.isatty() else ["-i"])], stdin=None).wait()


def main():
    codes = (
        "0 if all is right; 1 if a workload took another path, a byte is wrong or something failed;\n"
        "130 after an interrupt; with --shell that of the shell"
    )
    parser = Arguments("scripts/demo", __doc__, codes, setup=True)
    parser.add_argument("--json", metavar="FILE", help="also write the results there")
    parser.add_argument("--shell", action="store_true", help="instead: a shell on the first of two such nodes")
    options = parser.parse_args()
    if options.set_up:
        set_up("--programs")
    # One name, so that a run clears what a killed one left.
    memory = shutil.disk_usage("/dev/shm").free > 2 * FILE_BYTES
    scratch = os.path.join("/dev/shm" if memory else tempfile.gettempdir(), "smc-demo")
    shutil.rmtree(scratch, ignore_errors=True)
    os.mkdir(scratch, 0o755)
    try:
        with Lab("demo") as lab:
            if options.shell:
                return shell(lab, scratch)
            rows = run(lab, scratch)
    except KeyboardInterrupt:
        print("\nInterrupted; nothing is left behind.", file=sys.stderr)
        return 130
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    good = all(row.pop("ok") for row in rows)
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"workloads": rows}, file, indent=2)
    print("\nEvery workload took its path, nothing mismatched." if good else "\nSomething is wrong above.")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
