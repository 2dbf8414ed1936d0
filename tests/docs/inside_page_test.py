#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""docs/inside.md against the tests and the reader of device files.   inside_page_test.py SOURCE

Each known answer K1, K2, ... and hazard H1, H2, ... of the page is a test, and each such test is on the page. Each law has its known
answer beside it. The kinds of parts and their fields are those of sim/device_class.c. Then copies of the page get one fault each."""
import pathlib
import re
import sys

KNOWN_ALWAYS = {"at", "kind", "pJ", "assumed"}  # the page says that all parts have them


def rows_below(page, head):
    """The cells of the table whose first line begins with head."""
    found = re.search(rf"^{re.escape(head)}.*\n\|[ \-|]+\n((?:\|.*\n)+)", page, re.M)
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in found.group(1).splitlines()] if found else []


def fields_of_reader(source):
    """{kind: its fields} as sim/device_class.c reads them."""
    text = (source / "sim/device_class.c").read_text()

    def words(pattern):
        return re.findall(r'"(\w+)"', re.search(pattern, text, re.S).group(1))

    kinds = words(r"\*const kinds\[\] = \{(.*?)\};")
    lists = re.findall(r'^    \{("at".*?)\},$', text, re.M)
    fields = {kind: set(re.findall(r'"(\w+)"', one)) - KNOWN_ALWAYS for kind, one in zip(kinds, lists)}
    fields["memory"] |= set(words(r"memory_more\[\] = \{(.*?)\};"))
    return fields


def faults_of(page, tests, fields):
    """What is wrong with the page, a sentence each."""
    of_tests = {f"{letter.upper()}{n}" for letter, n in re.findall(r"START_TEST\(([kh])(\d+)_", tests)}
    of_page = set()
    for letter, first, last in re.findall(r"\b([KH])(\d{1,2})(?: to [KH](\d{1,2}))?\b", page):
        of_page |= {f"{letter}{n}" for n in range(int(first), int(last or first) + 1)}
    yield from (f"{name} has no test" for name in sorted(of_page - of_tests))
    yield from (f"{name} is not on the page" for name in sorted(of_tests - of_page))
    laws = rows_below(page, "| part | law | test |")
    if not laws:
        yield "there is no table of laws"
    yield from (f"the law of '{row[0]}' names no known answer" for row in laws if not re.search(r"\bK\d+\b", row[-1]))
    of_rows = {}
    for row in rows_below(page, "| kind | fields"):
        names = [name.strip() for name in row[0].split(",")]
        for name, part in zip(names, row[1].split(";") if len(names) > 1 else [row[1]]):
            of_rows[name] = part
    yield from (f"the page does not have the kind {kind}" for kind in fields if kind not in of_rows)
    yield from (f"there is no kind {kind}" for kind in of_rows if kind not in fields)
    for kind in sorted(set(fields) & set(of_rows)):
        yield from (f"{kind}: the page does not name {f}" for f in sorted(fields[kind]) if not re.search(rf"\b{f}\b", of_rows[kind]))


def planted(page, tests, fields):
    """Faults that the check does not name."""
    cases = [
        (lambda p: p.replace("K7", "K77"), "K77 has no test"),
        (lambda p: re.sub(r"\bH3\b", "H2", p), "H3 is not on the page"),
        (lambda p: re.sub(r"^(\| link \| .*)\| K2 \|$", r"\1| |", p, flags=re.M), "the law of 'link'"),
        (lambda p: p.replace("interleave_B", "interleave"), "memory: the page does not name interleave_B"),
        (lambda p: re.sub(r"^\| net \|", "| web |", p, flags=re.M), "there is no kind web"),
    ]
    for change, word in cases:
        if not any(word in fault for fault in faults_of(change(page), tests, fields)):
            yield f"planted: '{word}' is not named"


def main(source):
    page = (source / "docs/inside.md").read_text()
    tests = "\n".join(p.read_text() for p in sorted(source.glob("tests/sim/test_sim_*.c")))
    fields = fields_of_reader(source)
    wrong = list(faults_of(page, tests, fields)) or list(planted(page, tests, fields))
    for line in wrong:
        print("docs/inside.md: " + line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
