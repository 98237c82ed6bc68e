#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Lists the Debian packages of a root file system: usr/share/smc-agent/sbom.cdx.json, in CycloneDX 1.4."""
import argparse
import json
import os
import re
import subprocess
import sys


def packages(root):
    """Those that were unpacked: name -> fields."""
    found = {}
    directory = os.path.join(root, "var/lib/dpkg/status.d")
    for name in os.listdir(directory):
        with open(os.path.join(directory, name), encoding="utf-8") as file:
            found[name] = dict(re.findall(r"^([A-Za-z-]+): (.*)$", file.read(), re.M))
    return found


def component(fields):
    name, version, architecture = fields["Package"], fields["Version"], fields["Architecture"]
    purl = f"pkg:deb/debian/{name}@{version.replace(':', '%3A').replace('+', '%2B')}?arch={architecture}"
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


class Arguments(argparse.ArgumentParser):
    def error(self, message):
        self.exit(2, f"sbom: {message} (see {self.prog} --help)\n")


def main():
    codes = (
        "Exit codes: 0 if the list is written; 1 if a package is missing or something failed; 2 for a wrong argument."
    )
    parser = Arguments(description=__doc__, epilog=codes)
    parser.add_argument("root", metavar="ROOT", help="the root file system")
    parser.add_argument("packages", metavar="PACKAGE", nargs="*", help="it must be there")
    options = parser.parse_args()
    root, wanted = options.root, options.packages
    found = packages(root)
    if missing := sorted(set(wanted) - set(found)):
        sys.exit(f"sbom: not in {root}: {' '.join(missing)}")
    version = subprocess.run(
        [os.path.join(root, "usr/sbin/smc-agent"), "--version"], check=True, capture_output=True, text=True
    ).stdout.split()[1]
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.4",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "name": "smc-agent",
                "version": version,
                "licenses": [{"expression": "BSD-2-Clause OR GPL-2.0-only"}],
            }
        },
        "components": [component(found[name]) for name in sorted(found)],
    }
    path = os.path.join(root, "usr/share/smc-agent/sbom.cdx.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(bill, file, indent=1)
        file.write("\n")
    print(f"sbom: {len(found)} packages")


main()
