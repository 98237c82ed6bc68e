# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Checked bytes both ways until a test stops them, and the longest time without a byte."""
import json


class Flow:
    """A connection of peer.py; each side is a machine and how its programs are started."""

    def __init__(self, client, server, port):
        self.ends_at = f"/job/ends{port}"
        (there, served), (here, connects) = server, client
        self.server = there.start_server([*served, "until", "serve", port, "/none"], f"until{port}.log")
        self.client = here.start([*connects, "until", there.ip4, port, self.ends_at], f"until-client{port}.log")
        self.here = here

    def end(self):
        """Ends the flow, checks that every byte has arrived; the longest standstill in ms, at client and server."""
        self.here.sh(f"touch {self.ends_at}")
        for program in (self.client, self.server):
            if program.wait(60) != 0:
                raise AssertionError(program.text())
        client, server = (json.loads(p.text().splitlines()[-1]) for p in (self.client, self.server))
        if (client["sent"], server["sent"]) != (server["received"], client["received"]):
            raise AssertionError(f"{client} and {server}")
        return client["still_ms"], server["still_ms"]
