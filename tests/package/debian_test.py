# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""The Debian packages: built, checked by lintian, installed into a private copy of this system, used there, and purged
without a trace.

The copy is an overlay over this machine's root, in a mount namespace of its own: dpkg works as ever and changes
nothing outside."""
import glob
import os
import subprocess
import tempfile
import unittest

from lab.basics import ROOT

INSIDE = r"""
set -eu
mount --make-rprivate /
mount -t tmpfs none "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay none -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
cp "$2"/*.deb "$1/root/tmp"
mount --rbind /dev "$1/root/dev"
mount -t proc none "$1/root/proc"
printf '#!/bin/sh\nexit 101\n' > "$1/root/usr/sbin/policy-rc.d"
chmod 755 "$1/root/usr/sbin/policy-rc.d"
exec chroot "$1/root" sh -eu -c '
    files() { find /etc /usr /lib /run /var/lib -xdev -not -path "/var/lib/dpkg/*" | sort; }
    cd /tmp
    files > before
    dpkg -i ./*.deb
    echo "== installed"
    smc-agent --version
    smcctl --version
    smc-agent --config /etc/smc-agent/config.json --check-config && echo "the configuration is good"
    test -s /usr/share/man/man8/smc-agent.8.gz && test -s /usr/share/man/man1/smcctl.1.gz && echo "pages are there"
    test -e /usr/lib/systemd/system/smc-agent.service -o -e /lib/systemd/system/smc-agent.service && echo "a unit"
    find /etc/systemd/system -name "smc-agent*" | sed "s/^/enabled: /"
    pkg-config --modversion smc
    c++ -std=c++20 "$0/user.cc" -o /tmp/user $(pkg-config --cflags --libs smc) && /tmp/user
    systemctl enable smc-agent 2>/dev/null  # a purge removes the link, too
    test -e /etc/systemd/system/multi-user.target.wants/smc-agent.service
    echo "== purged"
    dpkg --purge smc-agent libsmc-dev >/dev/null
    files > /tmp/after
    diff /tmp/before /tmp/after || true
    dpkg -l smc-agent libsmc-dev 2>/dev/null | grep "^[a-z][a-z] " || true
' "$3"
"""


class Packages(unittest.TestCase):
    def test_built_installed_used_and_purged(self):
        directory = self.enterContext(tempfile.TemporaryDirectory())
        packages = os.path.join(directory, "packages")
        # Without optimization, which would take most of the time and is not tested here.
        environment = {**os.environ, "DEB_BUILD_OPTIONS": f"noopt parallel={os.cpu_count()}"}
        built = subprocess.run([f"{ROOT}/scripts/package", packages], env=environment, capture_output=True, text=True)
        self.assertEqual(built.returncode, 0, built.stdout + built.stderr)
        names = sorted(os.path.basename(path).split("_")[0] for path in glob.glob(f"{packages}/*.deb"))
        self.assertEqual(names, ["libsmc-dev", "smc-agent", "smc-agent-dbgsym"])
        os.unlink(glob.glob(f"{packages}/*dbgsym*.deb")[0])

        mounts = os.path.join(directory, "mounts")
        os.mkdir(mounts)
        here = os.path.dirname(os.path.abspath(__file__))
        done = subprocess.run(
            ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", INSIDE, "sh", mounts, packages, here],
            capture_output=True,
            text=True,
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        installed, purged = done.stdout.split("== installed\n")[1].split("== purged\n")
        self.assertRegex(
            installed,
            r"^smc-agent (\S+)\nsmcctl \1\nthe configuration is good\npages are there\na unit\n\1\nProposal \d+ bytes",
        )
        self.assertEqual(purged, "")


if __name__ == "__main__":
    unittest.main()
