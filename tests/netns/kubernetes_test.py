# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Rules that name pods: the API server tells their control groups, which may change at any time."""
import json
import os
import socket
import unittest

from apiserver import ApiServer
from base import TIME_ENOUGH, TwoNodes
from lab.basics import AGENT, wait_for
from rogue import within

UIDS = [f"0a1b2c3d-0000-4000-8000-00000000000{i}" for i in range(3)]


def systemd(uid):
    """The control group in which kubelet's systemd driver puts a container."""
    return f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uid.replace('-', '_')}.slice/cri-x.scope"


def cgroupfs(uid):
    return f"kubepods/burstable/pod{uid}/container"


class Pods(TwoNodes):
    RULES = [
        {"name": "not these", "action": "deny", "pods": [{"labels": {"smc": "off"}}]},
        {
            "name": "these",
            "action": "allow",
            "pods": [{"labels": {"smc": "on"}}, {"annotations": {"smc.io/use": "y*"}}],
        },
        {"name": "all of a team", "action": "allow", "pods": [{"namespace_labels": {"team": "fast"}}]},
        {"name": "all who ask", "action": "allow", "pods": [{"namespace_annotations": {"smc.io/use": "y*"}}]},
        {"name": "and what is no pod", "action": "allow", "cgroups": ["/host*"]},
    ]

    def setUp(self):
        super().setUp()
        self.rules = self.RULES
        self.b.start_agent()
        self.serve()
        self.api = within(self.a, lambda: ApiServer(self.a.dir))
        self.addCleanup(self.api.close)
        self.api.put("namespaces", "web")
        self.api.put("namespaces", "batch", labels={"team": "slow"})

    def start(self, **kubernetes):
        where = {"api": self.api.url, "node": "node-a", "token_file": self.api.token, "ca_file": self.api.ca}
        self.a.start_agent(
            policy={"default": "deny", "rules": self.rules},
            kubernetes={**where, **kubernetes},
            log={"level": "debug"},
            **TIME_ENOUGH,
        )

    def known(self):
        return self.a.agent.status()["kubernetes"]

    def path_of(self, cgroup):
        """The path of a connection that is made from this control group."""
        self.a.apps = os.path.join(self.a.cgroup, cgroup)
        os.makedirs(self.a.apps, exist_ok=True)
        self.know(self.a.apps)
        groups = self.a.agent.totals()
        self.assertTrue(self.connect()["ok"])
        return "smcd" if self.a.agent.totals().get(("smcd", "none"), 0) > groups.get(("smcd", "none"), 0) else "tcp"

    def becomes(self, path, cgroup):
        wait_for(f"{cgroup} to use {path}", lambda: self.path_of(cgroup) == path, timeout=60)

    def use_host(self):
        """Makes the agent serve the namespace, by a process in the control group."""
        self.a.apps = os.path.join(self.a.cgroup, "host")
        os.makedirs(self.a.apps, exist_ok=True)

    def test_a_pods_bandwidth_is_kept_to(self):
        self.use_host()
        pod = cgroupfs(UIDS[1])
        self.api.put("pods", "one", "web", uid=UIDS[1], labels={"smc": "on"})
        self.start()
        self.becomes("smcd", pod)
        slow = {"kubernetes.io/egress-bandwidth": "10M"}
        self.api.put("pods", "one", "web", uid=UIDS[1], labels={"smc": "on"}, annotations=slow)
        self.becomes("tcp", pod)
        self.assertGreater(self.a.agent.decisions()["SMC_OUT_LIMITED"], 0)
        said = self.a.agent.ask("explain", f"{self.b.ip4}:5000")  # for any cgroup, so this pod is an exception
        self.assertTrue([text for text in said["unless"] if UIDS[1] in text and "bandwidth" in text], said)
        self.api.put("pods", "one", "web", uid=UIDS[1], labels={"smc": "on"})
        self.becomes("smcd", pod)

    def test_an_api_server_that_lies(self):
        """The agent limits what it reads from the server, and continues without it."""
        self.use_host()
        for lie, said in (("deep", "nested deeper than 32 times"), ("long", "has more than 64 MiB")):
            with self.subTest(lie=lie):
                self.api.lies = lie
                self.start()
                wait_for("it to be said", lambda: said in self.known()["problem"], 60)
                with open(f"/proc/{self.a.agent.pid}/status") as file:
                    peak = int(next(line for line in file if line.startswith("VmHWM")).split()[1])
                self.assertLess(peak, 1 << 20)  # KiB
                self.api.lies = None
                wait_for("what is true", lambda: self.known()["problem"] == "", 60)
                self.becomes("smcd", "host")
                self.a.agent.stop()

    def test_labels_and_annotations_choose_and_may_change(self):
        self.use_host()
        self.start()
        self.becomes("smcd", "host")
        on, other = systemd(UIDS[0]), cgroupfs(UIDS[1])
        self.assertEqual((self.path_of(on), self.path_of(other)), ("tcp", "tcp"))  # the API server has told of neither
        self.api.put("pods", "one", "web", uid=UIDS[0], labels={"smc": "on"})
        self.api.put("pods", "two", "web", uid=UIDS[1])
        self.becomes("smcd", on)
        (seen, *_) = [c for c in self.a.agent.connections(ended=True) if c["path"] == "smcd"][-1:]
        self.assertEqual(seen["server"], f"{self.b.ip4}:5000")
        self.assertEqual(self.path_of(other), "tcp")
        self.api.put("pods", "two", "web", uid=UIDS[1], annotations={"smc.io/use": "yes"})
        self.becomes("smcd", other)
        self.api.put("pods", "two", "web", uid=UIDS[1], annotations={"smc.io/use": "yes"}, labels={"smc": "off"})
        self.becomes("tcp", other)  # the rule that denies comes first
        self.api.delete("pods", "one", "web")
        self.becomes("tcp", on)
        self.assertEqual(self.path_of("host"), "smcd")

    def test_labels_of_the_namespace(self):
        self.use_host()
        self.start()
        self.api.put("pods", "job", "batch", uid=UIDS[0])
        wait_for("the pod", lambda: self.known()["pods"] == 1)
        self.assertEqual(self.path_of(systemd(UIDS[0])), "tcp")
        self.api.put("namespaces", "batch", labels={"team": "fast"})
        self.becomes("smcd", systemd(UIDS[0]))
        self.api.put("namespaces", "batch", labels={})
        self.becomes("tcp", systemd(UIDS[0]))
        self.api.put("namespaces", "batch", annotations={"smc.io/use": "yes"})
        self.becomes("smcd", systemd(UIDS[0]))
        self.api.put("namespaces", "batch", annotations={"smc.io/use": "no"})
        self.becomes("tcp", systemd(UIDS[0]))

    def test_pods_of_other_nodes_are_not_asked_for(self):
        self.use_host()
        self.api.put("pods", "here", "web", uid=UIDS[0])
        self.api.put("pods", "elsewhere", "web", uid=UIDS[1], node="node-b")
        self.start()
        wait_for("the list", lambda: self.known()["pods"] == 1)
        queries = [query for path, query in self.api.requests if path.endswith("pods")]
        self.assertEqual({query["fieldSelector"] for query in queries}, {"spec.nodeName=node-a"})

    def test_what_expires_is_listed_again(self):
        self.use_host()
        self.start()
        self.api.put("pods", "one", "web", uid=UIDS[0], labels={"smc": "on"})
        self.becomes("smcd", systemd(UIDS[0]))
        before = self.known()["lists"]
        with self.api.lock:  # an event that the server forgets before it has sent it
            self.api.objects["pods"].clear()
        self.api.forget()
        self.becomes("tcp", systemd(UIDS[0]))
        self.assertGreater(self.known()["lists"], before)

    def test_a_server_that_goes_and_comes_back(self):
        self.use_host()
        self.start()
        self.api.put("pods", "one", "web", uid=UIDS[0], labels={"smc": "on"})
        self.becomes("smcd", systemd(UIDS[0]))
        self.api.refuse = 503
        self.api.cut()
        wait_for("the agent to notice", lambda: "503" in self.known()["problem"])
        self.assertEqual(self.path_of(systemd(UIDS[0])), "smcd")  # as it was
        self.api.put("pods", "two", "web", uid=UIDS[1], labels={"smc": "on"})
        self.assertEqual(self.path_of(systemd(UIDS[1])), "tcp")
        lists = self.known()["lists"]
        self.api.refuse = None
        self.becomes("smcd", systemd(UIDS[1]))
        wait_for("the problem to be over", lambda: self.known()["problem"] == "")
        self.assertEqual(self.known()["lists"], lists)  # the watch continued, without a new list

    def test_watches_that_are_cut_off(self):
        self.use_host()
        self.start()
        for i in range(3):
            self.api.cut()
            self.api.put("pods", "one", "web", uid=UIDS[i], labels={"smc": "on"})
            self.becomes("smcd", systemd(UIDS[i]))
        self.assertLess(len(self.api.requests), 60)  # the agent does not repeat requests endlessly

    def test_thousands_of_pods(self):
        self.use_host()
        for i in range(5000):
            self.api.put("pods", f"pod-{i}", "web", uid=f"{i:08x}-0000-4000-8000-000000000000")
        self.api.put("pods", "last", "web", uid=UIDS[0], labels={"smc": "on"})
        self.start()
        wait_for("all pods", lambda: self.known()["pods"] == 5001, timeout=60)
        pages = [query for path, query in self.api.requests if path.endswith("pods") and "limit" in query]
        self.assertEqual(len(pages), 11)
        self.becomes("smcd", systemd(UIDS[0]))
        for i in range(2000):
            self.api.put("pods", f"pod-{i}", "web", uid=f"{i:08x}-0000-4000-8000-000000000000", labels={"a": str(i)})
        wait_for("all changes", lambda: self.known()["changes"] >= 2000, timeout=60)
        self.assertTrue(self.a.agent.status()["agent"]["serving"])
        self.becomes("smcd", systemd(UIDS[0]))

    def test_who_may_have_opted_out_is_left_alone_until_that_is_known(self):
        self.use_host()
        self.rules = [self.RULES[0], {"name": "everybody", "action": "allow"}]
        self.api.refuse = 503
        self.start()
        self.becomes("smcd", "host")
        self.assertEqual(self.path_of(systemd(UIDS[0])), "tcp")
        self.api.put("pods", "one", "web", uid=UIDS[0])
        self.api.put("pods", "two", "web", uid=UIDS[1], labels={"smc": "off"})
        self.api.refuse = None
        self.becomes("smcd", systemd(UIDS[0]))
        self.assertEqual(self.path_of(systemd(UIDS[1])), "tcp")

    def test_a_pod_that_is_not_known_yet_may_have_little_bandwidth(self):
        self.use_host()
        self.rules = [{"name": "everybody", "action": "allow"}]
        self.api.refuse = 503
        self.start()
        self.becomes("smcd", "host")
        self.assertEqual(self.path_of(systemd(UIDS[0])), "tcp")
        self.assertGreater(self.a.agent.decisions()["SMC_OUT_LIMITED"], 0)
        self.api.put("pods", "one", "web", uid=UIDS[0])
        self.api.refuse = None
        self.becomes("smcd", systemd(UIDS[0]))

    def test_a_list_whose_second_page_is_not_to_be_had(self):
        self.use_host()
        for i in range(599):
            self.api.put("namespaces", f"n-{i}")
        self.api.put("namespaces", "zzz", labels={"team": "fast"})
        self.api.put("pods", "job", "zzz", uid=UIDS[0])
        self.api.refuse_pages = 1
        self.start()
        self.becomes("smcd", systemd(UIDS[0]))
        self.assertEqual(self.api.refuse_pages, 0)
        self.assertIn("the API server answers 503 to a list of /api/v1/namespaces", self.a.agent.log())
        wait_for("the problem to be over", lambda: self.known()["problem"] == "")

    def test_a_watch_that_ends_by_an_error_each_time(self):
        self.use_host()
        self.start()
        self.api.put("pods", "one", "web", uid=UIDS[0])
        wait_for("the pod", lambda: self.known()["pods"] == 1)
        self.api.go_wrong()
        self.api.put("pods", "one", "web", uid=UIDS[0], labels={"smc": "on"})
        self.becomes("smcd", systemd(UIDS[0]))
        self.assertIn("the API server ends a watch of /api/v1/pods: etcd is gone", self.a.agent.log())
        wait_for("the problem to be over", lambda: self.known()["problem"] == "")

    def test_watches_that_never_last(self):
        """Each list that a watch begins from would be one of all pods: the agent asks more and more rarely."""
        self.use_host()
        self.api.fails = "no\nwatch today" + "!" * (3 << 20)
        self.start()
        self.api.put("pods", "one", "web", uid=UIDS[0], labels={"smc": "on"})
        wait_for("six watches", lambda: len(self.api.began) >= 6, 60)
        pauses = [b - a for a, b in zip(self.api.began, self.api.began[1:])]
        for pause, least in zip(pauses, (0.2, 0.4, 0.8, 1.6, 3.2)):
            self.assertGreaterEqual(pause, least)
        problem = wait_for("the problem", lambda: self.known()["problem"])
        self.assertIn("no?watch today!!!", problem)
        self.assertLess(len(problem), 1000)
        self.becomes("smcd", systemd(UIDS[0]))  # by a list
        self.api.fails = None
        wait_for("the problem to be over", lambda: self.known()["problem"] == "", 60)

    # --- pods that pose as others
    def test_a_pod_cannot_take_another_ones_place(self):
        self.use_host()
        self.api.put("pods", "victim", "web", uid=UIDS[0], labels={"smc": "off"})
        poses = {f"kubernetes.io/config.{key}": UIDS[0] for key in ("hash", "mirror")}
        self.api.put("pods", "evil", "web", uid=UIDS[1], labels={"smc": "on"}, annotations=poses)
        self.start()
        self.becomes("smcd", systemd(UIDS[1]))
        self.assertEqual(self.path_of(systemd(UIDS[0])), "tcp")

    def test_a_static_pod_is_known_by_its_mirror_pod(self):
        self.use_host()
        static = "0123456789abcdef" * 2
        mirror = {f"kubernetes.io/config.{key}": static for key in ("hash", "mirror")}
        self.api.put("pods", "static-node-a", "web", uid=UIDS[0], labels={"smc": "on"}, annotations=mirror)
        self.start()
        self.becomes("smcd", systemd(static))
        self.api.put("pods", "evil", "web", uid=UIDS[1], labels={"smc": "on"}, annotations=mirror)
        self.becomes("tcp", systemd(static))  # it is not known whose the annotations are
        self.api.delete("pods", "evil", "web")
        self.becomes("smcd", systemd(static))
        self.api.put("pods", "static-node-a", "web", uid=UIDS[0], labels={"smc": "on"})
        self.becomes("tcp", systemd(static))

    def test_a_pods_control_group_is_roots(self):
        """A user with a delegated control group may give those below it any name."""
        self.use_host()
        self.api.put("pods", "one", "web", uid=UIDS[0], labels={"smc": "on"})
        self.start()
        self.becomes("smcd", cgroupfs(UIDS[0]))
        delegated = os.path.join(self.a.cgroup, "user.slice/user-1000")
        os.makedirs(f"{delegated}/pod{UIDS[0]}")
        for directory in (delegated, f"{delegated}/pod{UIDS[0]}"):
            os.chown(directory, 1000, 1000)
        for below in (f"pod{UIDS[0]}", f"pod{UIDS[0]}/x"):
            os.makedirs(f"{delegated}/{below}", exist_ok=True)
            number = os.stat(f"{delegated}/{below}").st_ino
            known = lambda: [entry["key"] for entry in self.table(self.a, "smc_cgroups")]
            wait_for("the agent to know it", lambda: number in known())
            self.assertEqual(self.path_of(f"user.slice/user-1000/{below}"), "tcp")
        inside = f"{cgroupfs(UIDS[0])}/delegated"  # by a container to one of its users
        os.makedirs(os.path.join(self.a.cgroup, inside))
        os.chown(os.path.join(self.a.cgroup, inside), 1000, 1000)
        self.becomes("smcd", f"{inside}/below")

    def test_many_labels_hide_none(self):
        self.use_host()
        many = {f"a{i:03}": "x" * 2000 for i in range(300)}
        self.api.put("pods", "one", "web", uid=UIDS[0], labels={**many, "smc": "on"})
        self.api.put("pods", "two", "web", uid=UIDS[1], labels={**many, "smc": "off"}, annotations={"smc.io/use": "y"})
        slow = {**many, "kubernetes.io/egress-bandwidth": "10M"}
        self.api.put("pods", "three", "web", uid=UIDS[2], labels={"smc": "on"}, annotations=slow)
        self.start()
        self.becomes("smcd", systemd(UIDS[0]))
        self.assertEqual(self.path_of(systemd(UIDS[1])), "tcp")
        self.assertEqual(self.path_of(systemd(UIDS[2])), "tcp")
        self.assertGreater(self.a.agent.decisions()["SMC_OUT_LIMITED"], 0)

    def test_who_may_be_allowed_less_is_left_alone_until_that_is_known(self):
        self.use_host()
        self.rules = [
            {"name": "less", "action": "allow", "pods": [{"labels": {"tier": "slow"}}], "past_limits": False},
            {"name": "everybody", "action": "allow", "cgroups": ["*"], "past_limits": True},
        ]
        self.api.refuse = 503
        self.start()
        self.becomes("smcd", "host")
        self.assertEqual(self.path_of(systemd(UIDS[0])), "tcp")
        slow = {"kubernetes.io/egress-bandwidth": "10M"}
        self.api.put("pods", "one", "web", uid=UIDS[0], annotations=slow)
        self.api.put("pods", "two", "web", uid=UIDS[1], labels={"tier": "slow"}, annotations=slow)
        self.api.refuse = None
        self.becomes("smcd", systemd(UIDS[0]))
        self.assertEqual(self.path_of(systemd(UIDS[1])), "tcp")

    def test_a_server_that_is_somebody_else(self):
        self.use_host()
        stranger = os.path.join(self.a.dir, "stranger")
        os.makedirs(stranger)
        other = within(self.a, lambda: ApiServer(stranger))
        self.addCleanup(other.close)
        self.start(ca_file=other.ca)
        wait_for("the refusal", lambda: "certificate" in self.known()["problem"])
        self.assertEqual(self.api.requests, [])  # it has not seen the token
        self.assertEqual(self.path_of("host"), "smcd")

    def test_a_server_that_talks_nonsense(self):
        self.use_host()

        def answer():
            for body in (b"no json", b"[]", b'{"items": 5, "metadata": {}}', b'{"items": [1, null, {"metadata": 3}]}'):
                client, _ = listener.accept()
                with client:
                    client.recv(65536)
                    client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

        listener = within(self.a, lambda: socket.create_server(("127.0.0.1", 0)))
        self.addCleanup(listener.close)
        self.start(api=f"http://127.0.0.1:{listener.getsockname()[1]}")
        answer()
        self.assertEqual(self.path_of("host"), "smcd")
        self.assertNotEqual(self.known()["problem"], "")

    def test_rules_that_name_pods_want_a_server(self):
        config = self.a.config(policy={"rules": self.RULES})
        path = self.a.write("wrong.json", json.dumps(config))
        done = self.a.run([AGENT, "--config", path], check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("/policy/rules/0/pods: found pods, allowed: only with kubernetes.api", done.stderr)


if __name__ == "__main__":
    unittest.main()
