# SPDX-License-Identifier: MIT
"""The part of bench/run about ranks of an MPI job: all_reduce beside MPI_Allreduce, and a forward beside threads."""
import os
import shutil
import statistics

from common import heading, table, us


def mpi(bench):
    heading("MPI ranks on one machine")
    program, mpirun = bench.path("bench", "mpi_allreduce"), shutil.which("mpirun")
    if not os.path.exists(program) or not mpirun:
        print("Not compared: this was built without an MPI, or there is no mpirun.")
        return
    environment = dict(os.environ, BS_BENCH_PLUGINS=bench.path("lib", "blockshock", "plugins-0"),
                       OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    rows = []
    for size, iters in ((4, 100000), (1 << 16, 5000), (1 << 20, 500), (1 << 24, 30)):
        command = [mpirun, "-n", "2", program, str(size), str(max(5, iters // bench.count(1, 20))), str(bench.count(10, 2))]
        pairs = [[float(v) for v in line.split()] for line in bench.run(command, env=environment).splitlines() if line.strip()]
        ratio = statistics.median(theirs / ours for ours, theirs in pairs)
        rows.append((size, us(statistics.median(p[0] for p in pairs)), us(statistics.median(p[1] for p in pairs)),
                     f"{ratio:.2f}", len(pairs)))
        if size == 1 << 20:
            bench.goal("all_reduce of 1 MiB, MPI_Allreduce / mpi, 2 ranks", ">= 3", f"{ratio:.2f}", ratio >= 3.0)
    table(("bytes", "mpi, us", "MPI_Allreduce, us", "MPI_Allreduce / mpi", "rounds"), rows)
    forward(bench)


def forward(bench):
    """Threads and MPI ranks in turn: a run of each, the medians' ratio."""
    size = bench.count(4096, 512)
    taken = {"threads": [], "mpi": []}
    for turn in range(bench.count(5, 1)):
        for how in ("threads", "mpi") if turn % 2 == 0 else ("mpi", "threads"):
            settings = (f"model.N={size}", f"model.K={size}", "model.dtype=f32")
            taken[how].append(bench.phase1("row_parallel", 2, settings, ("--launch", how))[0]["median_ms"])
    ratio = statistics.median(m / t for m, t in zip(taken["mpi"], taken["threads"]))
    table(("ranks", "forward, ms"), [(how, f"{statistics.median(ms):.3f}") for how, ms in taken.items()])
    bench.goal(f"forward of row_parallel, mpi / threads, 2 ranks, N = K = {size}", "<= 1.03", f"{ratio:.3f}", ratio <= 1.03)
