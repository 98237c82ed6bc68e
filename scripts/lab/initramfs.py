# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""An initramfs that mounts the host's root read-only by 9p, puts a writable layer over it, and starts guest.py there:
as the first process, or, with "lab.systemd" among the kernel's parameters, as a service of systemd.
"""
import hashlib
import lzma
import os
import shutil
import subprocess
import tempfile

BUSYBOX = "/bin/busybox"
# Enough to reach the shared root; everything else is loaded from there.
BOOT_MODULES = ["virtio_pci", "9pnet_virtio", "9p", "overlay", "virtio_console", "virtio_net"]

INIT = """#!/bin/busybox sh
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for module in $(cat /modules/order); do insmod /modules/$module || echo "initramfs: $module does not load"; done
mkdir -p /host /layer /root /job
mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=512000 root /host || poweroff -f
mount -t tmpfs -o size=60% layer /layer
mkdir /layer/upper /layer/work
mount -t overlay -o lowerdir=/host,upperdir=/layer/upper,workdir=/layer/work overlay /root || poweroff -f
mkdir -p /root/job
mount -t 9p -o trans=virtio,version=9p2000.L,cache=none,msize=512000 job /root/job || poweroff -f
parameters=$(cat /proc/cmdline)
for fs in proc sys dev; do mount --move /$fs /root/$fs; done
mount -t tmpfs run /root/run
mount -t cgroup2 cgroup /root/sys/fs/cgroup
mount -t bpf bpf /root/sys/fs/bpf
mkdir -p /root/dev/shm
mount -t tmpfs shm /root/dev/shm
case " $parameters " in *" lab.systemd "*) ;; *) exec switch_root /root /usr/bin/python3 -B "{guest}" ;; esac
mkdir -p /root/run/systemd/system
cat > /root/run/systemd/system/lab.service <<END
[Service]
ExecStart=/usr/bin/python3 -B "{guest}"
END
cat > /root/run/systemd/system/lab.target <<END
[Unit]
Requires=basic.target
Wants=lab.service
After=basic.target
END
exec switch_root /root /lib/systemd/systemd --unit=lab.target
"""


def module_files(kernel, names):
    """Paths of the modules in the order in which they load; modules that are built in have none."""
    files = []
    for name in names:
        shown = subprocess.run(
            ["modprobe", "-d", kernel.modules, "-S", kernel.version, "--show-depends", name],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        if shown.returncode != 0:
            raise RuntimeError(f"kernel {kernel.version} has no module {name}: {shown.stderr.strip()}")
        for line in shown.stdout.splitlines():
            words = line.split()
            if words[0] == "insmod" and words[1] not in files:
                files.append(words[1])
    return files


def build(kernel, guest):
    """Path of the initramfs; its name is derived from its contents."""
    contents = hashlib.sha256(f"{guest} {INIT} {BOOT_MODULES}".encode()).hexdigest()[:12]
    path = os.path.join(kernel.modules, f"initramfs-{contents}.cpio")
    if os.path.exists(path):
        return path
    with tempfile.TemporaryDirectory() as root:
        for directory in ("bin", "proc", "sys", "dev", "modules"):
            os.mkdir(os.path.join(root, directory))
        shutil.copy(BUSYBOX, os.path.join(root, "bin"))
        for applet in ("sh", "mount", "mkdir", "cat", "insmod", "switch_root", "poweroff", "echo"):
            os.symlink("busybox", os.path.join(root, "bin", applet))
        order = []
        for file in module_files(kernel, BOOT_MODULES):
            name = os.path.basename(file).removesuffix(".xz")
            with lzma.open(file) if file.endswith(".xz") else open(file, "rb") as source, open(
                os.path.join(root, "modules", name), "wb"
            ) as target:
                shutil.copyfileobj(source, target)
            order.append(name)
        with open(os.path.join(root, "modules", "order"), "w") as file:
            file.write("\n".join(order) + "\n")
        with open(os.path.join(root, "init"), "w") as file:
            file.write(INIT.format(guest=guest))
        os.chmod(os.path.join(root, "init"), 0o755)
        names = subprocess.run(["find", "."], cwd=root, check=True, stdout=subprocess.PIPE).stdout
        new = f"{path}.{os.getpid()}"
        with open(new, "wb") as file:
            subprocess.run(["cpio", "-o", "-H", "newc", "--quiet"], cwd=root, input=names, stdout=file, check=True)
        os.replace(new, path)
    return path
