# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Process 1 of a virtual machine: carries out what the host asks for over a virtio port, one JSON object per line.

    {"id": 1, "op": "run", "argv": [...], "timeout": 10}  -> {"id": 1, "code": 0, "out": "...", "err": "..."}
    {"id": 2, "op": "start", "argv": [...], "log": "/job/x.log"}  -> {"id": 2, "pid": 123}
    {"id": 3, "op": "signal", "pid": 123, "signal": 15}
    {"id": 4, "op": "wait", "pid": 123, "timeout": 10}    -> {"id": 4, "code": 0}
    {"id": 5, "op": "off"}
"""
import ctypes
import json
import os
import signal
import subprocess
import threading
import traceback

ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONPATH": os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
}
started = {}


def port():
    for name in os.listdir("/sys/class/virtio-ports"):
        with open(f"/sys/class/virtio-ports/{name}/name") as file:
            if file.read().strip() == "smc.control":
                return f"/dev/{name}"
    raise RuntimeError("no control port")


def carry_out(request):
    op = request["op"]
    if op == "run":
        process = subprocess.Popen(
            request["argv"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=ENVIRONMENT,
            start_new_session=True,
        )
        try:
            out, err = process.communicate(timeout=request["timeout"])
            code = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            code = None
        return {"code": code, "out": out.decode(errors="replace"), "err": err.decode(errors="replace")}
    if op == "start":
        log = open(request["log"], "ab")
        process = subprocess.Popen(
            request["argv"], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=ENVIRONMENT, start_new_session=True
        )
        log.close()
        started[process.pid] = process
        return {"pid": process.pid}
    if op == "signal":
        os.kill(request["pid"], request["signal"])
        return {}
    if op == "wait":
        try:
            return {"code": started[request["pid"]].wait(request["timeout"])}
        except subprocess.TimeoutExpired:
            return {"code": None}
    raise ValueError(op)


def main():
    # Output of the console goes to the host's log of this machine.
    os.environ.update(ENVIRONMENT)
    lock = threading.Lock()
    with open(port(), "r+b", buffering=0) as channel:

        def answer(request):
            try:
                reply = carry_out(request)
            except Exception:
                reply = {"error": traceback.format_exc()}
            line = memoryview((json.dumps({"id": request["id"], **reply}) + "\n").encode())
            with lock:
                while line:  # the port takes 32 KiB at a time
                    line = line[channel.write(line) :]

        channel.write(b'{"id": 0}\n')
        pending = b""
        while True:
            pending += channel.read(65536)
            while b"\n" in pending:
                line, pending = pending.split(b"\n", 1)
                request = json.loads(line)
                if request["op"] == "off":
                    return
                threading.Thread(target=answer, args=(request,), daemon=True).start()


try:
    main()
except BaseException:
    traceback.print_exc()
finally:
    os.sync()
    ctypes.CDLL(None).reboot(0x4321FEDC)  # power off
