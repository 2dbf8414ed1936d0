# SPDX-License-Identifier: MIT
"""Part of bench/run about 2:4 weights: matmul24 beside dense products of the same shape, and of half of its columns; forward and backward."""
from common import heading, table, us
from parts_matmul import NAMES, Product, at_least, sampling, share

PROVIDERS = {"sparse24": "cpu", "dense": "cpu@dense", "gathered": "cpu@gathered", "onednn": "onednn@dense", "f32": "cpu@f32"}
NAMES.update({"dense": "plugin, dense", "gathered": "plugin, K/2 gathered"})
SHOWN = {"dense": "own dense", "gathered": "K/2 gathered", "onednn": "oneDNN", "f32": "2:4 in f32"}


def subject(row):
    return row["arms"]["sparse24"]


def cells(work, row):
    ours = subject(row)
    return (work, row["isa"], row["dtype"], row["n"], row["b"], ours["way"], us(ours["seconds"]), f"{ours['gflops']:.1f}") + tuple(
        share(row, name, 2) or "-" for name in SHOWN)


def goals(bench, row):
    arms = row["arms"]
    if row["b"] <= 4:
        at_least(bench, row, "own dense / 2:4, time", arms.get("dense"), 1.5)
    elif row["dtype"] == "f32":
        at_least(bench, row, "oneDNN / 2:4, time", arms.get("onednn"), 1.9)
        at_least(bench, row, "own dense / 2:4, time", arms.get("dense"), 1.4)
        at_least(bench, row, "own gathered K/2 / 2:4, time", arms.get("gathered"), 1 / 1.4)
    else:
        at_least(bench, row, "2:4 f32 / 2:4, time", arms.get("f32"), 0.9)


def sparse(bench):
    heading("2:4 weights")
    print("W keeps two of each four columns, other ones in each row; the dense products are of the same shape. GFLOP/s are of the kept "
          "weights.\n")
    rows, wide, tall = [], bench.count(4096, 256), bench.count(8192, 512)
    for isa in bench.isas:
        for dtype in ("f32", "bf16"):
            product = Product(bench, ("sparse24", "dense", "gathered", "onednn") + (("f32",) if dtype != "f32" else ()), PROVIDERS)
            how = ["--sparse24", *sampling(bench, 25)]
            rows += [("forward", row) for row in product.rows((wide,), (wide,), bench.count((16, 64, 256), (64,)), 1, isa, dtype, how)]
            rows += [("forward", row) for row in product.rows((tall,), (tall,), bench.count((1, 2, 4), (4,)), 1, isa, dtype, how)]
            backward = Product(bench, ("sparse24", "dense", "gathered"), PROVIDERS)
            for work in ("dx", "dw"):
                more = ["--product", work, *how]
                rows += [("d" + work[1].upper(), row) for row in backward.rows((wide,), (wide,), bench.count((4, 64, 256), (64,)), 1, isa, dtype, more)]
    for work, row in rows:
        if work == "forward":
            goals(bench, row)
    table(("work", "may use", "dtype", "N = K", "B", "kernel", "us", "GFLOP/s kept", *SHOWN.values()), [cells(*row) for row in rows])
    product.say()
