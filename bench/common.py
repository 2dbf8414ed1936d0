# SPDX-License-Identifier: MIT
"""What the parts of bench/run share: running programs, showing commands, Markdown, goals."""
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
NAMES = {}  # of folders, where commands are shown


class Bench:
    def __init__(self, build, quick, isas, measured, peers):
        self.build, self.quick, self.isas, self.peers = build, quick, isas, peers
        self.measured = measured  # in the parts about products the plugin's faster implementation serves, not its default
        self.goals = []  # (what, goal, measured, met)
        self.failures = []

    def path(self, *names):
        return os.path.join(self.build, *names)

    def count(self, full, quick):
        return quick if self.quick else full

    def threads(self, *wanted):
        """Of the wanted counts those that this process has cores for; at least one."""
        return [count for count in wanted if count <= len(os.sched_getaffinity(0))] or [1]

    def run(self, command, **more):
        """stdout of a program; raises when it fails. The command is printed, as it can be repeated."""
        return "".join(self.lines(command, **more))

    def lines(self, command, good=(0,), **more):
        """Lines of stdout as they come; raises when the program ends with another code than a good one."""
        show(command)
        with tempfile.TemporaryFile("w+") as said:
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True, **more) as child:
                yield from child.stdout
            if child.returncode not in good:
                said.seek(0)
                raise RuntimeError(f"{command[0]} gave {child.returncode}: {said.read().strip()[-300:]}")

    def json_lines(self, command, **more):
        for line in self.lines(command, **more):
            yield json.loads(line)

    def phase1(self, method, ranks, settings, more=(), before=()):
        """Rows of a run of phase 1 without its dense arm."""
        command = [*before, self.path("bin", "bsrun"), "--plugin", "cpu", "--method", method, "-P", str(ranks), "--phase", "1", *more]
        for value in (*settings, "phase.dense_arm=false"):
            command += ["--set", value]
        with tempfile.TemporaryDirectory() as out:
            return json.loads(self.run(command + ["-q", "--out", out, "-o", "json"]))

    def cached(self, name, otherwise=""):
        """A variable of the build's CMakeCache.txt."""
        with open(self.path("CMakeCache.txt"), encoding="utf-8") as file:
            return next((line.split("=", 1)[1].strip() for line in file if line.startswith(name + ":")), otherwise)

    def has_onednn(self):
        library = self.cached("BS_ONEDNN_LIBRARY")
        return bool(library) and not library.endswith("NOTFOUND")

    def goal(self, what, goal, measured, met):
        self.goals.append((what, goal, measured, met))


def note(text):
    print(f"bench: {text}", file=sys.stderr, flush=True)


def show(command):
    """A command as typed at the tree's root; scratch folders have no lasting name."""
    text = shlex.join(command)
    for name, path in NAMES.items():
        text = re.sub(re.escape(path) + "(?=[/ ]|$)", name, text)
    text = text.replace(ROOT + "/", "")
    text = re.sub(re.escape(tempfile.gettempdir()) + r"/[^/ ]+", "$SCRATCH", text)
    print(f"    {text}", flush=True)


def heading(text):
    print(f"\n## {text}\n", flush=True)


def table(columns, rows):
    print()
    print("| " + " | ".join(columns) + " |")
    print("| " + " | ".join("---" for _ in columns) + " |")
    for row in rows:
        print("| " + " | ".join(str(cell) for cell in row) + " |")
    sys.stdout.flush()


def us(seconds):
    return f"{seconds * 1e6:.3g}" if seconds < 1e-3 else f"{seconds * 1e6:.0f}"


def interval(row, digits=3):
    return f"{row['ratio']:.{digits}f} [{row['low']:.{digits}f}, {row['high']:.{digits}f}]"


def plural(count, word):
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def first_line(command):
    try:
        text = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except OSError:
        return "not found"
    return text.splitlines()[0] if text else "not known"


def cpu_flags():
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith("flags"):
                return set(line.split(":", 1)[1].split())
    return set()
