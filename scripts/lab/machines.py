# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Virtual machines joined by one Ethernet or more, each with a soft-RoCE device on it, or on the further ones.

    with VmLab("interop") as lab:
        a, b = lab.machine("a", "6.12"), lab.machine("b", "6.1")
        lab.boot()
        a.run(["ping", "-c", "1", b.ip4])

QEMU runs without KVM, so all is slow, and everything has a deadline. Nothing outlives the lab: machines are children
of this process and die with it. A network is a UNIX socket; frames that cross it are also written to wire.pcap in the
machine's directory (wire1.pcap and so on for further networks), unless `capture` is False."""
import atexit
import ctypes
import glob
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from lab import initramfs, kernels
from lab.agent import Agent
from lab.basics import Timeout, wait_for
from lab.doorbells import Doorbells

HERE = os.path.dirname(os.path.abspath(__file__))
BOOT_TIMEOUT = 800
START_TIMEOUT = 60
PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


class Done:
    def __init__(self, reply):
        self.returncode, self.stdout, self.stderr = reply["code"], reply["out"], reply["err"]


class Process:
    """A program that runs in the machine."""

    def __init__(self, machine, pid, log):
        self.machine, self.pid, self.log = machine, pid, log

    def poll(self):
        return self.machine.request({"op": "wait", "pid": self.pid, "timeout": 0})["code"]

    def send_signal(self, number):
        self.machine.request({"op": "signal", "pid": self.pid, "signal": int(number)})

    def wait(self, timeout=30):
        code = self.machine.request({"op": "wait", "pid": self.pid, "timeout": timeout}, timeout + 10)["code"]
        if code is None:
            raise Timeout(f"{self.log} still runs after {timeout} s")
        return code

    def text(self):
        with open(self.log, errors="replace") as file:
            return file.read()


