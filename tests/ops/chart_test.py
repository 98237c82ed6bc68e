# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""The chart and the plain manifest: equal, valid for Kubernetes, and with no more rights than are documented."""
import json
import os
import subprocess
import tempfile
import unittest

import kubernetes.client
import yaml
from lab import helm
from lab.basics import AGENT, ROOT

MANIFEST = os.path.join(ROOT, "deploy/kubernetes/smc-agent.yaml")
CHART = os.path.join(ROOT, "deploy/chart")


class NoDuplicates(yaml.SafeLoader):
    """Reads YAML; a key that appears twice is an error."""


def mapping(loader, node):
    keys = [loader.construct_object(key) for key, _ in node.value]
    if len(set(keys)) != len(keys):
        raise yaml.YAMLError(f"a key comes twice: {keys}")
    return loader.construct_mapping(node, deep=True)


NoDuplicates.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, mapping)


def documents(text):
    return [one for one in yaml.load_all(text, Loader=NoDuplicates) if one]


def the(kind, found):
    (one,) = [document for document in found if document["kind"] == kind]
    return one


# The schema of a custom resource, whose types the client library lacks.
POD_MONITOR = {
    "apiVersion": "monitoring.coreos.com/v1",
    "metadata": {"name", "namespace", "labels"},
    "spec": {"jobLabel", "selector", "podMetricsEndpoints"},
    "endpoint": {"path", "interval", "relabelings"},
}


OLD = "1.28.0"  # the client library of Debian 12 knows its fields, and not all of 1.30


