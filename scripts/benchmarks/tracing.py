# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""BPF programs on the kernel's tracepoints, with which scripts/bench counts and records."""
import ctypes
import os
import re
import subprocess
import tempfile

from lab.basics import sh


def call_names():
    """The names of system calls by their number."""
    defined = subprocess.run(
        ["cc", "-E", "-dM", "-include", "sys/syscall.h", "-x", "c", "/dev/null"],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return {int(number): name for name, number in re.findall(r"#define __NR_(\w+) (\d+)\n", defined.stdout)}


class Tracing:
    """The programs of a source file of this directory are attached while the body of a `with` runs."""

    def __init__(self, source):
        self.source = os.path.join(os.path.dirname(os.path.abspath(__file__)), source)
        self.bpf = ctypes.CDLL("libbpf.so.1", use_errno=True)
        for function in (self.bpf.bpf_object__open, self.bpf.bpf_object__next_program, self.bpf.bpf_program__attach):
            function.restype = ctypes.c_void_p
        self.object, self.links = None, []

    def __enter__(self):
        with tempfile.TemporaryDirectory() as directory:
            built = os.path.join(directory, "tracing.bpf.o")
            include = "/usr/include/" + sh("cc", "-print-multiarch").strip()
            machine = f"-D__TARGET_ARCH_{os.uname().machine.replace('x86_64', 'x86')}"
            options = ["-O2", "-g", "-target", "bpf", machine, "-idirafter", include]
            sh("clang-14", *options, "-c", self.source, "-o", built)
            self.object = ctypes.c_void_p(self.bpf.bpf_object__open(built.encode()))
        if not self.object or self.bpf.bpf_object__load(self.object) != 0:
            raise OSError(ctypes.get_errno(), "loading " + self.source)
        program = None
        while program := self.bpf.bpf_object__next_program(self.object, ctypes.c_void_p(program)):
            self.links.append(ctypes.c_void_p(self.bpf.bpf_program__attach(ctypes.c_void_p(program))))
            if not self.links[-1]:
                raise OSError(ctypes.get_errno(), "attaching a program of " + self.source)
        return self

    def __exit__(self, *_):
        self.detach()
        self.bpf.bpf_object__close(self.object)

    def detach(self):
        """From here on nothing is counted or recorded; the maps stay until the end of the `with`."""
        while self.links:
            self.bpf.bpf_link__destroy(self.links.pop())

    def entries(self, name, key_bytes, value_bytes):
        """Pairs of key and value of a map."""
        map_fd = self.bpf.bpf_object__find_map_fd_by_name(self.object, name.encode())
        key, value = ctypes.create_string_buffer(key_bytes), ctypes.create_string_buffer(value_bytes)
        last = None
        while self.bpf.bpf_map_get_next_key(map_fd, last, key) == 0:
            last = ctypes.create_string_buffer(key.raw, key_bytes)
            if self.bpf.bpf_map_lookup_elem(map_fd, key, value) == 0:
                yield key.raw, value.raw
