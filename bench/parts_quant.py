# SPDX-License-Identifier: MIT
"""Part of bench/run about products with quantised weights (bench_matmul_q): shares of the limits of the machine, beside the f32 product."""
from common import heading, plural, table, us

SCHEMES = ("w8", "w8g32", "w4g32", "w4g128", "w4k", "w6k")
READ = {"all": {"w8": 0.92, "w8g32": 0.92, "w4g32": 0.9, "w4g128": 0.9, "w4k": 0.8, "w6k": 0.8},  # of the read limit, one token
        "avx2": {"w8": 0.8, "w8g32": 0.8, "w4g32": 0.8, "w4g128": 0.8, "w4k": 0.7}}
PRODUCTS = {"w8g32": 0.5, "w4g32": 0.5, "w4g128": 0.6}  # of the limit of products of bytes, 64 and 256 tokens


def goal_of(row):
    """What is measured, where, and at least how much."""
    if row["b"] == 1 and row["x"] == "bytes":
        return "share of the read limit", row["of_read"], READ[row["isa"]].get(row["weight"])
    if row["b"] >= 64 and row["x"] == "bytes" and row["isa"] == "all":
        return "share of the limit of products", row["of_products"], PRODUCTS.get(row["weight"])
    if row["b"] >= 64 and row["x"] == "float" and row["weight"] in ("w8", "w8g32", "w4g32"):
        return "f32 / its time, X as it is", row["f32_over"], 0.9
    return "", 0.0, None


def command(bench, isa, threads):
    size = str(bench.count(4096, 256))
    return [bench.path("bench", "bench_matmul_q"), "--n", size, "--k", size, "--b", bench.count("1,64,256", "1,9"), "--schemes", ",".join(SCHEMES),
            "--x", "both", "--threads", str(threads), "--isa", "auto" if isa == "all" else isa, "--rounds", str(bench.count(21, 3)),
            "--mib", str(bench.count(256, 1)), "-o", "json"]


def quant(bench):
    heading("Quantised weights")
    rows = []
    for isa in bench.isas:
        for threads in bench.threads(1, 2):
            for row in bench.json_lines(command(bench, isa, threads)):
                row["isa"] = isa
                rows.append(row)
                what, measured, least = goal_of(row)
                if least is not None:
                    bench.goal(f"{what}, {row['weight']}, N = {row['n']}, B = {row['b']}, {plural(threads, 'thread')}, {isa} instructions",
                               f">= {least:g}", f"{measured:.3f}", measured >= least)
    table(("may use", "threads", "weight", "X", "B", "us", "of the read limit", "of the limit of products", "f32 / its time"),
          [(r["isa"], r["threads"], r["weight"], r["x"], r["b"], us(r["us"] * 1e-6), f"{r['of_read']:.3f}",
            f"{r['of_products']:.3f}" if r["of_products"] > 0 else "-", f"{r['f32_over']:.3f}") for r in rows])
