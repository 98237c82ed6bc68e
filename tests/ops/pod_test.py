# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""The image in pods made from the manifest: two of them, as on two nodes, with an application pod each.

Runs under tests/ops/private. SMC_IMAGE: the archive that scripts/image wrote.
"""
import json
import os
import unittest
import urllib.request

import yaml
from apiserver import ApiServer
from base import TALK, TwoNodes
from lab import helm
from lab.basics import wait_for
from podman import Podman, playable

IMAGE = os.environ.get("SMC_IMAGE", "")
UID = "0a1b2c3d-0000-4000-8000-00000000000{}"
PORTS = {"a": 7609, "b": 7610}
# The capabilities of the manifest, by number (linux/capability.h).
CAPABILITIES = {"SETGID": 6, "SETUID": 7, "NET_BIND_SERVICE": 10, "NET_ADMIN": 12, "NET_RAW": 13, "IPC_LOCK": 14}
CAPABILITIES.update(SYS_PTRACE=19, SYS_ADMIN=21, SYS_RESOURCE=24, SYSLOG=34, PERFMON=38, BPF=39)


def status_of(pid):
    with open(f"/proc/{pid}/status") as file:
        return dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)


class Pods(TwoNodes):
    def setUp(self):
        super().setUp()
        self.podman = Podman(os.path.join(self.lab.run, "podman"))
        self.addCleanup(self.podman.close)
        self.podman("load", "-q", "-i", IMAGE)
        self.shared = os.path.join(self.lab.run, "shared")  # /run/smc-agent of the node
        os.makedirs(self.shared)
        self.api = ApiServer(self.shared)
        self.addCleanup(self.api.close)
        self.api.put("namespaces", "web", labels={"smc-agent.io/accelerate": "true"})
        for i, node in enumerate((self.a, self.b)):
            self.api.put("pods", f"app-{node.name}", "web", uid=UID.format(i))
            unit = UID.format(i).replace("-", "_")
            node.apps = f"{node.cgroup}/kubepods.slice/kubepods-pod{unit}.slice/cri-x.scope"
            os.makedirs(node.apps)

    def show_logs(self):
        super().show_logs()
        outcome = self._outcome.result
        if any(test is self for test, _ in outcome.failures + outcome.errors):
            for name in PORTS:
                print(self.podman("logs", f"smc-agent-{name}-agent", check=False).stderr[-4000:])

    def values(self, node):
        """The values that an operator would set: the cgroup of this node's pods, and the API server that lists them."""
        mount = self.lab.cgroup[: -len(self.lab.tag) - 1]
        root = node.cgroup.replace(mount, "/sys/fs/cgroup", 1)
        config = {
            "cgroup": {"root": root},
            "bpf": {"pin_path": node.pins},
            "control": {"socket": f"/run/smc-agent/{node.name}.sock"},
            "http": {"listen": f"127.0.0.1:{PORTS[node.name]}"},
            "local": {"smcd": True},
            "kubernetes": {
                "api": self.api.url,
                "token_file": "/run/smc-agent/token",
                "ca_file": "/run/smc-agent/ca.crt",
            },
        }
        return ["--set-json", f"config={json.dumps(config)}", "--set", "drainSeconds=60"], mount

    def play(self, node, name=None):
        """Plays the node's pod; the container's name."""
        values, mount = self.values(node)
        manifest = [one for one in yaml.safe_load_all(helm.template(*values)) if one]
        paths = {"/sys/fs/cgroup": mount, "/run/smc-agent": self.shared}
        name = name or f"smc-agent-{node.name}"
        pod, self.probes = playable(manifest, name, paths)
        self.podman.play(pod)
        return f"{name}-agent"

    def probe(self, which, container):
        """Runs a probe of the pod, as kubelet does."""
        socket = ["--socket", f"/run/smc-agent/{'a' if '-a-' in container else 'b'}.sock"]
        command = self.probes[which]
        self.assertEqual(command[1], "--socket")
        return self.podman("exec", container, command[0], *socket, *command[3:], check=False).returncode == 0

    def state(self, container):
        return json.loads(self.podman("inspect", container).stdout)[0]["State"]

    def get(self, node, path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{PORTS[node.name]}{path}", timeout=5) as answer:
                return answer.read().decode()
        except OSError:
            return None

    def ctl(self, node, *arguments, container=None):
        socket = f"/run/smc-agent/{node.name}.sock"
        container = container or f"smc-agent-{node.name}-agent"
        return self.podman("exec", container, "/usr/bin/smcctl", "--socket", socket, "--json", *arguments, check=False)

    def test_two_application_pods_are_accelerated(self):
        containers = [self.play(node) for node in (self.a, self.b)]
        for node, container in zip((self.a, self.b), containers):
            wait_for("the agent to be alive", lambda: self.probe("liveness", container))
            wait_for("the agent to be ready", lambda: self.probe("readiness", container))
            self.assertTrue(self.get(node, "/healthz") and self.get(node, "/readyz"))
            node.popen(["sleep", "600"])  # the application
        for node in (self.a, self.b):
            wait_for(
                "the application's namespace",
                lambda: any(n["ipv4"] for n in json.loads(self.ctl(node, "status").stdout)["namespaces"]),
            )
        self.serve()
        done = self.connect()
        self.assertTrue(done["ok"], done)
        (connection,) = json.loads(self.ctl(self.a, "connections", "--ended").stdout)
        self.assertEqual((connection["path"], connection["server"]), ("smcd", f"{self.b.ip4}:5000"))
        self.assertIn('smc_agent_connections_total{path="smcd"} 1', self.get(self.a, "/metrics"))

        # The capabilities of the manifest, and no others.
        inspected = json.loads(self.podman("inspect", containers[0]).stdout)[0]
        self.assertTrue(inspected["HostConfig"]["ReadonlyRootfs"])
        status = status_of(inspected["State"]["Pid"])
        # Except for those that this machine lacks.
        may = int(status_of("self")["CapBnd"], 16)
        given = {name for name, number in CAPABILITIES.items() if may >> number & 1}
        self.assertEqual({name.removeprefix("CAP_") for name in inspected["EffectiveCaps"]}, given)
        self.assertEqual(int(status["CapEff"], 16), sum(1 << CAPABILITIES[name] for name in given))
        self.assertEqual(status["NoNewPrivs"], "1")
        self.assertNotEqual(self.podman("exec", containers[0], "/bin/sh", check=False).returncode, 0)

        # A rolling update: the next pod takes the place, and the one before is told to end.
        talker = self.program(self.a, TALK, self.b.ip4, says="up")
        pid = self.state(containers[1])["Pid"]
        following = self.play(self.b, "smc-agent-b2")

        def served_by_another():
            status = json.loads(self.ctl(self.b, "status", container=following).stdout or "{}")
            return status and status["agent"]["pid"] != pid and status["agent"]["serving"]

        # Only the pod that serves is ready, and the old one is not ended before its successor serves. The successor is
        # asked first: otherwise the old one could have been ready rightly when it was asked.
        def ready():
            found = [self.probe("readiness", container) for container in (following, containers[1])]
            self.assertNotEqual(found, [True, True])
            return found == [True, False]

        wait_for("the next pod to be ready", ready)
        self.assertTrue(served_by_another())
        self.assertEqual([self.probe("liveness", c) for c in (containers[1], following)], [True, True])
        wait_for("the next agent to be ready", lambda: self.get(self.b, "/readyz"))
        stopping = self.podman.begin("stop", "-t", "30", containers[1])
        for text in ("a", "b" * 1000):
            self.tell(talker, text)
            self.assertEqual(self.hear(talker), text)
        self.assertTrue(os.path.exists(f"/proc/{pid}"))  # it waits for its connections
        self.assertTrue(self.connect()["ok"])
        totals = json.loads(self.ctl(self.b, "status", container=following).stdout)["totals"]
        self.assertIn(("smcd", 1), [(one["path"], one["count"]) for one in totals])
        self.end_program(talker)
        self.assertEqual(stopping.wait(30), 0)
        self.assertEqual(self.state(containers[1])["ExitCode"], 0)

        # A pod that opts out.
        self.api.put("namespaces", "web", labels={})

        def plain():
            before = json.loads(self.ctl(self.a, "status").stdout)["totals"]
            self.assertTrue(self.connect()["ok"])
            return json.loads(self.ctl(self.a, "status").stdout)["totals"] == before

        wait_for("the pod to be left alone", plain)
        self.podman("stop", "-t", "10", following)
        self.assertEqual(self.state(following)["ExitCode"], 0)
        self.assertTrue(self.connect()["ok"])  # plain TCP without it

    def test_what_is_in_the_image(self):
        ls = json.loads(self.podman("image", "inspect", "localhost/smc-agent:latest").stdout)[0]
        self.assertLess(ls["Size"], 120 << 20)
        name = self.podman("create", "localhost/smc-agent:latest").stdout.strip()
        path = os.path.join(self.lab.run, "image.tar")
        self.podman("export", "-o", path, name)
        files = self.a.run(["tar", "-tf", path]).stdout.splitlines()
        for absent in ("bin/sh", "usr/bin/apt-get", "usr/bin/perl", "etc/resolv.conf", "etc/hostname"):
            self.assertNotIn(absent, files)
            self.assertNotIn(f"./{absent}", files)
        self.assertFalse([name for name in files if "/apt/" in name])
        bill = json.loads(self.a.run(["tar", "-xOf", path, "usr/share/smc-agent/sbom.cdx.json"]).stdout)
        self.assertEqual((bill["bomFormat"], bill["metadata"]["component"]["name"]), ("CycloneDX", "smc-agent"))
        names = {one["name"] for one in bill["components"]}
        self.assertLessEqual({"libbpf1", "libc6", "libibverbs1", "ibverbs-providers", "libmicrohttpd12"}, names)
        libraries = {line.split("/")[-1].split(".so")[0] for line in files if ".so" in line and "/lib/" in line}
        self.assertIn("libbpf", libraries)
        done = self.podman(
            *("run", "--rm", "--read-only", "--network=none", "--cap-drop=all"),
            *("localhost/smc-agent:latest", "--version"),
        )
        self.assertTrue(done.stdout.startswith("smc-agent "))


if __name__ == "__main__":
    unittest.main()
