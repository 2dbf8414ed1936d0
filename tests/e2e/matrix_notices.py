#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The test of scripts/matrix: over bsrun as it is a few cells pass, and over a bsrun that lies (a script before the real one) each
lie is noticed.  matrix_notices.py SOURCE BUILD"""
import os
import subprocess
import sys
import tempfile

CELL = "^threads (row_parallel contiguous f32 2 [03]|masked_split random_2of4 f32 3 0)$"
REPLACE = 'before=; for word do shift; [ "$before" = %s ] && word=%s; set -- "$@" "$word"; before=$word; done\n'
LIES = (
    # What is done to bsrun's words, in sh; what scripts/matrix must say of it.
    ("nothing", "", 0, "0 FAILED"),
    ("a gate is left out", 'set -- "$@" --set phase.integer_gate=false', 1, "gate T5 is"),
    ("no fault is injected into the gates", 'set -- "$@" --set phase.fault_gate=false', 1, "gate T6 is"),
    ("another number of ranks", REPLACE % ("-P", "4"), 1, "P = 4"),
    ("another mask", REPLACE % ("--mask", "uneven") + 'set -- "$@" --set "mask.speeds=[1, 2]"', 1, "the mask uneven was used"),
    ("a refusal that is not documented", 'set -- "$@" --set model.B=0', 1, "FAIL"),
    ("a refusal that does not come", REPLACE % ("--mask", "contiguous"), 1, "wanted BS-MASK-WORLD"),
    ("faults that do nothing", 'set -- "$@" --set plugins.fault.plan=', 1, "NOT CAUGHT"),
    ("numbers that are wrong", 'set -- "$@" --backend fault:cpu --set "plugins.fault.plan=rank=1,op=matmul,do=flip"', 1, "BS-GATE-FAIL"),
    ("it says that it went well", '"$real" "$@"; exit 0', 1, "NOT CAUGHT"),
    ("it says nothing", "exit 0", 1, "no record"),
)


def main(source, build):
    failures = []
    for what, lie, wanted, says in LIES:
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(os.path.join(folder, "bin"))
            path = os.path.join(folder, "bin", "bsrun")
            with open(path, "w", encoding="utf-8") as f:
                f.write('#!/bin/sh\nreal="%s/bin/bsrun"\n%s\nexec "$real" "$@"\n' % (build, lie))
            os.chmod(path, 0o700)
            done = subprocess.run([sys.executable, os.path.join(source, "scripts", "matrix"), folder, "--quick", "--launch", "threads",
                                   "--only", CELL] + ([] if wanted == 0 or says == "NOT CAUGHT" else ["--no-faults"]), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
            text = done.stdout.decode(errors="replace")
            if done.returncode != wanted or says not in text:
                failures.append("%s: exit %d, wanted %d and '%s':\n%s" % (what, done.returncode, wanted, says, text))
    for failure in failures:
        print(failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])))
