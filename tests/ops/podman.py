# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""podman with a store of its own below a directory, and the part of a manifest that its `kube play` can run.

podman 4.3 knows no DaemonSet, so the pod of its template is played. It ignores hostPID (a setting of its own does it),
and has no spec.nodeName. The test runs the probes itself.
"""
import copy
import os
import subprocess

import yaml

SETTINGS = {
    "storage.conf": '[storage]\ndriver = "vfs"\ngraphroot = "{0}/root"\nrunroot = "{0}/run"\n',
    "registries.conf": "",
    "containers.conf": """
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "crun"
infra_image = "localhost/pause:latest"
image_copy_tmp_dir = "{0}/tmp"
tmp_dir = "{0}/libpod"
static_dir = "{0}/root/libpod"
volume_path = "{0}/root/volumes"
[network]
network_backend = "netavark"
network_config_dir = "{0}/networks"
[containers]
pidns = "host"
log_driver = "k8s-file"
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
""",
}


class Podman:
    def __init__(self, directory):
        self.directory = directory
        for name in ("root", "run", "tmp", "networks"):
            os.makedirs(os.path.join(directory, name))
        for name, text in SETTINGS.items():
            with open(os.path.join(directory, name), "w") as file:
                file.write(text.replace("{0}", directory))
        self.environment = {
            **os.environ,
            "CONTAINERS_CONF": f"{directory}/containers.conf",
            "CONTAINERS_STORAGE_CONF": f"{directory}/storage.conf",
            "CONTAINERS_REGISTRIES_CONF": f"{directory}/registries.conf",
            "TMPDIR": f"{directory}/tmp",
        }
        pause = os.path.join(directory, "pause")
        os.makedirs(pause)
        subprocess.run(["cp", "/bin/busybox", f"{pause}/sleep"], check=True)
        subprocess.run(["tar", "-C", pause, "-cf", f"{pause}.tar", "."], check=True)
        self("import", "-q", "-c", 'ENTRYPOINT ["/sleep","infinity"]', f"{pause}.tar", "localhost/pause:latest")

    def __call__(self, *arguments, check=True, timeout=120):
        done = subprocess.run(
            ["podman", *arguments], env=self.environment, capture_output=True, text=True, timeout=timeout
        )
        if check and done.returncode != 0:
            raise RuntimeError(f"podman {' '.join(arguments[:3])}: {done.returncode}: {done.stdout} {done.stderr}")
        return done

    def begin(self, *arguments):
        """Starts a command that runs for long; its process."""
        return subprocess.Popen(["podman", *arguments], env=self.environment, stdout=subprocess.DEVNULL)

    def play(self, documents):
        path = os.path.join(self.directory, f"{documents[-1]['metadata']['name']}.yaml")
        with open(path, "w") as file:
            yaml.safe_dump_all(documents, file)
        self("kube", "play", path)

    def close(self):
        self("pod", "rm", "-fa", "-t", "2", check=False)
        self("volume", "rm", "-af", check=False)
        self("system", "reset", "-f", check=False)


def playable(documents, name, paths):
    """ConfigMap and pod of a manifest, under another name, and the commands of its probes. `paths`: directories of
    this node that stand for hostPath volumes."""
    documents = copy.deepcopy(documents)
    (config,) = [one for one in documents if one["kind"] == "ConfigMap"]
    (daemon,) = [one for one in documents if one["kind"] == "DaemonSet"]
    template = daemon["spec"]["template"]
    spec = template["spec"]
    (container,) = spec["containers"]
    assert spec["hostPID"] and spec["hostNetwork"]  # the settings above and below stand for these
    probes = {name: container.pop(f"{name}Probe")["exec"]["command"] for name in ("liveness", "readiness")}
    for variable in container["env"]:
        assert variable.pop("valueFrom") == {"fieldRef": {"fieldPath": "spec.nodeName"}}
        variable["value"] = "node-a"
    for volume in spec["volumes"]:
        if "hostPath" in volume:
            volume["hostPath"]["path"] = paths.get(volume["hostPath"]["path"], volume["hostPath"]["path"])
        else:
            volume["configMap"]["name"] = name
    config["metadata"]["name"] = name
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": template["metadata"]["labels"]}}
    return [config, {**pod, "spec": spec}], probes
