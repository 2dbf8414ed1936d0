# SPDX-License-Identifier: MIT
"""What all parts of a visit share: steps in processes with deadlines, and the files that tell of them."""
import collections
import concurrent.futures
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time

import machine

LEAST = 5  # seconds: with less left a step is not begun

# A group of steps: they share its minutes, and what earlier groups saved; the last one has the rest. at_once: up to the end, beside each
# other and beside the next such group. steps(visit) gives its steps. A table of groups is the plan of a visit (gpu-visit --list).
Group = collections.namedtuple("Group", "part name minutes at_once steps decides")
# words: the command, or a function that makes it when its turn comes, or gives the reason why there is none ("no ..").
# ok: exit codes; look(row, text): what else must be so, and what to keep; tool: a program that must be in PATH; seconds: its deadline.
Step = collections.namedtuple("Step", "name words ok look tool seconds", defaults=((0,), None, None, 120))


def child(words, env, seconds):
    """(exit code, text): all processes of the command end with its deadline, and then the code is None."""
    with tempfile.TemporaryFile() as out:
        done = subprocess.Popen(words, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            code, more = done.wait(seconds), ""
        except subprocess.TimeoutExpired:
            code, more = None, "\nstopped after %.0f s" % seconds
        try:
            os.killpg(done.pid, signal.SIGKILL)  # also what it left behind
            done.wait(5)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass
        out.seek(0)
        return code, out.read().decode(errors="replace") + more


class Visit:
    def __init__(self, root, part, minutes, out, only="", rehearse=False):
        self.root, self.part, self.out, self.only, self.rehearse = root, part, out, only, rehearse
        self.bsrun, self.env = os.path.join(root, "bin", "bsrun"), machine.environment(root)
        self.jobs = 2 if rehearse else max(1, (os.cpu_count() or 2) // 2)
        self.start = time.monotonic()
        self.end = self.start + 60 * minutes
        self.rows, self.about, self.lock = [], {}, threading.Lock()
        self.scratch = tempfile.TemporaryDirectory(prefix="bs-gpu-")

    def pick(self, real, small):
        """What a visit takes, or what its rehearsal does."""
        return small if self.rehearse else real

    def row(self, name):
        return next((r for r in self.rows if r["name"] == name), {})

    def setting(self, *words):
        """What each command on the device has behind its own words."""
        return ["--plugin", "cuda", "--set", "plugin_trust=any", *words]

    def run(self, group, step, until):
        """A row: passed, FAILED or not run. What the end of the visit cut is not run."""
        row = {"name": "%s: %s" % (group.name, step.name), "part": self.part, "state": "not run", "seconds": 0.0, "budget": 60 * group.minutes,
               "command": "", "decides": group.decides, "exit": None, "tail": ""}
        with self.lock:
            self.rows.append(row)
        left, start = until - time.monotonic(), time.monotonic()
        words = step.words
        if step.tool and shutil.which(step.tool, path=self.env.get("PATH")) is None:
            row["tail"] = "no %s here" % step.tool
        elif left < LEAST:
            row["tail"] = "no time left"
        else:
            words = words() if callable(words) else words
            if isinstance(words, str):
                row["tail"] = words
            else:
                self.judge(row, step, words, min(step.seconds, left))
        row["seconds"] = round(time.monotonic() - start, 1)
        with self.lock:
            print("\n".join([line(row)] + row.get("table", [])), flush=True)
            self.write()  # what is known so far: a lease may end

    def judge(self, row, step, words, seconds):
        row["command"] = " ".join(words)
        try:
            row["exit"], text = child(words, self.env, seconds)
        except OSError as e:
            text = str(e)
        row["state"] = "passed" if row["exit"] in step.ok else "FAILED"
        row["tail"] = "\n".join(text.strip().split("\n")[-60:])[-6000:]
        if row["exit"] is None and seconds < step.seconds:
            row["state"], row["tail"] = "not run", "no time left: stopped after %.0f s\n%s" % (seconds, row["tail"])
        try:
            if step.look is not None:
                step.look(row, text)
        except (KeyError, ValueError, TypeError, IndexError) as e:  # a text of another form ends its step, not the visit
            row["state"], row["tail"] = "FAILED", "%s: %s\n%s" % (type(e).__name__, e, row["tail"])

    def groups(self, table):
        """All steps of the part, in order."""
        mine, spent, total = [g for g in table if g.part == self.part], 0.0, sum(g.minutes for g in table if g.part == self.part)
        waits = []
        self.write()
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            for group in mine:
                spent += group.minutes
                until = self.end if group.at_once or group is mine[-1] else min(self.end, max(self.start + 60 * spent, self.end - 60 * (total - spent)))
                if not group.at_once:
                    concurrent.futures.wait(waits)
                for step in group.steps(self):
                    if not re.search(self.only, "%s: %s" % (group.name, step.name)):
                        continue
                    wait = pool.submit(self.run, group, step, until)
                    waits.append(wait)
                    if not group.at_once:
                        wait.result()
        for wait in waits:
            wait.result()
        self.write()

    def count(self, state):
        return sum(r["state"] == state for r in self.rows)

    def lines(self):
        for r in self.rows:
            yield line(r)
            yield from r.get("table", [])
        yield "\n%d passed, %d FAILED, %d not run" % tuple(self.count(s) for s in ("passed", "FAILED", "not run"))
        yield from ("\n== %(name)s\n%(command)s\n%(tail)s" % r for r in self.rows if r["state"] == "FAILED")

    def write(self):
        os.makedirs(self.out, exist_ok=True)
        whole = os.path.join(self.out, "gpu-visit-%d." % self.part)
        for kind, text in (("json", json.dumps({"machine": self.about, "rows": self.rows}, indent=1)),
                           ("txt", "\n".join(["%s: %s" % x for x in self.about.items()] + [""] + list(self.lines())))):
            with open(whole + kind + ".new", "w", encoding="utf-8") as f:
                f.write(text + "\n")
            os.replace(whole + kind + ".new", whole + kind)


def demand(row, good, why):
    """What passed has failed if it is not good."""
    if row["state"] == "passed" and not good:
        row["state"], row["tail"] = "FAILED", why + "\n" + row["tail"]


def line(row):
    why = ": " + row["tail"].split("\n")[0] if row["state"] == "not run" else ""
    return "%-8s %6.1f s  %s%s" % (row["state"], row["seconds"], row["name"], why)
