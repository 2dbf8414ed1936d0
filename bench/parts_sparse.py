# SPDX-License-Identifier: MIT
"""Part of bench/run about 2:4 weights: matmul24 beside dense products of the same matrix, and of half of its columns."""
from common import heading, table, us
from parts_matmul import NAMES, Product, at_least, sampling, share

NAMES.update({"sparse24": "plugin, 2:4", "sparse24:f32": "plugin, 2:4, f32", "gathered": "plugin, K/2 gathered",
              "auto": "plugin, dense"})
SHOWN = ("auto", "gathered", "onednn", "sparse24:f32")


def cells(row):
    ours = row["arms"]["sparse24"]
    kept = ours["gflops"] / 2
    return (row["isa"], row["dtype"], f"{row['n']} x {row['k']}", row["b"], ours["way"], us(ours["seconds"]), f"{kept:.1f}") + tuple(
        share(row, name, 2) or "-" for name in SHOWN)


def goals(bench, row):
    arms = row["arms"]
    if row["b"] <= 4:
        at_least(bench, row, "own dense / 2:4, time", arms.get("auto"), 1.5)
    elif row["dtype"] == "f32":
        at_least(bench, row, "oneDNN / 2:4, time", arms.get("onednn"), 1.9)
        at_least(bench, row, "own dense / 2:4, time", arms.get("auto"), 1.4)
        at_least(bench, row, "own gathered K/2 / 2:4, time", arms.get("gathered"), 1 / 1.4)
    else:
        at_least(bench, row, "2:4 f32 / 2:4, time", arms.get("sparse24:f32"), 0.9)


def sparse(bench):
    heading("2:4 weights")
    print("W keeps two of each four columns, other ones in each row; the dense products are of the same W, zeros included. "
          "GFLOP/s are of the kept weights.\n")
    rows = []
    for isa in bench.isas:
        for dtype in ("f32", "bf16"):
            arms = ("sparse24", "auto", "gathered", "onednn") + (("sparse24:f32",) if dtype != "f32" else ())
            product = Product(bench, arms)
            wide, tall = bench.count(4096, 256), bench.count(8192, 512)
            rows += product.rows((wide,), (wide,), bench.count((16, 64, 256), (64,)), 1, isa, dtype, sampling(bench, 40, 25))
            rows += product.rows((tall,), (tall,), bench.count((1, 2, 4), (4,)), 1, isa, dtype, sampling(bench, 40, 12))
    for row in rows:
        goals(bench, row)
    table(("may use", "dtype", "N x K", "B", "kernel", "us", "GFLOP/s kept") + tuple(f"{NAMES[name]} / ours" for name in SHOWN),
          [cells(row) for row in rows])
    product.say()