class Chart(unittest.TestCase):
    # Each set of values adds something to the manifest.
    VALUES = (
        [],
        ["--set", "rdma.privileged=true"],
        ["--set", "ism.privileged=true,config.ism.provider=ivshmem"],
        ["--set", "rdma.resource=rdma/hca,podMonitor.enabled=true,podMonitor.labels.release=main"],
        ["--set", "nodeSelector.kind=fast,podLabels.team=net,podAnnotations.note=yes,imagePullSecrets[0].name=pull"],
        ["--set", "tolerations=null,config.http.listen=[::]:9000", "--set", "resources.limits=null"],
        ["--set", "config.control.socket=/run/smc-agent/other.sock,config.stop.drain_s=5"],
        ["--set", "config.stop.drain_s=5,config.upgrade.drain_s=7200,maxSurge=10%"],
    )

    def typed(self, document):
        """Converts to the API's types and back: fields that they do not know are lost."""
        api = kubernetes.client.ApiClient()
        version = document["apiVersion"].rpartition("/")[2].capitalize()

        class Answer:
            data = json.dumps(document)

        read = api.deserialize(Answer, version + document["kind"])
        self.assertEqual(api.sanitize_for_serialization(read), document)
        self.assertEqual(document["apiVersion"].rpartition("/")[2], "v1")

    def test_every_object_is_as_kubernetes_has_it(self):
        for values in self.VALUES:
            with self.subTest(values):
                found = documents(helm.template(*values, kubernetes=OLD))
                self.assertEqual(len({(one["kind"], one["metadata"]["name"]) for one in found}), len(found))
                for one in found:
                    if one["kind"] != "PodMonitor":
                        self.typed(one)

    def test_a_mistake_would_be_seen(self):
        pod = the("DaemonSet", documents(helm.template(kubernetes=OLD)))
        for spoil in (
            lambda spec: spec["template"]["spec"].update(hostPid=True),
            lambda spec: spec["template"]["spec"]["containers"][0].pop("name"),
            lambda spec: spec.pop("selector"),
            lambda spec: spec["template"]["spec"]["containers"][0]["volumeMounts"][0].update(mountpath="/x"),
        ):
            spoiled = json.loads(json.dumps(pod))
            spoil(spoiled["spec"])
            with self.assertRaises((ValueError, AssertionError)):
                self.typed(spoiled)

    def test_the_plain_manifest_is_what_the_chart_makes(self):
        with open(MANIFEST) as file:
            self.assertEqual(file.read(), helm.template(), "scripts/generate --manifest makes it anew")

    def test_helm_finds_nothing_wrong(self):
        done = helm.run("lint", "--strict", CHART)
        self.assertIn("0 chart(s) failed", done.stdout)

    def test_pod_monitor(self):
        monitor = the("PodMonitor", documents(helm.template("--set", "podMonitor.enabled=true")))
        self.assertEqual(monitor["apiVersion"], POD_MONITOR["apiVersion"])
        self.assertEqual(set(monitor["metadata"]), POD_MONITOR["metadata"])
        self.assertEqual(set(monitor["spec"]), POD_MONITOR["spec"])
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        self.assertEqual(set(endpoint), POD_MONITOR["endpoint"])
        pod = the("DaemonSet", documents(helm.template()))["spec"]["template"]
        self.assertLessEqual(monitor["spec"]["selector"]["matchLabels"].items(), pod["metadata"]["labels"].items())
        # The alert for an agent that is down selects it by its job.
        self.assertEqual(monitor["metadata"]["labels"][monitor["spec"]["jobLabel"]], "smc-agent")
        address, address6, one_target = endpoint["relabelings"]
        self.assertEqual(one_target["action"], "labeldrop")
        self.assertEqual((address["targetLabel"], address["replacement"]), ("__address__", "$1:7609"))
        self.assertEqual((address6["targetLabel"], address6["replacement"]), ("__address__", "[$1]:7609"))
        self.assertRegex("fd00::1", f"^{address6['regex']}$")
        self.assertNotRegex("10.0.0.1", f"^{address6['regex']}$")

    def test_wrong_values_are_refused(self):
        for wrong in (
            "image.pullPolicy=Sometimes",
            "drainSeconds=-1",
            "drainseconds=5",
            "rdma.resource=no slash",
            "podMonitor.interval=often",
            "config=5",
            "maxSurge=0",
            "config.upgrade.drain_s=5",
            "podMonitor.enabled=true,config.http.listen=127.0.0.1:7609",
            "podMonitor.enabled=true,config.http.listen=",
        ):
            with self.subTest(wrong):
                done = helm.run("template", "x", CHART, "--set", wrong, check=False)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(wrong.split("=")[0].split(".")[-1], done.stderr)

    def test_shared_memory_of_machines_needs_its_rights(self):
        others = "config.ism.others[0].provider=ivshmem,config.ism.others[0].chid=0xff20"
        for config in ("config.ism.provider=ivshmem", others):
            done = helm.run("template", "x", CHART, "--set", config, check=False)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("ism.privileged=true", done.stderr)
            for given in ("ism.privileged=true", "rdma.privileged=true"):
                (container,) = self.pod("--set", config, "--set", given)["containers"]
                security = dict(container["securityContext"])
        self.assertEqual(security.pop("seLinuxOptions")["type"], "spc_t")
        self.assertEqual(security.pop("appArmorProfile"), {"type": "Unconfined"})
        self.assertEqual(security, {"readOnlyRootFilesystem": True, "privileged": True})

    def test_devices_come_with_their_value_alone(self):
        for value, there in (
            ("rdma.privileged=true", True),
            ("ism.privileged=true", False),
            ("drainSeconds=60", False),
        ):
            paths = [
                volume["hostPath"]["path"] for volume in self.pod("--set", value)["volumes"] if "hostPath" in volume
            ]
            self.assertEqual("/dev/infiniband" in paths, there, value)

    def test_every_node_has_one_and_keeps_it(self):
        pod = self.pod()
        self.assertEqual(pod["priorityClassName"], "system-node-critical")
        self.assertEqual(pod["tolerations"], [{"operator": "Exists"}])
        self.assertTrue(pod["hostPID"] and pod["hostNetwork"])
        self.assertEqual(pod["nodeSelector"], {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"})
        self.assertNotIn("affinity", pod)

    def pod(self, *values):
        return the("DaemonSet", documents(helm.template(*values)))["spec"]["template"]["spec"]

    def test_the_agent_takes_the_configuration(self):
        for values in self.VALUES:
            config = the("ConfigMap", documents(helm.template(*values)))["data"]["config.json"]
            with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
                file.write(config)
                file.flush()
                done = subprocess.run([AGENT, "--check-config", "--config", file.name], capture_output=True, text=True)
                self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_what_belongs_together_fits(self):
        for values in self.VALUES:
            daemon = the("DaemonSet", documents(helm.template(*values)))["spec"]
            pod, (container,) = daemon["template"]["spec"], daemon["template"]["spec"]["containers"]
            self.assertLessEqual(
                daemon["selector"]["matchLabels"].items(), daemon["template"]["metadata"]["labels"].items()
            )
            mounted = {mount["name"] for mount in container["volumeMounts"]}
            self.assertEqual(mounted, {volume["name"] for volume in pod["volumes"]})
            config = json.loads(the("ConfigMap", documents(helm.template(*values)))["data"]["config.json"])
            socket = config.get("control", {}).get("socket", "/run/smc-agent/control.sock")
            health = ["/usr/bin/smcctl", "--socket", socket, "health"]
            self.assertEqual(container["livenessProbe"]["exec"]["command"], health)
            self.assertEqual(container["readinessProbe"]["exec"]["command"], [*health, "--ready"])
            for section in ("stop", "upgrade"):
                self.assertGreater(pod["terminationGracePeriodSeconds"], config[section]["drain_s"])
            # Two pods run side by side during an update: neither waits for the other's node port.
            rolling = daemon["updateStrategy"]["rollingUpdate"]
            self.assertEqual((rolling["maxSurge"] in (1, "10%"), rolling["maxUnavailable"]), (True, 0))
            # An agent that hangs is not given the time that connections have to end.
            self.assertEqual(container["livenessProbe"]["terminationGracePeriodSeconds"], 60)
            self.assertIn("--take-over", container["args"])
            self.assertNotIn("ports", container)

    def test_each_drain_is_its_own(self):
        def drains(*values):
            config = json.loads(the("ConfigMap", documents(helm.template(*values)))["data"]["config.json"])
            return config["stop"]["drain_s"], config["upgrade"]["drain_s"]

        self.assertEqual(drains(), (3600, 3600))
        self.assertEqual(drains("--set", "config.stop.drain_s=5"), (5, 3600))
        self.assertEqual(drains("--set", "config.upgrade.drain_s=50"), (3600, 50))
        self.assertEqual(drains("--set", "config.stop.drain_s=7,config.upgrade.drain_s=50"), (7, 50))

    def test_rights_are_the_least(self):
        found = documents(helm.template())
        (rule,) = the("ClusterRole", found)["rules"]
        self.assertEqual((set(rule["resources"]), set(rule["verbs"])), ({"pods", "namespaces"}, {"list", "watch"}))
        (container,) = the("DaemonSet", found)["spec"]["template"]["spec"]["containers"]
        security = container["securityContext"]
        self.assertTrue(security["readOnlyRootFilesystem"])
        self.assertFalse(security["allowPrivilegeEscalation"])
        self.assertNotIn("privileged", security)
        self.assertEqual(security["capabilities"]["drop"], ["ALL"])
        # A seccomp profile of the runtime would forbid calls that the capabilities allow.
        self.assertEqual(security["seLinuxOptions"]["type"], "spc_t")
        self.assertEqual(security["appArmorProfile"], {"type": "Unconfined"})
        before = the("DaemonSet", documents(helm.template(kubernetes="1.29.9")))["spec"]["template"]
        notes = before["metadata"]["annotations"]
        self.assertEqual(notes["container.apparmor.security.beta.kubernetes.io/agent"], "unconfined")
        self.assertNotIn("appArmorProfile", before["spec"]["containers"][0]["securityContext"])
        with open(os.path.join(ROOT, "docs/security.md")) as file:
            documented = file.read()
        for capability in security["capabilities"]["add"]:
            self.assertIn(f"`{capability}`", documented)


if __name__ == "__main__":
    unittest.main()
