# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Features that the kernel refuses are left out and named; the rest works. vm.refused tests all of them."""
import json
import unittest

from base import TwoNodes
from lab import refusals
from lab.basics import wait_for


class Refused(TwoNodes):
    def start(self, what):
        """Starts the client's agent; the features that it leaves out, without those that this kernel refuses anyway."""
        self.serve()
        self.b.start_agent()
        anyway = refusals.left_out(self.b.agent)
        self.a.start_agent(command=refusals.command(what))
        return {name: lost for name, lost in refusals.left_out(self.a.agent).items() if name not in anyway}

    def assertServes(self):
        self.assertTrue(self.connect()["ok"])
        self.assertPath(self.a, "smcd")
        self.assertEqual(self.a.agent.ctl("explain", f"{self.b.ip4}:5000").returncode, 0)
        # ended connections are forgotten
        wait_for("the hairpins to go", lambda: not self.table(self.a, "smc_hairpins"))

    def ends(self, what):
        """The reason that the agent gives."""
        with self.assertRaisesRegex(RuntimeError, "the agent ended with 1"):
            self.a.start_agent(command=refusals.command(what))
        self.assertEqual(self.a.run(["ls", "/sys/fs/bpf"]).stdout.count(self.lab.tag), 0)
        return self.a.agent_log().strip().splitlines()[-1]

    def test_programs_of_user_space_run_as_sched_cls(self):
        self.assertEqual(self.start("programs `syscall`"), {})
        self.assertServes()
        listed = {one["program"]: one for one in self.a.agent.ask("probe")["programs"]}
        self.assertEqual(listed["smc_sweep"]["state"], "loaded")
        self.assertEqual([name for name, one in listed.items() if not one["purpose"] or not one["lost"]], [])

    def test_the_bypass_alone_is_lost(self):
        out = self.start("programs `tracing`, `iter`")
        self.assertEqual(out, {"smc_bypass_enrol": "the bypass"})
        self.assertServes()
        self.assertFalse(self.a.agent.status()["bypass"]["available"])
        shown = self.a.agent.ctl("probe").stdout
        self.assertRegex(shown, r"smc_bypass_enrol +iter/tcp +refuses it: Operation not permitted +LOST: the bypass")
        self.assertIn("smc_bypass_enrol", self.a.agent.ctl("status").stdout)

    def test_no_program_may_read_the_kernels_memory(self):
        """As with lockdown=confidentiality, where the end of a socket is an event."""
        out = self.start("`bpf_probe_read_kernel`")
        self.assertIn("keepalive", out.pop("bpf_probe_read_kernel"))
        self.assertEqual(set(out.values()), {"the bypass"})
        self.assertServes()
        self.assertIn("smc_socket_ends", self.a.agent.status()["programs"])

    def test_nothing_is_swept(self):
        out = self.start("`BPF_PROG_TEST_RUN`")
        self.assertIn("free entries", out["smc_sweep"])
        self.assertTrue(self.connect()["ok"])
        self.assertPath(self.a, "smcd")
        self.assertEqual(self.a.agent_log().count("smc_sweep (tc) is left out"), 1)
        self.assertIn("smc_explain", out)
        self.assertIn("refuses", self.a.agent.ctl("explain", f"{self.b.ip4}:5000").stderr)
        self.assertFalse(self.a.agent.status()["bypass"]["available"])
        warnings = [line for line in self.a.agent_log().splitlines() if " warning " in line]
        self.assertEqual(len(warnings), len(set(line.split(" ", 1)[1] for line in warnings)), warnings)

    def test_clsact_in_place_of_tcx(self):
        self.assertEqual(self.start("links `tcx`"), {})
        self.assertServes()
        self.assertIn("smc_in", self.a.run(["tc", "filter", "show", "dev", self.a.device, "ingress"]).stdout)

    def test_nothing_works_without_sk_lookup(self):
        self.assertRegex(
            self.ends("programs `sk_lookup`"),
            r"cannot start: the kernel refuses BPF program smc_lookup \(sk_lookup\), .*"
            r"\(what may forbid it: .*\): Operation not permitted",
        )

    def test_a_map_that_is_refused_has_a_name(self):
        self.assertIn("the kernel refuses BPF map smc_events (ringbuf)", self.ends("maps `ringbuf`"))

    def test_metrics_count_what_is_left_out(self):
        self.a.start_agent(command=refusals.command("programs `sk_msg`"), http={"listen": "127.0.0.1:9464"})
        fetch = "import urllib.request; print(urllib.request.urlopen('http://127.0.0.1:9464/metrics').read().decode())"
        text = self.a.python(fetch).stdout
        self.assertIn('smc_agent_program_left_out{program="smc_bypass_send",hook="sk_msg"} 1', text)
        status = json.loads(self.a.agent.ctl("status", "--json").stdout)
        self.assertEqual([one["program"] for one in status["left_out"]], ["smc_bypass_send"])


if __name__ == "__main__":
    unittest.main()
