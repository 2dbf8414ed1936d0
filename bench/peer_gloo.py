#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The same float32 all_reduce by gloo (torch.distributed), two processes on this machine, for bench/run.

  peer_gloo.py BYTES ITERS [BYTES ITERS]...    a line "seconds_per_call" for each pair
  peer_gloo.py --version                       the library's version
"""
import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

RANKS = 2


def measure(rank, size, iters):
    """Seconds a call by rank 0's clock. gloo reduces in place, so the values grow; zeros stay zeros."""
    check = torch.ones(size // 4)
    dist.all_reduce(check)
    if float(check[0]) != RANKS or float(check[-1]) != RANKS:
        raise RuntimeError(f"gloo summed to {float(check[0])}")
    data = torch.zeros(size // 4)
    for _ in range(min(iters, 200)):
        dist.all_reduce(data)
    dist.barrier()
    start = time.perf_counter()
    for _ in range(iters):
        dist.all_reduce(data)
    return (time.perf_counter() - start) / iters


def rank_main(rank, store, pairs):
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) >= RANKS:
        os.sched_setaffinity(0, {cores[rank]})  # as our ranks and MPI's are bound
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    for size, iters in pairs:
        seconds = measure(rank, size, iters)
        if rank == 0:
            print(f"{seconds:.9g}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


def main():
    if sys.argv[1:] == ["--version"]:
        print(f"gloo of torch {torch.__version__}")
        return 0
    numbers = [int(a) for a in sys.argv[1:]]
    if not numbers or len(numbers) % 2 or min(numbers) < 1:
        print("usage: peer_gloo.py BYTES ITERS [BYTES ITERS]...", file=sys.stderr)
        return 2
    pairs = list(zip(numbers[::2], numbers[1::2]))
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(rank_main, args=(os.path.join(folder, "store"), pairs), nprocs=RANKS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
