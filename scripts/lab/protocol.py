# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""docs/protocol.md: every file and test that it names is there, and each entry says what it was tried against, which
follows from the tests that it names. `python3 -m lab.protocol` checks both; with --write it writes the second."""
import os
import re
import sys
import textwrap

from lab.arguments import Arguments
from lab.basics import ROOT

PAGE = os.path.join(ROOT, "docs", "protocol.md")
# A name may be in two of them.
FOLDERS = ("tests/unit", "tests/roce", "tests/bpf", "tests/datapath", "tests/wire", "tests/vm", "tests/netns")
# Tests in which Linux's net/smc is the other side.
LINUX = {
    "smcr_kernel_test.py": "6.12",
    "linux_test.py": "6.12",
    "vlan_test.py": "6.12",
    "survive_kernel_test.py": "6.12",
    "agent_test.py": "6.1",
}
# Tests in tests/vm that have no agent.
ALONE = {"kernel_test.py", "roce_test.py"}
FILE = re.compile(r"\b([a-z_0-9]+_test\.(?:cc|py)|connection_cases\.h)\b")
CASE = re.compile(r"\b(test_\w+|[a-z0-9_]+__\w+)")


def paths_of(name):
    paths = (os.path.join(folder, name) for folder in FOLDERS)
    return [path for path in paths if os.path.exists(os.path.join(ROOT, path))]


def entries(text):
    """Each entry with its lines: from "* **" to the next one, or to a heading."""
    for found in re.finditer(r"^\* \*\*.*?\n(?=\* \*\*|\n|\Z)", text, re.MULTILINE | re.DOTALL):
        if "\n  * by: " in found.group():
            yield found.group()


def tests_of(entry):
    """What stands after "by:", up to the next part, as one line."""
    by = re.search(r"\n  \* by: (.*?)(?=\n  \* |\n?\Z)", entry, re.DOTALL).group(1)
    return " ".join(by.split())


def tried_against(entry):
    by = tests_of(entry).split("Not done:")[0]
    files = set(FILE.findall(by))
    tried = ["simulator"] if "smc-sim" in by else []
    with_agents = [path for name in files - LINUX.keys() - ALONE for path in paths_of(name)]
    if any(path.startswith(("tests/vm/", "tests/netns/")) for path in with_agents):
        tried.append("agent")
    tried += [f"Linux {version}" for version in sorted({LINUX[name] for name in files & LINUX.keys()}, reverse=True)]
    if not any(one.startswith("Linux") for one in tried) and ("golden_test.cc" in files or "kernel_test.py" in files):
        tried.append("messages of Linux 6.12")
    return ", ".join(tried) or "nothing but its own tests"


def with_tried(entry):
    without = re.sub(r"\n  \* tried against: .*?(?=\n  \* |\n\Z)", "", entry, flags=re.DOTALL)
    line = textwrap.fill(f"  * tried against: {tried_against(entry)}", 120, subsequent_indent="    ")
    return f"{without.rstrip(chr(10))}\n{line}\n"


def missing(entry):
    """The files and tests that it names and that are not there."""
    sources = set(re.findall(r"\b(?:agent|bpf|datapath|include|lib|os)/[\w/]+\.(?:cc|h)\b", entry))
    wrong = [source for source in sorted(sources) if not os.path.exists(os.path.join(ROOT, source))]
    for part in tests_of(entry).split("Not done:")[0].split(";"):
        name = FILE.search(part)
        if not name:
            continue
        source = ""
        for path in paths_of(name.group(1)):
            with open(os.path.join(ROOT, path)) as file:
                source += file.read()
        named = re.sub(r"\([^)]*\)", "", part[name.end() :])
        wrong += [f"{name.group(1)}: {case}" for case in CASE.findall(named) if case not in source]
    return wrong


def main():
    parser = Arguments("lab.protocol", __doc__, "0 if docs/protocol.md is right; 1 if it is not")
    parser.add_argument("--write", action="store_true", help="write the lines that say what an entry was tried against")
    write = parser.parse_args().write
    with open(PAGE) as file:
        text = file.read()
    wrong = [name for entry in entries(text) for name in missing(entry)]
    for entry in list(entries(text)):
        text = text.replace(entry, with_tried(entry), 1)
    with open(PAGE) as file:
        differs = file.read() != text
    if differs and write:
        with open(PAGE, "w") as file:
            file.write(text)
    elif differs:
        wrong.append("lines that begin with 'tried against:' (scripts/lab/protocol.py --write)")
    for one in wrong:
        print(f"docs/protocol.md: {one}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