class Machine:
    def __init__(self, lab, name, series, index, systemd):
        self.lab, self.name, self.index, self.systemd = lab, name, index, systemd
        self.kernel = kernels.fetch(series)
        self.ip4, self.ip6 = f"10.99.0.{index}", f"fd99::{index}"
        self.job = os.path.join(lab.dir, name)
        os.mkdir(self.job)
        self.capture = os.path.join(self.job, "wire.pcap")
        self.mac = self.mac_on(0)
        self._replies, self._next, self._changed = {}, 1, threading.Condition()
        self._dead = self._channel = self.qemu = None

    def mac_on(self, wire):
        return f"52:54:00:00:{99 - wire}:{self.index:02x}"

    def boot(self, netdevs, cables=()):
        """`netdevs`: one for each device of the machine. `cables`: netdevs that a hub of the machine joins
        with its first device."""
        control, qmp = os.path.join(self.job, "control"), os.path.join(self.job, "qmp")
        self.plugs = netdevs, cables
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(control)
        listener.listen(1)
        command = [
            "qemu-system-x86_64",
            "-accel",
            "tcg,thread=multi",
            "-cpu",
            "max",
            "-smp",
            "1",
            "-m",
            str(self.lab.memory_mib),
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
            "-no-reboot",
            "-serial",
            f"file:{self.job}/console.log",
            "-kernel",
            self.kernel.image,
            "-initrd",
            initramfs.build(self.kernel, os.path.join(HERE, "guest.py")),
            "-append",
            "console=ttyS0 quiet loglevel=4 panic=-1 mitigations=off random.trust_cpu=on"
            + (" intel_iommu=on iommu=pt" if self.lab.doorbells else "")
            + (" lab.systemd" if self.systemd else ""),
            "-qmp",
            f"unix:{qmp},server=on,wait=off",
            "-virtfs",
            "local,path=/,mount_tag=root,security_model=none,readonly=on,multidevs=remap",
            "-virtfs",
            f"local,path={self.job},mount_tag=job,security_model=none",
            "-device",
            "virtio-serial-pci",
            "-chardev",
            f"socket,id=control,path={control}",
            "-device",
            "virtserialport,chardev=control,name=smc.control",
        ]
        if self.lab.doorbells:
            # Interrupts reach user space by VFIO, which wants an IOMMU.
            command += ["-machine", "q35", "-device", "intel-iommu,intremap=on"]
            command += ["-chardev", f"socket,id=area,path={self.lab.doorbells_path}"]
            command += ["-device", "ivshmem-doorbell,vectors=1,chardev=area"]
        elif self.lab.area_mib:
            for number, path in enumerate(self.lab.areas_of(self)):
                area = f"id=area{number},share=on,size={self.lab.area_mib}M,mem-path={path}"
                command += ["-object", f"memory-backend-file,{area}"]
                command += ["-device", f"ivshmem-plain,memdev=area{number}"]
        for number, cable in enumerate(cables):
            command += ["-netdev", cable.format(f"c{number}")]
            command += ["-netdev", f"hubport,id=h{number},hubid=0,netdev=c{number}"]
        for wire, netdev in enumerate(netdevs):
            capture = self.capture if wire == 0 else f"{self.job}/wire{wire}.pcap"
            command += ["-netdev", netdev, "-device", f"virtio-net-pci,netdev=n{wire},mac={self.mac_on(wire)}"]
            if self.lab.capture:
                command += ["-object", f"filter-dump,id=dump{wire},netdev=n{wire},file={capture}"]
        with open(os.path.join(self.job, "qemu.log"), "w") as log:
            self.qemu = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=lambda: _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL),
            )
        listener.settimeout(0.5)
        end = time.monotonic() + START_TIMEOUT
        with listener:
            while self._channel is None:
                try:
                    self._channel, _ = listener.accept()
                except TimeoutError:
                    if self.qemu.poll() is not None or time.monotonic() > end:
                        raise RuntimeError(f"machine {self.name} does not start: {self.qemu_log()}")
        self._reader = threading.Thread(target=self._read, args=(self._channel,), daemon=True)
        self._reader.start()

    def _read(self, channel):
        pending = b""
        while True:
            try:
                data = channel.recv(65536)
            except OSError:
                data = b""
            with self._changed:
                pending += data
                try:
                    while b"\n" in pending:
                        line, pending = pending.split(b"\n", 1)
                        reply = json.loads(line)
                        self._replies[reply["id"]] = reply
                except ValueError as error:
                    self._dead = f"it sent no valid answer: {error}"
                if not data:
                    self._dead = "the machine is gone"
                self._changed.notify_all()
                if self._dead:
                    return

    def _reply(self, number, timeout, what):
        end = time.monotonic() + timeout
        with self._changed:
            while number not in self._replies:
                left = end - time.monotonic()
                if self._dead or left <= 0:
                    self.lab.failed = True
                    raise Timeout(f"machine {self.name}: {self._dead or f'no answer within {timeout} s'}: {what}")
                self._changed.wait(left)
            reply = self._replies.pop(number)
        if "error" in reply:
            raise RuntimeError(f"machine {self.name}: {what}: {reply['error']}")
        return reply

    def request(self, request, timeout=30):
        with self._changed:
            number, self._next = self._next, self._next + 1
        try:
            self._channel.sendall((json.dumps({**request, "id": number}) + "\n").encode())
        except BrokenPipeError:
            self.lab.failed = True  # so that its console is printed, perhaps with a panic
            raise Timeout(f"machine {self.name}: the machine is gone: {request}") from None
        return self._reply(number, timeout, request)

    def wait_booted(self):
        self._reply(0, BOOT_TIMEOUT, "booting")

    # --- programs ------------------------------------------------------------------------------------
    def run(self, argv, timeout=60, check=True):
        done = Done(self.request({"op": "run", "argv": [str(a) for a in argv], "timeout": timeout}, timeout + 30))
        if done.returncode is None:
            raise Timeout(
                f"machine {self.name}: {argv} took over {timeout} s: {done.stdout[-500:]}{done.stderr[-500:]}"
            )
        if check and done.returncode != 0:
            self.lab.failed = True
            raise RuntimeError(
                f"machine {self.name}: {argv}: {done.returncode}: {done.stdout[-1000:]}{done.stderr[-1000:]}"
            )
        return done

    def sh(self, script, **kwargs):
        return self.run(["sh", "-ec", script], **kwargs).stdout

    def start(self, argv, log):
        reply = self.request({"op": "start", "argv": [str(a) for a in argv], "log": f"/job/{log}"})
        return Process(self, reply["pid"], os.path.join(self.job, log))

    def write(self, name, text):
        with open(os.path.join(self.job, name), "w") as file:
            file.write(text)
        return f"/job/{name}"

    def start_server(self, argv, log):
        """Starts a program, and waits until it prints that it listens."""
        server = self.start(argv, log)
        wait_for("the server to listen", lambda: "listening" in server.text())
        return server

    def start_agent(self, config=None, name="agent", command=()):
        self.modprobe("sch_ingress", "cls_bpf")
        defaults = {"log": {"level": "debug"}, "fallback": {"cache_s": 1, "budget_ms": 15000}}
        config = {**defaults, **(config or {})}
        config["policy"] = {"short_lived": True, **config.get("policy", {})}
        agent = Agent(self, config, name, command)
        return agent.wait_serving()

    def modprobe(self, *names):
        self.run(["modprobe", "-d", self.kernel.modules, "-S", self.kernel.version, "-a", *names])

    # --- network -------------------------------------------------------------------------------------
    def network(self, wires):
        """eth0 has self.ip4 and self.ip6; eth1, eth2 .. have 10.98.0.x, 10.97.0.x and so on."""
        self.sh("ip link set lo up")
        for wire in range(wires):
            net = 99 - wire
            self.sh(
                f"""found=$(grep -il {self.mac_on(wire)} /sys/class/net/*/address | cut -d/ -f5)
                    [ "$found" = eth{wire} ] || ip link set dev "$found" name eth{wire}
                    ip addr add 10.{net}.0.{self.index}/24 dev eth{wire}
                    ip addr add fd{net}::{self.index}/64 dev eth{wire} nodad
                    ip link set eth{wire} up"""
            )

    def soft_roce(self, *netdevs):
        """Makes a soft-RoCE device on each network device: rxe0, rxe1 .."""
        with open(os.path.join(self.kernel.modules, "lib/modules", self.kernel.version, "modules.dep")) as file:
            if "crc32_generic" in file.read():
                self.modprobe("crc32_generic")  # rxe needs this module there, but does not declare it
        self.modprobe("ib_uverbs", "rdma_ucm", "rdma_rxe")
        for number, netdev in enumerate(netdevs):
            self.run(["rdma", "link", "add", f"rxe{number}", "type", "rxe", "netdev", netdev])

    def set_link(self, up, wire=0):
        """Plugs in or pulls the Ethernet cable of eth`wire`."""
        with socket.socket(socket.AF_UNIX) as qmp:
            qmp.connect(os.path.join(self.job, "qmp"))
            stream = qmp.makefile("rw")
            for command in (
                {"execute": "qmp_capabilities"},
                {"execute": "set_link", "arguments": {"name": f"n{wire}", "up": up}},
            ):
                stream.write(json.dumps(command) + "\n")
                stream.flush()
            for _ in range(3):  # greeting and two answers
                stream.readline()

    def pci_driver(self, device, name):
        """The driver that PCI devices with this number use from now on; "": none."""
        self.sh(
            f"""for path in $(grep -l {device} /sys/bus/pci/devices/*/device); do
                    cd ${{path%/device}}
                    echo {name} > driver_override
                    [ ! -e driver ] || basename $PWD > driver/unbind
                    [ -z "{name}" ] || basename $PWD > /sys/bus/pci/drivers_probe
                done"""
        )

    def kill(self):
        self.qemu.kill()
        self.qemu.wait()

    def forget(self):
        """Drops the channel to a machine that was killed, so that it can be started again."""
        self._reader.join()  # its last act is to note that the machine is gone
        self._channel.close()
        self._replies, self._next, self._dead, self._channel = {}, 1, None, None
        os.unlink(os.path.join(self.job, "control"))

    def stop(self):
        if self.qemu is not None and self.qemu.poll() is None:
            try:
                if self._channel is None:
                    raise OSError
                self._channel.sendall(b'{"id": -1, "op": "off"}\n')
                self.qemu.wait(15)
            except (OSError, subprocess.TimeoutExpired):
                self.kill()
        if self._channel is not None:
            self._channel.close()

    def qemu_log(self):
        with open(os.path.join(self.job, "qemu.log"), errors="replace") as file:
            return file.read()[-1000:]

    def console(self):
        try:
            with open(os.path.join(self.job, "console.log"), errors="replace") as file:
                return file.read()
        except FileNotFoundError:
            return ""


