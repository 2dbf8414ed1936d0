#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The first screen and the tables, as a newcomer sees them: screen_form.py BUILD SOURCE

The screen that a run ends in has at most 25 lines of at most 100 columns and the form of README's sample (numbers, paths and
verdicts masked); every table of every verb fits 120 columns.
"""
import os
import re
import subprocess
import sys
import tempfile

SMALL = ["--n", "64", "--set", "phase.pairs_min=5", "--set", "phase.pairs_max=10", "--set", "phase.pairs_seconds=0.1", "--set", "tune.measure=off"]
QUICK = ["--set", "phase.fault_gate=false", "--set", "phase.timed_iters=2"]
TABLES = ("run -o table --method row_parallel --sweep B.yaml", "run -o table --mask magnitude --phase backward", "run -o table --phase train",
          "plugins list", "plugins inspect cpu", "plugins why cpu", "doctor", "config keys", "config print -o table",
          "explain matmul --n 256", "explain mask magnitude --n 256", "explain mask complement_1100_0011 --n 256",
          "explain method blockshock --n 256", "compare blockshock dense --n 64 --limit 2 --seconds 0.1")


def main(build, source):
    failures = []
    folder = tempfile.TemporaryDirectory()
    env = dict(os.environ, HOME=folder.name, XDG_CACHE_HOME=folder.name)

    def bsrun(words):
        done = subprocess.run([os.path.join(build, "bin", "bsrun")] + words, cwd=folder.name, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              check=False, text=True)
        if done.returncode:
            failures.append("%s: exit %d\n%s" % (" ".join(words), done.returncode, done.stderr))
        return done.stdout

    def narrow(what, text, width):
        for line in text.split("\n"):
            if len(line) > width and not line.startswith(("repeat: ", "run: ", "next: ")):
                failures.append("%s: %d columns, at most %d:\n%s" % (what, len(line), width, line))
                return

    def form(text):
        """Words, with what differs from run to run masked; a comparison's verdict and the advice on it do."""
        text = "\n".join(line for line in text.split("\n") if not line.startswith("repeat: "))
        text = re.sub(r" unclear: .*? run: ", " run: ", re.sub(r"\s+", " ", re.sub(r"#[^\n]*", "", text)))
        text = re.sub(r"(FASTER|SLOWER|UNCLEAR|SAME)( \([a-z ]+\))?: speedup", "VERDICT", text)
        text = re.sub(r" predicted: \S+ % off\)", " predicted)", re.sub(r"doubtful: .*?--measure\) ", "", text))
        text = re.sub(r"; (arithmetic|reading memory|the exchange between ranks|the calls of the host) limits? it", "; LIMIT", text)
        text = re.sub(r"\S+ % of this machine's limit; LIMIT|share of this machine's limit unknown", "LIMIT", text)
        return re.sub(r"\d[\d.e+-]*", "N", re.sub(r" --(n|k|b) \d+| --set \S+", "", re.sub(r"(results/\S*/)\S+", r"\1ID", text))).strip()

    screen = bsrun(SMALL)
    narrow("the screen", screen, 100)
    if screen.count("\n") > 25:
        failures.append("the screen has %d lines:\n%s" % (screen.count("\n"), screen))
    with open(os.path.join(source, "README.md"), encoding="utf-8") as f:
        sample = re.search(r"```text\n(layer:.*?)```", f.read(), re.S)
    if sample is None or form(sample.group(1)) != form(screen):
        failures.append("README's sample is not of this form:\n%s\nit is\n%s" % (form(screen), sample and form(sample.group(1))))
    with open(os.path.join(folder.name, "B.yaml"), "w", encoding="utf-8") as f:
        f.write("sweep: {param: model.B, values: [4, 8]}\n")
    for words in TABLES:
        words = words.split()
        narrow(" ".join(words), bsrun(words + (SMALL + QUICK if words[0] == "run" else [])), 120)
    for failure in failures:
        print(failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
