#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""vocabulary.py - one word for one thing in the options of all verbs.

    vocabulary.py BSRUN PAGE      reads `bsrun completion words meanings`: every option of every verb, and
                                  compares the list with that of PAGE (docs/dev/options.md)
    vocabulary.py --self-test BSRUN  plants faults in that list: each must be found

A name that means two things, two names for one concept, more than MOST names, or a page that is not the list: exit 1."""
import collections
import re
import subprocess
import sys

MOST = 110  # names of options over all verbs, the hidden ones of bsrun itself included

# A concept, the name that it has, and names that others would give it. Of a word of an option (`trace` of --to) the
# same holds: --with deadline=1 would be a second name of --timeout, too.
CONCEPTS = (
    ("a file or folder that is written", "to", "output-dir dump save write dir junit-file svg-dir csv-file timeline trace-file dest destination outfile"),
    ("the results folder", "out", "results results-dir store out-dir root-dir runs"),
    ("the format of what is printed", "output", "format fmt"),
    ("threads of one rank", "threads", "threads-per-rank num-threads nthreads"),
    ("ranks", "world-size", "ranks max-ranks procs nprocs num-ranks"),
    ("time to spend", "seconds", "budget duration time sample-seconds time-limit"),
    ("a deadline", "timeout", "deadline limit-seconds max-seconds"),
    ("how often something is measured", "samples", "iters iterations repeats repetitions reps runs-per"),
    ("calls before it is measured", "warmup", "warm warm-up warmup-iters"),
    ("a seed", "seed", "random-seed rng"),
    ("bytes", "size", "bytes count min-bytes max-bytes"),
    ("a phase", "phase", "pass passes backward train-phase"),
    ("a pass of a model that is left out", "no-pass", "pass disable skip-pass"),
    ("a mask", "mask", "masks pattern"),
    ("a method", "method", "methods"),
    ("what varies", "vary", "axis grid sweep-over"),
    ("the machine", "hardware", "machine cluster host"),
    ("an algorithm of collectives", "algorithm", "algo"),
    ("a knob", "knob", "knobs"),
    ("an activation", "activation", "act"),
    ("a folder's name", "run-id", "id name tag"),
    ("a gate on a number", "at-least", "atleast-version minimum min"),
    ("how thorough", "preset", "quick full kit level fast"),
    ("only some checks", "only", "group filter select"),
    ("go on where a check would stop", "force", "any-build allow-fallback accept-extrapolated yes ignore"),
    ("nothing is done", "dry-run", "list plan-only no-op"),
    ("at most so many", "limit", "features top max"),
    ("a stored choice", "stored", "anew cache-only"),
    ("a part that is shown", "show", "nodes memory arms profile"),
)


def read(bsrun):
    text = subprocess.run([bsrun, "completion", "words", "meanings"], check=True, capture_output=True, text=True).stdout
    rows = [line.split("\t") for line in text.splitlines()]
    assert len(rows) > 300 and all(len(row) == 7 for row in rows), "no list of options"
    return rows


def names(rows):
    return sorted({name for _, name, *_ in rows if " " not in name})


def wrong(rows):
    """The sentences of what is wrong; none: it is one vocabulary."""
    said = []
    meanings, names_of, letters = (collections.defaultdict(set) for _ in range(3))
    for verb, name, letter, value, _, doc, _ in rows:
        meanings[name].add((letter, value, doc))
        if " " not in name:
            names_of[doc].add(name)
        if letter:
            letters[letter].add(name)
        if not doc:
            said.append(f"{verb} --{name}: no line says what it means")
    for name, of in sorted(meanings.items()):
        if len(of) > 1:
            said.append(f"--{name} has {len(of)} meanings: " + "; ".join(" ".join(filter(None, one)) for one in sorted(of)))
    for doc, of in sorted(names_of.items()):
        if len(of) > 1:
            said.append(f"'{doc}' has {len(of)} names: " + ", ".join("--" + name for name in sorted(of)))
    said += [f"-{letter} is of " + " and ".join("--" + name for name in sorted(of)) for letter, of in sorted(letters.items()) if len(of) > 1]
    for verb, name, *_ in rows:
        last = name.split()[-1]
        for concept, right, others in CONCEPTS:
            # Words of --show and --preset are those words.
            if last in others.split() and name.split()[0] != right and not (" " in name and last in ("full", "quick", "name")):
                said.append(f"{verb} --{name}: {concept} is --{right}")
    count = len(names(rows))
    if count > MOST:
        said.append(f"{count} names of options, at most {MOST} are allowed")
    return said


def plant(rows):
    """Faults, each with a part of the sentence that must be said."""
    some = rows[10]
    yield [*rows, ["tune", "budget", "", "S", "", "seconds that a search takes", ""]], "time to spend is --seconds"
    yield [*rows, ["torture", "deadline", "", "S", "", "seconds that a wait takes", ""]], "a deadline is --timeout"
    yield [*rows, ["bench sdpa", "iters", "", "N", "", "calls that are timed", ""]], "is --samples"
    yield [*rows, ["run", "dump", "", "DIR", "", "tensors as files", ""]], "is --to"
    yield [*rows, ["model generate", "save", "", "FILE", "", "ids as a file", ""]], "is --to"
    yield [*rows, ["sweep", "with deadline", "", "S", "", "of one point", ""]], "a deadline is --timeout"
    yield [*rows, ["sim fit", some[1], some[2], "OTHER", "", some[5], ""]], "has 2 meanings"
    yield [*rows, ["sim fit", some[1], some[2], some[3], "", "another thing", ""]], "has 2 meanings"
    yield [*rows, ["sim fit", "another-name", "", some[3], "", some[5], ""]], "has 2 names"
    yield [*rows, ["sim fit", "another", "o", "X", "", "another thing", ""]], "-o is of"
    yield [*rows, ["sim fit", "nothing", "", "", "", "", ""]], "no line says"
    yield [*rows, *(["run", f"more-{i}", "", "", "", f"more {i}", ""] for i in range(MOST))], "at most 110"


def page_rows(rows):
    """| option | value | meaning | verbs |, a row a name; words of options behind theirs."""
    verbs, first = collections.defaultdict(list), {}
    for verb, name, letter, value, hidden, doc, _ in rows:
        verbs[name].append(verb)
        first.setdefault(name, (letter, value, hidden, doc))
    top = [name for name in first if " " not in name]
    lines = ["| option | value | what it means | verbs |", "| --- | --- | --- | --- |"]
    for name in sorted(top):
        for one in [name, *sorted(word for word in first if word.startswith(name + " "))]:
            letter, value, hidden, doc = first[one]
            shown = "--" + one + ("=" if " " in one and value else "") + (f", -{letter}" if letter else "")
            of = "bsrun itself" if hidden else ", ".join(sorted(set(verbs[one])))
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in (f"`{shown}`", value, doc, of)) + " |")
    return lines


def main():
    if sys.argv[1] == "--page":
        print("\n".join(page_rows(read(sys.argv[2]))))
        return 0
    if sys.argv[1] == "--self-test":
        missed = [part for rows, part in plant(read(sys.argv[2])) if not any(part in one for one in wrong(rows))]
        print("\n".join(f"not found: {part}" for part in missed))
        return 1 if missed else 0
    rows = read(sys.argv[1])
    said = wrong(rows)
    page = open(sys.argv[2], encoding="utf-8").read()
    if "\n".join(page_rows(rows)) not in page:
        said.append(f"{sys.argv[2]}: the list is an older one: tests/bsrun/vocabulary.py --page BSRUN has the new one")
    count = re.search(r"(\d+) names of options are (\d+)", page)
    if count is None or int(count.group(2)) != len(names(rows)):
        said.append(f"{sys.argv[2]}: it does not say that there are {len(names(rows))} names")
    print("\n".join(said))
    return 1 if said else 0


sys.exit(main())
