#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The records in docs/decisions: fields, rows of the index, both links of superseded records, tests that exist.   decisions_test.py SOURCE

The records of SOURCE must have no fault. Then copies of them get one fault each, and the fault must be named."""
import datetime
import pathlib
import re
import shutil
import sys
import tempfile

FIELDS = ["Status", "Date", "Supersedes", "Decides", "Because", "Rejected", "Held by"]  # Supersedes may be absent
MOST_LINES = 40


def tests_of(source):
    """The names of the tests that CTest has on some machine: programs, cases, and those that a CMakeLists.txt adds by name."""
    names = {p.stem for p in source.glob("tests/*/test_*.c")} | {"case_" + p.stem for p in source.glob("tests/cases/*.case")}
    for page in source.glob("tests/**/CMakeLists.txt"):
        names |= set(re.findall(r"add_test\(NAME ([a-z0-9_]+) ", page.read_text()))
    return names


def read_record(path, tests, faults):
    """The record of a file as {field: text}, with its number, title and file."""
    text = path.read_text()
    head = re.match(r"# (\d{4}): (.+)\n", text)
    if not head or not path.name.startswith(head.group(1) + "-"):
        faults.append(f"{path.name}: the first line is not '# {path.name[:4]}: TITLE'")
        return None
    if len(text.splitlines()) > MOST_LINES:
        faults.append(f"{path.name}: more than {MOST_LINES} lines")
    parts = re.findall(r"^\*\*([A-Za-z ]+)\*\*: (.*?)\s*(?=^\*\*[A-Za-z ]+\*\*: |\Z)", text, re.M | re.S)
    record = dict(parts, number=head.group(1), title=head.group(2), file=path.name)
    if [name for name, _ in parts] != [f for f in FIELDS if f != "Supersedes" or f in record] or not all(body for _, body in parts):
        faults.append(f"{path.name}: the fields are not {', '.join(FIELDS)}, each once with a text (Supersedes may be absent)")
        return None
    if not re.fullmatch(r"Proposed|Accepted|Superseded by \d{4}", record["Status"]):
        faults.append(f"{path.name}: Status is not Proposed, Accepted or Superseded by NNNN")
    try:
        datetime.date.fromisoformat(record["Date"])
    except ValueError:
        faults.append(f"{path.name}: Date is not YYYY-MM-DD")
    held = record["Held by"]
    if not re.match(r"no test: \S", held):
        faults.extend(f"{path.name}: there is no test '{name}'" for name in re.split(r",\s+", held) if name not in tests)
    return record


def check_links(records, faults):
    by_number = {r["number"]: r for r in records}
    if len(by_number) != len(records):
        faults.append("a number is used twice")
    for r in records:
        newer = re.match(r"Superseded by (\d{4})", r["Status"])
        if newer and by_number.get(newer.group(1), {}).get("Supersedes") != r["number"]:
            faults.append(f"{r['file']}: record {newer.group(1)} does not say that it supersedes {r['number']}")
        older = r.get("Supersedes")
        if older and by_number.get(older, {}).get("Status") != "Superseded by " + r["number"]:
            faults.append(f"{r['file']}: record {older} does not say that {r['number']} supersedes it")


def check(folder, tests):
    """The faults of the records in a folder, a sentence each."""
    faults = []
    files = sorted(p for p in folder.glob("*.md") if p.name != "README.md")
    faults += [f"{p.name}: the name is not NNNN-title.md" for p in files if not re.fullmatch(r"\d{4}-[a-z0-9-]+\.md", p.name)]
    records = [r for r in (read_record(p, tests, faults) for p in files) if r]
    check_links(records, faults)
    rows = re.findall(r"^\| \[.*$", (folder / "README.md").read_text(), re.M)
    wanted = [f"| [{r['number']}]({r['file']}) | {r['title']} | {r['Status']} |" for r in records]
    faults += [f"README.md: no row '{row}'" for row in wanted if row not in rows]
    faults += [f"README.md: a row of no record: '{row}'" for row in rows if row not in wanted]
    if not faults and rows != wanted:
        faults.append("README.md: the rows are not in the order of the numbers")
    return faults


def planted(folder, tests):
    """What is wrong with the check itself: a fault that it does not name, or a right pair that it refuses."""
    files = sorted(p.name for p in folder.glob("0*.md"))
    first, second = files[0], files[1]
    long = "\n" * MOST_LINES
    newer = "Superseded by " + second[:4]

    def change(name, pattern, text):
        return lambda d: (d / name).write_text(re.sub(pattern, text, (d / name).read_text(), count=1, flags=re.M))

    def twice(d):
        shutil.copy(d / first, d / (first[:4] + "-again.md"))

    def supersede(d, both=True):
        change(first, r"^(\*\*Status\*\*): .*", r"\1: " + newer)(d)
        change("README.md", rf"(\({first}\).*\| )\w+ \|$", rf"\g<1>{newer} |")(d)
        if both:
            change(second, r"^(\*\*Date\*\*: .*\n)", rf"\1\n**Supersedes**: {first[:4]}\n")(d)

    cases = [
        (supersede, None),
        (lambda d: supersede(d, both=False), f"record {second[:4]} does not say that it supersedes"),
        (change(second, r"^(\*\*Date\*\*: .*\n)", rf"\1\n**Supersedes**: {first[:4]}\n"), f"record {first[:4]} does not say that"),
        (change(first, r"^\*\*Because\*\*.*", "It is so."), "the fields are not"),
        (change(first, r"^\*\*Rejected\*\*: ", "**Rejected**: It.\n\n**Rejected**: "), "the fields are not"),
        (change(first, r"^(\*\*Status\*\*): .*", r"\1: Wanted"), "Status is not"),
        (change(first, r"^(\*\*Date\*\*): .*", r"\1: 2026-13-01"), "Date is not"),
        (change(first, r"^(\*\*Held by\*\*): ", r"\1: test_of_nothing, "), "there is no test 'test_of_nothing'"),
        (change(first, r"^(\*\*Held by\*\*): [\s\S]*", r"\1: no test:"), "there is no test 'no test:'"),
        (change(first, r"^# 0", "# 9"), "the first line is not"),
        (change(first, r"\Z", long + "x"), f"more than {MOST_LINES} lines"),
        (change("README.md", rf"^.*\({first}\).*\n", ""), "no row"),
        (change("README.md", r"\Z", "| [9999](9999-x.md) | x | Accepted |\n"), "a row of no record"),
        (change("README.md", rf"^(.*\({first}\).*\n)(.*\n)", r"\2\1"), "not in the order"),
        (lambda d: (d / first).rename(d / "title.md"), "the name is not"),
        (twice, "a number is used twice"),
    ]
    for i, (make, word) in enumerate(cases):
        with tempfile.TemporaryDirectory() as work:
            copy = pathlib.Path(work) / "decisions"
            shutil.copytree(folder, copy)
            make(copy)
            faults = check(copy, tests)
            if word is None and faults:
                yield f"planted {i}: a right pair is refused: {faults}"
            elif word is not None and not any(word in f for f in faults):
                yield f"planted {i}: '{word}' is not named: {faults}"


def main(source):
    folder, tests = source / "docs" / "decisions", tests_of(source)
    wrong = check(folder, tests) or list(planted(folder, tests))
    for line in wrong:
        print("decisions: " + line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