class VmLab:
    def __init__(self, name, roce_wires=0, area_mib=0, memory_mib=1024, doorbells=False, areas="one", capture=True):
        """`roce_wires`: number of networks besides the first, which then have soft-RoCE; 0: soft-RoCE on the first.
        `area_mib`: memory that machines share, an ivshmem device of each; 0: none. `memory_mib`: of each machine.
        `doorbells`: with interrupts, and an IOMMU in each machine. `areas`: "one" that all share, "own": not shared,
        each has its own, "pairs": one for each two machines. `capture`: record the traffic of the networks."""
        self.name, self.roce_wires, self.machines, self.failed = name, roce_wires, [], False
        self.area_mib, self.memory_mib, self.areas, self.capture = area_mib, memory_mib, areas, capture
        self._remove_stale()
        self.dir = tempfile.mkdtemp(prefix=f"smc-vm-{os.getpid()}-{name}-")
        self.doorbells = Doorbells(self.doorbells_path, self.area, area_mib << 20) if doorbells else None
        atexit.register(self.clean)

        def terminated(*_):
            raise KeyboardInterrupt  # which unittest does not treat as a failed test

        signal.signal(signal.SIGTERM, terminated)

    @staticmethod
    def _remove_stale():
        """Removes files that a killed test has left. Its machines died with it."""
        for path in glob.glob(os.path.join(tempfile.gettempdir(), "smc-vm-*-*-*")):
            pid = os.path.basename(path).split("-")[2]
            if pid.isdigit() and not os.path.exists(f"/proc/{pid}") and not os.environ.get("SMC_KEEP"):
                shutil.rmtree(path, ignore_errors=True)

    @property
    def area(self):
        """The file behind the memory that the machines share."""
        return os.path.join(self.dir, "area")

    def areas_of(self, machine):
        """The files of a machine's ivshmem devices, in the order of its PCI bus; in "pairs", of the other machines."""
        if self.areas == "one":
            return [self.area]
        if self.areas == "own":
            return [os.path.join(machine.job, "area")]
        others = [other.name for other in self.machines if other is not machine]
        return [os.path.join(self.dir, "area-" + "-".join(sorted((machine.name, other)))) for other in others]

    @property
    def doorbells_path(self):
        return os.path.join(self.dir, "doorbells")

    def machine(self, name, series, systemd=False):
        """`systemd`: the machine runs the host's systemd, with no services but those of basic.target."""
        self.machines.append(Machine(self, name, series, len(self.machines) + 1, systemd))
        return self.machines[-1]

    def boot(self):
        """Starts all machines, their networks and their soft-RoCE devices."""
        wires = [os.path.join(self.dir, f"ethernet{n}") for n in range(1 + self.roce_wires)]
        third = os.path.join(self.dir, "third")  # a cable from the second machine to a third one
        plug = "stream,id={{}},server={},addr.type=unix,addr.path={}".format
        for i, machine in enumerate(self.machines):
            if len(self.machines) == 2 or i == 0:
                ends = [plug("on" if i == 0 else "off", path) for path in wires]
                machine.boot([end.format(f"n{n}") for n, end in enumerate(ends)])
            elif i == 1:
                machine.boot(["hubport,id=n0,hubid=0"], [plug("off", wires[0]), plug("on", third)])
            else:
                machine.boot([plug("off", third).format("n0")])
            # The other end connects once, when it starts; a cable has two ends.
            paths = [*wires, third] if i == 1 and len(self.machines) == 3 else wires
            wait_for("the Ethernet", lambda: all(os.path.exists(path) for path in paths))
        for machine in self.machines:
            machine.wait_booted()
            machine.network(len(wires))
            machine.soft_roce(*[f"eth{n}" for n in range(1, len(wires))] or ["eth0"])

    def power_cut(self, machine):
        """Kills a machine, which loses its own memory, and boots it again. Of two machines it must be the second: only
        its cables can be plugged in again."""
        machine.kill()
        machine.forget()
        machine.boot(*machine.plugs)
        machine.wait_booted()
        machine.network(1 + self.roce_wires)
        machine.soft_roce(*[f"eth{n}" for n in range(1, 1 + self.roce_wires)] or ["eth0"])

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.failed |= kind is not None
        self.clean()

    def clean(self):
        """Also runs at the end of the program if the lab was not left in order. SMC_KEEP=1 keeps logs and captures."""
        atexit.unregister(self.clean)
        for machine in self.machines:
            machine.stop()
            if self.failed:
                print(f"--- console of {machine.name}\n{machine.console()[-3000:]}", file=sys.stderr)
        if self.doorbells:
            self.doorbells.close()
        if os.environ.get("SMC_KEEP"):
            print(f"--- kept: {self.dir}", file=sys.stderr)
        else:
            shutil.rmtree(self.dir, ignore_errors=True)
