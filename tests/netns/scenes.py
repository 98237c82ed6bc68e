# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Scenes with rules of nft, played without an agent, then with one on both nodes: the outcomes must be equal."""
import json
import shutil

from base import CLIENT, TIME_ENOUGH, TwoNodes


class Scenes(TwoNodes):
    took = None  # by connect() in the last scene that measures it

    # --- what the tests do -----------------------------------------------------------------------------
    def nft(self, node, **hooks):
        """Replaces the node's rules by these lines: of a hook, or of a nat hook ("nat_output")."""
        if not shutil.which("nft"):
            self.skipTest("nft is not installed")
        chains = []
        for name, lines in hooks.items():
            kind, hook = name.split("_") if "_" in name else ("filter", name)
            priority = {"nat_prerouting": -100, "nat_output": -100, "nat_postrouting": 100}.get(name, 0)
            rules = "\n".join([f"type {kind} hook {hook} priority {priority}", *lines])
            chains.append(f"chain on_{hook} {{\n{rules}\n}}\n")
        text = "flush ruleset\ntable inet t {\ncounter dropped { }\ncounter invalid { }\n" + "".join(chains) + "}\n"
        node.run(["nft", "-f", node.write("rules.nft", text)], check=True)

    def counters(self, node):
        listed = json.loads(node.run(["nft", "-j", "list", "counters"], check=True).stdout)["nftables"]
        return {c["counter"]["name"]: c["counter"]["packets"] for c in listed if "counter" in c}

    def outcome(self, *prefix, ip=None, port=5000, timeout=15, **how):
        """ "ok", or the error that the client gets; `prefix`: the command that runs it."""
        command = [*prefix, "/usr/bin/python3", "-c", CLIENT, ip or self.b.ip4, str(port), str(timeout), "[]"]
        done = self.a.run(command, **how)
        self.assertEqual(done.returncode, 0, done.stderr)
        seen = json.loads(done.stdout)
        self.took = seen.get("took")
        if not seen["ok"]:
            return seen["error"]
        self.assertEqual(seen["who"].removeprefix("::ffff:"), seen["own"])
        self.assertEqual(seen["peer"], f"{ip or self.b.ip4} {port}")
        return "ok"

    def same(self, scene, expected, path=None):
        """The scene without agents, then with them: the server is asked, and then remembered. How long connect() took
        then."""
        plain = scene()
        self.assertEqual(plain, expected, "plain TCP")
        # If a path is expected, the agents have long timeouts: these scenes do not test times.
        self.start_agents(**(TIME_ENOUGH if path else {}))
        took = []
        for what in ("asked", "remembered"):
            self.assertEqual(scene(), expected, what)
            took.append(self.took)
        if path:
            self.assertPath(self.a, path, at_least=2)
        return took

    def nobody_waits(self, took):
        """No wait beyond the budget, and only once: the server is not asked again for a while. TCP repeats a SYN after
        one second, and after three."""
        self.assertLess(took[0], 2.8)
        self.assertLess(took[1], 0.95)
