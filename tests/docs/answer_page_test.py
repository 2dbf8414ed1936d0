#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Sentences of docs/answer.md with no, one and several candidates beside blockshock.   answer_page_test.py SOURCE"""
import os
import sys

sys.path.insert(0, os.path.join(sys.argv[1], "scripts"))
import answer_page  # noqa: E402

MEASURED = {"measured_ms": 1.0}
FAST = {"ratio": 1.2, "ratio_low": 1.1, "ratio_high": 1.3}
CASES = [
    ({}, "blockshock was not measured."),
    ({answer_page.FIRST: MEASURED}, "blockshock takes 1.00 ms; nothing was measured beside it."),
    ({answer_page.FIRST: MEASURED, "row_parallel": FAST}, "1.00 ms; it is 1.2 [1.1, 1.3] times as fast as row_parallel."),
    ({answer_page.FIRST: MEASURED, "row_parallel": FAST, "column_parallel": FAST},
     "it is 1.2 [1.1, 1.3] times as fast as row_parallel and is 1.2 [1.1, 1.3] times as fast as column_parallel."),
    ({answer_page.FIRST: {"predicted_ms": 1.0}}, "predicted, not measured: blockshock 1.00 ms."),
    ({answer_page.FIRST: {"predicted_ms": 1.0}, "row_parallel": {"predicted_ms": 2.0}}, "blockshock 1.00 ms, row_parallel 2.00."),
]
for at, end in CASES:
    text = answer_page.sentence(2, "forward, f32, 64 tokens", at)
    if not text.endswith(end):
        sys.exit(f"{at}:\n  {text}\n  does not end in: {end}")
