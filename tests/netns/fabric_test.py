# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Agents of the `local` fabric that are broken or hostile. The honest agents continue, and nothing leaks."""
import errno
import fcntl
import os
import select
import shutil
import socket
import unittest
import uuid

import rogue
from base import TALK, TwoNodes
from lab.basics import wait_for

RAW_IP = "10.77.0.50"
OTHER = b"\x33" * 16
MIB = 1 << 20
PAGE = 4096


class Fabric(TwoNodes):
    def setUp(self):
        super().setUp()
        self.start_agents(smc={"step_timeout_ms": 20000})
        self.serve()
        self.before = self.resources()
        self.assertTrue(self.connect()["ok"])
        self.before["fds"] += 2  # to the honest agent, one connection each way
        self.assertGivenBack(self.before)
        status = self.b.agent.status()
        self.ism, self.own_gid = status["ism"]["directory"], uuid.UUID(status["ism"]["gid"]).bytes
        self.groups = status["groups"]["smcd"]
        self.clients = rogue.Clients(self.a, RAW_IP, self.b.ip4)
        self.addCleanup(self.clients.close)

    def tearDown(self):
        """After each test the honest agent works as before."""
        self.assertGivenBack(self.before)
        self.assertEqual(self.b.agent.status()["groups"]["smcd"], self.groups)
        honest = self.b.agent.totals()[("smcd", "none")]
        self.assertTrue(self.connect()["ok"])
        self.assertPath(self.b, "smcd", at_least=honest + 1)

    def rogue_agent(self):
        agent = rogue.FabricAgent(self.ism)
        self.addCleanup(agent.close)
        return agent

    def visit(self, gid=None):
        visitor = rogue.visit(self.ism, gid or self.own_gid)
        self.addCleanup(visitor.close)
        return visitor

    def descriptors(self, count):
        for fd in (made := [os.memfd_create("rogue", os.MFD_ALLOW_SEALING) for _ in range(count)]):
            self.addCleanup(os.close, fd)
        return made

    def test_replies_that_nobody_asked_for(self):
        agent = self.rogue_agent().listen()
        good = rogue.reply(1)
        for what, message, descriptors in (
            ("no descriptor", good, 0),
            ("one descriptor", good, 1),
            ("two descriptors", good, 2),
            ("more than two", good, 5),
            ("a refusal", rogue.reply(1, errno.EACCES), 0),
            ("a refusal with descriptors", rogue.reply(1, errno.EACCES), 2),
            ("short", good[:12], 2),
            ("empty, with descriptors", b"", 2),
            ("long", good + bytes(5000), 2),
            ("of another version", rogue.reply(1, magic=rogue.MAGIC - 1), 2),
        ):
            fds = self.descriptors(descriptors)
            with self.subTest(what):
                for _ in range(10):
                    client = self.clients.connect(bytes.fromhex(rogue.proposal()))
                    with agent.accept() as victim:
                        socket.send_fds(victim, [message], fds)
                        self.assertTrue(rogue.ended(victim))
                    self.clients.reset(client)
                self.assertGivenBack(self.before)

    def test_very_many_replies_at_once(self):
        agent = self.rogue_agent().listen()
        fds = self.descriptors(2)
        for _ in range(10):
            client = self.clients.connect(bytes.fromhex(rogue.proposal()))
            with agent.accept() as victim:
                try:
                    for number in range(200):
                        socket.send_fds(victim, [rogue.reply(number)], fds)
                except (BrokenPipeError, ConnectionResetError):
                    pass  # the agent has closed already
                self.assertTrue(rogue.ended(victim))
            self.clients.reset(client)
        self.assertGivenBack(self.before)

    def asked(self, agent):
        """A client sends its Confirm, and b requests the client's DMB; the connection, and the request's number."""
        client, accept = self.clients.accepted()
        victim = agent.accept()
        self.addCleanup(victim.close)
        client.out("PA", data=rogue.confirm(accept, token=4711))
        magic, chid, _, number, token, gid = rogue.REQUEST.unpack(victim.recv(100))
        self.assertEqual((magic, chid, token, gid), (rogue.MAGIC, rogue.CHID, 4711, self.own_gid))
        return client, victim, number

    def test_answers_that_are_wrong(self):
        agent = self.rogue_agent().listen()
        for what, message, descriptors in (
            ("no descriptor", rogue.reply, 0),
            ("one descriptor", rogue.reply, 1),
            ("a refusal with descriptors", lambda number: rogue.reply(number, errno.EACCES), 2),
            ("to another request", lambda number: rogue.reply(number + 1), 2),
            ("short", lambda number: rogue.reply(number)[:12], 2),
            ("long", lambda number: rogue.reply(number) + bytes(3000), 2),
        ):
            fds = self.descriptors(descriptors)
            with self.subTest(what):
                client, victim, number = self.asked(agent)
                refused = self.b.agent.totals().get(("refused", "fabric"), 0)
                socket.send_fds(victim, [message(number)], fds)
                self.assertTrue(rogue.ended(victim))
                self.assertEqual(self.clients.wait_ended(client), "rst")
                self.assertPath(self.b, "refused", "fabric", refused + 1)
                self.assertGivenBack(self.before)

    def test_the_right_answer_is_taken(self):
        """Shows that this answer is enough for a peer: otherwise the other tests would prove nothing."""
        client, victim, number = self.asked(self.rogue_agent().listen())
        (memory,) = self.descriptors(1)
        os.truncate(memory, PAGE + MIB)
        fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        bell, other_end = socket.socketpair()
        with bell, other_end:
            socket.send_fds(victim, [rogue.reply(number)], [memory, bell.fileno()])
            wait_for("SMC-D", lambda: self.b.agent.totals()[("smcd", "none")] == 2)
            self.clients.reset(client)
            wait_for("its end", lambda: not self.b.agent.connections())
            victim.close()
            wait_for("its link group to end", lambda: self.b.agent.status()["groups"]["smcd"] == self.groups)

    def test_an_owner_that_is_another_user(self):
        rogue.as_nobody(self.rogue_agent().listen)
        client = self.clients.connect(bytes.fromhex(rogue.proposal()))
        decline = self.clients.receive(client, 44)
        self.assertEqual((decline[4], decline[16:20].hex()), (4, "03030007"))
        wait_for("TCP", lambda: self.b.agent.totals().get(("fallback", "no_smcd_v2_device")) == 1)
        self.assertIn("trusting the owner of", self.b.agent.connections()[0]["detail"])
        self.clients.reset(client)

    def test_a_visitor_that_is_another_user(self):
        self.assertEqual(os.stat(self.ism).st_mode & 0o777, 0o700)
        self.assertEqual(os.stat(rogue.path_of(self.ism, self.own_gid)).st_mode & 0o777, 0o600)
        with self.assertRaises(PermissionError):
            rogue.as_nobody(self.visit)
        os.chmod(self.ism, 0o755)
        with self.assertRaises(PermissionError):
            rogue.as_nobody(self.visit)
        os.chmod(rogue.path_of(self.ism, self.own_gid), 0o666)
        self.assertTrue(rogue.ended(rogue.as_nobody(self.visit)))

    def take_answer(self, visitor):
        """The number of the request, the status, and how many descriptors came with it."""
        data, fds, _, _ = socket.recv_fds(visitor, 100, 10)
        for fd in fds:
            os.close(fd)
        self.assertEqual(len(data), rogue.REPLY.size)
        magic, status, number = rogue.REPLY.unpack(data)
        self.assertEqual(magic, rogue.MAGIC)
        return number, status, len(fds)

    def ask(self, visitor, number, *arguments, **others):
        visitor.send(rogue.request(*arguments, number=number, **others))
        answered, *answer = self.take_answer(visitor)
        self.assertEqual(answered, number)
        return tuple(answer)

    def test_a_token_is_for_one_gid_and_for_once(self):
        self.rogue_agent().listen()
        client, accept = self.clients.accepted()
        token = rogue.token_of(accept)

        stranger = self.visit()
        self.assertEqual(self.ask(stranger, 1, token, OTHER), (errno.EACCES, 0))
        self.assertEqual(self.ask(stranger, 2, token ^ 1, OTHER), (errno.ENOENT, 0))
        self.assertEqual(self.ask(stranger, 3, 0, OTHER), (errno.ENOENT, 0))
        stranger.send(rogue.request(token, rogue.GID))  # now with the GID of the right peer
        self.assertTrue(rogue.ended(stranger))

        friend = self.visit()
        self.assertEqual(self.ask(friend, 1, token, rogue.GID, chid=rogue.CHID + 1), (errno.EPROTO, 0))
        self.assertEqual(self.ask(friend, 2, token, rogue.GID), (0, 2))
        self.assertEqual(self.ask(friend, 3, token, rogue.GID), (errno.EACCES, 0))
        again = self.visit()
        self.assertEqual(self.ask(again, 1, token, rogue.GID), (errno.EACCES, 0))
        for visitor in (friend, again):
            visitor.close()
        self.clients.reset(client)

    def test_malformed_requests(self):
        for what, message in (
            ("short", rogue.request(1)[:20]),
            ("empty", b""),
            ("long", rogue.request(1) + b"x"),
            ("of another version", rogue.request(1, magic=rogue.MAGIC + 1)),
        ):
            with self.subTest(what):
                visitor = self.visit()
                visitor.send(message)
                self.assertTrue(rogue.ended(visitor))

    def test_requests_without_reading_answers(self):
        self.rogue_agent().listen()
        client, accept = self.clients.accepted()
        visitor = self.visit()
        visitor.setblocking(False)
        sent, most = 0, 5000
        while sent < most and select.select([], [visitor], [], 1)[1]:
            try:
                visitor.send(rogue.request(1, number=sent))
                sent += 1
            except BlockingIOError:
                pass
        self.assertLess(sent, most)  # the agent does not queue answers for it without limit
        self.assertTrue(self.connect()["ok"])
        self.assertPath(self.b, "smcd", at_least=2)

        visitor.settimeout(10)
        answers = [self.take_answer(visitor) for _ in range(sent)]
        self.assertEqual(answers, [(number, errno.ENOENT, 0) for number in range(sent)])
        self.assertEqual(self.ask(visitor, sent, rogue.token_of(accept)), (0, 2))
        visitor.close()
        self.clients.reset(client)

    def test_visitors_that_go_without_reading_answers(self):
        for _ in range(20):
            visitor = self.visit()
            visitor.setblocking(False)
            try:
                while True:
                    visitor.send(rogue.request(1))
            except BlockingIOError:
                visitor.close()


