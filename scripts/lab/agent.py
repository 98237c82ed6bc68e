# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""An smc-agent on a host, which is a Node or a Machine. Only methods that both have are used here:

    host.write(name, text)           a file in the host's own directory; its path there
    host.start(argv, log)            a program: .pid, .send_signal(), .wait(timeout), .poll(), .text() of its log
    host.run(argv, timeout, check)   .returncode, .stdout, .stderr
"""
import json
import signal

from lab.basics import AGENT, CTL, wait_for

DEFAULT_SOCKET = "/run/smc-agent/control.sock"


class Agent:
    def __init__(self, host, config, name="agent", command=()):
        """Starts the agent, and does not wait for it: see wait_serving(). `command`: runs it, with its arguments."""
        self.host, self.config = host, config
        self.socket = config.get("control", {}).get("socket", DEFAULT_SOCKET)
        path = host.write(f"{name}.json", json.dumps(config))
        self.process = host.start([*command, AGENT, "--config", path], f"{name}.log")

    def wait_serving(self):
        def serving():
            code = self.process.poll()
            if code is not None:
                raise RuntimeError(f"the agent ended with {code}: {self.log()[-2000:]}")
            return self.prepared()

        wait_for("the agent to serve its namespace", serving)
        return self

    def prepared(self):
        """The number of namespaces that the agent serves; 0 while one is being prepared."""
        spaces = (self.ask("status") or {}).get("namespaces") or []
        return 0 if any("being prepared" in space["ipv4_obstacle"] for space in spaces) else len(spaces)

    @property
    def pid(self):
        return self.process.pid

    def log(self):
        return self.process.text()

    def send_signal(self, number):
        self.process.send_signal(number)

    def stop(self, how=signal.SIGTERM, timeout=60):
        """Ends the agent and returns its exit code."""
        self.send_signal(how)
        return self.process.wait(timeout)

    # --- what it says of itself --------------------------------------------------------------------------
    def ctl(self, *arguments):
        return self.host.run([CTL, "--socket", self.socket, *arguments], timeout=60, check=False)

    def ask(self, *arguments):
        """The agent's answer to a request, as an object; None if it does not answer."""
        done = self.ctl(*arguments, "--json")
        return json.loads(done.stdout) if done.returncode == 0 else None

    def status(self):
        return self.ask("status")

    def connections(self, port=None, ended=False):
        """The connections to this port of the server, or all."""
        found = self.ask("connections", *(["--ended"] if ended else [])) or []
        return [c for c in found if port is None or c["server"].endswith(f":{port}")]

    def ended(self, port, count=1):
        """The connections to this port that ended, once there are `count`."""

        def enough():
            found = self.connections(port, ended=True)
            return found if len(found) >= count else None

        return wait_for(f"{count} connections to port {port} to end", enough)

    def decisions(self):
        return self.status()["decisions"]

    def totals(self):
        """{(path, reason): count} of ended connections, without counts of 0."""
        return {key: count for key, count in self._counted().items() if key[0] != "broken"}

    def broken(self):
        """Connections over SMC that have failed, by reason."""
        return {reason: count for (path, reason), count in self._counted().items() if path == "broken"}

    def _counted(self):
        return {(t["path"], t["reason"]["name"]): t["count"] for t in self.status()["totals"] if t["count"]}

    def smcr_groups(self):
        return self.ask("linkgroup")["smcr"]

    def smcr_devices(self):
        return self.ask("device")["smcr"]
