# SPDX-License-Identifier: MIT
"""Part of bench/run about overlap: chunked layers over a slow wire, compared with the model."""
from common import heading, table

LEAST = 0.8
# The gain is largest where product and wire take equally long: K near 512. The last is the shape of the part "layer".
SHAPES = (("row_parallel", 4096, 512, 64), ("row_parallel", 4096, 1024, 64), ("row_parallel", 4096, 1024, 256),
          ("row_parallel", 8192, 1024, 16), ("blockshock", 4096, 1024, 64), ("column_parallel", 4096, 512, 256),
          ("row_parallel", 4096, 4096, 64))


def overlap(bench):
    heading("Overlap on a wire of 1 GB/s and 20 us")
    print("The wire is the plugin link around threads: a rank that waits for it sleeps. P = 2, one thread a rank, f32. The model "
          "is that of docs/methods.md with what the same chunks take without the wire; the last gain is of chunks that cost nothing.\n")
    rows = []
    for method, outputs, inputs, tokens in bench.count(SHAPES, SHAPES[:1]):
        outputs, inputs, tokens = bench.count((outputs, inputs, tokens), (512, 128, 32))
        for chunks in bench.count((2, 4, 8), (4,)):
            command = [bench.path("bench", "bench_overlap"), "--method", method, "--n", str(outputs), "--k", str(inputs),
                       "--b", str(tokens), "--chunks", str(chunks), "--pairs", str(bench.count(40, 5)), "-o", "json"]
            for r in bench.json_lines(command):
                ms = [f"{r[key] * 1e3:.3f}" for key in ("product_s", "product_chunks_s", "wire_s", "off_s", "on_s", "off_model_s", "on_model_s")]
                rows.append((method, outputs, inputs, tokens, r["chunks"], *ms,
                             f"{r['ratio']:.3f} [{r['low']:.3f}, {r['high']:.3f}]", f"{r['model']:.3f}", f"{r['share']:.2f}", f"{r['model_free']:.3f}"))
                if r["model"] > 1.05:
                    shape = f"P = 2, N = {outputs}, K = {inputs}, B = {tokens}, C = {r['chunks']}"
                    bench.goal(f"share of the model's gain, {method}, {shape}", ">= 0.8", f"{r['share']:.2f}",
                               r["share"] >= LEAST)
    table(("method", "N", "K", "B", "C", "product ms", "in chunks ms", "wire ms", "off ms", "on ms", "off ms, model", "on ms, model",
           "gain [95 %]", "gain, model", "share", "gain, free chunks"), rows)
