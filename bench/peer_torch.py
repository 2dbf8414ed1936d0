# SPDX-License-Identifier: MIT
"""PyTorch's linear, timed when bench_matmul asks: one command a line, one answer a line.

  peer_torch.py THREADS [cpu|cuda]      (file descriptor 3: memory that holds W, X and room for Y)
  shape N K B DTYPE | run CALLS | output | drop"""
import mmap
import os
import sys
import time

import torch
import torch.nn.functional as F

SHARED = 3
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def answer(text):
    print(text, flush=True)


class Linear:
    def __init__(self, n, k, b, dtype, device):
        size = dtype.itemsize
        with mmap.mmap(SHARED, (n * k + b * k) * size) as shared:
            self.w = self.view(shared, dtype, 0, n * k).clone().reshape(n, k).to(device)
            self.x = self.view(shared, dtype, n * k * size, b * k).clone().reshape(b, k).to(device)
        self.y_at = (n * k + b * k) * size
        self.wait = torch.cuda.synchronize if device == "cuda" else lambda: None
        self.y = F.linear(self.x, self.w)

    @staticmethod
    def view(shared, dtype, at, count):
        return torch.frombuffer(memoryview(shared), dtype=dtype, count=count, offset=at)

    def run(self, calls):
        x, w = self.x, self.w
        start = time.perf_counter()
        for _ in range(calls):
            y = F.linear(x, w)
        self.wait()
        taken = time.perf_counter() - start
        self.y = y
        return taken / calls

    def output(self):
        y = self.y.flatten().cpu()
        with mmap.mmap(SHARED, self.y_at + y.numel() * y.element_size()) as shared:
            self.view(shared, y.dtype, self.y_at, y.numel()).copy_(y)


def main():
    torch.set_num_threads(int(sys.argv[1]))
    device = sys.argv[2] if len(sys.argv) > 2 else "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        answer("no this PyTorch sees no GPU")
        return
    where = torch.cuda.get_device_name() if device == "cuda" else torch.backends.cpu.get_cpu_capability()
    answer(f"ok PyTorch {torch.__version__} ({where})")
    cores = os.sched_getaffinity(0)
    linear = None
    with torch.inference_mode():
        for line in sys.stdin:
            words = line.split()
            try:
                if words[0] == "shape":
                    linear = None
                    os.sched_setaffinity(0, cores)  # where threads start, which inherit it
                    linear = Linear(*(int(word) for word in words[1:4]), DTYPES[words[4]], device)
                    linear.run(1)
                    os.sched_setaffinity(0, {min(cores)})  # of this thread only
                    answer("ok F.linear")
                elif words[0] == "run":
                    answer(f"ok {linear.run(int(words[1])):.9e}")
                elif words[0] == "output":
                    linear.output()
                    answer("ok")
                else:
                    linear = None
                    answer("ok")
            except (RuntimeError, ValueError, KeyError) as why:
                answer("no " + " ".join(str(why).split())[:150])


if __name__ == "__main__":
    main()
