#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Rows of the table of docs/answer.md: no, one and several candidates next to blockshock.   answer_page_test.py SOURCE"""
import os
import sys

sys.path.insert(0, os.path.join(sys.argv[1], "scripts"))
import answer_page  # noqa: E402

MEASURED = {"measured_ms": 1.0}
FAST = {"ratio": 1.2, "ratio_low": 1.1, "ratio_high": 1.3}
NONE = ["-"] * len(answer_page.PEERS)
CASES = [
    ({}, ["not measured"] + NONE),
    ({answer_page.FIRST: MEASURED}, ["1.00"] + NONE),
    ({answer_page.FIRST: MEASURED, "row_parallel": FAST}, ["1.00", "1.2 [1.1, 1.3]"] + NONE[1:]),
    ({answer_page.FIRST: MEASURED, "row_parallel contiguous": FAST, "column_parallel": FAST}, ["1.00", "1.2 [1.1, 1.3]", "1.2 [1.1, 1.3]"] + NONE[2:]),
    ({answer_page.FIRST: MEASURED, "row_parallel": {"predicted_ms": 2.0}}, ["1.00"] + NONE),
    ({answer_page.FIRST: {"predicted_ms": 1.0}}, ["1.00, predicted"] + NONE),
    ({answer_page.FIRST: {"predicted_ms": 1.0}, "row_parallel": {"predicted_ms": 2.0}}, ["1.00, predicted", "2"] + NONE[1:]),
]
for at, end in CASES:
    cells = answer_page.row(2, "forward, f32, 64 tokens", at)
    if cells != ["forward, f32, 64 tokens", "2"] + end:
        sys.exit(f"{at}:\n  {cells}\n  is not {end}")
