#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares graph/schema_table.c with the schemas of the Python package onnx (scripts/node-tests runs it).

  schema_table.py      exit 1 names each row that differs, is absent, or stands at the wrong place

Each row must have the inputs, outputs, attributes, their types and which are needed as onnx.defs says for every version
of ai.onnx from the row's to the next row's. onnx.defs does not list the values that an attribute may have: of those it is
checked that they are given for known names only.
"""
import pathlib
import re
import sys

from onnx import defs

ROOT = pathlib.Path(__file__).resolve().parents[2]
LETTERS = {"INT": "i", "FLOAT": "f", "STRING": "s", "INTS": "I", "FLOATS": "F", "STRINGS": "S", "TENSOR": "t", "GRAPH": "g", "SPARSE_TENSOR": "p"}


def last(name):
    return str(name).rsplit(".", 1)[-1]


def form(places):
    """The letters of the inputs or outputs of a schema."""
    letters = {"Single": "1", "Optional": "?"}
    return "".join(letters.get(last(p.option)) or ("+" if p.min_arity > 0 else "*") for p in places)


def expected(schema):
    attrs = {n: LETTERS.get(last(a.type), "?") + ("!" if a.required else "") for n, a in schema.attributes.items()}
    return form(schema.inputs), form(schema.outputs), attrs


def read_rows():
    text = (ROOT / "graph/schema_table.c").read_text()
    rows = []
    for op, domain, since, ins, outs, attrs in re.findall(r'\{"(\w+)", "([\w.]*)", (\d+), "([^"]*)", "([^"]*)", "([^"]*)"\}', text):
        found = dict(re.fullmatch(r"(\w+):(\w!?)(?:=.*)?", a).groups() for a in attrs.split())
        rows.append((op, domain, int(since), (ins, outs, found)))
    return rows


def served():
    """The operators of the lowering's tables and their oldest version."""
    oldest = {}
    for path in (ROOT / "graph/lower").glob("*.c"):
        for op, since, domain in re.findall(r'\{"([A-Z]\w+)", (\d+), \d+, \w+, (NULL|"[\w.]+")\}', path.read_text()):
            key = op, "" if domain == "NULL" else domain.strip('"')
            oldest[key] = min(int(since), oldest.get(key, int(since)))
    return oldest


def main():
    rows, wrong = read_rows(), []
    if [r[:3] for r in rows] != sorted(r[:3] for r in rows):
        wrong.append("the rows are not sorted")
    read = re.search(r"ONNX_MAX_OPSET = (\d+)", (ROOT / "graph/import/onnx.h").read_text())
    newest = min(defs.onnx_opset_version(), int(read[1]))
    for (op, domain), oldest in served().items():
        own = [r for r in rows if r[:2] == (op, domain)]
        for version in range(oldest, (newest if domain == "" else oldest) + 1):
            row = [r for r in own if r[2] <= version][-1:]
            try:
                schema = defs.get_schema(op, version, domain)
            except defs.SchemaError:
                continue
            if not row or row[0][3] != expected(schema):
                wrong.append(f"{op} of version {version}: {row[0][3] if row else 'no row'}, onnx has {expected(schema)}")
    unserved = {r[:2] for r in rows} - set(served())
    wrong += [f"{op}: the lowering does not serve it" for op, _ in sorted(unserved)]
    print("\n".join(wrong) or f"schema_table: {len(rows)} rows are those of onnx up to opset {newest}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
