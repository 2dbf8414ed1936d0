#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The test of run_docs.py: a small page that is right passes, and each mistake planted into it is found on its line."""
import os
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import run_docs  # noqa: E402

RIGHT = """# A page

## One

<!-- do: echo hidden >hidden.txt -->

    bsrun version
    test -f hidden.txt

<!-- quick [help]: >quick.txt -->

    bsrun help   # in a file
    grep -q usage quick.txt

<!-- save: sum.c -->
```c
int sum(int a, int b);
int sum(int a, int b) { return a + b; }
```

    cc -c sum.c

<!-- file: sum.c -->
```c
int sum(int a, int b) { return a + b; }
```

<!-- exit: 2 -->

    bsrun plugins nonsense

<!-- in: bsrun help plugins new -->

    bsrun plugins new NAME --kind KIND

Text with `bsrun plugins inspect ref`, `bsrun plugins why ID|PATH`, `bsrun plugins list`, `make help` and `ctest -L docs`, and
`bsrun --nonsense` as it is not run.

<!-- not run: `bsrun --nonsense`: there is no such option -->
<!-- not run: a formula -->

    a + b

## Two

    $ test ! -f hidden.txt && echo version 1.2.3 of /a/b
    version 4.5 of /usr/lib/c

<!-- long: minutes -->

    bsrun --method dense
"""

# What is put in the place of what, and a part of what must be said.
MISTAKES = [
    ("bsrun version", "bsrun versoin", "exit 2"),
    ("test -f hidden.txt", "test -f other.txt", "exit 1"),
    ("<!-- do: echo hidden >hidden.txt -->", "", "exit 1"),
    ("-->\n```c\nint sum(int a, int b);", "-->\n```c\nint sum(int a, int b) int", "cc -c sum.c"),
    ("{ return a + b; }\n```\n\n<!-- exit", "{ return a - b; }\n```\n\n<!-- exit", "has another text than the page"),
    ("<!-- quick [help]", "<!-- quick [hlep]", "no command matches"),
    ("<!-- quick [help]: >quick.txt -->", "", "quick.txt"),
    ("<!-- exit: 2 -->", "<!-- exti: 2 -->", "unknown words"),
    ("<!-- exit: 2 -->", "<!-- exit: 3 -->", "the page says 3"),
    ("<!-- exit: 2 -->", "", "exit 2"),
    ("new NAME --kind KIND\n", "new NAME --knd KIND\n", "not in what"),
    ("inspect ref`", "inspect reff`", "exit 3"),
    ("why ID|PATH`", "wy ID|PATH`", "exit 2"),
    ("`make help`", "`make hlp`", "exit 2"),
    ("`ctest -L docs`", "`ctest -L nothing_of_ours`", "exit 1"),
    ("`bsrun --nonsense` as", "`bsrun --other` as", "exit 2"),
    ("and\n`bsrun --nonsense` as", "and", "no such command in the text"),
    ("<!-- not run: a formula -->", "", "a + b"),
    ("<!-- not run: a formula -->", "<!-- not run -->", "no reason"),
    ("    version 4.5 of", "    versions 4.5 of", "the page shows"),
    ("    version 4.5 of /usr/lib/c", "    version 4.5 of /usr/lib/c\n    more", "the page shows"),
    ("    version 4.5 of /usr/lib/c\n", "", "does not show"),
    ("--method dense", "--metod dense", "exit 2"),
]


def run(page, scratch, arguments):
    path = os.path.join(scratch, "page.md")
    with open(path, "w", encoding="utf-8") as f:
        f.write(page)
    return subprocess.run([sys.executable, run_docs.__file__, *arguments, path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def main():
    failed = 0
    with tempfile.TemporaryDirectory(prefix="docs-", dir=os.path.join(sys.argv[2], "tests")) as scratch:
        arguments = [*sys.argv[1:3], "--prefix", os.path.join(scratch, "prefix")]
        run_docs.install(sys.argv[2], arguments[3])
        done = run(RIGHT, scratch, arguments)
        if done.returncode:
            print("the right page fails:", done.stdout)
            return 1
        for old, new, said in MISTAKES:
            if RIGHT.count(old) != 1:
                print(f"not once in the page: {old!r}")
                failed = 1
                continue
            done = run(RIGHT.replace(old, new), scratch, arguments)
            if done.returncode != 1 or said not in done.stdout or "page.md" not in done.stdout:
                print(f"{old!r} -> {new!r}: exit {done.returncode}, not said: {said}\n{done.stdout}")
                failed = 1
    print(f"{len(MISTAKES)} mistakes")
    return failed


if __name__ == "__main__":
    sys.exit(main())
