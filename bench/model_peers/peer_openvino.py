# SPDX-License-Identifier: MIT
"""OpenVINO as a peer of `bsrun model bench MODEL --peer openvino` (docs/dev/benchmarks.md has the lines that they exchange). f32 stays
f32; one stream with as many threads as are asked for. scripts/peers installs it."""
import sys

import openvino
from serve import feeds_of, serve, threads_of


class Peer:
    def __init__(self, words):
        feeds = feeds_of(words)
        core = openvino.Core()
        model = core.read_model(words[0])
        model.reshape({name: openvino.PartialShape(list(array.shape)) for name, array in feeds.items()})
        settings = {"INFERENCE_NUM_THREADS": threads_of(words), "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "f32",
                    "PERFORMANCE_HINT": "LATENCY"}
        self.request = core.compile_model(model, "CPU", settings).create_infer_request()
        self.tensors = {name: openvino.Tensor(array) for name, array in feeds.items()}
        for name, tensor in self.tensors.items():
            self.request.set_tensor(name, tensor)
        self.names = [port.get_any_name() for port in model.outputs]
        self.run()
        self.outputs = [self.request.get_tensor(name).data.copy() for name in self.names]

    def run(self):
        self.request.infer()


if __name__ == "__main__":
    sys.exit(serve(Peer, f"OpenVINO {openvino.__version__}"))
