#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The test of the judge of `scripts/claims picks`, over cases whose right answer is known: measured candidates with noise, of which a
given number of choices is slower than 5 %; and cases that must not count.  claims_notices.py SOURCE"""
import json
import os
import random
import subprocess
import sys
import tempfile

NAMES = ("row_parallel contiguous", "blockshock interleave", "column_parallel", "masked_split interleave", "dense")


def made(rng, slower):
    """A case of five candidates whose true times are known; the choice takes `slower` times the best one's."""
    best = rng.uniform(0.1, 10.0)
    times = [best * slower, best] + [best * rng.uniform(1.2, 4.0) for _ in NAMES[2:]]
    names = list(NAMES)
    rng.shuffle(names)
    if slower == 1.0:
        times[1] = best * 1.3
    rows = []
    for i, name in enumerate(names):
        rows.append({"candidate": name, "place": sorted(times).index(times[i]) + 1, "measured_ms": times[i],
                     "speedup": None if i == 0 else times[0] / times[i]})
    rng.shuffle(rows)
    return {"case": [[64, 64], 8, "f32", 2, "forward"], "chosen": names[0], "rows": rows}


def main(source):
    rng = random.Random(6)
    folder = tempfile.TemporaryDirectory()
    failures = []

    def check(what, cases, wanted, says):
        path = os.path.join(folder.name, "cases")
        with open(path, "w", encoding="utf-8") as f:
            f.writelines(json.dumps(c) + "\n" for c in cases)
        done = subprocess.run([sys.executable, os.path.join(source, "scripts", "claims"), "picks", "--judge", "--save", path],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        text = done.stdout.decode()
        if done.returncode != wanted or says not in text.rstrip().split("\n")[-1]:
            failures.append("%s: exit %d, wanted %d and '%s':\n%s" % (what, done.returncode, wanted, says, text))

    def mixed(n_slow, slow):
        cases = [made(rng, slow) for _ in range(n_slow)] + [made(rng, rng.choice((1.0, 1.02, 1.049))) for _ in range(40 - n_slow)]
        rng.shuffle(cases)
        return cases

    check("all right", mixed(0, 2.0), 0, "40 of 40")
    check("90 %", mixed(4, 1.051), 0, "36 of 40")
    check("less than 90 %", mixed(5, 1.051), 1, "35 of 40")
    check("a twentieth slower is right", mixed(40, 1.0499), 0, "40 of 40")
    check("nothing", [], 1, "0 of 0")
    for what, spoil in (
            ("the choice was not measured", lambda c: [r.update(measured_ms=None) for r in c["rows"] if r["candidate"] == c["chosen"]]),
            ("a candidate was left out", lambda c: [r.update(measured_ms=None) for r in c["rows"] if r["candidate"] != c["chosen"]][:1]),
            ("held against another", lambda c: [r.update(speedup=1.0) for r in c["rows"]]),
            ("no ratio", lambda c: [r.update(speedup=None) for r in c["rows"]]),
            ("it did not run", lambda c: c.update(error="bsrun: exit 7"))):
        cases = mixed(0, 2.0)
        spoil(cases[7])
        check(what, cases, 1, "1 not judged")
    # A candidate that cannot run is none: nothing is missed by it.
    cases = mixed(0, 2.0)
    cases[3]["rows"].append({"candidate": "blockshock complement_1100_0011", "place": None, "measured_ms": None, "speedup": None})
    check("one was refused", cases, 0, "40 of 40")
    for failure in failures:
        print(failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
