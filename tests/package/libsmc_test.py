# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""libsmc by itself: builds with only a C++ compiler, installs, is found by pkg-config, and a program that uses it needs
nothing else."""
import glob
import os
import re
import shutil
import subprocess
import tempfile
import unittest

from lab.basics import ROOT

HERE = os.path.dirname(os.path.abspath(__file__))
# Everything on PATH: no clang and no bpftool, and CMake cannot find them elsewhere.
TOOLS = ["c++", "g++", "cc", "gcc", "cmake", "ninja", "ar", "as", "ld", "ranlib", "sh", "pkg-config"]
OF_OTHERS = re.compile(
    r"/(bpf|infiniband|asio|spdlog|fmt|nlohmann|valijson|tl|libmnl|uuid|CLI|pcap|catch2)/"
    rf"|{re.escape(ROOT)}/(agent|ctl|datapath|os|tests)/"
)


class LibSmc(unittest.TestCase):
    def setUp(self):
        self.dir = self.enterContext(tempfile.TemporaryDirectory())
        tools = os.path.join(self.dir, "tools")
        os.mkdir(tools)
        for tool in TOOLS:
            os.symlink(shutil.which(tool), os.path.join(tools, tool))
        self.prefix = os.path.join(self.dir, "prefix")
        self.environment = {"PATH": tools, "HOME": self.dir, "LC_ALL": "C"}

    def run_tool(self, *command):
        done = subprocess.run(command, env=self.environment, cwd=self.dir, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout[-3000:] + done.stderr[-3000:])
        return done.stdout

    def test_builds_installs_and_is_used(self):
        build = os.path.join(self.dir, "build")
        self.run_tool(
            *("cmake", "--preset", "lib", "-S", ROOT, "-B", build),
            *("-DCMAKE_BUILD_TYPE=Debug", f"-DCMAKE_INSTALL_PREFIX={self.prefix}", "-DSMC_WERROR=ON"),
        )
        self.run_tool("cmake", "--build", build, "--target", "all", "all_verify_interface_header_sets")
        self.run_tool("cmake", "--install", build)
        self.assertIsNone(OF_OTHERS.search(self.run_tool("ninja", "-C", build, "-t", "deps")))

        (found,) = glob.glob(f"{self.prefix}/lib/**/smc.pc", recursive=True)
        self.environment["PKG_CONFIG_PATH"] = os.path.dirname(found)
        flags = self.run_tool("pkg-config", "--cflags", "--libs", "smc").split()
        with open(os.path.join(ROOT, "CMakeLists.txt")) as file:
            version = re.search(r"project\(smc-agent VERSION (\S+)", file.read())[1]
        self.assertEqual(self.run_tool("pkg-config", "--modversion", "smc").strip(), version)
        program = os.path.join(self.dir, "user")
        self.run_tool("c++", "-std=c++20", f"{HERE}/user.cc", "-o", program, *flags)
        self.assertRegex(self.run_tool(program), r"^Proposal \d+ bytes, Accept \d+ bytes, the client attaches")


if __name__ == "__main__":
    unittest.main()
