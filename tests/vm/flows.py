# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Checked bytes both ways for as long as a test likes, and for how long none came."""
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
        """For how long bytes stood still, in milliseconds, at the client and at the server; every byte has arrived."""
        self.here.sh(f"touch {self.ends_at}")
        for program in (self.client, self.server):
            if program.wait(60) != 0:
                raise AssertionError(program.text())
        client, server = (json.loads(p.text().splitlines()[-1]) for p in (self.client, self.server))
        if (client["sent"], server["sent"]) != (server["received"], client["received"]):
            raise AssertionError(f"{client} and {server}")
        return client["still_ms"], server["still_ms"]
