# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Metrics and page: Prometheus scrapes, alerts and dashboard use metrics that exist, a browser shows the page."""
import json
import os
import re
import subprocess
import unittest
import urllib.parse
import urllib.request

from base import TwoNodes
from lab.basics import ROOT, wait_for
from rogue import within

DEPLOY = os.path.join(ROOT, "deploy")
CONFIG = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: ["{rules}"]
scrape_configs:
  - job_name: smc-agent
    static_configs: [{{targets: ["127.0.0.1:7609"]}}]
"""

# A connection that moves data for as long as it lives.
STREAM = """
import socket, sys, time
c = socket.create_connection((sys.argv[1], 5000)); c.sendall(b'x'); c.recv(1); print('up', flush=True)
while True: c.sendall(b'y' * 60000); c.recv(65536); time.sleep(0.01)
"""


def metric_names(expression):
    return set(re.findall(r"\b(?:smc_agent|process)_[a-z_]+\b", expression))


class Observed(TwoNodes):
    def setUp(self):
        super().setUp()
        self.start_agents()
        self.serve()
        self.program(self.a, STREAM, self.b.ip4, says="up")

    def fetch(self, url):
        def ask():
            with urllib.request.urlopen(url, timeout=10) as answer:
                return answer.read().decode()

        return within(self.a, ask)

    def metric_families(self):
        return set(re.findall(r"^# TYPE (\S+)", self.fetch("http://127.0.0.1:7609/metrics"), re.M))

    def prometheus(self):
        config = self.a.write("prometheus.yaml", CONFIG.format(rules=os.path.join(DEPLOY, "prometheus/alerts.yaml")))
        command = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={self.a.dir}/tsdb"]
        self.a.start([*command, "--web.listen-address=127.0.0.1:9090", "--log.level=warn"], "prometheus.log")

    def query(self, expression):
        url = "http://127.0.0.1:9090/api/v1/query?" + urllib.parse.urlencode({"query": expression})
        answer = json.loads(self.fetch(url))
        self.assertEqual(answer["status"], "success", answer)
        return answer["data"]["result"]

    def scraped(self):
        try:
            return self.query('rate(smc_agent_sent_bytes_total{path="smcd"}[5s]) > 0')
        except OSError:
            return None

    def test_prometheus_scrapes_and_the_dashboard_shows(self):
        self.prometheus()
        wait_for("two scrapes", self.scraped, timeout=30)
        self.assertTrue(self.connect()["ok"])
        wait_for("another connection", lambda: self.query("rate(smc_agent_connections_total[5s]) > 0"), timeout=30)
        (up,) = self.query('up{job="smc-agent"}')
        self.assertEqual(up["value"][1], "1")
        with open(os.path.join(DEPLOY, "grafana/smc-agent.json")) as file:
            dashboard = json.load(file)
        empty = set()
        for panel in dashboard["panels"]:
            self.assertNotEqual(panel["targets"], [], panel["title"])
            for target in panel["targets"]:
                expression = target["expr"].replace("$__rate_interval", "10s").replace("$node", ".*")
                self.assertNotIn("$", expression)
                if not self.query(expression):
                    empty |= metric_names(expression)
        # Metrics that do not appear here: of a fallback, and of a kernel whose bypass is on.
        self.assertLessEqual(empty, {"smc_agent_fallbacks_total", "smc_agent_bypass_sockets"})
        rules = json.loads(self.fetch("http://127.0.0.1:9090/api/v1/rules"))["data"]["groups"]
        self.assertEqual({rule["health"] for group in rules for rule in group["rules"]} - {"ok", "unknown"}, set())

    def test_alerts_and_dashboard_ask_for_metrics_that_there_are(self):
        there = self.metric_families()
        there |= {"smc_agent_handshake_seconds_bucket", "smc_agent_fallbacks_total"}
        there |= {"smc_agent_refused_total", "smc_agent_broken_total"}
        there |= {"smc_agent_bypass_sockets"}  # on a kernel with the bypass
        with open(os.path.join(DEPLOY, "prometheus/alerts.yaml")) as file:
            asked = metric_names(re.sub(r"description:.*", "", file.read()))
        with open(os.path.join(DEPLOY, "grafana/smc-agent.json")) as file:
            for panel in json.load(file)["panels"]:
                for target in panel["targets"]:
                    asked |= metric_names(target["expr"])
        self.assertEqual(asked - there, set())

    def test_each_alert_comes_when_it_should(self):
        done = subprocess.run(
            ["promtool", "test", "rules", "alerts_test.yaml"],
            cwd=os.path.join(DEPLOY, "prometheus"),
            capture_output=True,
            text=True,
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        with open(os.path.join(DEPLOY, "prometheus/alerts.yaml")) as file:
            alerts = set(re.findall(r"alert: (\S+)", file.read()))
        with open(os.path.join(DEPLOY, "prometheus/alerts_test.yaml")) as file:
            tried = re.findall(r"alertname: ([A-Za-z]+)\n +exp_alerts:\n", file.read())
        self.assertEqual(alerts, set(tried))

    def browser(self, *arguments):
        """The page as Chromium, with a new profile, has rendered it after some seconds."""
        command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        command += [f"--user-data-dir={self.a.dir}/browser", "--window-size=1280,1100", "--virtual-time-budget=7000"]
        environment = {**os.environ, "HOME": self.a.dir}
        done = self.a.run([*command, *arguments, "http://127.0.0.1:7609/"], timeout=90, env=environment)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        return done

    def test_the_page_in_a_browser(self):
        page = self.browser("--dump-dom", "--enable-logging=stderr").stdout
        self.assertIn(">serving<", page)
        self.assertRegex(page, r"<b>1</b><span>SMC-D</span>")
        self.assertIn("/apps</td>", page)  # the control group of the connection that moves data
        self.assertIn(f"<td>{self.b.netns}</td>", page)  # the link group's peer
        self.assertIn("Every connection that asked was accelerated.", page)
        self.assertRegex(page, r'<canvas id="throughput"[^>]*style="[^"]*height')  # the chart was drawn
        shot = os.path.join(self.a.dir, "page.png")
        self.browser(f"--screenshot={shot}")
        with open(shot, "rb") as file:
            self.assertEqual(file.read(8), b"\x89PNG\r\n\x1a\n")
        if keep := os.environ.get("SMC_SCREENSHOT"):
            os.replace(shot, keep)

    def test_the_page_has_no_addresses_and_can_be_off(self):
        overview = self.fetch("http://127.0.0.1:7609/api/overview")
        self.assertNotIn(self.b.ip4, overview)
        self.assertEqual(len(json.loads(overview)["applications"]), 1)
        self.a.agent.stop()
        self.a.start_agent(http={"page": False})
        for path in ("/", "/page.js", "/api/overview"):
            with self.assertRaises(urllib.request.HTTPError) as refused:
                self.fetch(f"http://127.0.0.1:7609{path}")
            self.assertEqual(refused.exception.code, 404)
            refused.exception.close()
        self.assertIn("smc_agent_serving 1", self.fetch("http://127.0.0.1:7609/metrics"))


if __name__ == "__main__":
    unittest.main()