class Gone(TwoNodes):
    """The files and sockets by which the agents of a node find each other are removed while they run."""

    def test_a_gid_and_then_the_fabric(self):
        soon = {"fallback": {"cache_s": 1, "budget_ms": 10000}}
        self.start_agents(**soon)
        self.serve()
        talk = self.program(self.a, TALK, self.b.ip4, says="up")
        self.assertPath(self.a, "smcd")
        ism = self.b.agent.status()["ism"]["directory"]
        for gid in os.listdir(ism):
            os.unlink(f"{ism}/{gid}")
        for words in ("still", "there"):  # agents that are connected do not need them
            self.tell(talk, words)
            self.assertEqual(self.hear(talk), words)
        # An agent makes its socket again, so one that starts later finds it.
        self.assertEqual(self.a.agent.stop(), 0)
        self.assertIn("error", self.told(talk))
        shutil.rmtree(ism)
        wait_for("the other agent to make its socket again", lambda: os.path.isdir(ism) and os.listdir(ism))
        self.a.start_agent(**soon)

        def again():
            self.assertTrue(self.connect()["ok"])
            return ("smcd", "none") in self.a.agent.totals()

        wait_for("SMC-D again", again)

    def told(self, talk):
        self.tell(talk, "gone")
        return self.hear(talk)


if __name__ == "__main__":
    unittest.main()
