# SPDX-License-Identifier: MIT
"""ONNX Runtime as a peer of `bsrun model bench MODEL --peer onnxruntime` (docs/dev/benchmarks.md has the lines that they exchange).
All optimisations; inputs and outputs are bound to memory once. scripts/peers installs it."""
import sys

import onnxruntime
from serve import feeds_of, serve, threads_of


class Peer:
    def __init__(self, words):
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads, settings.inter_op_num_threads = threads_of(words), 1
        settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        settings.log_severity_level = 4
        self.session = onnxruntime.InferenceSession(words[0], settings, providers=["CPUExecutionProvider"])
        self.names = [port.name for port in self.session.get_outputs()]
        feeds = feeds_of(words)
        self.outputs = self.session.run(self.names, feeds)
        self.ports, self.values = self.session.io_binding(), []
        for name, array in feeds.items():
            self.values.append(onnxruntime.OrtValue.ortvalue_from_numpy(array))
            self.ports.bind_ortvalue_input(name, self.values[-1])
        for name, array in zip(self.names, self.outputs):
            self.values.append(onnxruntime.OrtValue.ortvalue_from_numpy(array.copy()))
            self.ports.bind_ortvalue_output(name, self.values[-1])

    def run(self):
        self.session.run_with_iobinding(self.ports)


if __name__ == "__main__":
    sys.exit(serve(Peer, f"ONNX Runtime {onnxruntime.__version__}"))
