"""The engines, each behind the same four steps, each set to a number of threads, and to f32 unless its name says otherwise."""

from importlib.metadata import version
from pathlib import Path
from typing import Protocol

import numpy as np

Arrays = list[np.ndarray]


class Engine(Protocol):
    version: str

    def __init__(self, threads: int):
        """Imports the engine's package."""

    def load(self, folder: Path, inputs: Arrays) -> None:
        """Loads the model and puts the inputs into the form that the engine takes."""

    def run(self) -> object:
        """Computes all outputs, in whatever form the engine returns."""

    def arrays(self, result: object) -> Arrays:
        """What `run` returned, as NumPy arrays."""


class OnnxRuntime:
    """All graph optimisations (the default), operators one after another, threads within them."""

    def __init__(self, threads: int):
        import onnxruntime

        self.api = onnxruntime
        self.version = onnxruntime.__version__
        self.options = onnxruntime.SessionOptions()
        self.options.intra_op_num_threads = threads
        self.options.inter_op_num_threads = 1
        self.options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        self.options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL

    def load(self, folder: Path, inputs: Arrays) -> None:
        path = str(folder / "model.onnx")
        self.session = self.api.InferenceSession(path, self.options, providers=["CPUExecutionProvider"])
        self.feeds = {f"in{i}": x for i, x in enumerate(inputs)}

    def run(self) -> Arrays:
        return self.session.run(None, self.feeds)

    def arrays(self, result: Arrays) -> Arrays:
        return result


class OpenVino:
    """One stream with all threads, for latency; without the hint it would compute in bf16 where the CPU can."""

    def __init__(self, threads: int):
        import openvino

        self.version = version("openvino")
        self.core = openvino.Core()
        self.config = {
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": 1,
            "INFERENCE_NUM_THREADS": threads,
            "INFERENCE_PRECISION_HINT": "f32",
        }

    def load(self, folder: Path, inputs: Arrays) -> None:
        self.model = self.core.compile_model(str(folder / "model.onnx"), "CPU", self.config)
        self.request = self.model.create_infer_request()
        self.inputs = inputs

    def run(self) -> object:
        return self.request.infer(self.inputs, share_inputs=True, share_outputs=True)

    def arrays(self, result) -> Arrays:
        return [result[i] for i in range(len(self.model.outputs))]


class Ncnn:
    """Packed layout, Winograd and sgemm on (the defaults), pooled memory as in ncnn's own benchmark, all 16-bit
    storage and arithmetic off. ncnn has no batch dimension: the samples of a batch run one after another."""

    def __init__(self, threads: int):
        import ncnn

        self.api = ncnn
        self.version = version("ncnn")
        self.net = ncnn.Net()
        option = self.net.opt
        option.num_threads = threads
        for kind in ("fp16_packed", "fp16_storage", "fp16_arithmetic", "bf16_packed", "bf16_storage"):
            setattr(option, f"use_{kind}", False)
        option.use_packing_layout = True
        option.use_winograd_convolution = True
        option.use_sgemm_convolution = True
        self.pools = ncnn.UnlockedPoolAllocator(), ncnn.PoolAllocator()
        option.blob_allocator, option.workspace_allocator = self.pools

    def load(self, folder: Path, inputs: Arrays) -> None:
        param = folder / "model.ncnn.param"
        if self.net.load_param(str(param)) != 0:
            raise RuntimeError(f"ncnn cannot load {param.name}")
        if self.net.load_model(str(folder / "model.ncnn.bin")) != 0:
            raise RuntimeError("ncnn cannot load model.ncnn.bin")
        self.outputs = sorted(self.net.output_names())
        embedded = self.embedded(param)
        self.samples = []
        for sample in range(len(inputs[0])):
            mats = {}
            for i, x in enumerate(inputs):
                dtype = np.int32 if f"in{i}" in embedded else np.float32
                mats[f"in{i}"] = self.api.Mat(np.ascontiguousarray(x[sample], dtype)).clone()
            self.samples.append(mats)

    @staticmethod
    def embedded(param: Path) -> set[str]:
        """Blobs that index a table: int32 where all others are f32."""
        lines = (line.split() for line in param.read_text().splitlines()[2:])
        return {words[4] for words in lines if words[0] == "Embed"}

    def run(self) -> list[dict]:
        results = []
        for mats in self.samples:
            extractor = self.net.create_extractor()
            for name, mat in mats.items():
                extractor.input(name, mat)
            found = {}
            for name in self.outputs:
                status, found[name] = extractor.extract(name)
                if status != 0:
                    raise RuntimeError(f"ncnn cannot compute {name}: status {status}")
            results.append(found)
        return results

    def arrays(self, result: list[dict]) -> Arrays:
        return [np.stack([np.array(found[name]) for found in result]) for name in self.outputs]


class Torch:
    """PyTorch's own interpreter."""

    def __init__(self, threads: int):
        import torch

        from peers import graph
        from peers.sets import SETS

        self.torch, self.graph = torch, graph
        self.networks = {case.name: case.network for chosen in SETS.values() for case in chosen.CASES}
        self.version = version("torch")
        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)

    def load(self, folder: Path, inputs: Arrays) -> None:
        self.module = self.graph.load(folder, self.networks[folder.name])
        self.inputs = [self.torch.from_numpy(x) for x in inputs]

    def run(self) -> object:
        with self.torch.inference_mode():
            return self.module(*self.inputs)

    def arrays(self, result) -> Arrays:
        if isinstance(result, self.torch.Tensor):
            return [result.numpy()]
        return [array for member in result for array in self.arrays(member)]


class TorchCompile(Torch):
    """torch.compile with TorchInductor and frozen, prepacked weights."""

    def __init__(self, threads: int):
        super().__init__(threads)
        import torch._inductor.config

        torch._inductor.config.freezing = True

    def load(self, folder: Path, inputs: Arrays) -> None:
        super().load(folder, inputs)
        self.module = self.torch.compile(self.module, dynamic=False)

    def run(self) -> object:
        with self.torch.no_grad():  # freezing needs it; inference mode turns it off
            return self.module(*self.inputs)


class OpenVinoBf16(OpenVino):
    """As it comes: bf16 where the CPU multiplies it."""

    def __init__(self, threads: int):
        super().__init__(threads)
        del self.config["INFERENCE_PRECISION_HINT"]


class NcnnBf16(Ncnn):
    """Storage of bf16, and arithmetic where ncnn has some for the CPU."""

    def __init__(self, threads: int):
        super().__init__(threads)
        for kind in ("bf16_packed", "bf16_storage"):
            setattr(self.net.opt, f"use_{kind}", True)


class TorchCompileBf16(TorchCompile):
    """The same under autocast to bf16."""

    def run(self) -> object:
        with self.torch.no_grad(), self.torch.autocast("cpu", self.torch.bfloat16):
            return self.module(*self.inputs)

    def arrays(self, result) -> Arrays:
        if isinstance(result, self.torch.Tensor):
            return [result.float().numpy()]
        return super().arrays(result)


ENGINES: dict[str, type[Engine]] = {
    "onnxruntime": OnnxRuntime,
    "openvino": OpenVino,
    "ncnn": Ncnn,
    "openvino.bf16": OpenVinoBf16,
    "ncnn.bf16": NcnnBf16,
    "torch.compile.bf16": TorchCompileBf16,
    "torch": Torch,
    "torch.compile": TorchCompile,
}
